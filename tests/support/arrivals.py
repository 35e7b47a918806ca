"""How the samples of a task come in: in pieces, late, out of order."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from small_tasks import part_of
from trainminder.types import BoolArray, FloatArray, RawTask

__all__ = ["arriving", "only"]


def only(raw: RawTask, kept: Sequence[BoolArray], to_at: float | None = None) -> RawTask:
    """The task with these samples of each metric alone, and of machines those that have any."""
    metrics = tuple(
        part for metric, some in zip(raw.metrics, kept, strict=True) if len((part := part_of(metric, some)).times)
    )
    machines = tuple(sorted({machine for metric in metrics for machine in metric.machines}))
    return dataclasses.replace(raw, metrics=metrics, machines=machines, to_at=raw.to_at if to_at is None else to_at)


def arriving(raw: RawTask, delays: Sequence[FloatArray], pauses: Iterator[float]) -> Iterator[RawTask]:
    """The task piece by piece: of each what has arrived since the last.

    Args:
        delays: (sample,) of each metric, seconds after which a sample arrives.
        pauses: seconds between two pieces.
    """
    latest = max(float(delay.max(initial=0.0)) for delay in delays)
    before, now = -np.inf, raw.from_at
    while before < raw.to_at + latest:
        now += next(pauses)
        arrives = [metric.times + delay for metric, delay in zip(raw.metrics, delays, strict=True)]
        piece = only(raw, [(at > before) & (at <= now) for at in arrives], min(now, raw.to_at))
        before = now
        if piece.metrics:
            yield piece
