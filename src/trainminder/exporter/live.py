"""A simulated task that goes on for as long as somebody looks at it."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from trainminder.simulate import ClusterSpec, Fault, simulate_task
from trainminder.simulate.faults import activate
from trainminder.simulate.sign_table import COUNTERS
from trainminder.simulate.signs import simulate_signs
from trainminder.types import FloatArray, MetricSpec, RawMetric, Truth

__all__ = ["LiveTask", "Reading"]

#: A value older than so many intervals is not shown: its device or machine has gone silent.
FRESH_INTERVALS = 2.5
#: The next piece is simulated once so much of the present one has passed.
PREPARE_AT = 0.75
#: Gauges that keep what was last seen rather than say what is so now.
_LATCHED = ("xid_code", "row_remap_failed")
#: A fault that goes on is at its strength at once.
_AT_ONCE_SECONDS = 1e-6


@dataclass(frozen=True, slots=True)
class Reading:
    """What one series shows: its ``last`` value, and the ``total`` of it over time (a rate's counter)."""

    last: float
    total: float


@dataclass(frozen=True, slots=True)
class _Series:
    """``times``: (sample,) seconds from the piece's beginning; ``totals``: (1 + sample,), from 0 there."""

    times: FloatArray
    values: FloatArray
    totals: FloatArray

    def total_at(self, second: float) -> float:
        known = float(np.interp(second, np.concatenate(([0.0], self.times)), self.totals))
        return known + float(self.values[-1]) * max(0.0, second - float(self.times[-1]))


@dataclass(frozen=True, slots=True)
class _Piece:
    """A stretch of the task, [begins, ends) in seconds from its start; metric -> machine -> device -> series.

    ``before``: what the series of earlier pieces came to, by the same keys.
    """

    begins: float
    ends: float
    series: Mapping[str, Mapping[str, Mapping[str | None, _Series]]]
    before: Mapping[tuple[str, str, str | None], Reading]


class LiveTask:
    """A simulated task with at most one fault, that can be looked at from several threads; time only goes forward.

    The task is simulated in pieces of ``spec.duration_seconds``, the first as asked, the next one always while the
    present one is shown. ``truths`` are those of the first. A later piece has the same cluster with the same permanent
    differences and the fault, if there is one, at its full strength from its beginning; it is longer by one more sample
    each time, so that its noise is drawn anew. Counters go on from piece to piece, and the iterations begin afresh.
    Losses and gaps are left to whoever scrapes.

    Raises:
        SettingsError: a fault that does not fit the cluster.
    """

    def __init__(self, spec: ClusterSpec, fault: Fault | None, specs: Mapping[str, MetricSpec]) -> None:
        self.spec = dataclasses.replace(spec, missing_ratio=0.0, gaps_per_hour=0.0)
        self.machines = tuple(spec.machine_name(index) for index in range(spec.machines))
        self._specs = specs
        self._fault = fault
        self._active = activate(spec, [fault])[0] if fault else None
        self._lock = threading.Lock()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="simulate")
        self._next: Future[tuple[_Piece, tuple[Truth, ...]]] | None = None
        self._piece, self.truths = self._simulate(0, None)
        self._number = 0

    def read(self, machine: str, second: float) -> dict[str, dict[str | None, Reading]]:
        """What a machine shows at a second from the start, by metric (hardware counters too) and device.

        A device or machine that a fault silences is not there.
        """
        piece = self._piece_at(second)
        shown: dict[str, dict[str | None, Reading]] = {}
        for metric, machines in piece.series.items():
            for device, series in machines.get(machine, {}).items():
                before = piece.before.get((metric, machine, device))
                reading = self._reading(metric, series, second - piece.begins, before)
                if reading is not None:
                    shown.setdefault(metric, {})[device] = reading
        return shown

    def close(self) -> None:
        """Simulate no more."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _reading(self, metric: str, series: _Series, second: float, before: Reading | None) -> Reading | None:
        place = max(int(np.searchsorted(series.times, second, side="right")) - 1, 0)
        at, last = float(series.times[place]), float(series.values[place])
        if abs(second - at) > FRESH_INTERVALS * self.spec.interval_seconds:
            return None
        if metric in COUNTERS:
            return Reading(_carried(metric, series, last, before), 0.0)
        return Reading(last, series.total_at(second) + (before.total if before else 0.0))

    def _piece_at(self, second: float) -> _Piece:
        with self._lock:
            while second >= self._piece.ends:
                self._piece, _ = self._upcoming().result()
                self._next = None
                self._number += 1
            if second >= self._piece.begins + PREPARE_AT * (self._piece.ends - self._piece.begins):
                self._upcoming()
            return self._piece

    def _upcoming(self) -> Future[tuple[_Piece, tuple[Truth, ...]]]:
        if self._next is None:
            self._next = self._worker.submit(self._simulate, self._number + 1, self._piece)
        return self._next

    def _simulate(self, number: int, earlier: _Piece | None) -> tuple[_Piece, tuple[Truth, ...]]:
        seconds = self.spec.duration_seconds + number * self.spec.interval_seconds
        spec = dataclasses.replace(self.spec, duration_seconds=seconds)
        faults = [] if self._fault is None else [self._fault if earlier is None else self._goes_on(self._fault)]
        raw, truths = simulate_task(spec, faults, specs=self._specs)
        begins = earlier.ends if earlier else 0.0
        series = {
            metric.metric: self._by_machine(metric) for metric in (*raw.metrics, *simulate_signs(spec, faults).counters)
        }
        return _Piece(begins, begins + seconds, series, _after(earlier) if earlier else {}), truths

    def _goes_on(self, fault: Fault) -> Fault:
        device = self._active.device if self._active else None
        return dataclasses.replace(fault, onset_seconds=0.0, ramp_seconds=_AT_ONCE_SECONDS, device=device)

    def _by_machine(self, metric: RawMetric) -> dict[str, dict[str | None, _Series]]:
        found: dict[str, dict[str | None, _Series]] = {}
        for i, (machine, device) in enumerate(zip(metric.machines, metric.devices, strict=True)):
            part = slice(int(metric.offsets[i]), int(metric.offsets[i + 1]))
            times, values = metric.times[part] - self.spec.start_at, metric.values[part]
            # over a hole nothing is counted
            lasted = np.minimum(np.diff(times, prepend=0.0), FRESH_INTERVALS * self.spec.interval_seconds)
            totals = np.concatenate(([0.0], np.cumsum(values * lasted)))
            found.setdefault(machine, {})[device] = _Series(times, values, totals)
        return found


def _carried(metric: str, series: _Series, last: float, before: Reading | None) -> float:
    """A hardware counter that goes on from where an earlier piece left it."""
    if before is None:
        return last
    if not COUNTERS[metric].is_gauge:
        return before.last + max(0.0, last - float(series.values[0]))
    return before.last if metric in _LATCHED and last == series.values[0] else last


def _after(piece: _Piece) -> dict[tuple[str, str, str | None], Reading]:
    """What every series has come to at the end of a piece."""
    ends: dict[tuple[str, str, str | None], Reading] = dict(piece.before)
    for metric, machines in piece.series.items():
        for machine, devices in machines.items():
            for device, series in devices.items():
                key = metric, machine, device
                before, last = piece.before.get(key), float(series.values[-1])
                if metric in COUNTERS:
                    ends[key] = Reading(_carried(metric, series, last, before), 0.0)
                else:
                    total = series.total_at(piece.ends - piece.begins)
                    ends[key] = Reading(last, total + (before.total if before else 0.0))
    return ends
