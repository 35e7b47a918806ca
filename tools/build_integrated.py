"""Train the bench's one model of all metrics (the ablation INT) on healthy tasks of the calibration set.

python tools/build_integrated.py              into the package
python tools/build_integrated.py --to FILE    elsewhere
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from trainminder.bench.methods.integrated import PLACE, IntegratedModel, centred_windows, save_integrated
from trainminder.bench.methods.joint import join
from trainminder.bench.methods.prepared import prepare
from trainminder.bench.tasks import calibration_set
from trainminder.catalogue import load_catalogue
from trainminder.settings import TrainSettings
from trainminder.types import Float32Array

HIDDEN, LATENT = 24, 16
WINDOWS_PER_TASK = 1000
MOST_MACHINES = 64
#: As the product's models: deviations are a few hundredths, this brings them to where gates respond.
GAIN = 4.0
SEED = 0


class Autoencoder(nn.Module):
    """The product's LSTM-VAE, as wide as there are channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.encoder = nn.LSTM(channels, HIDDEN)
        self.mean = nn.Linear(HIDDEN, LATENT)
        self.log_variance = nn.Linear(HIDDEN, LATENT)
        self.start = nn.Linear(LATENT, HIDDEN)
        self.decoder = nn.LSTM(LATENT, HIDDEN)
        self.output = nn.Linear(HIDDEN, channels)
        with torch.no_grad():
            self.log_variance.bias.fill_(-4.0)
            for lstm in (self.encoder, self.decoder):
                lstm.bias_ih_l0[HIDDEN : 2 * HIDDEN] += 1.0

    def forward(self, windows: torch.Tensor, noise: torch.Generator | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Reconstruction (window, sample, channel) and KL divergence (window,); without noise z is the mean."""
        _, (hidden, _) = self.encoder((windows * GAIN).transpose(0, 1))
        mean, log_variance = self.mean(hidden[-1]), self.log_variance(hidden[-1]).clamp(-20.0, 10.0)
        z = mean
        if noise is not None:
            z = mean + torch.exp(0.5 * log_variance) * torch.randn(mean.shape, generator=noise)
        cell = self.start(z).unsqueeze(0)
        steps, _ = self.decoder(z.unsqueeze(0).expand(windows.shape[1], -1, -1).contiguous(), (cell.tanh(), cell))
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).sum(dim=1)
        return self.output(steps).transpose(0, 1) / GAIN, divergence


def channel_names() -> tuple[str, ...]:
    """Every view that a catalogue metric may have."""
    views = {"machine": ("machine",), "device": ("mean", "device")}
    return tuple(f"{spec.name}/{view}" for spec in load_catalogue().values() for view in views[spec.level])


def training_windows(names: tuple[str, ...]) -> tuple[Float32Array, Float32Array]:
    """Deviations (window, sample, channel), and which channels each has (window, 1, channel)."""
    random = np.random.default_rng(SEED)
    deviations, had = [], []
    for entry in calibration_set():
        task = entry.make()
        if task.truths or len(task.raw.machines) > MOST_MACHINES:
            continue
        prepared = prepare(task.raw)
        joint = join(prepared, [channel for channel in prepared.channels if channel.name in names])
        if joint is None:
            continue
        machine, window = np.nonzero(joint.enough())
        drawn = random.choice(len(machine), min(WINDOWS_PER_TASK, len(machine)), replace=False)
        machine, window = machine[drawn], window[drawn]
        drawn_windows = centred_windows(joint, names, slice(None))[0][:, machine, window]
        deviations.append(np.ascontiguousarray(drawn_windows.transpose(1, 0, 2)))
        has = np.zeros((len(drawn), 1, len(names)), np.float32)
        for number, channel in enumerate(joint.channels):
            has[:, 0, names.index(channel.name)] = joint.judged[number, machine, window]
        had.append(has)
    return np.concatenate(deviations), np.concatenate(had)


def train(windows: Float32Array, has: Float32Array, settings: TrainSettings) -> tuple[Autoencoder, float, float]:
    """The network, its mean squared error on a held-out tenth, and that of rendering every window as its mean."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    order = np.random.default_rng(SEED).permutation(len(windows))
    data, mask = torch.from_numpy(windows[order]), torch.from_numpy(has[order])
    held = len(data) // 10
    network = Autoencoder(windows.shape[2])
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    batches = (len(data) - held) // settings.batch_size
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, total_steps=settings.epochs * batches)
    noise = torch.Generator().manual_seed(SEED)
    for _ in range(settings.epochs):
        shuffled = held + torch.randperm(len(data) - held, generator=noise)
        for batch in shuffled[: batches * settings.batch_size].split(settings.batch_size):
            rendered, divergence = network(data[batch], noise)
            loss = _error(rendered, data[batch], mask[batch]) + settings.kl_weight * divergence.mean()
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            schedule.step()
    with torch.no_grad():
        rendered, _ = network(data[:held], None)
        left = float(_error(rendered, data[:held], mask[:held]))
        plain = float(_error(torch.zeros_like(rendered), data[:held], mask[:held]))
    return network, left, plain


def _error(rendered: torch.Tensor, windows: torch.Tensor, has: torch.Tensor) -> torch.Tensor:
    return ((rendered - windows).square() * has).sum() / (has.sum() * windows.shape[1])


def weights_of(network: Autoencoder) -> dict[str, Float32Array]:
    """The network's arrays by the names of ``IntegratedModel``, the gain folded in."""
    encoder, decoder = network.encoder, network.decoder
    arrays = {
        "encoder.input": encoder.weight_ih_l0 * GAIN,
        "encoder.recurrent": encoder.weight_hh_l0,
        "encoder.bias": encoder.bias_ih_l0 + encoder.bias_hh_l0,
        "latent.weight": network.mean.weight,
        "latent.bias": network.mean.bias,
        "start.weight": network.start.weight,
        "start.bias": network.start.bias,
        "decoder.input": decoder.weight_ih_l0,
        "decoder.recurrent": decoder.weight_hh_l0,
        "decoder.bias": decoder.bias_ih_l0 + decoder.bias_hh_l0,
        "output.weight": network.output.weight / GAIN,
        "output.bias": network.output.bias / GAIN,
    }
    return {name: np.ascontiguousarray(array.detach().numpy(), np.float32) for name, array in arrays.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=PLACE, help="file; default: the package's")
    arguments = parser.parse_args()
    started = time.perf_counter()
    names = channel_names()
    windows, has = training_windows(names)
    print(f"{len(windows)} windows of {len(names)} views in {time.perf_counter() - started:.0f} s", flush=True)
    network, left, plain = train(windows, has, TrainSettings())
    about = {"windows": str(len(windows)), "held_out_mse": f"{left:.3e}", "held_out_variance": f"{plain:.3e}"}
    save_integrated(IntegratedModel(names, weights_of(network)), arguments.to, about)
    print(f"squared error {left:.2e} of {plain:.2e} in {time.perf_counter() - started:.0f} s: {arguments.to}")


if __name__ == "__main__":
    main()
