"""Samples that cannot be true: a device that works, says one field, while another says that nothing happens. Pure.

What is left out here is the exporter's fault: judged, it would convict a healthy machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from trainminder.align import Cells, Row
from trainminder.carrying import carried, of_same
from trainminder.coverage import ACTIVITY
from trainminder.types import BoolArray, FloatArray, IntArray
from trainminder.wording import some_names

__all__ = ["NEVER_ZERO", "Distrusted", "Shown", "distrust_lines", "without_dead_fields"]

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

#: Another field shows a device at work for so many of the longer of both intervals.
SHOWN_INTERVALS = 2.5


@dataclass(frozen=True, slots=True)
class Distrusted:
    """What was not trusted: samples by (metric, machine), and by (metric, field) that a field showed work."""

    samples: Mapping[tuple[str, str], int] = field(default_factory=dict)
    shown_by: frozenset[tuple[str, str]] = frozenset()

    def plus(self, other: Distrusted) -> Distrusted:
        """Both together."""
        if not other.samples:
            return self
        both = Counter(self.samples)
        both.update(other.samples)
        return Distrusted(dict(both), self.shown_by | other.shown_by)


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """What each device showed last in one field: (row,) ``at``, the instant of its newest sample, -inf: none; ``works``
    and ``dead``: whether that showed work, or was not trusted.
    """

    step_seconds: float
    rows: tuple[Row, ...]
    at: FloatArray
    works: BoolArray
    dead: BoolArray

    @classmethod
    def after(cls, shown: Shown | None, cells: Cells, dead: BoolArray | None) -> Shown:
        """With what is new in some cells.

        Args:
            dead: (row, cell) of them that are not trusted; None: all are.
        """
        known, rows = (shown.rows if shown else ()), cells.rows
        at = carried(rows, known, shown.at if shown else None, -np.inf)
        works = carried(rows, known, shown.works if shown else None, False)
        untrusted = carried(rows, known, shown.dead if shown else None, False)
        new = cells.present[:, cells.first :]
        has = np.flatnonzero(new.any(axis=1))
        last = new.shape[1] - 1 - new[has, ::-1].argmax(axis=1)
        at[has] = cells.times[cells.first :][last]
        works[has] = _works(cells)[has, cells.first + last]
        untrusted[has] = False if dead is None else dead[has, cells.first + last]
        return cls(cells.step_seconds, rows, at, works, untrusted)


def without_dead_fields(
    cells: Mapping[str, Cells], shown: Mapping[str, Shown] | None = None
) -> tuple[dict[str, Cells], Distrusted, dict[str, Shown]]:
    """The cells without zeros in a field of a device that another field shows at work at that time.

    What most machines report alike is the nature of the task or of the metric, and stays.

    Args:
        shown: by field, what was shown before the cells.
    Returns:
        the cells, what was not trusted, and what is shown by their end.
    """
    shown = shown or {}
    dead: dict[str, BoolArray] = {}
    samples: dict[tuple[str, str], int] = {}
    shown_by: set[tuple[str, str]] = set()
    # The fields that are never 0 come first: they tell where the profiling module is dead.
    for name in sorted((NEVER_ZERO | AND_PROFILED) & cells.keys(), key=lambda name: (name in AND_PROFILED, name)):
        metric = cells[name]
        zero = metric.present & (metric.values == 0.0)
        zero[:, : metric.first] = False
        if not zero.any():
            continue
        others = [other for other in ACTIVITY if other != name and (other in cells or other in shown)]
        if name in AND_PROFILED:
            others = [other for other in others if other not in PROFILED | AND_PROFILED]
            zero &= _any(
                metric, [_Field(cells.get(each), dead.get(each), shown.get(each), "dead") for each in PROFILED]
            )
        fields = {other: _Field(cells.get(other), None, shown.get(other), "works") for other in others}
        by = {other: zero & _any(metric, [field]) for other, field in fields.items()}
        found = np.logical_or.reduce(list(by.values())) if by else np.zeros_like(zero)
        if found.any():
            found &= ~_mostly(metric, found)
        if not found.any():
            continue
        dead[name] = found
        for row in np.flatnonzero(found.any(axis=1)).tolist():
            key = (name, metric.rows[row][0])
            samples[key] = samples.get(key, 0) + int(found[row].sum())
        shown_by |= {(name, other) for other, where in by.items() if (where & found).any()}
    cleaned = {name: _without(each, dead[name]) if name in dead else each for name, each in cells.items()}
    telling = (ACTIVITY.keys() | PROFILED) & cells.keys()
    after = {name: Shown.after(shown.get(name), cells[name], dead.get(name)) for name in telling}
    return cleaned, Distrusted(samples, frozenset(shown_by)), {**shown, **after}


def distrust_lines(distrusted: Distrusted, least_samples: int) -> list[str]:
    """A line for each metric with a machine of which so many samples or more were not trusted."""
    lines = []
    for name in sorted({metric for metric, _ in distrusted.samples}):
        of = {machine: count for (metric, machine), count in distrusted.samples.items() if metric == name}
        machines = sorted(machine for machine, count in of.items() if count >= least_samples)
        if machines:
            fields = sorted(field for metric, field in distrusted.shown_by if metric == name)
            lines.append(
                f"{name} on {some_names(machines)} disagrees with {some_names(fields)}, which shows the "
                f"device at work: 0 is not trusted there and counts as missing ({sum(of.values())} samples): "
                "restart the exporter, see its profiling module"
            )
    return lines


@dataclass(frozen=True, slots=True)
class _Field:
    """What one field shows: by its cells, if it has new ones, and by what it showed before."""

    cells: Cells | None
    dead: BoolArray | None
    before: Shown | None
    what: Literal["works", "dead"]

    def is_so(self, metric: Cells) -> BoolArray:
        """(row, cell) of another metric, whether it was so for the same device lately: by the newest sample."""
        found = np.zeros(metric.present.shape, dtype=np.bool_)
        rows = self.cells.rows if self.cells is not None else self.before.rows if self.before is not None else ()
        mine, theirs = _same(metric.rows, rows)
        if not len(mine):
            return found
        at = np.full((len(mine), len(metric.times)), -np.inf)
        so = np.zeros(at.shape, dtype=np.bool_)
        if self.before is not None:
            at[:] = carried(rows, self.before.rows, self.before.at, -np.inf)[theirs][:, None]
            so[:] = carried(rows, self.before.rows, getattr(self.before, self.what), False)[theirs][:, None]
        step = max(metric.step_seconds, self.before.step_seconds if self.before is not None else 0.0)
        if self.cells is not None:
            cells, step = self.cells, max(step, self.cells.step_seconds)
        if self.cells is not None and len(cells.times) > cells.first:
            new = slice(cells.first, None)
            number = np.where(cells.present[theirs, new], np.arange(len(cells.times) - cells.first), -1)
            newest = np.maximum.accumulate(number, axis=1)
            place = np.searchsorted(cells.times[new], metric.times + 1e-6) - 1
            index = np.where(place >= 0, newest[:, np.maximum(place, 0)], -1)
            its = _works(cells) if self.what == "works" else self.dead
            shows = np.zeros(cells.present.shape, dtype=np.bool_) if its is None else its
            there = np.maximum(index, 0)
            at = np.where(index >= 0, cells.times[new][there], at)
            so = np.where(index >= 0, np.take_along_axis(shows[theirs, new], there, axis=1), so)
        found[mine] = so & (metric.times - at <= SHOWN_INTERVALS * step)
        return found


def _works(cells: Cells) -> BoolArray:
    works: BoolArray = cells.present & (cells.values >= ACTIVITY.get(cells.metric, np.inf))
    return works


@of_same(64)
def _same(rows: tuple[Row, ...], others: tuple[Row, ...]) -> tuple[IntArray, IntArray]:
    """Which rows are which others."""
    place = {row: number for number, row in enumerate(others)}
    mine = [number for number, row in enumerate(rows) if row in place]
    return np.array(mine, dtype=np.int64), np.array([place[rows[number]] for number in mine], dtype=np.int64)


def _any(metric: Cells, fields: Sequence[_Field]) -> BoolArray:
    """(row, cell) of ``metric``: whether any of these fields shows it."""
    found = np.zeros(metric.present.shape, dtype=np.bool_)
    for each in fields:
        found |= each.is_so(metric)
    return found


def _mostly(metric: Cells, found: BoolArray) -> BoolArray:
    """(cell,): whether at least half of the machines have it."""
    names = sorted({machine for machine, _ in metric.rows})
    index = {machine: number for number, machine in enumerate(names)}
    of = np.array([index[machine] for machine, _ in metric.rows], dtype=np.int64)
    machines = np.zeros((len(names), found.shape[1]), dtype=np.bool_)
    np.logical_or.at(machines, of, found)
    most: BoolArray = 2 * machines.sum(axis=0) >= len(names)
    return most


def _without(metric: Cells, dropped: BoolArray) -> Cells:
    values, present = metric.values.copy(), metric.present & ~dropped
    values[dropped] = np.nan
    return replace(metric, values=values, present=present)
