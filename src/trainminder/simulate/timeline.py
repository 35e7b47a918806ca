"""Synchronous training in time: every iteration lasts as long as its slowest machine.

An iteration is compute, communication, optimiser; checkpoints and evaluations come in between. Within the computing
the machines of one pipeline replica, and those of one expert-parallel group, run in lock step: who has less to do
waits a little in every micro-batch. Then the replicas wait for each other: a machine that is done early spins in the
collective until the last one arrives, so its device stays busy without working. Communication goes at the pace of the
slowest link, for all machines alike. A task that is stopped has no process until it is started again and has loaded.
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
#: occupied (a throttled clock), *idle* time lost with nothing to run, *wait* spinning in a collective,
#: *down* that no process runs.
STATES = ("compute", "communicate", "optimise", "save", "evaluate", "load", "busy", "idle", "wait", "down")
_COMPUTE, _COMMUNICATE, _OPTIMISE, _SAVE, _EVALUATE, _LOAD, _, _, _WAIT, _DOWN = range(len(STATES))
_OWN = (_COMPUTE, _SAVE, _EVALUATE, _LOAD, _DOWN)

_STEP_SECONDS = 0.1
_SLOWEST_RATE = 1e-9


@dataclass(frozen=True, slots=True)
class Hiccup:
    """A stall of one machine's data loader, seconds from the start of the data."""

    machine: int
    start: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """Every segment (iteration, checkpoint, evaluation, loading, standstill), in seconds from the start of the data.

    ``kind``, ``start``, ``sync``, ``communicated``, ``close``: (segment,). All machines begin at ``start``;
    the last of them is done with its own part at ``sync``; communication ends at ``communicated``.
    ``done``: (segment, machine) when each is done; ``own``: likewise, the seconds of work in that part.
    ``sent``: (segment,) seconds of communication done.
    """

    kind: IntArray
    start: FloatArray
    sync: FloatArray
    communicated: FloatArray
    close: FloatArray
    done: FloatArray
    own: FloatArray
    sent: FloatArray
    hiccups: tuple[Hiccup, ...]
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
        sending = _Spans(self.sync[training], self.communicated[training], self.sent[training]).cut(self.network)
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
            if machine not in self.clocks[state]:
                continue
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
    return _Run(spec, cluster, faults).timeline()


