"""Samples that cannot be true: a device that works, says one field, while another says that nothing happens. Pure.

What is left out here is the exporter's fault: judged, it would convict a healthy machine.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict

import numpy as np

from trainminder.coverage import ACTIVITY
from trainminder.types import BoolArray, FloatArray, RawMetric, RawTask
from trainminder.wording import some_names

__all__ = ["OF_THE_DEVICE", "without_dead_fields"]

#: Fields of the device itself: none of them is 0 on a device at work. A link or a port may well be.
OF_THE_DEVICE = "gpu_"

Row = tuple[str, str | None]


def without_dead_fields(raw: RawTask, least_samples: int) -> tuple[RawTask, tuple[str, ...]]:
    """The task without stretches of zeros in a field of a device that another field shows at work.

    Args:
        least_samples: shorter stretches are left: a device may rest for a moment.
    Returns:
        the task, and a warning for each metric that lost samples.
    """
    activity = {metric.metric: _series(metric) for metric in raw.metrics if metric.metric in ACTIVITY}
    lines: list[str] = []
    metrics: list[RawMetric] = []
    for metric in raw.metrics:
        dead, shown_by = np.zeros(len(metric.values), dtype=np.bool_), defaultdict(set)
        if metric.metric.startswith(OF_THE_DEVICE):
            for row, first, last in _zero_runs(metric, least_samples):
                pair = metric.machines[row], metric.devices[row]
                for name, series in activity.items():
                    if name != metric.metric and _works(
                        series.get(pair), metric.times[first], metric.times[last], name
                    ):
                        dead[first : last + 1] = True
                        shown_by[name].add(pair[0])
        machines = sorted(set().union(*shown_by.values()))
        # What most machines report alike is the nature of the task or of the metric.
        if not machines or 2 * len(machines) >= len(set(metric.machines)):
            metrics.append(metric)
            continue
        lines.append(
            f"{metric.metric} on {some_names(machines)} disagrees with {some_names(sorted(shown_by))}, which shows the "
            f"device at work: 0 is not trusted there and counts as missing ({int(dead.sum())} samples): "
            "restart the exporter, see its profiling module"
        )
        metrics.append(_without(metric, dead))
    return dataclasses.replace(raw, metrics=tuple(metrics)), tuple(lines)


def _series(metric: RawMetric) -> dict[Row, tuple[FloatArray, FloatArray]]:
    parts = [slice(a, b) for a, b in zip(metric.offsets[:-1].tolist(), metric.offsets[1:].tolist(), strict=True)]
    pairs = zip(metric.machines, metric.devices, strict=True)
    return {pair: (metric.times[part], metric.values[part]) for pair, part in zip(pairs, parts, strict=True)}


def _works(series: tuple[FloatArray, FloatArray] | None, from_at: float, to_at: float, name: str) -> bool:
    if series is None:
        return False
    times, values = series
    inside = values[np.searchsorted(times, from_at) : np.searchsorted(times, to_at, side="right")]
    return len(inside) > 0 and bool(np.median(inside) >= ACTIVITY[name])


def _zero_runs(metric: RawMetric, least_samples: int) -> list[tuple[int, int, int]]:
    """(series, first sample, last sample) of each long enough stretch of nothing but zeros."""
    zero = metric.values == 0.0
    if int(zero.sum()) < least_samples:
        return []
    begins = np.ones(len(zero), dtype=np.bool_)
    begins[1:] = zero[1:] != zero[:-1]
    begins[metric.offsets[:-1][np.diff(metric.offsets) > 0]] = True
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(zero)) - 1
    long = zero[first] & (last - first + 1 >= least_samples)
    rows = np.searchsorted(metric.offsets, first[long], side="right") - 1
    return list(zip(rows.tolist(), first[long].tolist(), last[long].tolist(), strict=True))


def _without(metric: RawMetric, dropped: BoolArray) -> RawMetric:
    """The metric without these samples, and without series that have no other."""
    offsets = np.concatenate(([0], np.cumsum(~dropped)))[metric.offsets]
    alive = np.flatnonzero(np.diff(offsets) > 0)
    return dataclasses.replace(
        metric,
        machines=tuple(metric.machines[row] for row in alive.tolist()),
        devices=tuple(metric.devices[row] for row in alive.tolist()),
        offsets=np.concatenate(([0], offsets[alive + 1])).astype(np.int64),
        times=metric.times[~dropped],
        values=metric.values[~dropped],
    )
