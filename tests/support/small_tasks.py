"""Small tasks to judge, and a denoiser that leaves windows as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainminder.types import Float32Array, FloatArray, IntArray, MetricSpec, RawMetric, RawTask

NOW = 1_760_000_000.0
POWER = MetricSpec("power", "W", lower=0.0, spread_ratio=0.03)


class Undenoised:
    """Windows as they are, normalised: what the stages do is then worked out by hand."""

    def __init__(self, window_samples: int = 8) -> None:
        self.window_samples = window_samples

    def embed(self, values: FloatArray, rows: IntArray, low: FloatArray, high: FloatArray) -> Float32Array:
        windows = np.lib.stride_tricks.sliding_window_view(values, self.window_samples, axis=1)
        taken = windows[np.maximum(rows, 0), np.arange(rows.shape[1])]
        taken = np.where((rows >= 0)[:, :, None], taken, np.nan)
        return ((taken - low[:, None]) / (high - low)[:, None]).astype(np.float32)


def series_of(metric: str, by_machine: Mapping[str, FloatArray], *, step: float = 1.0, start: float = NOW) -> RawMetric:
    """One metric; keys are "machine" or "machine/device", NaN cells are missing samples."""
    names = [key.partition("/") for key in by_machine]
    kept = [np.flatnonzero(~np.isnan(values)) for values in by_machine.values()]
    return RawMetric(
        metric=metric,
        machines=tuple(machine for machine, _, _ in names),
        devices=tuple(device or None for _, _, device in names),
        offsets=np.concatenate(([0], np.cumsum([len(index) for index in kept]))).astype(np.int64),
        times=np.concatenate([start + step * index for index in kept]),
        values=np.concatenate([values[index] for values, index in zip(by_machine.values(), kept, strict=True)]),
    )


def task_of(*metrics: RawMetric, specs: Sequence[MetricSpec] = (POWER,), **changes: Any) -> RawTask:
    """A task of whoever has series."""
    machines = tuple(sorted({machine for metric in metrics for machine in metric.machines}))
    instants = np.concatenate([metric.times for metric in metrics])
    given: dict[str, Any] = {
        "task": "llm-7",
        "from_at": float(instants.min()),
        "to_at": float(instants.max()),
        "machines": machines,
        "metrics": metrics,
        "specs": {spec.name: spec for spec in specs},
    }
    return RawTask(**(given | changes))


def wavy_machines(
    count: int, seconds: int, *, seed: int = 0, noise: float = 0.01, level: float = 600.0
) -> dict[str, FloatArray]:
    """Healthy machines: one common wave, and noise of their own."""
    rng = np.random.default_rng(seed)
    wave = level * (1 + 0.1 * np.sin(np.arange(seconds) / 5.0))
    return {f"gpu-{number:02d}": wave * (1 + noise * rng.standard_normal(seconds)) for number in range(count)}


def undenoised(_metric: str) -> Undenoised:
    """A denoiser for every metric."""
    return Undenoised()
