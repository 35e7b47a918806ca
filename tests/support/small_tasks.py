"""Small tasks to judge, and a denoiser that leaves windows as they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from trainminder.types import BoolArray, Float32Array, FloatArray, IntArray, MetricSpec, RawMetric, RawTask

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


def pieces_of(
    raw: RawTask, cuts: Sequence[float], *, latest: float = 0.0, overlap: float = 0.0, seed: int = 0
) -> Iterator[RawTask]:
    """A task as it comes in, cut at some seconds after its beginning.

    Args:
        latest: seconds by which samples may come late; each is by some of them, drawn anew.
        overlap: seconds before its cut from which a piece gives again what came already.
    """
    rng = np.random.default_rng(seed)
    arrived = [metric.times + latest * rng.random(len(metric.times)) for metric in raw.metrics]
    begin = -np.inf
    for end in (*(raw.from_at + cut for cut in sorted(cuts)), raw.to_at + latest):
        parts = [
            part_of(metric, (at > begin - overlap) & (at <= end))
            for metric, at in zip(raw.metrics, arrived, strict=True)
        ]
        yield dataclasses.replace(
            raw, to_at=min(end, raw.to_at), metrics=tuple(metric for metric in parts if len(metric.times))
        )
        begin = end


def part_of(metric: RawMetric, kept: BoolArray) -> RawMetric:
    """Some of the samples of a metric, and the series that have any."""
    counts = np.concatenate(([0], np.cumsum(kept)))[metric.offsets]
    some = np.flatnonzero(np.diff(counts))
    return dataclasses.replace(
        metric,
        machines=tuple(metric.machines[row] for row in some.tolist()),
        devices=tuple(metric.devices[row] for row in some.tolist()),
        offsets=np.concatenate(([0], counts[some + 1])).astype(np.int64),
        times=metric.times[kept],
        values=metric.values[kept],
    )
