"""How values are put in words wherever they are: messages, warnings, reports."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["some_names"]


def some_names(names: Sequence[str], most: int = 5) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
