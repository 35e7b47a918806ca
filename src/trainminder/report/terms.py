"""What the report calls what a method measures: each method keeps its own words."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEPARTURE", "NORMAL_SCORE", "Terms", "terms_of"]


@dataclass(frozen=True, slots=True)
class Terms:
    """One method's words for the score of a machine in one metric, and for the value from which it counts."""

    score: str
    threshold: str
    """Where the threshold is named alone: in legends and beside lines."""
    above: str
    """Heading of the time for which a machine stays at or beyond the threshold."""
    highest: str
    """Heading of a machine's highest score."""
    glossary: tuple[tuple[str, str], ...]
    """Words of the page, and what they mean."""


NORMAL_SCORE = Terms(
    score="normal score",
    threshold="threshold",
    above="longest above the threshold",
    highest="highest normal score (threshold)",
    glossary=(
        (
            "normal score",
            "how far a machine's recent samples are from its peers', standardised over the machines compared; larger "
            "is stranger",
        ),
        (
            "threshold",
            "the normal score above which a machine is a candidate; it depends on how many are compared",
        ),
        ("candidate", "the machine whose normal score passes the threshold in one window"),
        ("onset", "since when the same machine has stood out"),
        ("confirmed", "the earliest instant at which the verdict stood, using only data up to then"),
    ),
)

DEPARTURE = Terms(
    score="departure",
    threshold="a departure begins",
    above="longest departure",
    highest="highest departure (begins at 1)",
    glossary=(
        (
            "departure",
            "how far a metric of a machine is from its ordinary relation to its peers, over the last seconds and the "
            "last minute; from 1 on, the machine departs",
        ),
        (
            "expected once in",
            "after how many days of one healthy machine it is expected to come so far once: the "
            "rarer, the more there is against a machine",
        ),
        (
            "limit",
            "the verdict stands when what a machine does is rarer than this on a healthy one; it follows from how "
            "many healthy machines may be named (detect.false_alarms_per_machine_day)",
        ),
        ("weight", "for how long a metric departed, as a share of this time over all metrics of the verdict"),
        ("noise", "how far the metric of an ordinary machine strays from its relation to its peers"),
        ("onset", "since when the machine has departed"),
        ("confirmed", "the earliest instant at which the verdict stood, using only data up to then"),
    ),
)


def terms_of(method: str) -> Terms:
    """The words for a pass by that method."""
    return DEPARTURE if method == "default" else NORMAL_SCORE
