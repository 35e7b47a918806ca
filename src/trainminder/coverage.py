"""What a pass could see: which metrics can be judged, who is silent, whether the task worked at all. Pure.

Everything here errs to *unknown*: what was not observed is never healthy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from trainminder.align import LEAST_RANGE, column_medians, compared_samples, panels
from trainminder.errors import Unobservable
from trainminder.settings import DetectSettings
from trainminder.types import Coverage, MetricSpec, Panel, RawMetric, RawTask
from trainminder.wording import some_names

__all__ = [
    "ACTIVITY",
    "FIRST_SAMPLES",
    "FIRST_SECONDS",
    "LATE_SHARE",
    "SILENT_SECONDS",
    "Sight",
    "lasting_seconds",
    "least_departing_seconds",
    "least_samples",
    "verdict_seconds",
]

#: Metrics that tell whether the task works at all, with the value below which a machine is idle.
ACTIVITY = {"gpu_duty_cycle": 5.0, "gpu_graphics_activity": 0.05, "gpu_sm_activity": 0.05, "gpu_tensor_activity": 0.05}
#: A machine whose last sample is older than the others' by more than this has fallen silent.
SILENT_SECONDS = 60.0
#: Two or more machines, and this share of all, that end early at once are late data.
LATE_SHARE = 0.25


#: The method default knows the relation of a machine to its peers from this much on, and what departs must last this.
FIRST_SECONDS, FIRST_SAMPLES = 60.0, 8.0
LEAST_SECONDS, LEAST_SAMPLES = 25.0, 2.0


def lasting_seconds(step_seconds: float, settings: DetectSettings) -> float:
    """How long what is wrong with a machine must last, at least, for a verdict.

    By the method paper a machine must remain the candidate. A disturbance is seen for as long as it lasts and as long
    as a window's compared samples look back; what a machine did wrong then lasted for ``continuity_seconds``.
    """
    if settings.method == "paper":
        looks_back = (compared_samples(step_seconds, settings.window_samples) - 1) * step_seconds
        return settings.continuity_seconds + looks_back
    return least_departing_seconds(step_seconds)


def least_departing_seconds(step_seconds: float) -> float:
    """How long a machine must depart before the method default holds anything against it."""
    return max(LEAST_SECONDS * min(step_seconds, 1.0), LEAST_SAMPLES * step_seconds)


def verdict_seconds(step_seconds: float, settings: DetectSettings) -> float:
    """How much data a verdict takes, at least."""
    if settings.method == "paper":
        return (settings.window_samples - 1) * step_seconds + lasting_seconds(step_seconds, settings)
    first = max(FIRST_SECONDS * min(step_seconds, 1.0), FIRST_SAMPLES * step_seconds)
    return first + lasting_seconds(step_seconds, settings)


def least_samples(settings: DetectSettings) -> int:
    """How many samples a metric must have to be looked at: a window of the method paper; default knows no windows."""
    return settings.window_samples if settings.method == "paper" else 1


@dataclass(slots=True)
class Sight:
    """What accumulates while a pass looks at one metric after another."""

    used: list[str] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    last_seen: dict[str, float] = field(default_factory=dict)
    lacking: dict[str, list[str]] = field(default_factory=dict)
    """metric -> machines without data of it."""
    cells: int = 0
    cells_present: int = 0
    span_seconds: float = 0.0
    spare_seconds: float = -np.inf
    """By how much the data exceed what a verdict takes, in the metric where that is most."""
    step_seconds: float = 0.0
    """Sampling interval of that metric."""

    def glimpse(self, raw: RawMetric, members: Sequence[str]) -> None:
        """See who gave any sample at all of a metric, be it too short or too sparse to align."""
        known = set(members)
        with_devices = {m for m, device in zip(raw.machines, raw.devices, strict=True) if device is not None}
        both = with_devices.intersection(
            m for m, device in zip(raw.machines, raw.devices, strict=True) if device is None
        )
        if both:
            self.warnings.append(
                f"{raw.metric}: {some_names(sorted(both))} have series of devices and one without a device: "
                "the devices are judged, the other is not"
            )
        for row in np.flatnonzero(np.diff(raw.offsets)).tolist():
            if (machine := raw.machines[row]) in known:
                at = float(raw.times[raw.offsets[row + 1] - 1])
                self.last_seen[machine] = max(at, self.last_seen.get(machine, at))

    def look(self, panel: Panel) -> None:
        """Count what is present of a metric."""
        newest = panel.present.shape[1] - 1 - panel.present[:, ::-1].argmax(axis=1)
        for row in np.flatnonzero(panel.present.any(axis=1)):
            machine = panel.machines[panel.row_machine[row]]
            at = float(panel.times[newest[row]])
            self.last_seen[machine] = max(at, self.last_seen.get(machine, at))
        self.cells += _cells(panel)
        self.cells_present += int(panel.present.sum())

    def admit(self, panel: Panel, spec: MetricSpec, settings: DetectSettings) -> None:
        """Take a metric for judging, or refuse it.

        Raises:
            Unobservable: too few machines have it, too much is missing, or it is the same everywhere throughout.
        """
        name, machines = spec.name, len(panel.machines)
        having = set(panel.row_machine.tolist())
        silent = [machine for number, machine in enumerate(panel.machines) if number not in having]
        if len(having) < settings.min_machines:
            raise Unobservable(
                f"{name} is not judged: only {len(having)} of {machines} machines have it, "
                f"and {settings.min_machines} are needed to compare"
            )
        missing = 1.0 - float(panel.present.sum()) / _cells(panel)
        if missing > settings.max_missing_ratio:
            raise Unobservable(
                f"{name} is not judged: {missing:.0%} of its samples are missing, "
                f"more than detect.max_missing_ratio ({settings.max_missing_ratio:.0%})"
            )
        observed = panel.values[panel.present]
        if observed.max() - observed.min() <= LEAST_RANGE:
            raise Unobservable(
                f"{name} is not judged: it is {observed[0]:g} on every machine throughout, which says nothing"
            )
        if silent:
            self.lacking[name] = silent
        self.used.append(name)
        span = float(panel.times[-1] - panel.times[0])
        self.span_seconds = max(self.span_seconds, span)
        # Rounding of the grid must not decide.
        spare = span - verdict_seconds(panel.step_seconds, settings) + 1e-3 * panel.step_seconds
        if spare > self.spare_seconds:
            self.spare_seconds, self.step_seconds = spare, panel.step_seconds

    def check_observed(self, raw: RawTask, settings: DetectSettings, *, is_resumed: bool) -> None:
        """Whether what was seen carries the verdict that nobody stands out.

        Raises:
            Unobservable: nothing usable, too short a span, or a task idle or restarting throughout.
        """
        if not self.used:
            reasons = "; ".join(self.unusable[:5]) or "none of the wanted metrics has data"
            raise Unobservable(f"no usable metric: {reasons}")
        is_paper = settings.method == "paper"
        if not is_resumed and self.spare_seconds < 0:
            behind = raw.to_at - max(self.last_seen.values())
            ended = f" and end {behind:.0f} s before the range asked for" if behind > SILENT_SECONDS else ""
            lasting = f" with detect.continuity_seconds {settings.continuity_seconds:g}" if is_paper else ""
            raise Unobservable(
                f"the data span {self.span_seconds:.0f} s{ended}, and a verdict takes at least "
                f"{self.span_seconds - self.spare_seconds:.0f} s at {self.step_seconds:g} s sampling{lasting}: "
                "ask for a longer range (--minutes)"
            )
        longest = _longest_activity(raw, settings.window_samples)
        least = settings.continuity_seconds if is_paper else verdict_seconds(self.step_seconds, settings)
        if longest is not None and longest < min(least, self.span_seconds):
            raise Unobservable(
                "the task was idle or restarting throughout: "
                f"its longest stretch of work in {self.span_seconds:.0f} s is {longest:.0f} s"
            )

    def check_all_there(self, settings: DetectSettings) -> None:
        """Whether every machine that reported still does, or fell silent only as long as a fault may pass.

        Many that end early at once are late data rather than dead machines; a warning says so.

        Raises:
            Unobservable: a few machines stopped reporting while the others go on.
        """
        last = float(np.median(list(self.last_seen.values())))
        longest = max(SILENT_SECONDS, settings.continuity_seconds if settings.method == "paper" else 0.0)
        gone = [machine for machine, at in sorted(self.last_seen.items()) if last - at > longest]
        if gone and (len(gone) == 1 or len(gone) < LATE_SHARE * len(self.last_seen)):
            silent = max(last - self.last_seen[machine] for machine in gone)
            raise Unobservable(
                f"{some_names(gone)} stopped reporting {silent:.0f} s before the others, and no machine that reports "
                "stands out: see whether it is reachable and its exporters run"
            )

    def coverage(self, raw: RawTask) -> Coverage:
        return Coverage(
            machines_seen=len(self.last_seen),
            samples_missing=round(1.0 - self.cells_present / self.cells, 6) if self.cells else _missing_unaligned(raw),
            metrics_used=tuple(self.used),
            metrics_absent=raw.metrics_absent,
        )

    def note_silent(self, raw: RawTask) -> None:
        """Warn of members that gave nothing, of those that fell silent, and of data that end before the range does."""
        if not self.last_seen:
            return
        behind = raw.to_at - max(self.last_seen.values())
        if behind > SILENT_SECONDS:
            self.warnings.append(
                f"no sample of any machine in the last {behind:.0f} s of the range: nothing is known of them; "
                "see whether the store still collects"
            )
        for name, machines in self.lacking.items():
            if partly := [machine for machine in machines if machine in self.last_seen]:
                self.warnings.append(f"{name}: no data from {some_names(partly)}; the others are compared without them")
        silent = [machine for machine in raw.machines if machine not in self.last_seen]
        if silent:
            self.warnings.append(f"no data at all from {some_names(silent)}: unknown, not healthy")
        usual = float(np.median(list(self.last_seen.values())))
        late = [machine for machine, at in sorted(self.last_seen.items()) if usual - at > SILENT_SECONDS]
        if late:
            self.warnings.append(
                f"stopped reporting more than {SILENT_SECONDS:.0f} s before the others: {some_names(late)}: "
                "unknown after that, not healthy"
            )


def _cells(panel: Panel) -> int:
    """Samples there would be if none were missing: a machine without a series misses all of its own."""
    silent = len(panel.machines) - len(set(panel.row_machine.tolist()))
    return panel.present.size + silent * len(panel.times)


def _missing_unaligned(raw: RawTask) -> float:
    """The share that is missing where no grid could be made: every machine should have what the longest series has."""
    wanted = present = 0
    for metric in raw.metrics:
        counts = np.diff(metric.offsets)
        silent = len(set(raw.machines) - set(metric.machines))
        wanted += int(counts.max(initial=0)) * (len(counts) + silent)
        present += int(counts.sum())
    return round(1.0 - present / wanted, 6) if wanted else 1.0


def _longest_activity(raw: RawTask, window_samples: int) -> float | None:
    """The longest stretch, in seconds, in which the median machine worked; None if no metric can tell."""
    longest: float | None = None
    for metric in raw.metrics:
        least = ACTIVITY.get(metric.metric)
        if least is None:
            continue
        try:
            panel = panels(metric, raw.machines, window_samples)[0]
        except Unobservable:
            continue
        level = column_medians(panel.values, panel.present)
        turns = np.flatnonzero(np.diff(np.concatenate(([0], (level >= least).astype(np.int8), [0]))))
        stretches = (turns[1::2] - turns[0::2]) * panel.step_seconds
        longest = max(longest or 0.0, float(stretches.max(initial=0.0)))
    return longest
