"""What a method said about a task, in the little that measuring needs: small enough for a line of a file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from trainminder.bench.types import BenchTask, LabelledTask
from trainminder.types import Truth, Verdict

__all__ = ["Outcome", "Said", "TaskFacts"]


@dataclass(frozen=True, slots=True)
class Said:
    """A verdict in brief."""

    machine: str
    metric: str
    onset: float
    confirmed: float

    @classmethod
    def of(cls, verdict: Verdict) -> Said:
        """The verdict in brief.

        Raises:
            ValueError: it was confirmed at no instant.
        """
        if not math.isfinite(verdict.confirmed):
            raise ValueError(f"a verdict on {verdict.machine} is confirmed at {verdict.confirmed}")
        return cls(verdict.machine, verdict.metric, float(verdict.onset), float(verdict.confirmed))


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """A labelled task without its data."""

    name: str
    seed: int | None
    machines: int
    machine_hours: float
    truths: tuple[Truth, ...]
    tags: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, task: LabelledTask, entry: BenchTask) -> TaskFacts:
        """The facts of a task made from ``entry``, whose name counts."""
        raw = task.raw
        hours = len(raw.machines) * (raw.to_at - raw.from_at) / 3600
        return cls(entry.name, entry.seed, len(raw.machines), hours, task.truths, dict(task.tags))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one method said about one task, at each of its thresholds.

    ``seconds``: wall time of judging. ``peak_mib``: most memory above what the process held before, its children
    left out; None where the system does not tell. ``error``: why the method failed; it then counts as having said
    nothing.
    """

    task: TaskFacts
    method: str
    thresholds: tuple[float, ...]
    verdicts: tuple[tuple[Said, ...], ...]
    seconds: float
    peak_mib: float | None = None
    error: str | None = None

    @classmethod
    def failed(cls, task: TaskFacts, method: str, thresholds: Sequence[float], error: str, seconds: float) -> Outcome:
        return cls(task, method, tuple(thresholds), ((),) * len(thresholds), seconds, error=error)

    def as_json(self) -> dict[str, Any]:
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        task = {each.name: getattr(self.task, each.name) for each in fields(self.task)}
        said = [[[each.machine, each.metric, each.onset, each.confirmed] for each in some] for some in self.verdicts]
        return plain | {"task": task | {"truths": [truth.as_json() for truth in self.task.truths]}, "verdicts": said}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Outcome:
        """The outcome that ``as_json`` wrote."""
        task = dict(plain["task"])
        task["truths"] = tuple(Truth(**truth) for truth in task["truths"])
        verdicts = tuple(tuple(Said(*each) for each in some) for some in plain["verdicts"])
        changed = {"task": TaskFacts(**task), "thresholds": tuple(plain["thresholds"]), "verdicts": verdicts}
        return cls(**(dict(plain) | changed))
