"""The oracle: told what broke and when, but not on which machine. It shows that a fault is visible, and how well.

Of each fault of a task it is told the type, and so the metrics that it shows in (``simulate.FAULT_MODELS``: those of
the culprit, and those in which lost work shows), its onset and its end. It names the machine whose change against its
peers, from before the onset to between onset and end, is the largest in any of these metrics, beside what such changes
of the other machines are. A fault that may silence a machine or a device also shows as samples that cease. Faults of
the same type, onset and end are one fault of a group, for which one machine is named. On a healthy task it says
nothing. What it says is no detection: everything up to the fault's end is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainminder.align import column_medians
from trainminder.bench.methods.prepared import Channel, prepare
from trainminder.bench.types import LabelledTask
from trainminder.simulate import FAULT_MODELS
from trainminder.types import BoolArray, FloatArray, IntArray, RawTask, Verdict

__all__ = ["LOST_WORK", "Oracle"]

#: Metrics of a device that does not get on with its work, whatever keeps it.
LOST_WORK = (
    "gpu_duty_cycle",
    "gpu_power_draw",
    "gpu_graphics_activity",
    "gpu_tensor_activity",
    "gpu_sm_activity",
    "gpu_sm_clock",
    "gpu_fp_activity",
    "gpu_memory_bandwidth",
    "nvlink_bandwidth",
    "pcie_bandwidth",
    "rdma_throughput",
    "cpu_usage",
)
#: A change is counted in robust standard deviations of the peers' changes, or in this share of the metric's ordinary
#: spread between machines where peers agree better than that.
LEAST_SHARE = 0.1
#: Windows before the onset and after it without which there is nothing to compare.
LEAST_WINDOWS = 3
#: What weighs a machine whose samples ceased while those of its peers went on.
SILENT = 1e6

Fault = tuple[str, float, float]


class Oracle:
    """Names the most changed machine for each fault; of several faults, different ones."""

    name = "oracle"
    thresholds = (0.0,)

    def judge(self, task: LabelledTask, thresholds: Sequence[float]) -> list[tuple[Verdict, ...]]:
        """The same at each threshold: how much a machine must have changed at least, in robust deviations."""
        faults = sorted({(truth.fault_type, truth.start, truth.end) for truth in task.truths})
        changed = [(fault, *_changes(task.raw, fault)) for fault in faults]
        return [_named(task.raw, changed, threshold) for threshold in thresholds]


def told_metrics(fault_type: str) -> tuple[str, ...]:
    """The metrics in which that fault shows on the culprit; none where every one is looked at, as for unknown types."""
    model = FAULT_MODELS.get(fault_type)
    if model is None:
        return ()
    own = tuple(effect.metric for effect in model.effects if effect.scope != "peers")
    return own + (LOST_WORK if model.compute or model.communicate or model.save else ())


def _named(
    raw: RawTask, changed: Sequence[tuple[Fault, FloatArray, list[str]]], threshold: float
) -> tuple[Verdict, ...]:
    verdicts = []
    free = np.ones(len(raw.machines), dtype=np.bool_)
    waiting = list(changed)
    while waiting:
        # The clearest first: two at once may show in the same metrics.
        fault, change, metrics = max(waiting, key=lambda each: float(np.where(free, each[1], -1.0).max()))
        waiting = [each for each in waiting if each[0] != fault]
        machine = int(np.where(free, change, -1.0).argmax())
        if change[machine] > threshold:
            free[machine] = False
            _, start, end = fault
            score = round(float(change[machine]), 3)
            verdicts.append(Verdict(raw.machines[machine], None, metrics[machine], start, min(end, raw.to_at), score))
    return tuple(verdicts)


def _changes(raw: RawTask, fault: Fault) -> tuple[FloatArray, list[str]]:
    """(machine,) the largest change of each, and the metric it is of."""
    prepared = prepare(raw)
    fault_type, start, end = fault
    told = told_metrics(fault_type) or None
    model = FAULT_MODELS.get(fault_type)
    largest, metrics = np.zeros(len(raw.machines)), [""] * len(raw.machines)
    for channel in prepared.of_metrics(told if model is None or model.silences is None else None):
        is_told = told is None or channel.panel.metric in told
        change = _change(channel, prepared.group_of, start, end) if is_told else np.zeros(len(largest))
        if model is not None and model.silences is not None:
            change = np.where(_ceased(channel, start, end), SILENT, change)
        for machine in np.flatnonzero(change > largest).tolist():
            largest[machine], metrics[machine] = change[machine], channel.panel.metric
    return largest, metrics


def _change(channel: Channel, group_of: IntArray, start: float, end: float) -> FloatArray:
    """(machine,) how far each one's change lies from the median change of its group, in robust deviations."""
    before, during = _parts(channel, start, end)
    means, judged = _means(channel), channel.judged
    change = np.zeros(len(group_of))
    for group in np.unique(group_of[group_of >= 0]):
        members = np.flatnonzero(group_of == group)
        seen = judged[members]
        beside = np.where(seen, means[members] - column_medians(means[members], seen), np.nan)
        moved = _mean_of(beside[:, during])
        if before.sum() >= LEAST_WINDOWS:
            moved = moved - np.nan_to_num(_mean_of(beside[:, before]))
        known = ~np.isnan(moved)
        if known.sum() < 3:
            continue
        moved[known] -= np.median(moved[known])
        deviation = 1.4826 * float(np.median(np.abs(moved[known])))
        least = LEAST_SHARE * float(np.median(channel.scale.spread[during]))
        change[members] = np.where(known, np.abs(moved) / max(deviation, least), 0.0)
    return change


def _ceased(channel: Channel, start: float, end: float) -> BoolArray:
    """(machine,) whether most of the samples of a machine, or of a device, stop at the fault, unlike its peers'."""
    panel = channel.panel
    before, during = panel.times < start, (panel.times >= start) & (panel.times <= end)
    ceased = np.zeros(len(panel.machines), dtype=np.bool_)
    if before.any() and during.any():
        lost = panel.present[:, before].mean(axis=1) - panel.present[:, during].mean(axis=1)
        ceased[panel.row_machine[lost - np.median(lost) > 0.5]] = True
    return ceased


def _parts(channel: Channel, start: float, end: float) -> tuple[BoolArray, BoolArray]:
    """(window,) which windows lie before the fault, and which in it."""
    looks_back = (channel.panel.window_samples - 1) * channel.panel.step_seconds
    before = channel.ends_at < start
    during = (channel.ends_at - looks_back >= start) & (channel.ends_at <= end)
    if during.sum() < LEAST_WINDOWS:
        during = (channel.ends_at > start) & (channel.ends_at <= end + looks_back)
    return before, during


def _means(channel: Channel) -> FloatArray:
    """(machine, window): normalised means of windows."""
    windows = np.arange(channel.panel.rows.shape[1])
    return np.asarray(channel.windows(windows).mean(axis=2), dtype=np.float64)


def _mean_of(values: FloatArray) -> FloatArray:
    """(machine,) means over the known cells; NaN where there are too few."""
    known = ~np.isnan(values)
    counts = known.sum(axis=1)
    sums = np.where(known, values, 0.0).sum(axis=1)
    means: FloatArray = np.divide(sums, counts, out=np.full(len(values), np.nan), where=counts >= LEAST_WINDOWS)
    return means
