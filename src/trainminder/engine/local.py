"""The engine of this process: one thing after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from trainminder.engine import Make, Watch

__all__ = ["Local"]

Given = TypeVar("Given")
Made = TypeVar("Made")


class Local:
    """An ``Engine`` without workers."""

    def __init__(self) -> None:
        self._watch: tuple[str, Watch] | None = None

    def __enter__(self) -> Local:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def map(self, work: Callable[[Given], Made], given: Sequence[Given]) -> Iterator[Made]:
        """As ``Engine.map``."""
        return map(work, given)

    def watch(self, makes: Mapping[str, Make]) -> Iterator[tuple[str, Any]]:
        """As ``Engine.watch``, one after the other."""
        for name, make in makes.items():
            self._watch = name, make(None)
            while (moment := self._watch[1].step()) is not None:
                yield name, moment

    def saved(self, name: str) -> bytes | None:
        """As ``Engine.saved``, of the watch that is under way."""
        return self._watch[1].saved() if self._watch is not None and self._watch[0] == name else None
