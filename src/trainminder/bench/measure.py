"""Verdicts against truths: what was found, what was a false alarm, and how sure the figures are.

A verdict is true only if it names a truly faulty machine and was confirmed after that fault's onset; every other one
is a false alarm. Truths of one task with the same fault type, start and end are one fault of a group (a switch, a
rack): it is found when a verdict names any of its machines, and further verdicts on them are not false. Several
verdicts on a faulty machine count once. What is undefined, such as the precision of a method that said nothing, is
None: neither 0 nor 1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainminder.bench.outcomes import Outcome, Said, TaskFacts
from trainminder.types import FloatArray, IntArray, Truth

__all__ = ["INTERVAL", "RESAMPLES", "Tally", "by_tag", "cost", "figures", "intervals", "tally"]

#: Of the bootstrap: resamples, the share of them that an interval covers, and their seed. Every method is judged on
#: the same resamples.
RESAMPLES = 1000
INTERVAL = 0.95
SEED = 0


@dataclass(frozen=True, slots=True)
class Tally:
    """What one task adds to the figures of a method.

    ``delays``: of each fault found, from its onset to the first true verdict, seconds. ``first_is_true``: whether
    the verdict confirmed first is true; False where nothing was said.
    """

    machine_hours: float
    faults: int
    delays: tuple[float, ...]
    false_alarms: int
    first_is_true: bool


def tally(task: TaskFacts, said: Sequence[Said]) -> Tally:
    """Hold the verdicts on one task against its truths."""
    faults: dict[tuple[str, float, float], list[Truth]] = defaultdict(list)
    for truth in task.truths:
        faults[truth.fault_type, truth.start, truth.end].append(truth)
    confirmed: dict[tuple[str, float, float], float] = {}
    false_alarms = 0
    first_is_true = False
    for place, verdict in enumerate(sorted(said, key=lambda each: each.confirmed)):
        found = _found(verdict, faults)
        for fault in found:
            confirmed.setdefault(fault, verdict.confirmed)
        false_alarms += not found
        if place == 0:
            first_is_true = bool(found)
    delays = tuple(at - start for (_, start, _), at in confirmed.items())
    return Tally(task.machine_hours, len(faults), delays, false_alarms, first_is_true)


def _found(verdict: Said, faults: Mapping[tuple[str, float, float], Sequence[Truth]]) -> list[tuple[str, float, float]]:
    """The faults that a verdict finds: of those of its machine that have begun, the latest and all still under way."""
    begun = [
        fault
        for fault, truths in faults.items()
        if fault[1] < verdict.confirmed and any(truth.machine == verdict.machine for truth in truths)
    ]
    latest = max((start for _, start, _ in begun), default=0.0)
    return [fault for fault in begun if fault[1] == latest or fault[2] >= verdict.confirmed]


def figures(tallies: Sequence[Tally]) -> dict[str, Any]:
    """The figures over some tasks; None where undefined."""
    sums = _sums(tallies, np.ones((1, len(tallies)), dtype=np.int64))
    names = ("tasks", "faults", "found", "false_alarms")
    counts: dict[str, Any] = {name: int(sums[name][0]) for name in names}
    return _defined(_ratios(sums)) | counts | {"machine_hours": float(sums["machine_hours"][0])}


def intervals(tallies: Sequence[Tally]) -> dict[str, list[float] | None]:
    """Bootstrap intervals over tasks of every ratio and delay; None where no resample defines it."""
    if not tallies:
        return dict.fromkeys(_ratios(_sums((), np.ones((1, 0), dtype=np.int64))))
    rng = np.random.default_rng(SEED)
    weights = rng.multinomial(len(tallies), np.full(len(tallies), 1 / len(tallies)), size=RESAMPLES)
    bounds = ((1 - INTERVAL) / 2, (1 + INTERVAL) / 2)
    return {
        name: [float(bound) for bound in np.nanquantile(values, bounds)] if not np.isnan(values).all() else None
        for name, values in _ratios(_sums(tallies, weights)).items()
    }


def _sums(tallies: Sequence[Tally], weights: IntArray) -> dict[str, FloatArray]:
    """Totals of every count, and quantiles of the delays.

    Args:
        weights: (resample, task), how often each task counts.
    Returns:
        name -> (resample,)
    """

    def total(values: Iterable[float]) -> FloatArray:
        summed: FloatArray = weights.astype(np.float64) @ np.array(list(values), dtype=np.float64)
        return summed

    delays = np.array([delay for each in tallies for delay in each.delays])
    task_of = np.repeat(np.arange(len(tallies)), [len(each.delays) for each in tallies])
    quantiles = np.full((2, len(weights)), np.nan)
    for number, times in enumerate(weights[:, task_of]):
        if times.any():
            quantiles[:, number] = np.quantile(np.repeat(delays, times), (0.5, 0.9))
    return {
        "tasks": total(1 for _ in tallies),
        "machine_hours": total(each.machine_hours for each in tallies),
        "faults": total(each.faults for each in tallies),
        "found": total(len(each.delays) for each in tallies),
        "false_alarms": total(each.false_alarms for each in tallies),
        "faulty": total(each.faults > 0 for each in tallies),
        "first": total(each.faults > 0 and each.first_is_true for each in tallies),
        "delay_median_s": quantiles[0],
        "delay_p90_s": quantiles[1],
    }


def _ratios(sums: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """The ratios that totals give; NaN where undefined."""
    found, false_alarms = sums["found"], sums["false_alarms"]
    precision = _share(found, found + false_alarms)
    recall = _share(found, sums["faults"])
    f1 = _share(2 * found, found + false_alarms + sums["faults"])
    return {
        "precision": precision,
        "recall": recall,
        "f1": np.where(np.isnan(precision) | np.isnan(recall), np.nan, f1),
        "false_alarms_per_1000_machine_hours": 1000 * _share(false_alarms, sums["machine_hours"]),
        "top1": _share(sums["first"], sums["faulty"]),
        "delay_median_s": sums["delay_median_s"],
        "delay_p90_s": sums["delay_p90_s"],
    }


def _share(part: FloatArray, whole: FloatArray) -> FloatArray:
    shares: FloatArray = np.divide(part, whole, out=np.full_like(part, np.nan), where=whole > 0)
    return shares


def _defined(values: Mapping[str, FloatArray]) -> dict[str, float | None]:
    return {name: None if np.isnan(value[0]) else float(value[0]) for name, value in values.items()}


def by_tag(outcomes: Sequence[Outcome], tallies: Sequence[Tally]) -> dict[str, dict[str, dict[str, Any]]]:
    """The figures for each value of each tag: tag -> value -> figures, numbers in their order."""
    parts: dict[str, dict[str, list[Tally]]] = defaultdict(lambda: defaultdict(list))
    for outcome, each in zip(outcomes, tallies, strict=True):
        for tag, value in outcome.task.tags.items():
            parts[tag][value].append(each)
    return {
        tag: {value: figures(parts[tag][value]) for value in sorted(parts[tag], key=_as_number)}
        for tag in sorted(parts)
    }


def _as_number(text: str) -> tuple[float, str]:
    """The number that a value is or begins with, as ``5 s`` does; what is none comes last, by its text."""
    number = text.partition(" ")[0]
    try:
        return float(number), text
    except ValueError:
        return float("inf"), text


def cost(outcomes: Sequence[Outcome]) -> dict[str, float | None]:
    """Wall time of judging and the most memory that it took, where the method did not fail."""
    went = [outcome for outcome in outcomes if outcome.error is None]
    peaks = [outcome.peak_mib for outcome in went if outcome.peak_mib is not None]
    seconds = [outcome.seconds for outcome in went]
    return {
        "seconds": sum(seconds) if seconds else None,
        "seconds_median": float(np.median(seconds)) if seconds else None,
        "peak_mib": max(peaks, default=None),
    }
