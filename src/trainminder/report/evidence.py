"""What a verdict rests on, as people read it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trainminder.types import Evidence, PassResult, Verdict, View
from trainminder.wording import quantity

__all__ = [
    "MINOR_WEIGHT",
    "VIEW_WORDS",
    "against_peers",
    "confidence_of",
    "considered_in",
    "days_of",
    "is_silent",
    "metric_signs",
    "own_and_peers",
    "primary_evidence",
    "rarity_and_limit",
    "remarks",
    "silence_words",
    "suspect_until",
]

VIEW_WORDS: dict[View, str] = {
    "machine": "",
    "mean": "mean of the machine's devices",
    "device": "most deviating device of each machine",
}

NO_SAMPLE = "no sample"
#: Signs with less of the weight than this are named, not shown: a second or two that a metric departed by the way.
MINOR_WEIGHT = 0.05
#: From this on, a number of machine-years only says "never".
MOST_YEARS = 1e6


def own_and_peers(value: float | None, peers: float | None, unit: str) -> tuple[str, str]:
    """``value`` and the peers' median, both with unit and told apart, such as ``4.1 GB/s``, ``12.2 GB/s``."""
    # A mean of no samples is not a number: to the reader, it is no sample.
    value, peers = (None if each is None or math.isnan(each) else each for each in (value, peers))
    if value is None or peers is None:
        return NO_SAMPLE if value is None else quantity(value, unit), "" if peers is None else quantity(peers, unit)
    ours, theirs = quantity(value, unit), quantity(peers, unit)
    for digits in (4, 5, 6):
        if ours != theirs:
            break
        ours, theirs = quantity(value, unit, digits), quantity(peers, unit, digits)
    return ours, theirs


def against_peers(value: float | None, peers: float | None, unit: str) -> str:
    """``value`` beside the peers' median, such as ``4.1 GB/s, peers 12.2 GB/s``."""
    ours, theirs = own_and_peers(value, peers, unit)
    if theirs:
        return f"{ours}, peers {theirs}"
    return ours if ours == NO_SAMPLE else f"{ours}, no peers"


def primary_evidence(verdict: Verdict) -> Evidence | None:
    """The sign that made the verdict: the first about its metric and device, else the first about its metric."""
    own: Sequence[Evidence] = [item for item in verdict.evidence if item.metric == verdict.metric]
    return next((item for item in own if item.device == verdict.device), own[0] if own else None)


def suspect_until(verdict: Verdict) -> float:
    """Instant up to which the machine is known to have stood out."""
    evidence = primary_evidence(verdict)
    return max(verdict.confirmed, evidence.until) if evidence else verdict.confirmed


# ---------------------------------------------------------------- of the method default


def metric_signs(verdict: Verdict) -> tuple[list[Evidence], list[Evidence]]:
    """The metrics that departed, in their order: those that carry the verdict, and those of little weight."""
    signs = [item for item in verdict.evidence if item.kind == "metric"]
    # What leads is shown whatever its weight: the verdict is named after it.
    carries = [item for place, item in enumerate(signs) if place == 0 or (item.weight or 0.0) >= MINOR_WEIGHT]
    return carries, [item for item in signs if item not in carries]


def remarks(verdict: Verdict, kind: str) -> list[Evidence]:
    """The evidence of one kind that is words, not numbers of a metric."""
    return [item for item in verdict.evidence if item.kind == kind]


def is_silent(verdict: Verdict) -> bool:
    """Whether the leading sign is that the machine ceased to report."""
    return bool(verdict.evidence) and verdict.evidence[0].kind == "silence"


def silence_words(verdict: Verdict) -> str:
    """``ceased to report``; or, where metrics of the machine departed as well, only as much as is certain.

    One lost device silences a machine in most of its metrics, though the others go on.
    """
    return "ceased to report" + (", at least in part" if remarks(verdict, "metric") else "")


def confidence_of(verdict: Verdict) -> tuple[float, float | None]:
    """In decades: how rare it is on a healthy machine, and the limit where it is known."""
    item = next(iter(remarks(verdict, "confidence")), None)
    return (verdict.score, None) if item is None else (item.score, item.threshold)


def considered_in(result: PassResult) -> list[tuple[Verdict, Evidence]]:
    """The other machines that were considered, with the verdict beside which they were, each once.

    A machine that has a verdict of its own is left out: it was considered before its own evidence sufficed.
    """
    convicted = tuple(f"{verdict.machine} departed" for verdict in result.verdicts)
    found: dict[str, tuple[Verdict, Evidence]] = {}
    for verdict in result.verdicts:
        for item in remarks(verdict, "considered"):
            # The words name the machine first; evidence has no field for another machine than the verdict's.
            if not item.text.startswith(convicted):
                found.setdefault(item.text.partition(" departed")[0], (verdict, item))
    return list(found.values())


def days_of(decades: float) -> str:
    """10 to the power of that many machine-days, such as ``475 machine-days`` or ``3,023 machine-years``."""
    years = 10.0 ** min(decades, 300.0) / 365.25
    if years > MOST_YEARS:
        return f"over {MOST_YEARS:,.0f} machine-years"
    days = 10.0**decades
    if days > 1000:
        return f"{years:,.0f} machine-years"
    count = f"{days:,.0f}" if days >= 10 else f"{days:.2g}"
    return f"{count} machine-day{'' if count == '1' else 's'}"


def rarity_and_limit(decades: float, limit: float | None) -> str:
    """``once in 475 machine-days (limit once in 400)``."""
    rare = days_of(decades)
    if limit is None:
        return f"once in {rare}"
    count, _, unit = days_of(limit).partition(" ")
    return f"once in {rare} (limit once in {count if rare.endswith(unit) else f'{count} {unit}'})"
