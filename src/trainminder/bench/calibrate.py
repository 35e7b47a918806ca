"""One rule that sets every method's threshold, on tasks that no result is measured on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from trainminder.bench.measure import figures, tally
from trainminder.bench.outcomes import Outcome

__all__ = ["FALSE_ALARM_RATE", "Chosen", "check_disjoint", "choose", "trade_off"]

#: Most false alarms per 1,000 machine-hours that a threshold may give: about one needless look per shift of eight
#: hours and 64 machines, on tasks that are hard on purpose. More, and people stop looking.
FALSE_ALARM_RATE = 2.0


@dataclass(frozen=True, slots=True)
class Chosen:
    """The threshold of a method and what it gave where it was chosen.

    ``is_within_limit``: False if no threshold kept to the false-alarm rate, and the one with the lowest was taken.
    """

    threshold: float
    is_within_limit: bool
    limit: float
    f1: float | None
    false_alarms_per_1000_machine_hours: float

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def check_disjoint(calibration: Iterable[int | None], measured: Iterable[int | None]) -> None:
    """Refuse to choose on what is measured. A task without a seed is not simulated.

    Raises:
        ValueError: both hold a seed: the sets are made wrong.
    """
    if shared := sorted({seed for seed in calibration if seed is not None}.intersection(measured)):
        raise ValueError(f"seeds {shared} are in the calibration set and in the measured one")


def trade_off(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """The figures of one method at each of its thresholds, strictest first.

    Args:
        outcomes: of one method, all at the same thresholds.
    """
    (thresholds,) = {outcome.thresholds for outcome in outcomes}
    return [
        {"threshold": threshold} | figures([tally(outcome.task, outcome.verdicts[place]) for outcome in outcomes])
        for place, threshold in enumerate(thresholds)
    ]


def choose(curve: Sequence[dict[str, Any]], limit: float = FALSE_ALARM_RATE, shipped: float | None = None) -> Chosen:
    """Choose the best F1 at no more than ``limit`` false alarms per 1,000 machine-hours; of equals the strictest.

    Where no threshold keeps to the limit, the one with the fewest false alarms is taken, and the result says so.

    Args:
        curve: of one method, from ``trade_off``.
        shipped: a threshold of the curve that stands whatever the curve says, for users state it in words.
    """
    rate = "false_alarms_per_1000_machine_hours"
    if shipped is not None:
        curve = [point for point in curve if point["threshold"] == shipped]
    within = [point for point in curve if point[rate] <= limit]
    # Having said nothing is worse than any F1. The first of equals is the strictest.
    best = max(within, key=_f1) if within else min(curve, key=lambda point: (point[rate], -_f1(point)))
    return Chosen(best["threshold"], bool(within), limit, best["f1"], best[rate])


def _f1(point: dict[str, Any]) -> float:
    return -1.0 if point["f1"] is None else float(point["f1"])
