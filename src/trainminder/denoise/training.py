"""Training of LSTM-VAE denoising models. The only module that imports torch.

One model per metric, on ordinary windows without labels: squared error of the reconstruction plus the
weighted KL divergence of the latent from a standard normal (the negative evidence lower bound).

Where we depart from the paper (its text leaves the wiring open):

* The window's mean is taken off before the encoder and put back after the decoder. A plain LSTM-VAE of the
  paper's size squeezes levels through saturating units: equal steps come out unequal within [0, 1] and far too
  small outside it. Carried around the model, two levels stay exactly as far apart as they are, anywhere, and all
  of the model's capacity renders the shape.
* The decoder's first cell state is linear in z too (its first output the tanh of it), not zero: with a hidden
  size of 4 it renders noticeably more at the same length of training.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from trainminder.denoise.models import DenoisingModel, EpochLosses, ModelCard
from trainminder.errors import MissingExtra, ModelError
from trainminder.settings import TrainSettings
from trainminder.types import Float32Array
from trainminder.version import __version__

try:
    import torch
    from torch import nn
except ImportError as error:
    raise MissingExtra("training", "train") from error

__all__ = ["render_with_torch", "torch_renderer", "train_model"]

#: Fewer windows than this say nothing about a metric.
MIN_WINDOWS = 100
_VALIDATION_SHARE = 0.1
_WARM_UP_SHARE = 0.1
_HISTORY_LENGTH = 10
#: Start nearly deterministic: with unit variance the decoder would first learn to ignore z.
_FIRST_LOG_VARIANCE = -4.0
#: Deviations from the mean are a few hundredths; this brings them to where gates respond. Folded into the weights.
_GAIN = 4.0


class _Autoencoder(nn.Module):
    def __init__(self, hidden: int, latent: int, layers: int, gain: float) -> None:
        super().__init__()
        self.gain = gain
        self.encoder = nn.LSTM(1, hidden, layers)
        self.mean = nn.Linear(hidden, latent)
        self.log_variance = nn.Linear(hidden, latent)
        self.start = nn.Linear(latent, hidden)
        self.decoder = nn.LSTM(latent, hidden, layers)
        self.output = nn.Linear(hidden, 1)
        with torch.no_grad():
            self.log_variance.bias.fill_(_FIRST_LOG_VARIANCE)
            for lstm in (self.encoder, self.decoder):
                for layer in range(layers):
                    # Remember by default: half-open forget gates lose a window's first samples.
                    getattr(lstm, f"bias_ih_l{layer}")[hidden : 2 * hidden] += 1.0

    def forward(self, windows: torch.Tensor, noise: torch.Generator | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Reconstruction (window, sample) and KL divergence (window,); without noise z is the mean."""
        centre = windows.mean(dim=1, keepdim=True)
        _, (hidden, _) = self.encoder(((windows - centre) * self.gain).t().unsqueeze(-1))
        mean = self.mean(hidden[-1])
        log_variance = self.log_variance(hidden[-1]).clamp(-20.0, 10.0)
        z = mean
        if noise is not None:
            z = mean + torch.exp(0.5 * log_variance) * torch.randn(mean.shape, generator=noise)
        above = z.new_zeros((self.decoder.num_layers - 1, len(z), self.decoder.hidden_size))
        cell = torch.cat([self.start(z).unsqueeze(0), above])
        steps, _ = self.decoder(z.unsqueeze(0).expand(windows.shape[1], -1, -1).contiguous(), (cell.tanh(), cell))
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).sum(dim=1)
        return self.output(steps).squeeze(-1).t() / self.gain + centre, divergence


def train_model(
    windows: Float32Array,
    *,
    metric: str,
    window_samples: int,
    normalisation: str,
    settings: TrainSettings,
    progress: Callable[[EpochLosses], None] | None = None,
) -> DenoisingModel:
    """Train one metric's model on ordinary windows; the same windows and settings give the same bytes.

    Args:
        windows: (window, sample), normalised as the detector normalises; a tenth is held out for validation.
        metric: what they measure; it names the model's files.
        window_samples: samples per window.
        normalisation: how they were normalised, in words, for the model's card.
        settings: sizes, loss, schedule, seed.
        progress: called after every epoch.
    Raises:
        ModelError: too few windows, values that are missing or not normalised, or nothing but constants.
    Source: Minder, NSDI'25, per-metric denoising; beta-VAE weighting of the KL term.
    """
    _check_windows(windows, metric, window_samples)
    random = np.random.default_rng(settings.seed)
    chosen = random.permutation(len(windows))[: settings.max_windows]
    validation_count = max(1, round(_VALIDATION_SHARE * len(chosen)))
    with _reproducible(settings.seed):
        data = torch.from_numpy(windows[chosen].astype(np.float32))
        validation, training = data[:validation_count], data[validation_count:]
        network = _Autoencoder(settings.hidden_size, settings.latent_size, settings.layers, _GAIN)
        history = _fit(network, training, validation, settings, progress)
    card = ModelCard(
        metric=metric,
        window_samples=window_samples,
        hidden_size=settings.hidden_size,
        latent_size=settings.latent_size,
        layers=settings.layers,
        normalisation=normalisation,
        kl_weight=settings.kl_weight,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        seed=settings.seed,
        train_windows=len(training),
        validation_windows=len(validation),
        history=_thinned(history),
        data_sha256=hashlib.sha256(np.ascontiguousarray(windows, np.float32).tobytes()).hexdigest(),
        versions={
            "trainminder": __version__,
            "torch": str(torch.__version__),
            "numpy": np.__version__,
        },
    )
    return DenoisingModel(card, _weights(network))


