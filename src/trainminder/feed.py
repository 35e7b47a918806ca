"""Feeding: the samples of a task as they come in, in blocks of cells that are settled, or that are there so far. Pure.

Everything is settled up to one instant for all metrics, so that what is judged of it never changes: the earliest up to
which every metric is. What comes later than that by the lag allowed is taken in wherever it belongs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from trainminder.align import STRETCHES, Cells, Placing
from trainminder.coverage import ENOUGH, forgotten_seconds
from trainminder.errors import Unobservable
from trainminder.suspect import Distrusted, Shown, without_dead_fields
from trainminder.types import RawTask

__all__ = ["Block", "Feed"]

#: Fewest cells of a row that are settled at a time, if there are as many.
LEAST_CELLS = 60


@dataclass(frozen=True, slots=True)
class Block:
    """Cells of some metrics that follow on those of the block before.

    ``until``: instants up to this one can be judged. ``unusable``: metric -> why it has no cells.
    """

    cells: Mapping[str, Cells]
    distrusted: Distrusted
    until: float
    unusable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Feed:
    """The samples of one task that are not settled.

    ``look_back``: settled cells of each metric that are given again with new ones. ``lag_seconds``: samples this much
    older than the newest are still taken in. ``newest``: instant of the newest sample, as far as enough machines have
    come to be compared: wrong instants of one or two do not count.
    ``left``: machines whose rows are forgotten -> when they were last heard. ``shown``: what fields showed last.
    ``unusable``: metrics whose last samples could not be placed -> why.
    """

    look_back: int
    lag_seconds: float = 0.0
    placings: Mapping[str, Placing] = field(default_factory=dict)
    newest: float = -np.inf
    settled_until: float = -np.inf
    left: Mapping[str, float] = field(default_factory=dict)
    shown: Mapping[str, Shown] = field(default_factory=dict)
    unusable: Mapping[str, str] = field(default_factory=dict)

    def with_samples(self, raw: RawTask) -> Feed:
        """With more samples; where its members are stated, without rows of others."""
        placings = dict(self.placings)
        members = set(raw.machines)
        for metric in raw.metrics:
            placing = placings.get(metric.metric) or Placing(metric.metric, self.look_back)
            placing = placing.with_samples(metric, self.settled_until)
            if raw.is_stated:
                placing = placing.without([row for row in placing.rows if row[0] not in members])
            placings[metric.metric] = placing
        back = {machine for metric in raw.metrics for machine in metric.machines} if self.left else set()
        return replace(
            self,
            placings=placings,
            newest=max(self.newest, min(max(map(_reached, placings.values()), default=-np.inf), raw.to_at)),
            left={machine: at for machine, at in self.left.items() if machine not in back},
        )

    def decided(self) -> Feed:
        """With the grids of the metrics whose samples decide them by now."""
        until = self.newest - self.lag_seconds
        unusable: dict[str, str] = {}
        placings = {name: _tried(each, lambda it: it.decided(until), unusable) for name, each in self.placings.items()}
        return replace(self, placings=placings, unusable={**self.unusable, **unusable})

    def settled(self, at_once: int) -> Iterator[tuple[Block, Feed]]:
        """The cells that are settled by now and were not before, some at a time, and what is left.

        Args:
            at_once: cells of a metric that are given at a time, about.
        """
        feed, until = self, self.newest - self.lag_seconds
        horizon = min((each.settled_until(until) for each in self.placings.values()), default=-np.inf)
        if not np.isfinite(until) or not np.isfinite(horizon):
            return
        if self.settled_until == -np.inf and self._is_forming(horizon):
            return
        while horizon > feed.settled_until:
            block, feed = feed._settled(feed._next(horizon, at_once))
            yield block, feed

    def _next(self, horizon: float, at_once: int) -> float:
        """Up to where to settle next on the way to an instant."""
        steps = [each.grid.sampling.step_seconds for each in self.placings.values() if each.grid is not None]
        if not steps:
            return horizon
        rows = max([1, *(len(each.rows) for each in self.placings.values())])
        seconds = max(min(steps) * max(at_once // rows, LEAST_CELLS), *steps)
        if self.settled_until == -np.inf:
            # The first stretch is settled as a whole: all metrics in it tell when to judge.
            until = self._began() + max(seconds, STRETCHES[0])
        else:
            until = self.settled_until + seconds
        return until if until + seconds < horizon else horizon

    def _settled(self, horizon: float) -> tuple[Block, Feed]:
        cells: dict[str, Cells] = {}
        unusable = dict(self.unusable)
        placings = dict(self.placings)
        for name, placing in placings.items():

            def settle(it: Placing, name: str = name) -> Placing:
                given, left = it.cells(self.newest, horizon)
                if given is not None:
                    cells[name] = given
                return left

            placings[name] = _tried(placing, settle, unusable)
        cleaned, distrusted, shown = without_dead_fields(cells, self.shown)
        for name, given in cleaned.items():
            placings[name] = placings[name].looking_back_on(given)
        unusable = {name: why for name, why in unusable.items() if name not in cells}
        left = replace(self, placings=placings, settled_until=horizon, shown=shown, unusable=unusable)
        return Block(cleaned, distrusted, horizon), left

    def without_what_is_settled(self) -> Feed:
        """Without samples that are settled, and without rows that have been silent for long."""
        placings = {name: each.without_settled() for name, each in self.placings.items()}
        return replace(self, placings=placings)._without_silent()

    def rest(self) -> Block:
        """All cells that are not settled; what is not decided yet goes by what there is."""
        unusable = dict(self.unusable)
        cells: dict[str, Cells] = {}
        for name, placing in self.placings.items():

            def look(it: Placing, name: str = name) -> Placing:
                given, _ = it.decided(self.newest).provisional().cells(self.newest)
                if given is not None:
                    cells[name] = given
                return it

            _tried(placing, look, unusable)
        unusable = {name: why for name, why in unusable.items() if name not in cells}
        cleaned, distrusted, _ = without_dead_fields(cells, self.shown)
        # A sample shortly before the end may be of a cell shortly after it.
        until = max([self.newest, *(float(each.times[-1]) for each in cleaned.values() if len(each.times))])
        return Block(cleaned, distrusted, until, unusable)

    def _is_forming(self, horizon: float) -> bool:
        """Whether the first stretch is not settled as a whole: all metrics in it tell when to judge.

        Args:
            horizon: up to which everything could be settled.
        """
        return horizon < self._began() + STRETCHES[0]

    def _began(self) -> float:
        """Instant of the first sample that is not settled."""
        return min((float(each.times.min()) for each in self.placings.values() if len(each.times)), default=np.inf)

    def _without_silent(self) -> Feed:
        """Without rows that have been silent for long."""
        gone: dict[str, float] = {}
        placings = dict(self.placings)
        for name, placing in placings.items():
            step = placing.grid.sampling.step_seconds if placing.grid else 0.0
            heard = placing.series["heard"]
            # A little later than they count as forgotten, for a cell may lie that much after its sample.
            until = self.settled_until - forgotten_seconds(step) - 2.0 * step
            is_silent = (heard < until) & (np.diff(placing.offsets) == 0)
            silent = np.flatnonzero(is_silent).tolist()
            for row in silent:
                machine = placing.rows[row][0]
                gone[machine] = max(float(heard[row]), gone.get(machine, -np.inf))
            placings[name] = placing.without([placing.rows[row] for row in silent])
        if not gone:
            return self
        there = {row[0] for placing in placings.values() for row in placing.rows}
        left = {machine: at for machine, at in gone.items() if machine not in there}
        return replace(self, placings=placings, left={**self.left, **left})


def _reached(placing: Placing) -> float:
    """The instant up to which at least three machines have come, or all where there are fewer."""
    newest = placing.newest(np.inf)
    machines: set[str] = set()
    for row in np.argsort(-newest, kind="stable").tolist():
        machines.add(placing.rows[row][0])
        if len(machines) == ENOUGH:
            break
    else:
        return float(newest.min(initial=np.inf)) if len(newest) else -np.inf
    return float(newest[row])


def _tried(placing: Placing, do: Callable[[Placing], Placing], unusable: dict[str, str]) -> Placing:
    """What comes of a placing; where nothing can, without its samples, and with the reason noted."""
    try:
        return do(placing)
    except Unobservable as why:
        unusable[placing.metric] = str(why)
        return placing.emptied()
