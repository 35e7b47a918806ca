"""Windows of ordinary signals on [0, 1], drawn by a seed: what the shipped models are trained with.

Metrics nobody has a model for are judged with the general denoiser, so its mixture covers what metrics
sampled every 1 to 60 seconds look like: levels, drifts, steps, iteration waves, bursts, padding, noise.
A metric's own mixture says which of these it is made of. Nothing here knows faults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from trainminder.types import Float32Array, FloatArray

__all__ = ["GENERAL", "MIXTURES", "SHAPES", "Mixture", "draw_windows"]

#: A shape gives values of about [0, 1], (window, sample); level and height are applied afterwards.
Shape = Callable[[np.random.Generator, int, int], FloatArray]


@dataclass(frozen=True, slots=True)
class Mixture:
    """What one metric's windows are made of.

    ``shapes``: name of a shape -> weight. ``rest``: ranges of the quiet level (0..1), a tuple of
    (low, high, weight). ``height``: range of the log-uniform height of the shape above or below that level.
    ``noise``: range of the log-uniform standard deviation. ``general``: share of windows drawn from the
    general mixture instead, so that a level or shape that is not ordinary for the metric is still rendered
    faithfully: the machine that shows it is the one being looked for.
    """

    shapes: Mapping[str, float]
    rest: tuple[tuple[float, float, float], ...] = ((-0.05, 1.05, 1.0),)
    height: tuple[float, float] = (0.005, 0.5)
    noise: tuple[float, float] = (1e-4, 1e-2)
    general: float = 0.15


def draw_windows(mixture: Mixture, count: int, window_samples: int, seed: int, is_clean: bool = False) -> Float32Array:
    """Draw ordinary windows.

    Args:
        mixture: what they are made of.
        count: number of windows.
        window_samples: samples per window.
        seed: the same seed gives the same windows.
        is_clean: the same windows without their noise.
    Returns:
        (window, sample), within [-0.1, 1.1].
    """
    random = np.random.default_rng(seed)
    of_general = random.random(count) < (mixture.general if mixture is not GENERAL else 0.0)
    windows = _draw(mixture, count, window_samples, random, is_clean)
    if of_general.any():
        windows[of_general] = _draw(GENERAL, int(of_general.sum()), window_samples, random, is_clean)
    return np.clip(windows, -0.1, 1.1).astype(np.float32)


def _draw(mixture: Mixture, count: int, samples: int, random: np.random.Generator, is_clean: bool) -> FloatArray:
    names = list(mixture.shapes)
    weights = np.array([mixture.shapes[name] for name in names])
    drawn = random.choice(len(names), count, p=weights / weights.sum())
    signal = np.empty((count, samples))
    for index, name in enumerate(names):
        chosen = drawn == index
        signal[chosen] = SHAPES[name](random, int(chosen.sum()), samples)
    ranges = np.array([rest[:2] for rest in mixture.rest])
    shares = np.array([rest[2] for rest in mixture.rest])
    low, high = ranges[random.choice(len(ranges), count, p=shares / shares.sum())].T
    rest_level = low + (high - low) * random.random(count)
    height = _log_uniform(random, *mixture.height, count)
    # The shape goes towards the side that has room: up from a low level, down from a high one.
    room_up = 1.05 - rest_level
    up = random.random(count) < np.clip(room_up, 0.0, 1.0)
    height = np.where(up, np.minimum(height, room_up), -np.minimum(height, rest_level + 0.05))
    windows = rest_level[:, None] + height[:, None] * signal
    noise = _noise(mixture, windows, random)
    return np.asarray(windows if is_clean else windows + noise)


def _noise(mixture: Mixture, windows: FloatArray, random: np.random.Generator) -> FloatArray:
    """White, autocorrelated or heavy-tailed noise; none on a third of the windows (counters at rest, padding)."""
    count, samples = windows.shape
    sigma = _log_uniform(random, *mixture.noise, count) * (random.random(count) > 1 / 3)
    white = random.standard_normal((count, samples))
    tailed = random.standard_t(3, (count, samples)) / np.sqrt(3.0)
    white = np.where(random.random((count, 1)) < 0.15, tailed, white)
    memory = np.where(random.random(count) < 0.3, random.uniform(0.3, 0.95, count), 0.0)
    noise = np.empty_like(white)
    noise[:, 0] = white[:, 0]
    for step in range(1, samples):
        noise[:, step] = memory * noise[:, step - 1] + np.sqrt(1.0 - memory**2) * white[:, step]
    noise *= sigma[:, None]
    held = random.random(count) < 0.1
    noise[held] = _hold(random, noise[held])
    return noise


def _log_uniform(random: np.random.Generator, low: float, high: float, count: int) -> FloatArray:
    return np.exp(random.uniform(np.log(low), np.log(high), count))


def _hold(random: np.random.Generator, windows: FloatArray) -> FloatArray:
    """Repeat samples as nearest-sample padding does when the exporter samples less often than the grid."""
    count, samples = windows.shape
    held = random.integers(2, 9, (count, 1))
    phase = random.integers(0, 8, (count, 1))
    at = np.arange(samples)
    first = ((at + phase) // held) * held - phase
    return np.take_along_axis(windows, np.clip(first, 0, samples - 1), axis=1)


def _flat(_: np.random.Generator, count: int, samples: int) -> FloatArray:
    return np.zeros((count, samples))


def _slope(random: np.random.Generator, count: int, samples: int) -> FloatArray:
    ends = random.random((2, count, 1))
    return np.asarray(ends[0] + (ends[1] - ends[0]) * np.linspace(0.0, 1.0, samples))


def _drift(random: np.random.Generator, count: int, samples: int) -> FloatArray:
    """A slope so slow that one window sees a few percent of it."""
    return 0.5 + random.uniform(-0.05, 0.05, (count, 1)) * np.linspace(-1.0, 1.0, samples)


def _step(random: np.random.Generator, count: int, samples: int) -> FloatArray:
    """From one level to another at any instant: the sample in which it happens holds their mean."""
    at = random.uniform(0.0, samples, (count, 1))
    step = np.clip(np.arange(1, samples + 1) - at, 0.0, 1.0)
    return np.where(random.random((count, 1)) < 0.5, step, 1.0 - step)


def _ramp(random: np.random.Generator, count: int, samples: int) -> FloatArray:
    start = random.uniform(-samples / 2, samples, (count, 1))
    length = random.uniform(1.0, samples, (count, 1))
    ramp = np.clip((np.arange(samples) - start) / length, 0.0, 1.0)
    return np.where(random.random((count, 1)) < 0.5, ramp, 1.0 - ramp)


def _sine(random: np.random.Generator, count: int, samples: int) -> FloatArray:
    period = _log_uniform(random, 4.0, 200.0, count)[:, None]
    phase = random.random((count, 1))
    return 0.5 + 0.5 * np.sin(2 * np.pi * (np.arange(samples) / period + phase))


def _fast_sine(random: np.random.Generator, count: int, samples: int) -> FloatArray:
    period = _log_uniform(random, 2.0, 4.0, count)[:, None]
    phase = random.random((count, 1))
    return 0.5 + 0.5 * np.sin(2 * np.pi * (np.arange(samples) / period + phase))


def _square(random: np.random.Generator, count: int, samples: int) -> FloatArray:
    """Iteration wave: compute, then communicate. A sample is the mean over its interval, as a rate is."""
    period = _log_uniform(random, 2.0, 60.0, count)[:, None]
    duty = random.uniform(0.2, 0.9, (count, 1))
    phase = random.random((count, 1))
    edges = np.arange(samples + 1) / period + phase
    on_time = np.floor(edges) * duty + np.minimum(edges % 1.0, duty)
    return np.diff(on_time, axis=1) * period


def _burst(random: np.random.Generator, count: int, samples: int) -> FloatArray:
    start = random.uniform(-4.0, samples, (count, 1))
    length = _log_uniform(random, 1.0, 12.0, count)[:, None]
    at = np.arange(samples)
    return np.asarray(np.clip(np.minimum(at + 1, start + length) - np.maximum(at, start), 0.0, 1.0))


def _spike(random: np.random.Generator, count: int, samples: int) -> FloatArray:
    return np.asarray(np.arange(samples) == random.integers(0, samples, (count, 1)), np.float64)


def _walk(random: np.random.Generator, count: int, samples: int) -> FloatArray:
    """A random walk, smooth or rough, rescaled to its own range."""
    steps = random.standard_normal((count, samples + 1)).cumsum(axis=1)
    walk = np.where(random.random((count, 1)) < 0.5, steps[:, 1:], (steps[:, 1:] + steps[:, :-1]).cumsum(axis=1))
    low, high = walk.min(axis=1, keepdims=True), walk.max(axis=1, keepdims=True)
    return np.asarray((walk - low) / np.maximum(high - low, 1e-9))


def _held(random: np.random.Generator, count: int, samples: int) -> FloatArray:
    waves = np.where(random.random((count, 1)) < 0.5, _sine(random, count, samples), _walk(random, count, samples))
    return _hold(random, waves)


#: Every shape a mixture may name.
SHAPES: Mapping[str, Shape] = {
    "flat": _flat,
    "slope": _slope,
    "drift": _drift,
    "step": _step,
    "ramp": _ramp,
    "sine": _sine,
    "fast_sine": _fast_sine,
    "square": _square,
    "burst": _burst,
    "spike": _spike,
    "walk": _walk,
    "held": _held,
}

#: For metrics without a model of their own: a little of everything, noise up to a tenth of the range.
GENERAL = Mixture(
    shapes={
        "flat": 4,
        "slope": 2,
        "drift": 2,
        "step": 1.5,
        "ramp": 1.5,
        "sine": 3,
        "fast_sine": 0.5,
        "square": 1.5,
        "burst": 1,
        "spike": 0.5,
        "walk": 1.5,
        "held": 1,
    },
    rest=((-0.05, 1.05, 0.8), (0.0, 0.0, 0.12), (1.0, 1.0, 0.08)),
    height=(0.003, 0.7),
    noise=(1e-4, 0.1),
    general=0.0,
)

_BUSY = Mixture(  # percent-like, near full while the task computes, with the dips of its iterations
    shapes={"flat": 5, "square": 3, "sine": 1, "burst": 1, "step": 0.5, "held": 0.5},
    rest=((0.85, 1.0, 0.7), (0.0, 1.0, 0.3)),
    height=(0.005, 0.4),
)
_WAVE = Mixture(  # activities and bandwidths that follow the iterations
    shapes={"square": 4, "sine": 3, "flat": 3, "burst": 1, "walk": 0.5, "step": 0.5},
    rest=((0.2, 0.9, 0.8), (0.0, 0.2, 0.2)),
    height=(0.005, 0.4),
)
_POWER = Mixture(  # follows the waves, smoothed by the sensor
    shapes={"flat": 3, "sine": 3, "ramp": 2, "square": 2, "walk": 1, "drift": 1},
    rest=((0.4, 1.0, 0.9), (0.05, 0.4, 0.1)),
    height=(0.005, 0.3),
)
_SLOW = Mixture(  # temperature, memory, disk usage: drifts, rarely a step
    shapes={"flat": 5, "drift": 5, "slope": 1, "step": 0.5, "ramp": 0.5, "held": 1},
    rest=((0.0, 1.0, 1.0),),
    height=(0.003, 0.2),
    noise=(1e-4, 5e-3),
)
_RARE = Mixture(  # counters at zero with bursts
    shapes={"flat": 6, "burst": 3, "spike": 1, "walk": 0.5},
    rest=((0.0, 0.0, 0.7), (0.0, 0.3, 0.3)),
    height=(0.003, 0.6),
    noise=(1e-4, 5e-3),
)
_TRAFFIC = Mixture(  # host-side work and traffic: a base load with bursts
    shapes={"flat": 3, "burst": 2, "walk": 2, "sine": 1, "square": 1, "spike": 0.5},
    rest=((0.0, 0.6, 1.0),),
    height=(0.003, 0.4),
    noise=(1e-4, 2e-2),
)

#: Canonical metric -> what it is made of.
MIXTURES: Mapping[str, Mixture] = {
    "pfc_tx_packet_rate": _RARE,
    "cpu_usage": _TRAFFIC,
    "gpu_duty_cycle": _BUSY,
    "gpu_power_draw": _POWER,
    "gpu_graphics_activity": _BUSY,
    "gpu_tensor_activity": _WAVE,
    "nvlink_bandwidth": _WAVE,
    "gpu_sm_activity": _WAVE,
    "gpu_fp_activity": _WAVE,
    "gpu_memory_bandwidth": _WAVE,
    "gpu_sm_clock": _BUSY,
    "gpu_temperature": _SLOW,
    "gpu_memory_used": _SLOW,
    "pcie_bandwidth": _TRAFFIC,
    "rdma_throughput": _WAVE,
    "cnp_packet_rate": _RARE,
    "memory_usage": _SLOW,
    "tcp_throughput": _TRAFFIC,
    "disk_io": _TRAFFIC,
    "disk_usage": _SLOW,
}
