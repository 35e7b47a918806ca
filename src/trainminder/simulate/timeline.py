"""Synchronous training in time: every iteration lasts as long as its slowest machine.

An iteration is compute, communication, optimiser; checkpoints and evaluations come in between. A machine
that is done early spins in the collective until the last one arrives, so its device stays busy without
working. Communication goes at the pace of the slowest link, for all machines alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainminder.simulate.cluster import Cluster, ClusterSpec, generator
from trainminder.simulate.faults import ActiveFault, Stuck
from trainminder.types import FloatArray, IntArray

__all__ = ["STATES", "Timeline", "run_timeline"]

#: What a device can be doing; the axis order of ``Timeline.shares``. *busy* is time lost to a fault while
#: occupied (a throttled clock), *idle* time lost with nothing to run, *wait* spinning in a collective.
STATES = ("compute", "communicate", "optimise", "save", "evaluate", "busy", "idle", "wait")
_COMPUTE, _COMMUNICATE, _OPTIMISE, _SAVE, _EVALUATE, _, _, _WAIT = range(len(STATES))
_OWN = (_COMPUTE, _SAVE, _EVALUATE)

_STEP_SECONDS = 0.1
_SLOWEST_RATE = 1e-9


@dataclass(frozen=True, slots=True)
class Timeline:
    """Every segment (iteration, checkpoint or evaluation) of the task, in seconds from the start of the data.

    ``kind``, ``start``, ``sync``, ``communicated``, ``close``: (segment,). All machines begin at ``start``;
    the last of them is done with its own part at ``sync``; communication ends at ``communicated``.
    ``done``: (segment, machine) when each is done; ``own``: likewise, the seconds of work in that part.
    """

    kind: IntArray
    start: FloatArray
    sync: FloatArray
    communicated: FloatArray
    close: FloatArray
    done: FloatArray
    own: FloatArray
    communicate_seconds: float
    stuck: Mapping[int, Stuck]
    """Culprit machine -> how it spends the time it loses."""
    clocks: Mapping[int, Mapping[int, _WorkClock]]
    """State -> culprit machine -> its progress."""
    network: _WorkClock

    @property
    def periods(self) -> FloatArray:
        """Durations of the training iterations, (iteration,)."""
        durations: FloatArray = (self.close - self.start)[self.kind == _COMPUTE]
        return durations

    def shares(self, until: FloatArray, window_seconds: float) -> FloatArray:
        """Share of each state in the window that ends at each instant, lost time counted as *wait*.

        Args:
            until: (machine, sample) seconds from the start of the data.
        Returns:
            (state, machine, sample), summing to 1 over the states.
        """
        shares = np.zeros((len(STATES), *until.shape))
        training = self.kind == _COMPUTE
        work = np.full(int(training.sum()), self.communicate_seconds)
        sending = _Spans(self.sync[training], self.communicated[training], work).cut(self.network)
        shares[_COMMUNICATE] = _share(until, window_seconds, sending, sending.work)
        optimising = _Spans(
            self.communicated[training], self.close[training], (self.close - self.communicated)[training]
        )
        shares[_OPTIMISE] = _share(until, window_seconds, optimising, optimising.work)
        for state in _OWN:
            for machine in range(len(until)) if (self.kind == state).any() else ():
                spans = self._own_spans(state, machine)
                shares[state, machine] = _share(until[machine], window_seconds, spans, spans.work)
        shares[_WAIT] = np.clip(1 - shares.sum(axis=0), 0, 1)
        return shares

    def with_lost_time(self, shares: FloatArray, machine: int, until: FloatArray, window_seconds: float) -> FloatArray:
        """One machine's shares, (state, sample), with the time it lost in the state its fault puts it in."""
        mine = shares[:, machine].copy()
        for state in _OWN:
            spans = self._own_spans(state, machine)
            # what the fault took; an ordinary pause stays a wait
            kept = np.diff(self.clocks[state][machine].work_at(np.stack((spans.start, spans.end))), axis=0)[0]
            lost = _share(until[machine], window_seconds, spans, np.clip(spans.end - spans.start - kept, 0, None))
            lost = np.minimum(lost, mine[_WAIT])
            mine[_WAIT] -= lost
            mine[STATES.index(self.stuck[machine])] += lost
        return mine

    def _own_spans(self, state: int, machine: int) -> _Spans:
        chosen = self.kind == state
        spans = _Spans(self.start[chosen], self.done[chosen, machine], self.own[chosen, machine])
        clock = self.clocks.get(state, {}).get(machine)
        return spans if clock is None else spans.cut(clock)


