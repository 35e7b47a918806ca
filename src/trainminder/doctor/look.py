"""One metric measured: who has it, how it is sampled, what is missing, what looks wrong with its values. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from trainminder.align import panels, sampling_of
from trainminder.coverage import ACTIVITY, SILENT_SECONDS, Seen, Sight, window_samples_of
from trainminder.doctor.clocks import Alignment, alignment_of
from trainminder.doctor.repeats import (
    SLOWEST_REFRESH_SECONDS,
    Still,
    Zeros,
    refresh_samples,
    runs_of,
    still_series,
    zero_series,
)
from trainminder.errors import Unobservable
from trainminder.settings import DetectSettings
from trainminder.types import BoolArray, MetricSpec, Panel, RawMetric, RawTask

__all__ = ["GAP_INTERVALS", "Gap", "Look", "Unusable", "look_at"]

#: A gap is worth a word from this many intervals and ``SILENT_SECONDS`` on.
GAP_INTERVALS = 5.0
#: Samples this much after now are in the future.
FUTURE_SECONDS = 1.0

Unusable = Literal["few_machines", "missing", "constant", "short"]


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch in which a machine has no sample although its peers have."""

    seconds: float
    before_end_seconds: float
    """How long before the metric's last sample of any machine it ends; 0: it lasts."""
    is_at_start: bool


@dataclass(slots=True)
class Look:
    """What was seen of one metric."""

    metric: str
    spec: MetricSpec
    machines: frozenset[str]
    devices: Mapping[str, int]
    """machine -> number of its devices; empty for a machine-level metric."""
    interval_seconds: float | None = None
    is_event_driven: bool = False
    samples_missing: float | None = None
    longest_gap: tuple[float, str] | None = None
    """Seconds, and the machine whose series (or whose device's) has it."""
    gaps: dict[str, Gap] = field(default_factory=dict)
    """machine -> its longest stretch without a sample of any device, where that is long."""
    behind_seconds: float = 0.0
    """How long before the end of the range its last sample lies."""
    future: dict[str, float] = field(default_factory=dict)
    """machine -> seconds by which its newest sample lies in the future."""
    still: tuple[Still, ...] = ()
    zeros: Zeros | None = None
    levels: dict[tuple[str, str | None], float] = field(default_factory=dict)
    """(machine, device) -> mean, for metrics that tell whether a device works."""
    refresh_seconds: float | None = None
    alignment: Alignment | None = None
    reason: str | None = None
    unusable: Unusable | None = None


def look_at(raw: RawMetric, task: RawTask, settings: DetectSettings, sight: Sight, now: float) -> Look:
    """Measure one metric, and have ``sight`` admit it as a pass would.

    Args:
        now: Unix seconds.
    """
    members = set(task.machines)
    pairs = [pair for pair in zip(raw.machines, raw.devices, strict=True) if pair[0] in members]
    look = Look(
        metric=raw.metric,
        spec=task.specs[raw.metric],
        machines=frozenset(machine for machine, _ in pairs),
        devices=Counter(machine for machine, device in pairs if device is not None),
    )
    _measure_values(look, raw, settings)
    _measure_end(look, raw, now, task.to_at)
    try:
        sampling = sampling_of(raw)
        look.interval_seconds, look.is_event_driven = sampling.step_seconds, sampling.hold_seconds > 0
        views = panels(raw, task.machines, window_samples_of(settings))
    except Unobservable as unusable:
        counts = np.diff(raw.offsets)
        newest = np.where(counts > 0, raw.times[np.maximum(raw.offsets[1:] - 1, 0)], -np.inf)
        sight.glimpse(tuple(zip(raw.machines, raw.devices, strict=True)), newest, counts, members)
        look.reason, look.unusable = str(unusable), "short"
        sight.unusable.append(look.reason)
        return look
    _measure_presence(look, views, task)
    look.alignment = None if look.is_event_driven else alignment_of(views[0])
    seen = Seen.of(views[0])
    sight.look(seen)
    try:
        sight.admit(seen, settings)
    except Unobservable as unusable:
        look.reason = str(unusable)
        sight.unusable.append(look.reason)
        few = len(look.machines) < settings.min_machines
        look.unusable = (
            "few_machines"
            if few
            else "missing"
            if seen.missing(seen.ended) > settings.max_missing_ratio
            else "constant"
        )
    return look


def _measure_values(look: Look, raw: RawMetric, settings: DetectSettings) -> None:
    runs = runs_of(raw)
    look.still = still_series(raw, look.spec, runs)
    if any(device is not None for device in raw.devices):
        look.zeros = zero_series(raw, runs, settings.window_samples)
    samples = refresh_samples(raw, runs)
    if samples is not None:
        steps = runs.seconds[runs.samples > 1] / (runs.samples[runs.samples > 1] - 1)
        seconds = samples * float(np.median(steps))
        look.refresh_seconds = seconds if seconds <= SLOWEST_REFRESH_SECONDS else None
    if raw.metric in ACTIVITY:
        for row, pair in enumerate(zip(raw.machines, raw.devices, strict=True)):
            values = raw.values[raw.offsets[row] : raw.offsets[row + 1]]
            if len(values):
                look.levels[pair] = float(values.mean())


def _measure_end(look: Look, raw: RawMetric, now: float, to_at: float) -> None:
    if not len(raw.times):
        return
    look.behind_seconds = max(0.0, to_at - float(raw.times.max()))
    for row, machine in enumerate(raw.machines):
        if raw.offsets[row + 1] > raw.offsets[row]:
            ahead = float(raw.times[raw.offsets[row + 1] - 1]) - min(now, to_at)
            if ahead > FUTURE_SECONDS:
                look.future[machine] = max(ahead, look.future.get(machine, ahead))


def _measure_presence(look: Look, views: tuple[Panel, ...], task: RawTask) -> None:
    """What is missing: of the series that there are, and of machines that have the metric."""
    every, whole = views[-1], views[0]
    look.samples_missing = 1.0 - float(every.present.mean())
    for row, present in enumerate(every.present):
        cells = int(_longest_gap(present)[0])
        if cells and (look.longest_gap is None or cells * every.step_seconds > look.longest_gap[0]):
            look.longest_gap = cells * every.step_seconds, every.machines[every.row_machine[row]]
    least = max(SILENT_SECONDS, GAP_INTERVALS * whole.step_seconds)
    count = whole.present.shape[1]
    for row, present in enumerate(whole.present):
        cells, first = _longest_gap(present)
        if cells * whole.step_seconds > least and present.any():
            before_end = (count - first - cells) * whole.step_seconds
            machine = task.machines[whole.row_machine[row]]
            look.gaps[machine] = Gap(cells * whole.step_seconds, before_end, is_at_start=first == 0)


def _longest_gap(present: BoolArray) -> tuple[int, int]:
    """Length in cells of the longest stretch that is missing, and where it begins."""
    if present.all():
        return 0, 0
    edges = np.concatenate(([-1], np.flatnonzero(present), [len(present)]))
    lengths = np.diff(edges) - 1
    widest = int(lengths.argmax())
    return int(lengths[widest]), int(edges[widest]) + 1
