"""Placing: the samples of a metric, as they come in, into the cells of one grid. Pure.

Whoever gives all samples at once and whoever gives them in pieces, some late, gets the same cells: how a metric is
sampled is decided by the first stretch of its samples, and each series' place in the interval by its own samples up
to then. A cell is settled once nothing more can come into it; what came of later ones is kept and placed anew.

Where this departs from the paper (Minder, NSDI '25): each series' scrape offset (of its machine, at most half a step)
is taken out first, so that two machines scraped at different moments of the same interval share a grid. It is
followed slowly, for clocks drift.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from trainminder.align.placing_kernel import DRIFTED, SERIES, merge, place
from trainminder.align.sampling import Sampling, deciding_until, sampling_of, shared_offset
from trainminder.carrying import carried, of_same
from trainminder.errors import Unobservable
from trainminder.types import BoolArray, FloatArray, IntArray, RawMetric

__all__ = ["Cells", "Grid", "Placing", "Row", "cells_of"]

#: A grid of more cells than the first of which less than the second is filled would be padding without end.
MANY_CELLS, LEAST_FILLED = 1_000_000, 0.01
#: A settled cell lies this many steps before the instant up to which everything has come: half a step of rounding,
#: and the largest scrape offset.
SETTLED_STEPS = 1.25
#: The cell of a series that has no sample yet.
NEVER = np.iinfo(np.int64).min // 2
#: Before the first sample by this much, in seconds, nothing is settled.
LITTLE = 1e-3

Row = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Grid:
    """The cells of one metric: cell ``c`` is at ``shared + c * sampling.step_seconds``, Unix seconds."""

    sampling: Sampling
    shared: float

    def at(self, cells: IntArray | int) -> FloatArray:
        """The instants of cells."""
        return np.asarray(self.shared + self.sampling.step_seconds * np.asarray(cells, dtype=np.float64))

    def last(self, until: float) -> int:
        """The last cell that is no later than an instant; rounding of the grid does not decide."""
        return int(np.floor((until - self.shared) / self.sampling.step_seconds + 1e-6))


@dataclass(frozen=True, slots=True)
class Cells:
    """Some cells of one metric. ``rows``: machine and device of each row, by name.

    ``values``: (row, cell), in the metric's unit, NaN where there is none; ``present``: likewise.
    ``first``: cells before this were given before; they are there to look back upon.
    """

    metric: str
    step_seconds: float
    times: FloatArray
    rows: tuple[Row, ...]
    values: FloatArray
    present: BoolArray
    first: int


@dataclass(frozen=True, slots=True, eq=False)
class Placing:
    """The samples of one metric that are not settled yet, and what is remembered of those that are.

    ``rows``: by name; ``series``: (row,) of ``placing_kernel.SERIES``; ``times``, ``values``, ``offsets``: as in
    ``RawMetric``; ``starts``: (row,) the first sample that is not settled, None where none is; ``interval_seconds``:
    where the source knows it; ``grid``: None as long as it is not decided; ``next``: the first cell that is not
    settled; ``past``, ``was_present``: (row, cell) the last settled cells.
    """

    metric: str
    look_back: int
    rows: tuple[Row, ...] = ()
    series: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=SERIES))
    times: FloatArray = field(default_factory=lambda: np.zeros(0))
    values: FloatArray = field(default_factory=lambda: np.zeros(0))
    offsets: IntArray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    starts: IntArray | None = None
    interval_seconds: float | None = None
    grid: Grid | None = None
    next: int | None = None
    past: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    was_present: BoolArray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.bool_))

    def with_samples(self, raw: RawMetric, after: float) -> Placing:
        """With more samples.

        Args:
            after: samples up to this instant are left out.
        """
        given = rows_of(raw.machines, raw.devices)
        if not self.rows and after == -np.inf and _are_in_order(given):
            series = np.zeros(len(given), dtype=SERIES)
            series["cell"], series["heard"] = NEVER, -np.inf
            return replace(
                self,
                rows=given,
                series=series,
                times=raw.times,
                values=raw.values,
                offsets=raw.offsets,
                interval_seconds=raw.interval_seconds,
                past=np.zeros((len(given), 0)),
                was_present=np.zeros((len(given), 0), dtype=np.bool_),
            )
        rows = (
            self.rows if given is self.rows or given == self.rows else tuple(sorted({*self.rows, *given}, key=_by_name))
        )
        place_of = None if rows is self.rows else {row: number for number, row in enumerate(rows)}
        mine = np.arange(len(rows)) if place_of is None else np.array([place_of[row] for row in self.rows], np.int64)
        theirs = np.arange(len(rows)) if place_of is None else np.array([place_of[row] for row in given], np.int64)
        times, values = np.empty(len(self.times) + len(raw.times)), np.empty(len(self.times) + len(raw.times))
        offsets = np.empty(len(rows) + 1, dtype=np.int64)
        count = merge(
            self.times, self.values, self.offsets, mine,
            raw.times, raw.values, raw.offsets, theirs,
            len(rows), after, times, values, offsets,
        )  # fmt: skip
        series, past, was_present = self.series, self.past, self.was_present
        if rows is not self.rows:
            fresh = np.zeros((), dtype=SERIES)
            fresh["cell"], fresh["heard"] = NEVER, -np.inf
            series = carried(rows, self.rows, series, fresh)
            past = carried(rows, self.rows, past, np.nan)
            was_present = carried(rows, self.rows, was_present, False)
        return replace(
            self,
            rows=rows,
            series=series,
            times=times[:count],
            values=values[:count],
            offsets=offsets,
            interval_seconds=self.interval_seconds or raw.interval_seconds,
            past=past,
            was_present=was_present,
        )

    def without(self, gone: Sequence[Row]) -> Placing:
        """Without these rows."""
        leaving = set(gone)
        kept = [number for number, row in enumerate(self.rows) if row not in leaving]
        if len(kept) == len(self.rows):
            return self
        counts = np.diff(self.offsets)
        stays = np.repeat(np.isin(np.arange(len(counts)), kept), counts)
        return replace(
            self,
            rows=tuple(self.rows[number] for number in kept),
            series=self.series[kept],
            times=self.times[stays],
            values=self.values[stays],
            offsets=np.concatenate(([0], np.cumsum(counts[kept]))).astype(np.int64),
            past=self.past[kept],
            was_present=self.was_present[kept],
        )

    def emptied(self) -> Placing:
        """Without the samples that are not settled."""
        return replace(
            self,
            times=self.times[:0],
            values=self.values[:0],
            offsets=np.zeros(len(self.rows) + 1, dtype=np.int64),
            starts=None,
        )

    def without_settled(self) -> Placing:
        """Without the samples that are settled."""
        if self.starts is None:
            return self
        waiting = self.offsets[1:] - self.starts
        kept = np.arange(len(self.times)) >= np.repeat(self.starts, np.diff(self.offsets))
        return replace(
            self,
            times=self.times[kept],
            values=self.values[kept],
            offsets=np.concatenate(([0], np.cumsum(waiting))).astype(np.int64),
            starts=None,
        )

    def newest(self, until: float) -> FloatArray:
        """(row,) the instant of the newest sample up to that one; -inf: none."""
        found = self.series["heard"].copy()
        counts = np.diff(self.offsets)
        starts = self.offsets[:-1][counts > 0]
        if len(starts):
            waiting = np.maximum.reduceat(np.where(self.times <= until, self.times, -np.inf), starts)
            found[counts > 0] = np.maximum(found[counts > 0], waiting)
        return found

    def settled_until(self, seen_until: float) -> float:
        """Up to when nothing can come into cells any more, once everything up to that instant has come."""
        if self.grid is not None:
            return seen_until - SETTLED_STEPS * self.grid.sampling.step_seconds
        return float(self.times.min()) - LITTLE if len(self.times) else np.inf

    def looking_back_on(self, cells: Cells) -> Placing:
        """With the last of these cells as those to look back upon."""
        count = min(self.look_back, len(cells.times))
        last = slice(len(cells.times) - count, None)
        return replace(
            self,
            past=np.ascontiguousarray(cells.values[:, last]),
            was_present=np.ascontiguousarray(cells.present[:, last]),
        )

    def decided(self, seen_until: float) -> Placing:
        """With its grid, if what came up to that instant decides it.

        Raises:
            Unobservable: what should decide it does not.
        """
        if self.grid is not None or not len(self.times):
            return self
        until = deciding_until(self.times, self.offsets, seen_until)
        if until is None:
            return self
        return replace(self, grid=self._grid_by(self.times < until))

    def provisional(self) -> Placing:
        """With a grid by all that came so far, where it is not decided.

        Raises:
            Unobservable: no series has two samples, or they lie closer together than any sampling.
        """
        return self if self.grid is not None else replace(self, grid=self._grid_by(np.ones(len(self.times), np.bool_)))

    def _grid_by(self, counts: BoolArray) -> Grid:
        offsets = np.concatenate(([0], np.cumsum(counts)))[self.offsets]
        machines, devices = tuple(row[0] for row in self.rows), tuple(row[1] for row in self.rows)
        part = RawMetric(
            self.metric, machines, devices, offsets, self.times[counts], self.values[counts], self.interval_seconds
        )
        sampling = sampling_of(part)
        return Grid(sampling, shared_offset(part, sampling.step_seconds))

    def cells(self, newest: float, settled_until: float = -np.inf) -> tuple[Cells | None, Placing]:
        """The cells that are not settled yet, and what is left once some of them are.

        Args:
            newest: instant of the newest sample of any metric; cells are given up to then, whether filled or not.
            settled_until: cells up to this instant are settled, and only those are given; -inf: all are given, and
                nothing changes.
        Returns:
            None where there is no such cell.
        Raises:
            Unobservable: a few samples lie so far from the rest that the grid would hold little else than padding.
        """
        grid = self.grid
        if grid is None:
            return None, self
        step, is_settling = grid.sampling.step_seconds, settled_until > -np.inf
        first = self.next
        if first is None:
            first = int(np.floor((self.times.min() - grid.shared) / step - DRIFTED))
        settled = grid.last(settled_until) if is_settling else first - 1
        last = settled if is_settling else grid.last(newest)
        # A sample shortly before the end may be of a cell shortly after it.
        count = last + (0 if is_settling else 2) - first + 1
        if count <= 0:
            return None, self
        if not self.rows:
            # Everyone is forgotten.
            return None, replace(self, next=settled + 1) if is_settling else self
        self._check_filled(count)
        series = self.series.copy()
        values = np.full((len(self.rows), count), np.nan)
        present = np.zeros(values.shape, dtype=np.bool_)
        kept_from = np.zeros(len(self.rows), dtype=np.int64)
        place(
            self.times, self.values, self.offsets, self.offsets[:-1] if self.starts is None else self.starts,
            step, grid.shared, grid.sampling.hold_cells, first, settled,
            series, values, present, kept_from,
        )  # fmt: skip
        is_filled: BoolArray = np.asarray(present.any(axis=0))
        # Before the first sample of all there is nothing; after the newest, only what has one.
        begin = int(is_filled.argmax()) if self.next is None else 0
        filled_end = int(count - is_filled[::-1].argmax()) if is_filled.any() else 0
        end = count if is_settling else max(last - first + 1, filled_end)
        if not is_filled.any() and (self.next is None or end <= 0):
            return None, self
        values, present = values[:, begin:end], present[:, begin:end]
        if self.past.shape[1]:
            values = np.concatenate((self.past, values), axis=1)
            present = np.concatenate((self.was_present, present), axis=1)
        back = self.past.shape[1]
        times = grid.at(first + begin - back + np.arange(values.shape[1]))
        given = Cells(self.metric, step, times, self.rows, values, present, back)
        if not is_settling:
            return given, self
        return given, replace(self, series=series, starts=kept_from, next=settled + 1)

    def _check_filled(self, count: int) -> None:
        size = len(self.rows) * count
        if size > MANY_CELLS and len(self.times) < LEAST_FILLED * size:
            step = self.grid.sampling.step_seconds if self.grid else np.nan
            raise Unobservable(
                f"{self.metric}: its samples span {count * step:.0f} s at one each {step:g} s, of which "
                f"{len(self.times) / size:.2%} are there: are some instants wrong? If not, cut a part with --at and "
                "--minutes"
            )


def cells_of(raw: RawMetric) -> Cells:
    """All cells of a metric of which everything is there.

    Raises:
        Unobservable: its sampling cannot be told, or a few samples lie far from the rest.
    """
    newest = float(raw.times.max()) if len(raw.times) else -np.inf
    placing = Placing(raw.metric, 0).with_samples(raw, -np.inf)
    cells, _ = placing.decided(newest).provisional().cells(newest)
    if cells is None:
        raise Unobservable(f"{raw.metric}: no sample")
    return cells


@of_same(128)
def rows_of(machines: tuple[str, ...], devices: tuple[str | None, ...]) -> tuple[Row, ...]:
    """Machine and device of each series."""
    return tuple(zip(machines, devices, strict=True))


def _are_in_order(rows: Sequence[Row]) -> bool:
    return all(_by_name(one) < _by_name(other) for one, other in pairwise(rows))


def _by_name(row: Row) -> tuple[str, str]:
    return row[0], row[1] or ""
