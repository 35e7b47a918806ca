"""The hardware counters of a simulated task as its exporters show them; ``signs`` says how often what happens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trainminder.simulate.cluster import ClusterSpec, generator
from trainminder.simulate.faults import ActiveFault
from trainminder.simulate.sampling import Sampling, draw_sampling, sample_metric
from trainminder.simulate.sign_table import COUNTERS, STICKY_XIDS, SW_POWER_CAP, Change
from trainminder.types import FloatArray, Level, RawMetric

__all__ = ["Move", "ShownXid", "innocent", "sample_counters"]

NOT_EXPORTED: Mapping[Level, float] = {"device": 0.04, "machine": 0.08}
STICKY_XID = 0.02
CLEARED_PER_HOUR = 0.01
POWER_CAPS_PER_HOUR, POWER_CAP_SECONDS = 4.0, 5.0


@dataclass(frozen=True, slots=True)
class Move:
    """What a fault does to a counter of one machine, and of one device where it is a device's."""

    change: Change
    machine: int
    device: int
    fault: ActiveFault
    purpose: str
    """Of the stream that the amounts are drawn from."""


class ShownXid(NamedTuple):
    """An Xid that the device shows from a second (from the start of the data) on, until the next."""

    second: float
    machine: int
    device: int
    code: int


def sample_counters(
    spec: ClusterSpec, active: Sequence[ActiveFault], moves: Sequence[Move], xids: Sequence[ShownXid]
) -> tuple[RawMetric, ...]:
    """Every hardware counter, without the series of machines that export none."""
    counters = _Counters(spec, active, moves, xids, {level: draw_sampling(spec, level) for level in NOT_EXPORTED})
    return tuple(_exported(spec, counters.sample(name)) for name in COUNTERS)


def innocent(spec: ClusterSpec, rng: np.random.Generator, per_hour: float) -> Iterator[tuple[float, int, int]]:
    """Second, machine and device of what happens ``per_hour`` times an hour and machine without a fault."""
    count = rng.poisson(per_hour * spec.machines * spec.duration_seconds / 3600)
    seconds = rng.uniform(0, spec.duration_seconds, count)
    machines = rng.integers(spec.machines, size=count)
    devices = rng.integers(spec.devices_per_machine, size=count)
    yield from zip(seconds.tolist(), machines.tolist(), devices.tolist(), strict=True)


