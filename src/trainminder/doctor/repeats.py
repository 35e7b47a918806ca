"""Values that stand still: frozen series, series of zeros, and exporters slower than their scrapes. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainminder.types import FloatArray, IntArray, MetricSpec, RawMetric

__all__ = [
    "SLOWEST_REFRESH_SECONDS",
    "Runs",
    "Still",
    "Zeros",
    "refresh_samples",
    "runs_of",
    "still_series",
    "zero_series",
]

#: A series stands still if it repeats one value for this many samples, this long, and this many times longer than
#: is usual among all series; if more than a share of the machines does, it is the metric's nature.
LEAST_SAMPLES, LEAST_SECONDS, TIMES_USUAL, MOST_MACHINES = 12, 60.0, 5.0, 0.25
#: Slower refreshing than this is rather the metric's nature than the exporter's interval.
SLOWEST_REFRESH_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Runs:
    """Maximal runs of one exactly repeated value: (run,) arrays, in the order of the samples."""

    series: IntArray
    samples: IntArray
    seconds: FloatArray
    values: FloatArray


@dataclass(frozen=True, slots=True)
class Still:
    """A series that repeats one value while its peers change."""

    machine: str
    device: str | None
    value: float
    seconds: float
    is_throughout: bool


@dataclass(frozen=True, slots=True)
class Zeros:
    """Series (machine, device) that are zero throughout, and the median level of those that are not."""

    series: tuple[tuple[str, str | None], ...]
    peers: float


def runs_of(raw: RawMetric) -> Runs:
    """The runs of all series; a missing sample does not end one."""
    begins = np.ones(len(raw.values), dtype=np.bool_)
    begins[1:] = raw.values[1:] != raw.values[:-1]
    begins[raw.offsets[:-1][np.diff(raw.offsets) > 0]] = True
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(raw.values)) - 1
    series = np.searchsorted(raw.offsets, first, side="right") - 1
    return Runs(series, last - first + 1, raw.times[last] - raw.times[first], raw.values[first])


def still_series(raw: RawMetric, spec: MetricSpec, runs: Runs) -> tuple[Still, ...]:
    """The series that stand still; at 0 or at a physical bound a value may rest, that is no sign."""
    longest = np.zeros(len(raw.machines), dtype=np.int64)
    np.maximum.at(longest, runs.series, runs.samples)
    sampled = longest[longest > 0]
    if len(sampled) < 3:
        return ()
    usual = float(np.quantile(sampled, 0.75, method="lower"))
    rests = np.isin(runs.values, [0.0, spec.lower or 0.0, np.inf if spec.upper is None else spec.upper])
    found = np.flatnonzero(
        (runs.samples >= max(LEAST_SAMPLES, TIMES_USUAL * usual)) & (runs.seconds >= LEAST_SECONDS) & ~rests
    )
    still: dict[int, Still] = {}
    for run in found.tolist():
        row = int(runs.series[run])
        if row in still and still[row].seconds >= runs.seconds[run]:
            continue
        still[row] = Still(
            machine=raw.machines[row],
            device=raw.devices[row],
            value=float(runs.values[run]),
            seconds=float(runs.seconds[run]),
            is_throughout=bool(runs.samples[run] == raw.offsets[row + 1] - raw.offsets[row]),
        )
    if len({one.machine for one in still.values()}) > max(1.0, MOST_MACHINES * len(set(raw.machines))):
        return ()
    return tuple(still.values())


def zero_series(raw: RawMetric, runs: Runs, least_samples: int) -> Zeros | None:
    """Series of nothing but zeros while most of the others are never; None where there are none."""
    counts = np.diff(raw.offsets)
    whole = (runs.values == 0.0) & (runs.samples == counts[runs.series]) & (runs.samples >= least_samples)
    rows = set(runs.series[whole].tolist())
    others = [row for row in np.flatnonzero(counts).tolist() if row not in rows]
    if not rows or len(others) <= len(rows):
        return None
    means = [float(raw.values[raw.offsets[row] : raw.offsets[row + 1]].mean()) for row in others]
    return Zeros(tuple((raw.machines[row], raw.devices[row]) for row in sorted(rows)), float(np.median(means)))


def refresh_samples(raw: RawMetric, runs: Runs) -> int | None:
    """Every how many samples the values of all series change, where that is regularly 2 or more."""
    # The first and the last run of a series are cut off by the range.
    inner = np.ones(len(runs.series), dtype=np.bool_)
    inner[:-1] &= runs.series[:-1] == runs.series[1:]
    inner[1:] &= runs.series[1:] == runs.series[:-1]
    inner[[0, -1]] = False
    lengths = runs.samples[inner]
    if len(lengths) < max(20, 3 * len(raw.machines)):
        return None
    low, middle, high = np.quantile(lengths, [0.05, 0.5, 0.75], method="nearest")
    if low < 2 or high > 1.5 * middle:
        return None
    return int(middle)
