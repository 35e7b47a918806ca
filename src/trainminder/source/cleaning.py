"""What every source does to samples before they become series: drop what is no measurement, merge doubles.

Works on numpy arrays alone; nothing here reads a file or a store.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from trainminder.types import BoolArray, FloatArray, IntArray, MetricSpec, RawMetric
from trainminder.wording import bounds, some_names

__all__ = [
    "KINDS",
    "build_metric",
    "classify_values",
    "dropped_warnings",
    "is_count",
    "rates_of",
]

#: Why a sample is missing; ``classify_values`` gives 1 for the first, 0 for a sample that is kept.
KINDS = ("nan", "infinite", "sentinel", "impossible")

# Integers that libraries pass on as "no value": the ends of 32-bit types (2**31 and 2**32 are what float32 makes of
# them), DCGM's int32 blanks (0x7ffffff0 and the three after it) and its float64 blanks (2**47 and the three after it).
SENTINELS = np.array(
    [2.0**31 - 1, 2.0**31, 2.0**32 - 1, 2.0**32]
    + [float(0x7FFFFFF0 + i) for i in range(4)]
    + [2.0**47 + i for i in range(4)]
)
# Ends of 64-bit types are no longer exact once they were scaled, summed or made float32: what is near them counts.
# 2**64 is also what two blanks (sent and received) sum to.
WIDE_SENTINELS = (2.0**63, 2.0**64)
WIDE_TOLERANCE = 0.003

# No quantity of a machine is larger; squares of such numbers are still finite.
LARGEST = 1e100

#: A count: series this long that in these shares of all steps fall (restart) and rise.
COUNT_SAMPLES, MOST_RESTARTS, LEAST_RISES = 8, 0.02, 0.5

# Rates are extrapolated and counters read late: a full device may show 102 %, an idle one -0.2 %. Dropping those would
# hide the idle machine; but -1 is a common "no value" and must not pass.
TOLERANCE_ABOVE = 0.05
TOLERANCE_BELOW = 0.005


def classify_values(
    values: FloatArray, spec: MetricSpec, extra_sentinels: Iterable[float] = ()
) -> npt.NDArray[np.uint8]:
    """Tell measurements from what only looks like a number.

    Args:
        values: any shape, in the metric's unit; NaN where nothing was measured.
        spec: its bounds are physical: beyond them by more than a small tolerance is impossible.
        extra_sentinels: more exact values that mean "no value".
    Returns:
        the same shape: 0 for a measurement, else 1 + the index into ``KINDS``.
    """
    lower = -np.inf if spec.lower is None else spec.lower
    upper = np.inf if spec.upper is None else spec.upper
    span = upper - lower if np.isfinite(upper - lower) else 0.0
    code = np.zeros(values.shape, dtype=np.uint8)
    with np.errstate(invalid="ignore"):
        code[(values < lower - TOLERANCE_BELOW * span) | (values > upper + TOLERANCE_ABOVE * span)] = 4
        code[_is_sentinel(values, extra_sentinels)] = 3
    code[np.abs(values) > LARGEST] = 2
    code[np.isnan(values)] = 1
    return code


def _is_sentinel(values: FloatArray, extra: Iterable[float]) -> BoolArray:
    found = np.zeros(values.shape, dtype=np.bool_)
    for value in extra:
        found |= values == value
    large = np.abs(values) >= SENTINELS.min()
    if large.any():
        suspects = values[large]
        hit = np.isin(suspects, SENTINELS)
        for wide in WIDE_SENTINELS:
            hit |= np.abs(np.abs(suspects) / wide - 1.0) <= WIDE_TOLERANCE
        found[large] |= hit
    return found


def dropped_warnings(
    spec: MetricSpec, code: npt.NDArray[np.uint8], machine_codes: IntArray, machine_names: Sequence[str]
) -> list[str]:
    """One line for each kind of dropped sample but NaN, with the count and the machines.

    Args:
        code: (sample,) what ``classify_values`` gave.
        machine_codes: (sample,) index into ``machine_names``.
    """
    counts = np.bincount(code, minlength=len(KINDS) + 1)[1:].tolist()
    lines: list[str] = []
    alive = set(np.unique(machine_codes[code == 0]).tolist())
    possible = f"{bounds(spec.lower, spec.upper)} {spec.unit}".rstrip()
    for i, kind in enumerate(KINDS):
        if kind == "nan" or not counts[i]:
            continue
        hit = np.unique(machine_codes[code == i + 1]).tolist()
        empty = sorted(machine_names[m] for m in hit if m not in alive)
        what = {
            "infinite": "infinite",
            "sentinel": 'a "no value" marker',
            "impossible": f"outside {possible} (is that the unit of the source?)",
        }[kind]
        none_left = f"; no data for this metric: {some_names(empty)}" if empty else ""
        lines.append(
            f"{spec.name}: samples that are {what} count as missing: {counts[i]}, "
            f"on {some_names(sorted(machine_names[m] for m in hit))}{none_left}"
        )
    return lines


def build_metric(
    metric: str,
    machine_codes: IntArray,
    device_codes: IntArray,
    times: FloatArray,
    values: FloatArray,
    machine_names: Sequence[str],
    device_names: Sequence[str],
    duplicates: Literal["mean", "last"] = "mean",
    *,
    interval_seconds: float | None = None,
) -> tuple[RawMetric, int]:
    """Samples in any order become series, sorted by machine, then device (machine-level first), then instant.

    Rows with one machine, device and instant are merged: equal values count once; of different ones "mean" takes the
    mean of the distinct values, which no order of rows can change, and "last" the one that comes last.

    Args:
        machine_codes: (sample,) index into ``machine_names``.
        device_codes: (sample,) index into ``device_names``; -1 for a machine-level sample.
        times: (sample,) Unix seconds, finite. values: (sample,) finite.
        machine_names, device_names: each name once, in any order.
        interval_seconds: passed on.
    Returns:
        the metric, and the number of instants (machine, device, time) that held different values.
    """
    machine_rank = _ranks(machine_names)
    # -1 picks the last entry: rank 0, before every device.
    device_rank = np.append(_ranks(device_names) + 1, 0)
    width = len(device_names) + 1
    series = machine_rank[machine_codes] * width + device_rank[device_codes]
    later = np.diff(series)
    if not np.all((later > 0) | ((later == 0) & (np.diff(times) >= 0))):
        order = np.lexsort((times, series))
        series, times, values = series[order], times[order], values[order]
    conflicts = 0
    is_first = np.append(True, (series[1:] != series[:-1]) | (times[1:] != times[:-1]))[: len(series)]
    if not is_first.all():
        values, conflicts = _merge(is_first, values, duplicates)
        series, times = series[is_first], times[is_first]
    starts = np.flatnonzero(np.append(True, series[1:] != series[:-1])[: len(series)])
    sorted_machines, sorted_devices = sorted(machine_names), [None, *sorted(device_names)]
    raw = RawMetric(
        metric=metric,
        machines=tuple(sorted_machines[key // width] for key in series[starts].tolist()),
        devices=tuple(sorted_devices[key % width] for key in series[starts].tolist()),
        offsets=np.append(starts, len(series)).astype(np.int64),
        times=np.ascontiguousarray(times, dtype=np.float64),
        values=np.ascontiguousarray(values, dtype=np.float64),
        interval_seconds=interval_seconds,
    )
    return raw, conflicts


def is_count(raw: RawMetric) -> bool:
    """Whether a metric only ever rises, but for restarts: then its level says how long something runs."""
    counts = np.diff(raw.offsets)
    if len(counts) < 2 or counts.min() < COUNT_SAMPLES:
        return False
    steps = np.diff(raw.values)[_inside(raw)]
    return bool((steps < 0).mean() <= MOST_RESTARTS and (steps > 0).mean() >= LEAST_RISES)


def rates_of(raw: RawMetric) -> tuple[RawMetric, list[str]]:
    """A count as its rate per second, and the machines on which it started again.

    Each rate stands at the later of its two instants; across a restart nothing is known.
    """
    inside = _inside(raw)
    steps = np.diff(raw.values)
    kept = inside & (steps >= 0)
    counts = np.concatenate(([0, 0], np.cumsum(kept)))
    series = np.repeat(np.arange(len(raw.machines)), np.diff(raw.offsets))[1:]
    restarted = sorted({raw.machines[row] for row in series[inside & (steps < 0)].tolist()})
    return dataclasses.replace(
        raw,
        offsets=counts[raw.offsets].astype(np.int64),
        times=raw.times[1:][kept],
        values=(steps / np.where(inside, np.diff(raw.times), 1.0))[kept],
    ), restarted


def _inside(raw: RawMetric) -> BoolArray:
    """(sample - 1,): whether two neighbouring samples are of one series."""
    inside = np.ones(max(len(raw.times) - 1, 0), dtype=np.bool_)
    seams = raw.offsets[1:-1] - 1
    inside[seams[(seams >= 0) & (seams < len(inside))]] = False
    return inside


def _ranks(names: Sequence[str]) -> IntArray:
    """Rank of each name in sorted order."""
    place = {name: rank for rank, name in enumerate(sorted(names))}
    return np.array([place[name] for name in names], dtype=np.int64)


def _merge(is_first: BoolArray, values: FloatArray, duplicates: Literal["mean", "last"]) -> tuple[FloatArray, int]:
    """One value for each run of equal keys, and the number of runs whose values differ."""
    run = np.cumsum(is_first) - 1
    starts = np.flatnonzero(is_first)
    # Adding zero makes one zero of the two, which compare equal but differ in bytes.
    ordered = values[np.lexsort((values, run))] + 0.0
    is_distinct = is_first.copy()
    is_distinct[1:] |= ordered[1:] != ordered[:-1]
    distinct = np.add.reduceat(is_distinct.astype(np.int64), starts)
    conflicts = int((distinct > 1).sum())
    if duplicates == "last":
        return values[np.append(starts[1:], len(values)) - 1], conflicts
    return np.add.reduceat(np.where(is_distinct, ordered, 0.0), starts) / distinct, conflicts
