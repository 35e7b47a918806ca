"""What a verdict rests on, as people read it."""

from __future__ import annotations

from collections.abc import Sequence

from trainminder.types import Evidence, Verdict, View
from trainminder.wording import quantity

__all__ = ["VIEW_WORDS", "against_peers", "primary_evidence", "suspect_until"]

VIEW_WORDS: dict[View, str] = {
    "machine": "",
    "mean": "mean of the machine's devices",
    "device": "most deviating device of each machine",
}


def against_peers(value: float | None, peers: float | None, unit: str) -> str:
    """``value`` beside the peers' median, both with unit and told apart, such as ``4.1 GB/s, peers 12.2 GB/s``."""
    if value is None:
        return "no sample" if peers is None else f"no sample, peers {quantity(peers, unit)}"
    if peers is None:
        return f"{quantity(value, unit)}, no peers"
    ours, theirs = quantity(value, unit), quantity(peers, unit)
    for digits in (4, 5, 6):
        if ours != theirs:
            break
        ours, theirs = quantity(value, unit, digits), quantity(peers, unit, digits)
    return f"{ours}, peers {theirs}"


def primary_evidence(verdict: Verdict) -> Evidence | None:
    """The sign that made the verdict: the first about its metric and device, else the first about its metric."""
    own: Sequence[Evidence] = [item for item in verdict.evidence if item.metric == verdict.metric]
    return next((item for item in own if item.device == verdict.device), own[0] if own else None)


def suspect_until(verdict: Verdict) -> float:
    """Instant up to which the machine is known to have stood out."""
    evidence = primary_evidence(verdict)
    return max(verdict.confirmed, evidence.until) if evidence else verdict.confirmed