class _Run:
    """The task as it goes from segment to segment."""

    def __init__(self, spec: ClusterSpec, cluster: Cluster, faults: Sequence[ActiveFault]) -> None:
        self.spec, self.cluster, self.pace = spec, cluster, cluster.pace
        self.rng = generator(spec.seed, "timeline")
        # before the first sample, so that its averaging window is filled
        self.now = -spec.interval_seconds - self.pace.period * (1 + self.rng.random())
        self.horizon = spec.duration_seconds + 1.0
        grid = np.arange(self.now, self.horizon + _STEP_SECONDS, _STEP_SECONDS)
        by_machine: dict[int, list[ActiveFault]] = {}
        for fault in faults:
            for machine in fault.machines:
                by_machine.setdefault(machine, []).append(fault)
        compute = {m: _WorkClock(grid, [(f, f.model.compute) for f in own]) for m, own in by_machine.items()}
        save = {m: _WorkClock(grid, [(f, f.model.save) for f in own]) for m, own in by_machine.items()}
        self.network = _WorkClock(grid, [(f, f.model.communicate) for f in faults])
        self.clocks = {_COMPUTE: compute, _EVALUATE: compute, _SAVE: save, _LOAD: save}
        self.stuck: dict[int, Stuck] = {machine: fault.model.stuck for fault in faults for machine in fault.machines}
        self.stops = _stops(spec, faults)
        self.started_at = -np.inf
        self.popularity = generator(spec.seed, "experts")
        self.drift = self.popularity.standard_normal(spec.machines)
        self.hiccups = _hiccups(spec)
        self.next_save, self.next_evaluation = self.rng.uniform(0.2, 1.0, 2) * (
            self.pace.save_every,
            self.pace.evaluate_every,
        )
        self.kinds: list[int] = []
        self.edges: list[tuple[float, float, float, float]] = []
        self.sent: list[float] = []
        self.dones: list[FloatArray] = []
        self.owns: list[FloatArray] = []

    def timeline(self) -> Timeline:
        while self.now < self.horizon:
            if self.stops and self.now >= self.stops[0][0]:
                self._stand_still(*self.stops.pop(0))
            else:
                self._segment()
        start, sync_at, communicated_at, close_at = np.array(self.edges).T
        return Timeline(
            kind=np.array(self.kinds),
            start=start,
            sync=sync_at,
            communicated=communicated_at,
            close=close_at,
            done=np.stack(self.dones),
            own=np.stack(self.owns),
            sent=np.array(self.sent),
            hiccups=self.hiccups,
            stuck=self.stuck,
            clocks={**self.clocks, _DOWN: {}},
            network=self.network,
        )

    def _segment(self) -> None:
        """An iteration, or the checkpoint or evaluation that is due, up to the next stop."""
        kind, own = self._work()
        done = self.now + own
        for hiccup in self.hiccups:
            if self.now <= hiccup.start < done[hiccup.machine]:
                done[hiccup.machine] += hiccup.seconds
        if self.stall < 0.02:  # a pause of one process, as its memory is tidied up; everyone waits for it
            done[self.stalled] += 0.3 * self.pace.compute * self.stall_length
        for machine, clock in self.clocks[kind].items():
            done[machine] = clock.finish(self.now, float(done[machine] - self.now))
        done = self._in_step(done) if kind == _COMPUTE else done
        sync = float(done.max())
        communicated = self.network.finish(sync, self.pace.communicate) if kind == _COMPUTE else sync
        close = communicated + self.pace.optimise if kind == _COMPUTE else sync
        sent = self.pace.communicate if kind == _COMPUTE else 0.0
        stop = self.stops[0][0] if self.stops else np.inf
        if close > stop:
            sent = 0.0 if sync >= stop else sent * self.network.share(sync, stop, communicated)
            own = own * [
                self._clock(kind, machine).share(self.now, stop, float(end)) for machine, end in enumerate(done)
            ]
            done, (sync, communicated, close) = np.minimum(done, stop), np.minimum((sync, communicated, close), stop)
        self._append(kind, own, done, (self.now, sync, communicated, close), sent)

    def _work(self) -> tuple[int, FloatArray]:
        """What comes next, and each machine's seconds of work in it."""
        unrest = self.rng.standard_normal(self.spec.machines)
        self.stall, self.stalled = self.rng.random(), int(self.rng.integers(self.spec.machines))
        self.stall_length = self.rng.standard_exponential()
        if self.now >= self.next_save:
            self.next_save = self.now + self.pace.save_every
            own = self.pace.save * (1 + 0.04 * np.abs(unrest))
            own[0] *= 1 + 0.15 * self.spec.conditions.rank0_duties  # rank 0 also writes the index
            return _SAVE, own
        if self.now >= self.next_evaluation:
            self.next_evaluation = self.now + self.pace.evaluate_every
            return _EVALUATE, self.pace.evaluate * (self.cluster.speed + 0.004 * unrest)
        work = self.cluster.speed + 0.004 * unrest
        if imbalance := self.spec.conditions.moe_imbalance:
            # which experts are popular drifts over some tens of iterations
            self.drift = 0.97 * self.drift + np.sqrt(1 - 0.97**2) * self.popularity.standard_normal(self.spec.machines)
            work = work * (1 + imbalance * self.drift)
        # the first iterations compile kernels and fill caches
        work = work * (1 + 2.0 * np.exp(-(self.now - self.started_at) / 20.0))
        return _COMPUTE, self.pace.compute * work

    def _in_step(self, done: FloatArray) -> FloatArray:
        """When each is done if it cannot be before the others of its pipeline replica and its expert group."""
        for group_of in (self.cluster.replica, self.cluster.expert_group):
            latest = np.full(int(group_of.max()) + 1, -np.inf)
            np.maximum.at(latest, group_of, done)
            if len(latest) < len(done):
                done = latest[group_of]
        return done

    def _stand_still(self, stop: float, start: float) -> None:
        """No process runs from ``stop`` to ``start``; then the task loads."""
        start = min(start, self.horizon)
        everyone = np.ones(self.spec.machines)
        if start > self.now:
            self._append(_DOWN, everyone * (start - self.now), everyone * start, (self.now, start, start, start), 0.0)
        if start < self.horizon:
            unrest = generator(self.spec.seed, f"load {stop:.0f}").random(self.spec.machines)
            own = self.pace.load * (1 + 0.1 * unrest)
            done = np.array(
                [self._clock(_LOAD, machine).finish(self.now, float(work)) for machine, work in enumerate(own)]
            )
            ready = float(done.max())
            self._append(_LOAD, own, done, (self.now, ready, ready, ready), 0.0)
            self.started_at = ready
            self.next_save = max(self.next_save, ready + 0.5 * self.pace.save_every)

    def _clock(self, kind: int, machine: int) -> _WorkClock:
        return self.clocks[kind].get(machine, _UNDISTURBED)

    def _append(
        self, kind: int, own: FloatArray, done: FloatArray, edges: tuple[float, float, float, float], sent: float
    ) -> None:
        self.kinds.append(kind)
        self.owns.append(own)
        self.dones.append(done)
        self.edges.append(edges)
        self.sent.append(sent)
        self.now = edges[3]


def _stops(spec: ClusterSpec, faults: Sequence[ActiveFault]) -> list[tuple[float, float]]:
    """(when the task stops, when it is started again), in order; inf: not within the data."""
    conditions, pause = spec.conditions, generator(spec.seed, "pause").uniform(30.0, 180.0)
    stops = [(fault.halt, fault.halt + fault.restart_after) for fault in faults if fault.halt is not None]
    if conditions.warm_up_at_seconds is not None:
        stops.append((-np.inf, conditions.warm_up_at_seconds))
    stops += [(at, at + pause) for at in (conditions.restart_at_seconds, conditions.swap_at_seconds) if at is not None]
    return sorted(stops)


def _hiccups(spec: ClusterSpec) -> tuple[Hiccup, ...]:
    rng = generator(spec.seed, "hiccups")
    count = rng.poisson(spec.conditions.hiccups_per_hour * spec.duration_seconds / 3600)
    seconds = np.exp(rng.uniform(0.0, np.log(15.0), count))
    starts, machines = rng.uniform(0, spec.duration_seconds, count), rng.integers(spec.machines, size=count)
    return tuple(
        Hiccup(int(machine), float(start), float(length))
        for machine, start, length in zip(machines, starts, seconds, strict=True)
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
                knots |= set(fault.turns().tolist())
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

    def share(self, start: float, until: float, end: float) -> float:
        """Share of the work between ``start`` and ``end`` that is done at ``until``."""
        if not start < until < end:
            return 1.0
        before, at, after = self.work_at(np.array([start, until, end]))
        return float((at - before) / (after - before))


_UNDISTURBED = _WorkClock(np.array([-1e9, 1e9]), [])


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