def torch_renderer(model: DenoisingModel) -> Callable[[Float32Array], Float32Array]:
    """The plain forward pass over normalised windows (window, sample): what the fused kernel is held against."""
    network = _Autoencoder(model.card.hidden_size, model.card.latent_size, model.card.layers, gain=1.0)
    with torch.no_grad():
        for name, target in _named_parameters(network):
            target.copy_(torch.from_numpy(model.weights[name].copy()))
        for lstm in (network.encoder, network.decoder):
            for layer in range(model.card.layers):
                getattr(lstm, f"bias_hh_l{layer}").zero_()

    def render(windows: Float32Array) -> Float32Array:
        with torch.no_grad():
            rendered: Float32Array = network(torch.from_numpy(windows), None)[0].numpy()
        return rendered

    return render


def render_with_torch(model: DenoisingModel, windows: Float32Array) -> Float32Array:
    """``torch_renderer`` for one call."""
    return torch_renderer(model)(windows)


def _fit(
    network: _Autoencoder,
    training: torch.Tensor,
    validation: torch.Tensor,
    settings: TrainSettings,
    progress: Callable[[EpochLosses], None] | None,
) -> list[EpochLosses]:
    noise = torch.Generator().manual_seed(settings.seed)
    batch_size = min(settings.batch_size, len(training))
    batches = len(training) // batch_size
    steps = settings.epochs * batches
    optimiser = torch.optim.Adam(network.parameters(), lr=settings.learning_rate, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _rate(step, steps))
    history = []
    for epoch in range(1, settings.epochs + 1):
        order = torch.randperm(len(training), generator=noise)
        totals = torch.zeros(2)
        for batch in order[: batches * batch_size].split(batch_size):
            windows = training[batch]
            rendered, divergence = network(windows, noise)
            mse, kl = (rendered - windows).square().mean(), divergence.mean()
            optimiser.zero_grad()
            (mse + settings.kl_weight * kl).backward()
            # Recurrent gradients explode now and then; one such step would undo an epoch.
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            totals += torch.stack((mse.detach(), kl.detach()))
        with torch.no_grad():
            rendered, divergence = network(validation, None)
        losses = EpochLosses(
            epoch=epoch,
            train_mse=float(totals[0] / batches),
            train_kl=float(totals[1] / batches),
            validation_mse=float((rendered - validation).square().mean()),
            validation_kl=float(divergence.mean()),
        )
        history.append(losses)
        if progress is not None:
            progress(losses)
    return history


def _rate(step: int, steps: int) -> float:
    done = step / steps
    return min(1.0, done / _WARM_UP_SHARE + 1e-3) * 0.5 * (1.0 + math.cos(math.pi * done))


def _thinned(history: list[EpochLosses]) -> tuple[EpochLosses, ...]:
    """A card stays readable with some ten epochs, first and last among them."""
    kept = np.unique(np.linspace(0, len(history) - 1, _HISTORY_LENGTH).round().astype(int))
    return tuple(history[index] for index in kept)


@contextmanager
def _reproducible(seed: int) -> Iterator[None]:
    """One thread and deterministic algorithms: sums in another order would give other bytes."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)


def _named_parameters(network: _Autoencoder) -> Iterator[tuple[str, torch.Tensor]]:
    """Our name -> torch's tensor; of the two biases of an LSTM, which only occur as a sum, the first."""
    for side, lstm in (("encoder", network.encoder), ("decoder", network.decoder)):
        for layer in range(lstm.num_layers):
            yield f"{side}.{layer}.input", getattr(lstm, f"weight_ih_l{layer}")
            yield f"{side}.{layer}.recurrent", getattr(lstm, f"weight_hh_l{layer}")
            yield f"{side}.{layer}.bias", getattr(lstm, f"bias_ih_l{layer}")
    yield "latent.weight", network.mean.weight
    yield "latent.bias", network.mean.bias
    yield "start.weight", network.start.weight
    yield "start.bias", network.start.bias
    yield "output.weight", network.output.weight
    yield "output.bias", network.output.bias


def _weights(network: _Autoencoder) -> dict[str, Float32Array]:
    with torch.no_grad():
        network.encoder.weight_ih_l0.mul_(network.gain)
        network.output.weight.div_(network.gain)
        network.output.bias.div_(network.gain)
    for lstm in (network.encoder, network.decoder):
        with torch.no_grad():
            for layer in range(lstm.num_layers):
                getattr(lstm, f"bias_ih_l{layer}").add_(getattr(lstm, f"bias_hh_l{layer}"))
                getattr(lstm, f"bias_hh_l{layer}").zero_()
    return {name: tensor.detach().numpy().copy() for name, tensor in _named_parameters(network)}


def _check_windows(windows: Float32Array, metric: str, window_samples: int) -> None:
    what = f'training "{metric}"'
    if windows.ndim != 2 or windows.shape[1] != window_samples:
        raise ModelError(f"{what}: windows have shape {windows.shape}: give (windows, {window_samples})")
    if len(windows) < MIN_WINDOWS:
        raise ModelError(
            f"{what}: {len(windows)} windows are too few: record longer or more machines, at least {MIN_WINDOWS}"
        )
    if not np.isfinite(windows).all():
        bad = int((~np.isfinite(windows)).any(axis=1).sum())
        raise ModelError(f"{what}: {bad} windows hold missing values: leave them out")
    low, high = float(windows.min()), float(windows.max())
    if low < -1.0 or high > 2.0:
        raise ModelError(f"{what}: values go from {low:g} to {high:g}: normalise them to about 0 .. 1")
    if float(np.ptp(windows, axis=1).max()) < 1e-6:
        raise ModelError(
            f"{what}: every window is constant, there is no shape to learn: record a busier stretch, "
            f"or leave this metric to the general model"
        )
