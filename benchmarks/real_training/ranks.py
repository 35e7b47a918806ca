"""One rank of the job: a small network trained data-parallel with PyTorch DDP over gloo. Runs until it is ended.

Started by run.py with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and GLOO_SOCKET_IFNAME set. Each step appends a line
to --log: step, Unix seconds at its end, milliseconds of data, forward, backward (waiting for the others included) and
optimiser, and the loss. Real are computation, gradients, exchange and checkpoints. The accelerator is not: --device-ms
of sleep stand for it, so that a rank's processor mostly waits, as beside a GPU.
"""

from __future__ import annotations

import argparse
import io
import mmap
import os
import time
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FEATURES, CLASSES, BATCH, HIDDEN = 128, 32, 64, 640
BLOCK = 1 << 20


def save(model: nn.Module, optimiser: torch.optim.Optimizer, path: Path) -> None:
    """Write this rank's checkpoint past the page cache, so that its time is the disk's."""
    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimiser": optimiser.state_dict()}, buffer)
    content = memoryview(buffer.getbuffer())
    block = mmap.mmap(-1, BLOCK)  # aligned to a page, as O_DIRECT asks
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600)
    try:
        for at in range(0, len(content), BLOCK):
            part = content[at : at + BLOCK]
            block[: len(part)] = bytes(part)
            os.write(target, block)
    finally:
        os.close(target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device-ms", type=float, default=60.0)
    parser.add_argument("--save-every", type=int, default=150, help="steps")
    parser.add_argument("--evaluate-every", type=int, default=230, help="steps")
    asked = parser.parse_args()
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    torch.manual_seed(asked.seed)
    teacher = torch.randn(FEATURES, CLASSES)
    network = nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)
    )
    model = DistributedDataParallel(network)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    draws = torch.Generator().manual_seed(1000 * asked.seed + rank)
    step = 0
    with asked.log.open("w", buffering=1) as log:
        while True:
            marks = [time.perf_counter()]
            inputs = torch.randn(BATCH, FEATURES, generator=draws)
            labels = (inputs @ teacher).argmax(dim=1)
            marks.append(time.perf_counter())
            time.sleep(asked.device_ms / 1000)
            loss = nn.functional.cross_entropy(model(inputs), labels)
            marks.append(time.perf_counter())
            optimiser.zero_grad()
            loss.backward()
            marks.append(time.perf_counter())
            optimiser.step()
            marks.append(time.perf_counter())
            step += 1
            spent = " ".join(f"{1000 * (b - a):.2f}" for a, b in pairwise(marks))
            log.write(f"{step} {time.time():.3f} {spent} {loss.item():.4f}\n")
            if step % asked.save_every == 0:
                save(network, optimiser, asked.checkpoint)
            if step % asked.evaluate_every == 0:
                with torch.no_grad():
                    for _ in range(20):
                        network(torch.randn(BATCH, FEATURES, generator=draws))
                        time.sleep(asked.device_ms / 1000)


if __name__ == "__main__":
    main()
