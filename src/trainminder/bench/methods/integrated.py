"""One LSTM-VAE over all metrics together: the publication's ablation INT.

It differs from the product's models (``trainminder.denoise``) in nothing but its width: a window of every view of every
metric goes in and comes out at once, so that what one metric does passes through the same few latents as the others.
A view that a task or a machine lacks goes in as a window that stays at its mean, and is not compared.

Its weights, ``integrated.safetensors``, come from ``tools/build_integrated.py``: training on healthy tasks of the
calibration set, never of the one that is measured on. Here is only inference.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy

from trainminder.bench.methods.joint import Joint
from trainminder.errors import ModelError
from trainminder.types import Float32Array

__all__ = ["PLACE", "IntegratedModel", "centred_windows", "load_integrated", "save_integrated"]

PLACE = Path(__file__).with_name("integrated.safetensors")
#: Windows rendered at a time: their states stay in the cache.
AT_ONCE = 1024


@dataclass(frozen=True, slots=True, eq=False)
class IntegratedModel:
    """Weights by name, as those of ``denoise.models`` but for the width, and the channels in the order they go in."""

    channels: tuple[str, ...]
    weights: Mapping[str, Float32Array]

    def render(self, joint: Joint) -> list[Float32Array]:
        """Each channel's windows as the model renders them: (machine, window, sample), normalised."""
        machines, windows = joint.judged.shape[1:]
        samples = joint.channels[0].panel.window_samples
        rendered = [np.empty((machines, windows, samples), np.float32) for _ in joint.channels]
        places = [self.channels.index(channel.name) for channel in joint.channels]
        at_once = max(AT_ONCE // windows, 1)
        for start in range(0, machines, at_once):
            some = slice(start, start + at_once)
            deviations, means = centred_windows(joint, self.channels, some)
            shape = deviations.shape
            given = self.render_deviations(deviations.reshape(samples, -1, shape[-1])).reshape(shape)
            for whole, place in zip(rendered, places, strict=True):
                whole[some] = np.moveaxis(given[..., place], 0, 2) + means[..., place, None]
        return rendered

    def render_deviations(self, windows: Float32Array) -> Float32Array:
        """(sample, window, channel) deviations from each window's mean, to the same; z is its mean."""
        weights = self.weights
        hidden_size = weights["latent.weight"].shape[1]
        # sigmoid(x) = (1 + tanh(x / 2)) / 2: with these gates halved, one tanh serves all four.
        halved = np.repeat(np.array([0.5, 0.5, 1.0, 0.5], np.float32), hidden_size)

        def gates(name: str) -> Float32Array:
            return np.ascontiguousarray(weights[name].T * halved)

        inputs, recurrent, bias = gates("encoder.input"), gates("encoder.recurrent"), gates("encoder.bias")
        cell: Float32Array = np.zeros((windows.shape[1], hidden_size), np.float32)
        hidden: Float32Array = cell
        for sample in windows:
            hidden, cell = _advance(sample @ inputs + hidden @ recurrent + bias, cell)
        z: Float32Array = hidden @ weights["latent.weight"].T + weights["latent.bias"]
        constant, recurrent = z @ gates("decoder.input") + gates("decoder.bias"), gates("decoder.recurrent")
        cell = z @ weights["start.weight"].T + weights["start.bias"]
        hidden = np.tanh(cell, dtype=np.float32)
        rendered = np.empty_like(windows)
        for sample in rendered:
            hidden, cell = _advance(constant + hidden @ recurrent, cell)
            sample[:] = hidden @ weights["output.weight"].T + weights["output.bias"]
        return rendered


def _advance(gates: Float32Array, cell: Float32Array) -> tuple[Float32Array, Float32Array]:
    """One step of an LSTM; gates in torch's order, those of sigmoids halved; they are overwritten."""
    size, half, one = cell.shape[1], np.float32(0.5), np.float32(1.0)
    np.tanh(gates, out=gates)
    take, keep, new, give = (gates[:, place * size : (place + 1) * size] for place in range(4))
    cell = half * ((one + keep) * cell + (one + take) * new)
    hidden: Float32Array = half * (one + give) * np.tanh(cell)
    return hidden, cell


def centred_windows(joint: Joint, names: Sequence[str], some: slice) -> tuple[Float32Array, Float32Array]:
    """The windows that go into a model.

    Args:
        names: channels in the model's order; those that the task lacks stay 0.
        some: which machines'.
    Returns:
        deviations from the window's mean (sample, machine, window, channel) and means (machine, window, channel),
        normalised; 0 where a machine has no window.
    """
    samples = joint.channels[0].panel.window_samples
    shape = joint.judged[0, some].shape
    deviations = np.zeros((samples, *shape, len(names)), np.float32)
    means = np.zeros((*shape, len(names)), np.float32)
    for number, channel in enumerate(joint.channels):
        place = names.index(channel.name)
        windows = channel.windows(joint.at[number], some)
        windows[~joint.judged[number, some]] = 0.0
        means[..., place] = windows.mean(axis=2)
        deviations[..., place] = np.moveaxis(windows - means[..., place, None], 2, 0)
    return deviations, means


@cache
def load_integrated(path: Path = PLACE) -> IntegratedModel:
    """The model that comes with the package, or another.

    Raises:
        ModelError: it cannot be read.
    """
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            channels = json.loads((file.metadata() or {})["channels"])
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (OSError, KeyError, ValueError, safetensors.SafetensorError) as error:
        raise ModelError(f'{path}: {error}: build it with "python tools/build_integrated.py"') from error
    return IntegratedModel(tuple(channels), weights)


def save_integrated(model: IntegratedModel, path: Path, about: Mapping[str, str]) -> None:
    """Write the weights with their channels, and what else is told about them."""
    metadata = {"channels": json.dumps(model.channels), **about}
    safetensors.numpy.save_file(dict(model.weights), path, metadata=metadata)
