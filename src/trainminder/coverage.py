"""What a pass could see: which metrics can be judged, who is silent, whether the task worked at all. Pure.

Everything here errs to *unknown*: what was not observed is never healthy.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trainminder.align import LEAST_RANGE, Row, column_medians, compared_samples
from trainminder.carrying import carried
from trainminder.coverage_kernel import count
from trainminder.errors import Unobservable
from trainminder.settings import DetectSettings
from trainminder.types import BoolArray, Coverage, FloatArray, IntArray, Panel
from trainminder.wording import some_names

__all__ = [
    "ACTIVITY",
    "ENOUGH",
    "FIRST_SAMPLES",
    "FIRST_SECONDS",
    "FORGOTTEN_SECONDS",
    "LATE_SHARE",
    "SILENT_SECONDS",
    "Seen",
    "Sight",
    "forgotten_seconds",
    "lasting_seconds",
    "least_departing_seconds",
    "verdict_seconds",
    "window_samples_of",
]

#: Metrics that tell whether the task works at all, with the value below which a machine is idle.
ACTIVITY = {"gpu_duty_cycle": 5.0, "gpu_graphics_activity": 0.05, "gpu_sm_activity": 0.05, "gpu_tensor_activity": 0.05}
#: A machine whose last sample is older than the others' by more than this has fallen silent.
SILENT_SECONDS = 60.0
#: Two or more machines, and this share of all, that end early at once are late data.
LATE_SHARE = 0.25
#: Who has been silent for this long, or for so many intervals, is forgotten: who comes back then is new.
FORGOTTEN_SECONDS, FORGOTTEN_STEPS = 1800.0, 60.0
#: So many machines must have come up to an instant for it to be reached: of fewer, none can be compared.
ENOUGH = 3
#: By so many minutes it is decided whether too much of a metric is missing.
MINUTES = 15

#: The method default knows the relation of a machine to its peers from this much on, and what departs must last this.
FIRST_SECONDS, FIRST_SAMPLES = 60.0, 8.0
LEAST_SECONDS, LEAST_SAMPLES = 25.0, 2.0


def forgotten_seconds(step_seconds: float) -> float:
    """For how long who is silent is still remembered."""
    return max(FORGOTTEN_SECONDS, FORGOTTEN_STEPS * step_seconds)


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


def window_samples_of(settings: DetectSettings) -> int:
    """How many samples a window has; the method default knows no windows, which is as if each had one."""
    return settings.window_samples if settings.method == "paper" else 1


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What was there of one metric so far, at the level of machines.

    ``heard``: (machine,) instant of its newest sample, -inf: none; ``began``, ``ended``: first and last instant;
    ``least``, ``greatest``: of its values; ``instants``: how many there were; ``expected``, ``present``: samples that
    there should have been, and that were; ``minutes``: (minute, 3) of each of the last minutes its number since the
    epoch, and the same of it; ``working``,
    ``longest``: seconds for which the median machine works, lately and at most; None where the metric does not tell.
    """

    metric: str
    step_seconds: float
    machines: tuple[str, ...] = ()
    heard: FloatArray = field(default_factory=lambda: np.zeros(0))
    began: float = np.inf
    ended: float = -np.inf
    least: float = np.inf
    greatest: float = -np.inf
    instants: int = 0
    expected: int = 0
    present: int = 0
    minutes: IntArray = field(default_factory=lambda: np.zeros((0, 3), dtype=np.int64))
    working: float = 0.0
    longest: float | None = None

    @classmethod
    def of(cls, panel: Panel) -> Seen:
        """What there is in a whole metric."""
        return cls(panel.metric, panel.step_seconds).plus(panel, 1.0)[0]

    def plus(self, panel: Panel, most_missing: float) -> tuple[Seen, BoolArray]:
        """With what is new in a panel; and (new instant,) whether the metric counts then.

        It does not while too much of it is missing; that is decided each minute by the last quarter of an hour.

        Args:
            panel: of whole machines.
            most_missing: share of the samples.
        """
        values, new = panel.values[:, panel.first :], panel.present[:, panel.first :]
        times = panel.times[panel.first :]
        heard = carried(panel.machines, self.machines, self.heard if self.machines else None, -np.inf)
        expected, there = np.zeros(len(times), dtype=np.int64), np.zeros(len(times), dtype=np.int64)
        forgotten = forgotten_seconds(panel.step_seconds)
        least, greatest = count(values, new, times, panel.row_machine, forgotten, heard, expected, there)
        counts, minutes = _counting(times, expected, there, self.minutes, most_missing)
        working, longest = self.working, self.longest
        if (active := ACTIVITY.get(panel.metric)) is not None:
            level = column_medians(values, new)
            working, longest = _stretches(level >= active, panel.step_seconds, working, longest or 0.0)
        return replace(
            self,
            machines=panel.machines,
            heard=heard,
            began=min(self.began, float(times[0])) if len(times) else self.began,
            ended=max(self.ended, float(times[-1])) if len(times) else self.ended,
            least=min(self.least, least),
            greatest=max(self.greatest, greatest),
            instants=self.instants + len(times),
            expected=self.expected + int(expected.sum()),
            present=self.present + int(there.sum()),
            minutes=minutes,
            working=working,
            longest=longest,
        ), counts

    @property
    def span_samples(self) -> int:
        """Samples from the first instant to the last."""
        return round((self.ended - self.began) / self.step_seconds) + 1 if self.ended >= self.began else 0

    def missing(self, until: float) -> float:
        """Share of the samples that were not there in the quarter of an hour before an instant."""
        lately = self.minutes[self.minutes[:, 0] >= np.floor(until / 60.0) - MINUTES]
        expected, there = lately[:, 1].sum(), lately[:, 2].sum()
        return float(1.0 - there / expected) if expected else 1.0