@dataclass(frozen=True, slots=True)
class _Counters:
    spec: ClusterSpec
    active: Sequence[ActiveFault]
    moves: Sequence[Move]
    xids: Sequence[ShownXid]
    samplings: Mapping[Level, Sampling]

    def sample(self, name: str) -> RawMetric:
        """One counter as its exporter shows it."""
        model = COUNTERS[name]
        sampling = self.samplings[model.level]
        devices = self.spec.devices_per_machine if model.level == "device" else 1
        values = np.zeros((self.spec.machines, devices, self.spec.samples))
        if model.is_gauge:
            self._fill_gauge(name, values, sampling)
        else:
            self._fill_counter(name, values, sampling)
        return sample_metric(self.spec, sampling, name, values, self.active)

    def _fill_gauge(self, name: str, values: FloatArray, sampling: Sampling) -> None:
        values += COUNTERS[name].healthy
        if name == "xid_code":
            rng = generator(self.spec.seed, "signs sticky")
            is_sticky = rng.random(values.shape[:2]) < STICKY_XID
            values += np.where(is_sticky, rng.choice(STICKY_XIDS, values.shape[:2]), 0)[:, :, None]
            for xid in sorted(self.xids):
                values[xid.machine, xid.device, _first(sampling, xid.machine, xid.second) :] = xid.code
        if name == "clock_throttle_reasons":
            for machine, device, part in self._power_caps(sampling):
                values[machine, device, part] = SW_POWER_CAP
        for move in self._moves_of(name):
            seconds = sampling.seconds[move.machine]
            row = values[move.machine, move.device]
            is_on = move.fault.envelope(seconds) > 0
            if move.change.how == "latch":
                row[_first(sampling, move.machine, move.fault.start) :] = move.change.amount
            elif move.change.how == "bits":
                row[is_on] = row[is_on].astype(np.int64) | int(move.change.amount)
            else:
                row[is_on] = move.change.amount

    def _fill_counter(self, name: str, values: FloatArray, sampling: Sampling) -> None:
        spec, model = self.spec, COUNTERS[name]
        rng = generator(spec.seed, f"signs counter {name}")
        shape = values.shape[:2]
        values[:, :, 0] += np.where(rng.random(shape) < model.used, 1 + rng.poisson(model.begins, shape), 0)
        count = rng.poisson(model.per_hour * shape[0] * shape[1] * spec.duration_seconds / 3600)
        where = [rng.integers(extent, size=count) for extent in values.shape]
        np.add.at(values, tuple(where), 1 + rng.poisson(model.step - 1, count))
        if name == "power_violation":
            for machine, device, part in self._power_caps(sampling):
                values[machine, device, part] += 0.3e6 * spec.interval_seconds
        for move in self._moves_of(name):
            device = move.device if model.level == "device" else 0
            values[move.machine, device] += self._rises(move, sampling)
        np.cumsum(values, axis=2, out=values)
        for machine, second in self._restarts(name):
            first = _first(sampling, machine, second)
            if 0 < first < spec.samples:
                values[machine, :, first:] -= values[machine, :, first - 1, None]

    def _rises(self, move: Move, sampling: Sampling) -> FloatArray:
        """What a fault adds to a counter at each sample, (sample,)."""
        rng = generator(self.spec.seed, f"{move.purpose} {move.change.counter}")
        seconds = sampling.seconds[move.machine]
        rises = np.zeros(len(seconds))
        if move.change.how == "rate":
            # since the sample before
            lasted = np.diff(seconds, prepend=seconds[0] - self.spec.interval_seconds)
            rises += rng.poisson(move.change.amount * move.fault.envelope(seconds) * np.maximum(lasted, 0))
        else:
            first = _first(sampling, move.machine, move.fault.start)
            rises[first : first + 1] += 1 + rng.poisson(move.change.amount - 1)
        return rises

    def _moves_of(self, name: str) -> Iterator[Move]:
        return (move for move in self.moves if move.change.counter == name)

    def _power_caps(self, sampling: Sampling) -> Iterator[tuple[int, int, slice]]:
        rng = generator(self.spec.seed, "signs power cap")
        per_hour = POWER_CAPS_PER_HOUR * self.spec.devices_per_machine
        for second, machine, device in list(innocent(self.spec, rng, per_hour)):
            last = second + POWER_CAP_SECONDS * float(rng.standard_exponential())
            yield machine, device, slice(_first(sampling, machine, second), _first(sampling, machine, last))

    def _restarts(self, name: str) -> Iterator[tuple[int, float]]:
        """Machine and second at which a counter begins again from zero."""
        if name.startswith("ib_"):
            rng = generator(self.spec.seed, "signs cleared")
            yield from ((machine, second) for second, machine, _ in innocent(self.spec, rng, CLEARED_PER_HOUR))
        for fault in self.active:
            if fault.model.silences == "machine":
                for machine in fault.machines:
                    yield machine, fault.end


def _exported(spec: ClusterSpec, metric: RawMetric) -> RawMetric:
    """Without the series of machines whose exporter does not give these counters."""
    level = COUNTERS[metric.metric].level
    absent = generator(spec.seed, f"signs not exported {level}").random(spec.machines) < NOT_EXPORTED[level]
    names = {spec.machine_name(machine) for machine in np.flatnonzero(absent).tolist()}
    kept = np.array([machine not in names for machine in metric.machines], dtype=bool)
    counts = np.diff(metric.offsets)
    samples = np.repeat(kept, counts)
    chosen = np.flatnonzero(kept).tolist()
    return RawMetric(
        metric=metric.metric,
        machines=tuple(metric.machines[i] for i in chosen),
        devices=tuple(metric.devices[i] for i in chosen),
        offsets=np.concatenate(([0], np.cumsum(counts[kept]))).astype(np.int64),
        times=metric.times[samples],
        values=metric.values[samples],
        interval_seconds=metric.interval_seconds,
    )


def _first(sampling: Sampling, machine: int, second: float) -> int:
    """The first sample that shows what happened at a second."""
    return int(np.searchsorted(sampling.seconds[machine], second))
