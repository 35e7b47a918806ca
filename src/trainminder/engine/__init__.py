"""Where work is done: in this process, or spread over the workers of a Ray cluster.

Two kinds of work are known. *Jobs* depend on nothing but what they are given, and are done again if their worker dies.
*Watches* go on and on and keep a state: one is looked at step by step, and goes on elsewhere from its last saved state
if its worker dies; what it has told is not told again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol, TypeVar

__all__ = ["ENGINES", "Engine", "EngineName", "Make", "Watch", "engine_named"]

EngineName = Literal["local", "ray"]
ENGINES: tuple[EngineName, ...] = ("local", "ray")

Given = TypeVar("Given")
Made = TypeVar("Made")


class Moment(Protocol):
    """What a watch tells: what was known at one instant (Unix seconds); each is later than the one before."""

    @property
    def at(self) -> float: ...


class Watch(Protocol):
    """One task that is watched.

    From a saved state it goes on with what came after: what it told in between, it may tell again.
    """

    def step(self) -> Any:
        """The next ``Moment``; None where there are no more."""
        ...

    def saved(self) -> bytes:
        """All that is needed to go on from here."""
        ...


#: Makes a watch, from its saved state if there is one.
Make = Callable[[bytes | None], Watch]


class Engine(AbstractContextManager["Engine"], Protocol):
    """The port of all engines."""

    def map(self, work: Callable[[Given], Made], given: Sequence[Given]) -> Iterator[Made]:
        """Do a job with each of some things; results come in the order of these.

        Raises:
            EngineError: a worker died again and again; and whatever the work raises.
        """
        ...

    def watch(self, makes: Mapping[str, Make]) -> Iterator[tuple[str, Any]]:
        """Watch tasks to their end: (name, moment); those of one task come in their order, each once.

        Args:
            makes: name -> makes the watch, from its saved state if there is one. Elsewhere, too: it is sent there.
        Raises:
            EngineError: a worker died again and again; and whatever a watch raises.
        """
        ...

    def saved(self, name: str) -> bytes | None:
        """The state of a watch, from which it goes on to tell what it has not told; None: it has not begun."""
        ...


def engine_named(name: EngineName) -> Engine:
    """The engine of that name.

    Raises:
        MissingExtra: Ray is not installed.
    """
    if name == "ray":
        from trainminder.engine.on_ray import OnRay

        return OnRay()
    from trainminder.engine.local import Local

    return Local()
