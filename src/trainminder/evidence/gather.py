"""Gathering: the signs of all metrics on one grid of instants, machine by machine and cause by cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainminder.align import STRETCHES
from trainminder.carrying import carried
from trainminder.evidence.causes import CAUSES, DECLARED, DOWNWARDS, REPORTING, Cause, cause_of
from trainminder.evidence.departure import Departures
from trainminder.evidence.gather_kernel import of_machines
from trainminder.evidence.life import Life
from trainminder.evidence.silence import Silence
from trainminder.types import BoolArray, Float32Array, FloatArray

__all__ = ["MetricSigns", "Rhythm", "Signs", "gather", "rhythm_of", "signs_of"]

#: Instants that are put together at a time: memory grows with these, not with the length of the data.
AT_A_TIME = 256
#: Share of the machines that depart in a metric beyond which it is no machine's doing; of three or more, the second.
MOST_DEPARTING, MOST_OF_SEVERAL = 1.0 / 2.0, 1.0 / 3.0
#: Share of a machine's metrics that must have ceased for the machine to be silent.
SILENT_SHARE = 0.6
#: Words in the names of declared metrics that measure waiting for others: a long wait is a victim's, and a short one
#: may be the culprit's, so they convict nobody while somebody departs in what is no waiting.
WAITING = ("recv", "wait", "send", "comm", "reduce", "gather", "sync", "barrier")


@dataclass(frozen=True, slots=True, eq=False)
class MetricSigns:
    """What one metric says of each machine at its own instants.

    (instant, machine): ``weight`` in hundredths, the most of its rows; ``size`` of the row that departs the most;
    ``device``: ordinal of that row among the machine's devices, -1 if the machine as a whole departs more;
    ``devices``: how many devices depart; ``ceased``, ``ever`` as ``silence.Silence`` has them. (instant,): ``counts``,
    whether the metric counts; ``impact`` as ``life.progress`` gave it.
    """

    metric: str
    step_seconds: float
    machines: tuple[str, ...]
    times: FloatArray
    weight: np.ndarray
    size: np.ndarray
    device: np.ndarray
    devices: np.ndarray
    ceased: BoolArray
    ever: BoolArray
    counts: BoolArray
    impact: np.ndarray

    def at(self, times: FloatArray, step: float) -> tuple[np.ndarray, BoolArray]:
        """Index of the newest sample at each of these instants, and whether it is recent enough to count.

        Args:
            step: seconds between the instants.
        """
        index = np.searchsorted(self.times, times + 1e-6) - 1
        found = np.maximum(index, 0)
        is_recent = times - self.times[found] < 1.5 * max(self.step_seconds, step)
        return found, (index >= 0) & is_recent & self.counts[found]

    def last(self) -> MetricSigns:
        """Its last instant alone."""
        return self._with({name: getattr(self, name)[-1:].copy() for name in OF_INSTANTS}, self.machines)

    def of(self, machines: tuple[str, ...]) -> MetricSigns:
        """The same of other machines; those that were not known said nothing."""
        if machines is self.machines or machines == self.machines:
            return self
        arrays = {name: getattr(self, name) for name in OF_INSTANTS}
        for name in OF_MACHINES:
            arrays[name] = carried(machines, self.machines, arrays[name].T, FRESH.get(name, 0)).T
        return self._with(arrays, machines)

    def after(self, last: MetricSigns | None) -> MetricSigns:
        """With an instant before the first."""
        if last is None:
            return self
        last = last.of(self.machines)
        both = {name: np.concatenate((getattr(last, name), getattr(self, name))) for name in OF_INSTANTS}
        return self._with(both, self.machines)

    def _with(self, arrays: Mapping[str, np.ndarray], machines: tuple[str, ...]) -> MetricSigns:
        return MetricSigns(self.metric, self.step_seconds, machines, **arrays)


#: The arrays of ``MetricSigns`` by machine, and all of them. What a machine has that was not known: 0, but for these.
OF_MACHINES = ("weight", "size", "device", "devices", "ceased", "ever")
OF_INSTANTS = ("times", *OF_MACHINES, "counts", "impact")
FRESH = {"device": -1}


@dataclass(frozen=True, slots=True)
class Rhythm:
    """The instants at which all metrics are judged together: ``origin + k * step_seconds``, from ``next`` on."""

    origin: float
    step_seconds: float
    next: int = 0

    def until(self, newest: float) -> tuple[FloatArray, Rhythm]:
        """The instants up to that one, and what is left."""
        last = int(np.floor((newest - self.origin) / self.step_seconds + 1e-6))
        times = self.origin + self.step_seconds * np.arange(self.next, last + 1, dtype=np.float64)
        return times, replace(self, next=max(self.next, last + 1))


@dataclass(frozen=True, slots=True)
class Signs:
    """What all metrics say at some instants: (instant, machine, cause), but for ``live`` and ``impact``: (instant,).

    ``there``: (instant, machine), whether it is one of the task: known to report anything.
    """

    times: FloatArray
    step_seconds: float
    live: BoolArray
    impact: np.ndarray
    there: BoolArray
    causes: tuple[Cause, ...]
    weight: Float32Array
    size: Float32Array


def signs_of(
    views: Sequence[Departures], silence: Silence, counts: BoolArray, impact: np.ndarray | None
) -> MetricSigns:
    """What the views of one metric say of each machine.

    Args:
        counts: (new instant,) whether the metric counts.
        impact: as ``life.progress`` gave it.
    """
    panel = views[0].panel
    times = panel.times[panel.first :]
    shape = (len(times), len(panel.machines))
    weight, size = np.full(shape, -128, dtype=np.int8), np.zeros(shape, dtype=np.float32)
    device, devices = np.full(shape, -1, dtype=np.int16), np.zeros(shape, dtype=np.int16)
    for view in views:
        is_device = view.panel.view == "device"
        of_machines(view.weight, view.size, view.panel.row_machine, is_device, weight, size, device, devices)
    # A machine without a row in this metric says nothing.
    weight[weight == -128] = 0
    return MetricSigns(
        panel.metric,
        panel.step_seconds,
        panel.machines,
        times,
        weight,
        size,
        device,
        devices,
        silence.ceased,
        silence.ever,
        counts,
        np.zeros(len(times), dtype=np.int8) if impact is None else impact,
    )


def rhythm_of(metrics: Sequence[MetricSigns]) -> Rhythm:
    """The rhythm of the typical metric of those there from the beginning, from its first instant on."""
    began = min(float(metric.times[0]) for metric in metrics)
    early = [metric for metric in metrics if metric.times[0] < began + STRETCHES[0]]
    step = float(np.median([metric.step_seconds for metric in early]))
    fine = [metric for metric in early if metric.step_seconds <= 1.01 * step]
    typical = min(fine, key=lambda metric: metric.step_seconds)
    return Rhythm(float(typical.times[0]), typical.step_seconds)


def gather(
    metrics: Sequence[MetricSigns], life: Life, times: FloatArray, step: float, known: Sequence[Cause]
) -> Iterator[Signs]:
    """The signs of all metrics at these instants, some at a time.

    Args:
        known: causes that are to be there whatever metrics there are.
    """
    by_metric = [cause_of(metric.metric) for metric in metrics]
    downwards = [CAUSES[DOWNWARDS[cause.name]] for cause in by_metric if cause.name in DOWNWARDS]
    # In one order, whichever came first; the silence of a machine last.
    some = {*by_metric, *downwards, *known} - {REPORTING}
    causes = (*sorted(some, key=lambda cause: cause.name), REPORTING)
    place = {metric.metric: causes.index(cause_of(metric.metric)) for metric in metrics}
    for begin in range(0, len(times), AT_A_TIME):
        yield _signs(metrics, life, times[begin : begin + AT_A_TIME], step, causes, place)


def _signs(
    metrics: Sequence[MetricSigns],
    life: Life,
    times: FloatArray,
    step: float,
    causes: tuple[Cause, ...],
    place: Mapping[str, int],
) -> Signs:
    shape = (len(times), len(metrics[0].machines), len(causes))
    weight = np.full(shape, -0.5, dtype=np.float32)
    size = np.zeros(shape, dtype=np.float32)
    impact = np.zeros(len(times), dtype=np.int8)
    ceased, ever = np.zeros(shape[:2], dtype=np.int16), np.zeros(shape[:2], dtype=np.int16)
    there = np.zeros(shape[:2], dtype=np.bool_)
    is_work_departing = np.zeros(len(times), dtype=np.bool_)
    at = {metric.metric: metric.at(times, step) for metric in metrics}
    for metric in metrics:
        index, counts = at[metric.metric]
        ceased += metric.ceased[index] & counts[:, None]
        ever += metric.ever[index] & counts[:, None]
        # Who reported is of the task until it is forgotten, whether or not the metric counts now.
        there |= metric.ever[index] & (metric.times[index] <= times + 1e-6)[:, None]
        if cause_of(metric.metric) is DECLARED and not _is_waiting(metric.metric):
            is_work_departing |= counts & (metric.weight[index] > 0).any(axis=1)
    machines = np.maximum(there.sum(axis=1), 1)
    for metric in metrics:
        index, counts = at[metric.metric]
        c = place[metric.metric]
        # A metric that has not begun says nothing; one that does not count now holds what was.
        otherwise = np.where(metric.times[index] <= times + 1e-6, np.float32(0), np.float32(-0.5))[:, None]
        its = np.where(counts[:, None], metric.weight[index] / np.float32(100), otherwise)
        departs = its > 0
        departing = departs.sum(axis=1)
        share = departing / machines
        common = (share > MOST_DEPARTING) | ((share > MOST_OF_SEVERAL) & (departing >= 3))
        if causes[c] is DECLARED and _is_waiting(metric.metric):
            common |= is_work_departing
        its[common[:, None] & departs] = 0
        departs &= ~common[:, None]
        signed = np.where(counts[:, None], metric.size[index], 0)
        if (other := DOWNWARDS.get(causes[c].name)) is not None:
            falls = departs & (signed < 0)
            down = causes.index(CAUSES[other])
            _add(its * falls, -signed * falls, weight[:, :, down], size[:, :, down])
            its, signed = np.where(falls, np.float32(-0.5), its), np.where(falls, 0, signed)
        _add(its, np.abs(signed), weight[:, :, c], size[:, :, c])
        impact = np.maximum(impact, np.where(counts, metric.impact[index], 0)).astype(np.int8)
    is_silent = (ever > 0) & (ceased >= SILENT_SHARE * np.maximum(ever, 1))
    weight[:, :, -1] = np.where(is_silent, 1.0, -0.5)
    return Signs(times, step, life.at(times), impact, there, causes, weight, size)


def _add(its: Float32Array, how_far: FloatArray, weight: Float32Array, size: Float32Array) -> None:
    """Add what one metric says to what its cause says: (instant, machine) each; the last two are changed."""
    np.maximum(weight, its, out=weight)
    np.maximum(size, how_far, out=size)


def _is_waiting(metric: str) -> bool:
    return any(word in metric for word in WAITING)