def run_timeline(spec: ClusterSpec, cluster: Cluster, faults: Sequence[ActiveFault]) -> Timeline:
    """Let the task run over the whole duration, everyone waiting for the slowest."""
    pace, rng = cluster.pace, generator(spec.seed, "timeline")
    # before the first sample, so that its averaging window is filled
    now = -spec.interval_seconds - pace.period * (1 + rng.random())
    horizon = spec.duration_seconds + 1.0
    grid = np.arange(now, horizon + _STEP_SECONDS, _STEP_SECONDS)
    by_machine: dict[int, list[ActiveFault]] = {}
    for fault in faults:
        by_machine.setdefault(fault.machine, []).append(fault)
    compute = {m: _WorkClock(grid, [(f, f.model.compute) for f in own]) for m, own in by_machine.items()}
    save = {m: _WorkClock(grid, [(f, f.model.save) for f in own]) for m, own in by_machine.items()}
    network = _WorkClock(grid, [(f, f.model.communicate) for f in faults])

    clocks = {_COMPUTE: compute, _EVALUATE: compute, _SAVE: save}

    next_save, next_evaluation = rng.uniform(0.2, 1.0, 2) * (pace.save_every, pace.evaluate_every)
    kinds: list[int] = []
    edges: list[tuple[float, float, float, float]] = []
    dones: list[FloatArray] = []
    owns: list[FloatArray] = []
    while now < horizon:
        unrest = rng.standard_normal(spec.machines)
        stalls, stalled, stall = rng.random(), int(rng.integers(spec.machines)), rng.standard_exponential()
        if now >= next_save:
            kind, next_save = _SAVE, now + pace.save_every
            own = pace.save * (1 + 0.04 * np.abs(unrest))
            own[0] *= 1.15  # rank 0 also writes the index
        elif now >= next_evaluation:
            kind, next_evaluation = _EVALUATE, now + pace.evaluate_every
            own = pace.evaluate * (cluster.speed + 0.004 * unrest)
        else:
            kind = _COMPUTE
            own = pace.compute * (cluster.speed + 0.004 * unrest)
        done = now + own
        if stalls < 0.02:  # a pause of one process, as its memory is tidied up; everyone waits for it
            done[stalled] += 0.3 * pace.compute * stall
        for machine, clock in clocks[kind].items():
            done[machine] = clock.finish(now, float(done[machine] - now))
        sync = float(done.max())
        communicated = network.finish(sync, pace.communicate) if kind == _COMPUTE else sync
        close = communicated + pace.optimise if kind == _COMPUTE else sync
        kinds.append(kind)
        edges.append((now, sync, communicated, close))
        dones.append(done)
        owns.append(own)
        now = close
    start, sync_at, communicated_at, close_at = np.array(edges).T
    return Timeline(
        kind=np.array(kinds),
        start=start,
        sync=sync_at,
        communicated=communicated_at,
        close=close_at,
        done=np.stack(dones),
        own=np.stack(owns),
        communicate_seconds=pace.communicate,
        stuck={fault.machine: fault.model.stuck for fault in faults},
        clocks=clocks,
        network=network,
    )


class _WorkClock:
    """Work done up to each instant when faults take their share of the progress.

    ``knots``: instants at which the pace changes.
    """

    def __init__(self, grid: FloatArray, losses: Iterable[tuple[ActiveFault, float]]) -> None:
        rate = np.ones(len(grid) - 1)
        knots: set[float] = set()
        for fault, loss in losses:
            if loss:
                rate = np.minimum(rate, 1 - loss * fault.envelope(grid[:-1]))
                ramp = np.linspace(fault.start, min(fault.start + fault.ramp_seconds, fault.end), 5)
                knots |= {*ramp.tolist(), fault.end}
        self.knots = sorted(knots)
        self._grid = grid
        self._done = np.concatenate(([0.0], np.cumsum(np.maximum(rate, _SLOWEST_RATE) * np.diff(grid))))

    def work_at(self, instants: FloatArray | float) -> FloatArray:
        """Seconds of work done since the beginning; beyond the end of the grid progress goes at full speed."""
        work: FloatArray = np.interp(instants, self._grid, self._done) + np.maximum(0, instants - self._grid[-1])
        return work

    def finish(self, start: float, work_seconds: float) -> float:
        """When work begun at ``start`` is done."""
        if not self.knots or start + work_seconds <= self.knots[0]:
            return start + work_seconds  # to the bit what it is without the fault
        target = float(self.work_at(start)) + work_seconds
        return float(np.interp(target, self._done, self._grid)) + max(0.0, target - float(self._done[-1]))


@dataclass(frozen=True, slots=True)
class _Spans:
    """Spans of time, in order, with the seconds of work done in each; all (span,)."""

    start: FloatArray
    end: FloatArray
    work: FloatArray

    def cut(self, clock: _WorkClock) -> _Spans:
        """Cut where the clock's pace changes, so that work stands where it was done: a span that begins
        well and then hangs for minutes did nearly all of its work before the hang."""
        start, end, work = self.start, self.end, self.work
        for knot in clock.knots:
            at = int(np.searchsorted(start, knot)) - 1
            if at >= 0 and start[at] < knot < end[at]:
                before, until, after = clock.work_at(np.array([start[at], knot, end[at]]))
                first = work[at] * (until - before) / (after - before)
                work = np.insert(work, at + 1, work[at] - first)
                work[at] = first
                start, end = np.insert(start, at + 1, knot), np.insert(end, at, knot)
        return _Spans(start, end, work)


def _share(until: FloatArray, window_seconds: float, spans: _Spans, amount: FloatArray) -> FloatArray:
    """Share of each window taken by ``amount`` seconds, spread evenly over each span."""
    if not len(amount):
        return np.zeros(until.shape)
    edges = np.stack((spans.start, spans.end), axis=-1).ravel()
    total = np.zeros(len(edges))
    total[1::2] = amount
    total = np.cumsum(total)
    within: FloatArray = np.interp(until, edges, total) - np.interp(until - window_seconds, edges, total)
    return within / window_seconds
