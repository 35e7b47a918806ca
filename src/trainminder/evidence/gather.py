"""Gathering: the signs of all metrics on one grid of instants, machine by machine and cause by cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainminder.evidence.causes import CAUSES, DECLARED, DOWNWARDS, REPORTING, Cause, cause_of
from trainminder.evidence.departure import Departures
from trainminder.evidence.gather_kernel import of_machines
from trainminder.evidence.life import Life
from trainminder.evidence.silence import Silence
from trainminder.types import BoolArray, Float32Array, FloatArray

__all__ = ["MetricSigns", "Signs", "gather", "grid_of", "signs_of"]

#: Instants that are put together at a time: memory grows with these, not with the length of the data.
AT_A_TIME = 256
#: Share of the machines that depart in a metric beyond which it is no machine's doing; of three or more, the second.
MOST_DEPARTING, MOST_OF_SEVERAL = 1.0 / 2.0, 1.0 / 3.0
#: Share of a machine's metrics that must have ceased for the machine to be silent.
SILENT_SHARE = 0.6
#: Words in the names of declared metrics that measure waiting for others: a long wait is a victim's, and a short one
#: may be the culprit's, so they convict nobody while somebody departs in what is no waiting.
WAITING = ("recv", "wait", "send", "comm", "reduce", "gather", "sync", "barrier")


@dataclass(frozen=True, slots=True)
class MetricSigns:
    """What one metric says of each machine at its own instants.

    (instant, machine): ``weight`` in hundredths, the most of its rows; ``size`` of the row that departs the most;
    ``device``: ordinal of that row among the machine's devices, -1 if the machine as a whole departs more;
    ``devices``: how many devices depart. ``impact``: (instant,) as ``life.progress`` gave it, or None.
    """

    metric: str
    step_seconds: float
    times: FloatArray
    weight: np.ndarray
    size: np.ndarray
    device: np.ndarray
    devices: np.ndarray
    silence: Silence
    impact: np.ndarray | None

    def at(self, times: FloatArray) -> tuple[np.ndarray, BoolArray]:
        """Index of the newest sample at each of these instants, and whether it is recent enough to count."""
        index = np.searchsorted(self.times, times + 1e-6) - 1
        found = np.maximum(index, 0)
        is_recent = times - self.times[found] < 1.5 * max(self.step_seconds, float(np.diff(times[:2]).sum()))
        return found, (index >= 0) & is_recent


@dataclass(frozen=True, slots=True)
class Signs:
    """What all metrics say at some instants: (instant, machine, cause) but for ``live`` and ``impact``: (instant,)."""

    times: FloatArray
    step_seconds: float
    live: BoolArray
    impact: np.ndarray
    causes: tuple[Cause, ...]
    weight: Float32Array
    size: Float32Array


def signs_of(views: Sequence[Departures], silence: Silence, impact: np.ndarray | None) -> MetricSigns:
    """What the views of one metric say of each machine."""
    panel = views[0].panel
    times = panel.times[views[0].first :]
    shape = (len(times), len(panel.machines))
    weight, size = np.full(shape, -128, dtype=np.int8), np.zeros(shape, dtype=np.float32)
    device, devices = np.full(shape, -1, dtype=np.int16), np.zeros(shape, dtype=np.int16)
    for view in views:
        is_device = view.panel.view == "device"
        of_machines(view.weight, view.size, view.panel.row_machine, is_device, weight, size, device, devices)
    # A machine without a row in this metric says nothing.
    weight[weight == -128] = 0
    return MetricSigns(panel.metric, panel.step_seconds, times, weight, size, device, devices, silence, impact)


def grid_of(metrics: Sequence[MetricSigns]) -> tuple[FloatArray, float]:
    """The instants at which all metrics are judged together, and their step: those of the typical metric."""
    step = float(np.median([metric.step_seconds for metric in metrics]))
    fine = [metric for metric in metrics if metric.step_seconds <= 1.01 * step]
    return max(fine, key=lambda metric: len(metric.times)).times, step


def gather(metrics: Sequence[MetricSigns], life: Life) -> Iterator[Signs]:
    """The signs of all metrics, some instants at a time."""
    times, step = grid_of(metrics)
    by_metric = [cause_of(metric.metric) for metric in metrics]
    downwards = [CAUSES[DOWNWARDS[cause.name]] for cause in by_metric if cause.name in DOWNWARDS]
    causes = tuple(dict.fromkeys((*by_metric, *downwards, REPORTING)))
    place = {metric.metric: causes.index(cause_of(metric.metric)) for metric in metrics}
    for begin in range(0, len(times), AT_A_TIME):
        some = times[begin : begin + AT_A_TIME]
        yield _signs(metrics, life, some, step, causes, place)


def _signs(
    metrics: Sequence[MetricSigns],
    life: Life,
    times: FloatArray,
    step: float,
    causes: tuple[Cause, ...],
    place: Mapping[str, int],
) -> Signs:
    shape = (len(times), metrics[0].weight.shape[1], len(causes))
    weight = np.full(shape, -0.5, dtype=np.float32)
    size = np.zeros(shape, dtype=np.float32)
    impact = np.zeros(len(times), dtype=np.int8)
    ceased, ever = np.zeros(shape[:2], dtype=np.int16), np.zeros(shape[:2], dtype=np.int16)
    is_work_departing = np.zeros(len(times), dtype=np.bool_)
    at = {metric.metric: metric.at(times) for metric in metrics}
    for metric in metrics:
        if cause_of(metric.metric) is DECLARED and not _is_waiting(metric.metric):
            index, counts = at[metric.metric]
            is_work_departing |= counts & (metric.weight[index] > 0).any(axis=1)
    for metric in metrics:
        index, counts = at[metric.metric]
        c = place[metric.metric]
        its = np.where(counts[:, None], metric.weight[index] / np.float32(100), np.float32(0))
        departs = its > 0
        share = departs.mean(axis=1)
        common = (share > MOST_DEPARTING) | ((share > MOST_OF_SEVERAL) & (departs.sum(axis=1) >= 3))
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
        ceased += metric.silence.ceased[index] & counts[:, None]
        ever += metric.silence.ever[index] & counts[:, None]
        if metric.impact is not None:
            impact = np.maximum(impact, np.where(counts, metric.impact[index], 0)).astype(np.int8)
    is_silent = (ever > 0) & (ceased >= SILENT_SHARE * np.maximum(ever, 1))
    weight[:, :, -1] = np.where(is_silent, 1.0, -0.5)
    return Signs(times, step, life.at(times), impact, causes, weight, size)


def _add(its: Float32Array, how_far: FloatArray, weight: Float32Array, size: Float32Array) -> None:
    """Add what one metric says to what its cause says: (instant, machine) each; the last two are changed."""
    np.maximum(weight, its, out=weight)
    np.maximum(size, how_far, out=size)


def _is_waiting(metric: str) -> bool:
    return any(word in metric for word in WAITING)
