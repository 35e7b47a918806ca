"""What passes between the parts of the bench."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trainminder.types import RawTask, Truth, Verdict

__all__ = ["BenchTask", "LabelledTask", "Method"]


@dataclass(frozen=True, slots=True)
class LabelledTask:
    """A task with everything that is wrong with it.

    ``tags``: what results are broken down by, such as ``{"fault": "ecc_error", "strength": "subtle",
    "size": "64", "interval": "15 s", "difficulty": "restart"}``; a healthy task has ``"fault": "none"``.
    ``continuity_seconds``: how long what is wrong must last there, to every method; None: as shipped.
    """

    name: str
    raw: RawTask
    truths: tuple[Truth, ...]
    tags: Mapping[str, str] = field(default_factory=dict)
    continuity_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class BenchTask:
    """A labelled task yet to be made: small enough to hand to another process.

    ``make`` must be picklable and give the same task every time. ``seed`` None: not simulated.
    ``cost``: how long it takes beside others, so that long ones begin first.
    """

    name: str
    make: Callable[[], LabelledTask]
    seed: int | None = None
    cost: float = 1.0


class Method(Protocol):
    """A way of judging whose strictness is one number.

    One that has an attribute ``shipped``, of its thresholds, is measured at that and not at a chosen one.
    """

    @property
    def name(self) -> str: ...

    @property
    def thresholds(self) -> tuple[float, ...]:
        """Those among which calibration chooses, strictest first."""
        ...

    def judge(self, task: LabelledTask, thresholds: Sequence[float]) -> list[tuple[Verdict, ...]]:
        """The verdicts at each threshold, from the data alone (but for the oracle, which is told the truth).

        ``confirmed`` of each verdict is the earliest data time at which it stood.
        """
        ...