def _counting(
    times: FloatArray, expected: IntArray, there: IntArray, minutes: IntArray, most_missing: float
) -> tuple[BoolArray, IntArray]:
    """(instant,) whether the metric counts, and the counts of the last minutes."""
    counts = np.ones(len(times), dtype=np.bool_)
    number = np.floor(times / 60.0).astype(np.int64)
    edges = np.flatnonzero(np.diff(number, prepend=number[:1] - 1))
    for begin, end in zip(edges.tolist(), [*edges[1:].tolist(), len(times)], strict=True):
        now = int(number[begin])
        past = minutes[(minutes[:, 0] < now) & (minutes[:, 0] >= now - MINUTES)]
        wanted = past[:, 1].sum()
        counts[begin:end] = not wanted or wanted - past[:, 2].sum() <= most_missing * wanted
        earlier = minutes[minutes[:, 0] == now].sum(axis=0)
        own = (now, earlier[1] + expected[begin:end].sum(), earlier[2] + there[begin:end].sum())
        minutes = np.concatenate((past, [own]))
    return counts, minutes


def _stretches(is_at_work: BoolArray, step: float, working: float, longest: float) -> tuple[float, float]:
    """Seconds of the stretch of work under way, and of the longest."""
    turns = np.flatnonzero(np.diff(np.concatenate(([0], is_at_work.astype(np.int8), [0]))))
    if not len(turns):
        return 0.0 if len(is_at_work) else working, max(longest, working)
    lasted = (turns[1::2] - turns[0::2]) * step
    lasted[0] += working if turns[0] == 0 else 0.0
    longest = max(longest, float(lasted.max()))
    return (float(lasted[-1]) if turns[-1] == len(is_at_work) else 0.0), longest


