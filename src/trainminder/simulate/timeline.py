"""Synchronous training in time: every iteration lasts as long as its slowest machine.

An iteration is compute, communication, optimiser; checkpoints and evaluations come in between. A machine
that is done early spins in the collective until the last one arrives, so its device stays busy without
working. Communication goes at the pace of the slowest link, for all machines alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

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
    stuck: dict[int, Stuck] = field(default_factory=dict)
    """Culprit machine -> how it spends the time it loses."""

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
        shares[_COMMUNICATE] = _share(until, window_seconds, self.sync[training], self.communicated[training], work)
        shares[_OPTIMISE] = _share(until, window_seconds, self.communicated[training], self.close[training])
        for state in _OWN:
            chosen = self.kind == state
            for machine in range(len(until)) if chosen.any() else ():
                shares[state, machine] = _share(
                    until[machine],
                    window_seconds,
                    self.start[chosen],
                    self.done[chosen, machine],
                    self.own[chosen, machine],
                )
        shares[_WAIT] = np.clip(1 - shares.sum(axis=0), 0, 1)
        return shares

    def with_lost_time(self, shares: FloatArray, machine: int, until: FloatArray, window_seconds: float) -> FloatArray:
        """One machine's shares, (state, sample), with the time it lost in the state its fault puts it in."""
        mine = shares[:, machine].copy()
        lost = np.clip(self.done[:, machine] - self.start - self.own[:, machine], 0, None)
        share = _share(until[machine], window_seconds, self.start, self.done[:, machine], lost)
        share = np.minimum(share, mine[_WAIT])
        mine[_WAIT] -= share
        mine[STATES.index(self.stuck[machine])] += share
        return mine


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

    next_save, next_evaluation = rng.uniform(0.2, 1.0, 2) * (pace.save_every, pace.evaluate_every)
    kinds: list[int] = []
    edges: list[tuple[float, float, float, float]] = []
    dones: list[FloatArray] = []
    owns: list[FloatArray] = []
    while now < horizon:
        unrest = rng.standard_normal(spec.machines)
        stalls, stalled, stall = rng.random(), int(rng.integers(spec.machines)), rng.standard_exponential()
        clocks = compute
        if now >= next_save:
            kind, clocks, next_save = _SAVE, save, now + pace.save_every
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
        for machine, clock in clocks.items():
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
    )


class _WorkClock:
    """Work done up to each instant when faults take their share of the progress."""

    def __init__(self, grid: FloatArray, losses: Iterable[tuple[ActiveFault, float]]) -> None:
        rate = np.ones(len(grid) - 1)
        for fault, loss in losses:
            if loss:
                rate = np.minimum(rate, 1 - loss * fault.envelope(grid[:-1]))
        self._is_undisturbed = bool((rate == 1).all())
        self._grid = grid
        self._done = np.concatenate(([0.0], np.cumsum(np.maximum(rate, _SLOWEST_RATE) * np.diff(grid))))

    def finish(self, start: float, work_seconds: float) -> float:
        """When work begun at ``start`` is done; beyond the end of the grid progress goes at full speed."""
        if self._is_undisturbed:
            return start + work_seconds
        target = float(np.interp(start, self._grid, self._done)) + work_seconds
        beyond = max(0.0, target - float(self._done[-1])) + max(0.0, start - float(self._grid[-1]))
        return float(np.interp(target, self._done, self._grid)) + beyond


def _share(
    until: FloatArray, window_seconds: float, start: FloatArray, end: FloatArray, amount: FloatArray | None = None
) -> FloatArray:
    """Share of each window that falls into the spans, whose ``amount`` is spread evenly over their length."""
    edges = np.stack((start, end), axis=-1).ravel()
    amount = end - start if amount is None else amount
    total = np.zeros(len(edges))
    total[1::2] = amount
    total = np.cumsum(total)
    within: FloatArray = np.interp(until, edges, total) - np.interp(until - window_seconds, edges, total)
    return within / window_seconds
