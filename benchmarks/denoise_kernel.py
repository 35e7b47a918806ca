"""The fused kernel against torch's plain forward pass, on the same windows in the same run.

python benchmarks/denoise_kernel.py [--machines 1500] [--seconds 900] [--threads N]
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import numpy as np
import torch

from trainminder.denoise import GENERAL_MODEL, load_model
from trainminder.denoise.training import render_with_torch
from trainminder.types import Float32Array

WINDOW_SAMPLES = 8


def best_seconds(run: Callable[[], Float32Array], rounds: int) -> tuple[float, Float32Array]:
    """The least disturbed of some rounds, and the result."""
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        result = run()
        taken.append(time.perf_counter() - started)
    return min(taken), result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=1500)
    parser.add_argument("--seconds", type=int, default=900, help="samples per machine, one a second")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of both")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()

    model = load_model(None, GENERAL_MODEL, WINDOW_SAMPLES, arguments.threads)
    torch.set_num_threads(arguments.threads)
    values = np.random.default_rng(0).random((arguments.machines, arguments.seconds))
    windows = arguments.seconds - WINDOW_SAMPLES + 1
    rows = np.repeat(np.arange(arguments.machines)[:, None], windows, axis=1)
    low, high = np.zeros(windows), np.ones(windows)
    cut = np.lib.stride_tricks.sliding_window_view(values.astype(np.float32), WINDOW_SAMPLES, axis=1)

    started = time.perf_counter()
    model.embed(values[:1], rows[:1], low, high)
    print(f"first call (compiles, or reads the cache): {time.perf_counter() - started:.2f} s")
    fused_seconds, fused = best_seconds(lambda: model.embed(values, rows, low, high), arguments.rounds)
    plain_seconds, plain = best_seconds(
        lambda: render_with_torch(model, np.ascontiguousarray(cut.reshape(-1, WINDOW_SAMPLES))),
        min(2, arguments.rounds),
    )
    count = rows.size
    print(f"windows: {count:,} ({arguments.machines} machines x {windows}), threads: {arguments.threads}")
    print(f"fused kernel: {fused_seconds:.3f} s, {count / fused_seconds:,.0f} windows/s")
    print(f"plain torch:  {plain_seconds:.3f} s, {count / plain_seconds:,.0f} windows/s")
    print(f"ratio: {plain_seconds / fused_seconds:.1f}")
    print(f"largest difference: {np.abs(fused.reshape(-1, WINDOW_SAMPLES) - plain).max():.1e}")


if __name__ == "__main__":
    main()
