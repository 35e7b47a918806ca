"""Replaying: a task of the past through the stream, as it would have come in; what would have been raised, and when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainminder.source.cutting import in_pieces
from trainminder.stream import TaskStream
from trainminder.types import PassResult, RawTask, Verdict

__all__ = ["Moment", "Replay"]


@dataclass(frozen=True, slots=True)
class Moment:
    """What was known at one instant (Unix seconds), and the verdicts that were new then.

    ``share``: how much of the task was replayed by then.
    """

    at: float
    result: PassResult
    raised: tuple[Verdict, ...]
    share: float


class Replay:
    """A watch (``engine.Watch``) over a task of the past.

    Args:
        raw: what the stream took in before is left out.
        every_seconds: how much comes in at once; after each the verdict is looked at.
    """

    def __init__(self, raw: RawTask, stream: TaskStream, every_seconds: float) -> None:
        self._stream = stream
        self._moments = self._replayed(raw, every_seconds)

    def step(self) -> Moment | None:
        """What is known after the next piece; None after the last."""
        return next(self._moments, None)

    def saved(self) -> bytes:
        """The stream as it is now."""
        return self._stream.saved()

    def _replayed(self, raw: RawTask, every_seconds: float) -> Iterator[Moment]:
        stream, span = self._stream, max(raw.to_at - raw.from_at, 1e-9)
        known = {verdict.machine for verdict in stream.result().verdicts} if stream.has_begun else set()
        if stream.taken_until >= raw.to_at:
            yield Moment(stream.taken_until, stream.result(), (), 1.0)
        for piece in in_pieces(raw, max(raw.from_at - every_seconds, stream.taken_until), every_seconds):
            stream.take(piece)
            result = stream.result()
            raised = tuple(verdict for verdict in result.verdicts if verdict.machine not in known)
            known |= {verdict.machine for verdict in raised}
            yield Moment(piece.to_at, result, raised, (piece.to_at - raw.from_at) / span)
