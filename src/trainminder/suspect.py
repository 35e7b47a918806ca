"""Samples that cannot be true: a device that works, says one field, while another says that nothing happens. Pure.

What is left out here is the exporter's fault: judged, it would convict a healthy machine.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from trainminder.coverage import ACTIVITY
from trainminder.types import BoolArray, FloatArray, RawMetric, RawTask
from trainminder.wording import some_names

__all__ = ["NEVER_ZERO", "without_dead_fields"]

#: Fields that are not 0 on a device at work. Tensor activity may well be: a device that waits busily for others, or
#: hangs, keeps its duty cycle and does no work, which is what a fault looks like.
NEVER_ZERO = frozenset(
    {
        "gpu_duty_cycle",
        "gpu_graphics_activity",
        "gpu_memory_used",
        "gpu_power_draw",
        "gpu_sm_activity",
        "gpu_sm_clock",
        "gpu_temperature",
    }
)
#: Fields of the profiling module fail together: where one's zeros are false, the others' are not trusted either.
PROFILED = frozenset({"gpu_graphics_activity", "gpu_sm_activity"})
AND_PROFILED = frozenset({"gpu_fp_activity", "gpu_memory_bandwidth", "gpu_tensor_activity"})

Row = tuple[str, str | None]


def without_dead_fields(raw: RawTask, least_samples: int) -> tuple[RawTask, tuple[str, ...]]:
    """The task without stretches of zeros in a field of a device that another field shows at work.

    Args:
        least_samples: shorter stretches are left: a device may rest for a moment.
    Returns:
        the task, and a warning for each metric that lost samples.
    """
    activity = {metric.metric: _series(metric) for metric in raw.metrics if metric.metric in ACTIVITY}
    profiling: dict[Row, list[tuple[float, float]]] = defaultdict(list)
    cleaned: dict[str, RawMetric] = {}
    lines: list[str] = []
    # The fields that are never 0 come first: they tell where the profiling module is dead.
    for metric in sorted(raw.metrics, key=lambda metric: metric.metric in AND_PROFILED):
        dead, shown_by = np.zeros(len(metric.values), dtype=np.bool_), defaultdict(set)
        stretches: list[tuple[Row, float, float]] = []
        for row, first, last in _zero_runs(metric, least_samples):
            pair, from_at, to_at = _pair(metric, row), float(metric.times[first]), float(metric.times[last])
            for name in _contradicting(metric.metric, pair, from_at, to_at, activity, profiling):
                dead[first : last + 1] = True
                shown_by[name].add(pair[0])
                stretches.append((pair, from_at, to_at))
        machines = sorted(set().union(*shown_by.values()))
        # What most machines report alike is the nature of the task or of the metric.
        if not machines or 2 * len(machines) >= len(set(metric.machines)):
            continue
        if metric.metric in PROFILED:
            for pair, from_at, to_at in stretches:
                profiling[pair].append((from_at, to_at))
        cleaned[metric.metric] = _without(metric, dead)
        lines.append(
            f"{metric.metric} on {some_names(machines)} disagrees with {some_names(sorted(shown_by))}, which shows the "
            f"device at work: 0 is not trusted there and counts as missing ({int(dead.sum())} samples): "
            "restart the exporter, see its profiling module"
        )
    metrics = tuple(cleaned.get(metric.metric, metric) for metric in raw.metrics)
    return dataclasses.replace(raw, metrics=metrics), tuple(lines)


def _pair(metric: RawMetric, row: int) -> Row:
    return metric.machines[row], metric.devices[row]


def _contradicting(
    name: str,
    pair: Row,
    from_at: float,
    to_at: float,
    activity: Mapping[str, Mapping[Row, tuple[FloatArray, FloatArray]]],
    profiling: Mapping[Row, Sequence[tuple[float, float]]],
) -> list[str]:
    """The fields that show the device at work while this one reads 0."""
    if name in NEVER_ZERO:
        others = [other for other in activity if other != name]
    elif name in AND_PROFILED and any(start <= to_at and end >= from_at for start, end in profiling.get(pair, ())):
        others = [other for other in activity if other not in PROFILED | AND_PROFILED]
    else:
        return []
    return [other for other in others if _works(activity[other].get(pair), from_at, to_at, other)]


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
