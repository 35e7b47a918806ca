"""Cutting a task in time."""

from __future__ import annotations

import dataclasses

import numpy as np

from trainminder.errors import RecordingError
from trainminder.types import RawMetric, RawTask

__all__ = ["cut_raw"]


def cut_raw(raw: RawTask, from_at: float, to_at: float) -> RawTask:
    """The part of a task between two instants, both included (Unix seconds).

    Members stay members, whether they have samples there or not; a metric without samples there is dropped.

    Raises:
        RecordingError: nothing is left.
    """
    cut = [_cut_metric(metric, from_at, to_at) for metric in raw.metrics]
    metrics = tuple(metric for metric in cut if len(metric.times))
    if not metrics:
        raise RecordingError(
            f"{raw.task} has no sample between {from_at:.0f} and {to_at:.0f}: its samples lie between "
            f"{raw.from_at:.0f} and {raw.to_at:.0f} (Unix seconds)"
        )
    return dataclasses.replace(raw, from_at=max(from_at, raw.from_at), to_at=min(to_at, raw.to_at), metrics=metrics)


def _cut_metric(metric: RawMetric, from_at: float, to_at: float) -> RawMetric:
    kept = (metric.times >= from_at) & (metric.times <= to_at)
    counts = np.concatenate(([0], np.cumsum(kept)))
    return dataclasses.replace(
        metric, offsets=counts[metric.offsets], times=metric.times[kept], values=metric.values[kept]
    )
