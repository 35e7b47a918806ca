"""Samples that outlive their series, and series that ended before the others. Pure.

A stopped exporter leaves a tail: rates go on as long as their window holds two samples, and some stores carry
the last value forward. A dead machine must not look alive, nor its fading rate like a fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from trainminder.source.prometheus.matrix import MatrixAnswer
from trainminder.source.prometheus.queries import RATE_INTERVALS, Grid
from trainminder.source.prometheus.series import Fetched, kept
from trainminder.wording import iso_time, some_names

__all__ = ["ended_warnings", "without_carried", "without_edges"]

#: A gap at the end counts when it is longer than this many intervals, and than this many seconds.
LATE_INTERVALS = 3.0
LATE_SECONDS = 10.0
#: Two or more machines, and this share of all, that end early are late data rather than dead machines.
LATE_SHARE = 0.25


def without_edges(answer: MatrixAnswer, grid: Grid, step: float) -> MatrixAnswer:
    """Rates without the samples beside a gap, a late start or an early end.

    There the rate's window is only partly covered, and Prometheus extrapolates to too small a value.

    Args:
        answer: series of rates.
        grid: the instants asked for.
        step: seconds between samples.
    """
    covered = int(RATE_INTERVALS) - 1
    keep = np.ones(len(answer.times), dtype=np.bool_)
    for start, end in zip(answer.offsets[:-1].tolist(), answer.offsets[1:].tolist(), strict=True):
        times = answer.times[start:end]
        if not len(times):
            continue
        breaks = (np.flatnonzero(np.diff(times) > 1.5 * step) + start + 1).tolist()
        begins = [start] if times[0] > grid.first_ms / 1000.0 + 0.5 * step else []
        ends = [end] if times[-1] < grid.last_ms / 1000.0 - 0.5 * step else []
        for at in breaks + begins:
            keep[at : min(at + covered, end)] = False
        for at in breaks + ends:
            keep[max(at - covered, start) : at] = False
    return answer if keep.all() else kept(answer, keep)


def without_carried(item: Fetched, down: MatrixAnswer) -> tuple[MatrixAnswer, int]:
    """A metric without values carried forward while its target was down, and the most that one series lost.

    Args:
        item: the metric.
        down: series of ``up``. One speaks for every series that agrees in all labels both have. A sample is
            carried where ``up`` is 0 and the value is exactly the one before.
    """
    zero = down.values == 0.0
    instants = [down.times[a:b][zero[a:b]] for a, b in zip(down.offsets[:-1], down.offsets[1:], strict=True)]
    targets = [(labels, at) for labels, at in zip(down.labels, instants, strict=True) if len(at)]
    keep = np.ones(len(item.answer.times), dtype=np.bool_)
    most = 0
    for index, labels in enumerate(item.answer.labels):
        start, end = item.bounds(index)
        times, values = item.answer.times[start:end], item.answer.values[start:end]
        for target, at in targets:
            common = (labels.keys() & target.keys()) - {"__name__"}
            if not common or any(labels[name] != target[name] for name in common):
                continue
            place = np.clip(np.searchsorted(at, times), 0, len(at) - 1)
            nearest = np.minimum(np.abs(at[place] - times), np.abs(at[np.maximum(place - 1, 0)] - times))
            is_same = np.concatenate([[False], values[1:] == values[:-1]])
            keep[start:end] &= ~(is_same & (nearest <= 0.5 * item.interval))
        most = max(most, end - start - int(keep[start:end].sum()))
    return (kept(item.answer, keep) if most else item.answer), most


def ended_warnings(fetched: Iterable[Fetched], machines: Sequence[str]) -> list[str]:
    """Who stopped reporting before the others; many at once are one warning about late data."""
    ended: dict[str, dict[str, float]] = defaultdict(dict)
    lost: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    newest: dict[str, float] = {}
    for item in fetched:
        last: dict[tuple[str, str | None], float] = {}
        for index, row in enumerate(item.rows):
            start, end = item.bounds(index)
            if row is not None and end > start:
                last[row] = max(float(item.answer.times[end - 1]), last.get(row, 0.0))
        if not last:
            continue
        margin = max(LATE_INTERVALS * item.interval, LATE_SECONDS)
        of_machine: dict[str, float] = {}
        for (machine, _), at in last.items():
            of_machine[machine] = max(at, of_machine.get(machine, 0.0))
        newest[item.spec.name] = max(of_machine.values())
        for machine, at in of_machine.items():
            if newest[item.spec.name] - at > margin:
                ended[machine][item.spec.name] = at
        for (machine, device), at in last.items():
            if device is not None and of_machine[machine] - at > margin:
                lost[machine, device][item.spec.name] = at
    lines: list[str] = []
    if len(ended) >= 2 and len(ended) >= LATE_SHARE * len(machines):
        behind = max(newest[name] - at for of_machine in ended.values() for name, at in of_machine.items())
        metrics = sorted(set().union(*ended.values()))
        lines.append(
            f"window ends differ: {len(ended)} of {len(machines)} machines ({some_names(sorted(ended))}) end up to "
            f"{behind:.0f} s before the others in {some_names(metrics)}: late data, or these machines went silent"
        )
    else:
        lines += [
            f"machine {machine} stopped reporting {some_names(sorted(of_machine))} at "
            f"{iso_time(max(of_machine.values()))}"
            for machine, of_machine in sorted(ended.items())
        ]
    lines += [
        f"machine {machine}: {device} stopped reporting {some_names(sorted(of_device))} at "
        f"{iso_time(max(of_device.values()))}, the machine's other devices go on"
        for (machine, device), of_device in sorted(lost.items())
    ]
    return lines