@dataclass(slots=True)
class Sight:
    """What the metrics of a task show together of how much can be seen."""

    used: list[str] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    last_seen: dict[str, float] = field(default_factory=dict)
    lacking: dict[str, list[str]] = field(default_factory=dict)
    """metric -> machines without data of it."""
    cells: int = 0
    cells_present: int = 0
    unaligned: int = 0
    """Samples there should be, where no grid could be made: of every machine what the longest series has."""
    unaligned_present: int = 0
    span_seconds: float = 0.0
    spare_seconds: float = -np.inf
    """By how much the data exceed what a verdict takes, in the metric where that is most."""
    step_seconds: float = 0.0
    """Sampling interval of that metric."""
    working_seconds: float | None = None
    """The longest stretch in which the median machine worked; None if no metric can tell."""

    def glimpse(self, rows: Sequence[Row], newest: FloatArray, counts: IntArray, members: Collection[str]) -> None:
        """See who gave any sample at all of a metric that is too short or too sparse to align.

        Args:
            rows: machine and device of each series. newest: (series,) instant of its newest sample; -inf: none.
            counts: (series,) its samples.
        """
        silent = len(set(members) - {machine for machine, _ in rows})
        self.unaligned += int(counts.max(initial=0)) * (len(counts) + silent)
        self.unaligned_present += int(counts.sum())
        for (machine, _), at in zip(rows, newest.tolist(), strict=True):
            if at > self.last_seen.get(machine, -np.inf) and machine in members:
                self.last_seen[machine] = at

    def note_both(self, metric: str, both: Sequence[str]) -> None:
        """Warn of machines that have series of devices and one without a device."""
        if both:
            self.warnings.append(
                f"{metric}: {some_names(both)} have series of devices and one without a device: "
                "the devices are judged, the other is not"
            )

    def look(self, seen: Seen) -> None:
        """Count what is present of a metric."""
        self.cells += seen.expected + seen.instants * int((seen.heard == -np.inf).sum())
        self.cells_present += seen.present
        for number in np.flatnonzero(seen.heard > -np.inf).tolist():
            machine, at = seen.machines[number], float(seen.heard[number])
            if at > self.last_seen.get(machine, -np.inf):
                self.last_seen[machine] = at
        if seen.longest is not None:
            self.working_seconds = max(self.working_seconds or 0.0, seen.longest)

    def admit(self, seen: Seen, settings: DetectSettings, until: float | None = None) -> None:
        """Take a metric for judging, or refuse it.

        Args:
            until: instant up to which there are data; None: to the end of the metric's own.
        Raises:
            Unobservable: too few machines have it, too much is missing, or it is the same everywhere throughout.
        """
        name, having = seen.metric, int((seen.heard > -np.inf).sum())
        if having < settings.min_machines:
            raise Unobservable(
                f"{name} is not judged: only {having} of {len(seen.machines)} machines have it, "
                f"and {settings.min_machines} are needed to compare"
            )
        missing = seen.missing(seen.ended if until is None else until)
        if missing > settings.max_missing_ratio:
            raise Unobservable(
                f"{name} is not judged: {missing:.0%} of its samples are missing, "
                f"more than detect.max_missing_ratio ({settings.max_missing_ratio:.0%})"
            )
        if seen.greatest - seen.least <= LEAST_RANGE:
            raise Unobservable(
                f"{name} is not judged: it is {seen.least:g} on every machine throughout, which says nothing"
            )
        if silent := [m for m, at in zip(seen.machines, seen.heard.tolist(), strict=True) if at == -np.inf]:
            self.lacking[name] = silent
        self.used.append(name)
        span = seen.ended - seen.began
        self.span_seconds = max(self.span_seconds, span)
        # Rounding of the grid must not decide.
        spare = span - verdict_seconds(seen.step_seconds, settings) + 1e-3 * seen.step_seconds
        if spare > self.spare_seconds:
            self.spare_seconds, self.step_seconds = spare, seen.step_seconds

    def check_observed(self, to_at: float, settings: DetectSettings) -> None:
        """Whether what was seen carries the verdict that nobody stands out.

        Args:
            to_at: the end of what was asked for.
        Raises:
            Unobservable: nothing usable, too short a span, or a task idle or restarting throughout.
        """
        if not self.used:
            reasons = "; ".join(self.unusable[:5]) or "none of the wanted metrics has data"
            raise Unobservable(f"no usable metric: {reasons}")
        is_paper = settings.method == "paper"
        if self.spare_seconds < 0:
            behind = to_at - max(self.last_seen.values())
            ended = f" and end {behind:.0f} s before the range asked for" if behind > SILENT_SECONDS else ""
            lasting = f" with detect.continuity_seconds {settings.continuity_seconds:g}" if is_paper else ""
            raise Unobservable(
                f"the data span {self.span_seconds:.0f} s{ended}, and a verdict takes at least "
                f"{self.span_seconds - self.spare_seconds:.0f} s at {self.step_seconds:g} s sampling{lasting}: "
                "ask for a longer range (--minutes)"
            )
        longest = self.working_seconds
        least = settings.continuity_seconds if is_paper else verdict_seconds(self.step_seconds, settings)
        if longest is not None and longest < min(least, self.span_seconds):
            raise Unobservable(
                "the task was idle or restarting throughout: "
                f"its longest stretch of work in {self.span_seconds:.0f} s is {longest:.0f} s"
            )

    def forget(self, seconds: float) -> set[str]:
        """Let go of machines that have been silent for so long: they left the task; a warning names them."""
        newest = sorted(self.last_seen.values())[-ENOUGH:][0] if self.last_seen else -np.inf
        gone = {machine for machine, at in self.last_seen.items() if newest - at > seconds}
        for machine in gone:
            del self.last_seen[machine]
        if gone:
            self.warnings.append(
                f"{some_names(sorted(gone))} stopped reporting more than {seconds / 60.0:.0f} min ago and counts as "
                "having left: state the task's machines if it should still be there"
            )
        return gone

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

    def coverage(self, metrics_absent: tuple[str, ...]) -> Coverage:
        """What could be seen."""
        cells, present = (self.cells, self.cells_present) if self.cells else (self.unaligned, self.unaligned_present)
        return Coverage(
            machines_seen=len(self.last_seen),
            samples_missing=round(1.0 - present / cells, 6) if cells else 1.0,
            metrics_used=tuple(self.used),
            metrics_absent=metrics_absent,
        )

    def note_silent(self, machines: Sequence[str], to_at: float) -> None:
        """Warn of members that gave nothing, of those that fell silent, and of data that end before the range does."""
        if not self.last_seen:
            return
        behind = to_at - max(self.last_seen.values())
        if behind > SILENT_SECONDS:
            self.warnings.append(
                f"no sample of any machine in the last {behind:.0f} s of the range: nothing is known of them; "
                "see whether the store still collects"
            )
        for name, without in self.lacking.items():
            if partly := [machine for machine in without if machine in self.last_seen]:
                self.warnings.append(f"{name}: no data from {some_names(partly)}; the others are compared without them")
        silent = [machine for machine in machines if machine not in self.last_seen]
        if silent:
            self.warnings.append(f"no data at all from {some_names(silent)}: unknown, not healthy")
        usual = float(np.median(list(self.last_seen.values())))
        late = [machine for machine, at in sorted(self.last_seen.items()) if usual - at > SILENT_SECONDS]
        if late:
            self.warnings.append(
                f"stopped reporting more than {SILENT_SECONDS:.0f} s before the others: {some_names(late)}: "
                "unknown after that, not healthy"
            )
