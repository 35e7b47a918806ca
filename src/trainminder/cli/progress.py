"""Progress of long work: a bar on standard error when that is a terminal, nothing otherwise."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

__all__ = ["Advance", "progress"]


class Advance(Protocol):
    """Told by the work that ``amount`` more of it is done, and optionally what it is at."""

    def __call__(self, amount: float = 1.0, at: str | None = None) -> None: ...


def _say_nothing(amount: float = 1.0, at: str | None = None) -> None:
    del amount, at


@contextmanager
def progress(what: str, total: float | None = None) -> Iterator[Advance]:
    """Show how far ``what`` is; the value given is to be called as work gets done.

    Args:
        what: a few words, such as "training cpu_usage".
        total: amount of all work; None where it is not known.
    """
    if not sys.stderr.isatty():
        yield _say_nothing
        return

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)

        def advance(amount: float = 1.0, at: str | None = None) -> None:
            bar.update(task, advance=amount, description=f"{what}: {at}" if at else what)

        yield advance
