"""Replaying: a task of the past through the stream, as it would have come in; what would have been raised, and when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainminder.source.cutting import in_pieces
from trainminder.stream import TaskStream
from trainminder.types import PassResult, RawTask, Verdict

__all__ = ["Moment", "replayed"]


@dataclass(frozen=True, slots=True)
class Moment:
    """What was known at one instant (Unix seconds), and the verdicts that were new then."""

    at: float
    result: PassResult
    raised: tuple[Verdict, ...]


def replayed(raw: RawTask, stream: TaskStream, every_seconds: float) -> Iterator[Moment]:
    """Give a stream a task piece by piece, and look at its verdict after each.

    Args:
        raw: what the stream took in before is left out.
        every_seconds: how much comes in at once.
    """
    known = {verdict.machine for verdict in stream.result().verdicts} if stream.has_begun else set()
    for piece in in_pieces(raw, max(raw.from_at - every_seconds, stream.taken_until), every_seconds):
        stream.take(piece)
        result = stream.result()
        raised = tuple(verdict for verdict in result.verdicts if verdict.machine not in known)
        known |= {verdict.machine for verdict in raised}
        yield Moment(piece.to_at, result, raised)
