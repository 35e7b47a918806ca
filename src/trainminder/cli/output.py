"""What commands print on standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import typer

__all__ = ["PIPE_WIDTH", "markdown_table", "print_json", "print_table"]

#: Columns of a table that goes to a file or a pipe: wide enough that nothing folds, so that grep finds it.
PIPE_WIDTH = 10_000


def print_json(value: Any) -> None:
    """One JSON document and nothing else.

    Raises:
        ValueError: NaN or an infinity, which are not JSON: unknown is written as null.
    """
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table as wide as the terminal; long cells fold."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        # Text, not markup: "[gpu]" in a cell is no style.
        table.add_row(*(Text(cell) for cell in row))
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False).print(table)


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The same as a Markdown table."""
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)
