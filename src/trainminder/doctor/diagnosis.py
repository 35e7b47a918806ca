"""The result of an examination: frozen values and the verdict in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Diagnosis", "Finding", "Kind", "MetricDiagnosis", "Severity"]

Severity = Literal["problem", "note"]
#: ``docs/doctor.md`` explains each.
Kind = Literal[
    "absent",
    "carried",
    "clock",
    "constant",
    "dead_field",
    "ended",
    "fewer_devices",
    "frozen",
    "future",
    "gap",
    "idle",
    "impossible",
    "infinite",
    "interval_assumed",
    "late_data",
    "no_machine_label",
    "no_value",
    "not_judged",
    "nothing_usable",
    "part_of_fleet",
    "partial_answer",
    "renamed",
    "short_range",
    "silent",
    "slow_refresh",
    "slow_sampling",
    "small_groups",
    "source",
    "stopped",
    "store_warning",
    "too_few_machines",
    "two_names",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was noticed. A *problem* can make verdicts wrong or impossible, a *note* costs speed or sight."""

    kind: Kind
    severity: Severity
    text: str
    remedy: str
    """What to do; empty where the text says it."""
    metrics: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in self.__slots__}
        return plain | {"metrics": list(self.metrics), "machines": list(self.machines)}


@dataclass(frozen=True, slots=True)
class MetricDiagnosis:
    """What was seen of one metric; None where it is not known."""

    metric: str
    found_as: str | None = None
    """The series or column it was found under."""
    exporter: str | None = None
    is_absent: bool = False
    machines: int = 0
    """Members of the task that have it."""
    devices: int = 0
    """Their devices that have it; 0 for a machine-level metric."""
    interval_seconds: float | None = None
    is_event_driven: bool = False
    samples_missing: float | None = None
    """Share of the samples between the first and the last of any machine."""
    longest_gap_seconds: float = 0.0
    longest_gap_machine: str | None = None
    reason: str | None = None
    """Why it cannot be judged."""
    remarks: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__} | {"remarks": list(self.remarks)}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Whether a task can be judged, and everything that was noticed about its data."""

    task: str
    found: str
    """How the task was found."""
    from_at: float
    to_at: float
    machines: tuple[str, ...]
    machines_seen: int
    metrics: tuple[MetricDiagnosis, ...]
    """In the order they are asked; the absent ones come last."""
    findings: tuple[Finding, ...]
    """Problems first."""
    reason: str | None
    """Why the task cannot be judged; None: it can."""
    method: str
    """The method that would judge it."""
    continuity_seconds: float | None
    """How long a machine must remain the candidate, by the method paper; None: the method knows no continuity."""
    confirmed_after_seconds: float | None
    """How long a fault lasts at least before it is confirmed."""
    verdict_seconds: float | None
    """How much data a verdict takes at least, those of the fault among them."""
    is_partial: bool

    @property
    def can_be_judged(self) -> bool:
        return self.reason is None

    @property
    def sentence(self) -> str:
        """The verdict on one line."""
        if self.reason is not None:
            return f"doctor: {self.task} cannot be judged: {self.reason}"
        judged = [metric for metric in self.metrics if metric.reason is None and not metric.is_absent]
        intervals = sorted({metric.interval_seconds for metric in judged if metric.interval_seconds is not None})
        every = f"{intervals[0]:g} s" if len(intervals) == 1 else f"{intervals[0]:g} to {intervals[-1]:g} s"
        return (
            f"doctor: {self.task} can be judged: {len(judged)} of {len(self.metrics)} metrics on {self.machines_seen} "
            f"of {len(self.machines)} machines every {every}; {self._least}"
        )

    @property
    def _least(self) -> str:
        """What a verdict takes at least, by the method that judges."""
        if self.continuity_seconds is not None:
            return (
                f"a fault is confirmed after at least {self.confirmed_after_seconds:g} s of standing out "
                f"(continuity {self.continuity_seconds:g} s, and as long as a window looks back)"
            )
        return (
            f"a fault is confirmed after at least {self.confirmed_after_seconds:g} s, the longer the subtler it is "
            f"(a verdict takes at least {self.verdict_seconds:g} s of data)"
        )

    @property
    def _because(self) -> str:
        if self.method != "paper":
            return ""
        return f" (continuity {self.continuity_seconds:g} s, and as long as a window looks back)"

    def as_json(self) -> dict[str, Any]:
        """The object that ``doctor --format json`` prints."""
        return {
            "task": self.task,
            "can_be_judged": self.can_be_judged,
            "reason": self.reason,
            "sentence": self.sentence,
            "found": self.found,
            "from": self.from_at,
            "to": self.to_at,
            "machines": list(self.machines),
            "machines_seen": self.machines_seen,
            "method": self.method,
            "continuity_seconds": self.continuity_seconds,
            "confirmed_after_seconds": self.confirmed_after_seconds,
            "verdict_seconds": self.verdict_seconds,
            "is_partial": self.is_partial,
            "metrics": [metric.as_json() for metric in self.metrics],
            "findings": [finding.as_json() for finding in self.findings],
        }
