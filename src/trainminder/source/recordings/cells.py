"""Cells of a recording: text that should be numbers, and names that came as numbers."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from trainminder.errors import RecordingError

__all__ = ["Numbers", "read_names", "read_numbers"]

# What tools write where they have no value; the words change between versions, the brackets stay.
PLACEHOLDER = (
    r"(?i)^(\[.*\]|<.*>|n\.?/?a\.?|-+|\?|null|none|nil|missing|unknown|unknown error|"
    r"not supported|not available|err!?)$"
)
# The same for names, narrower: a machine may well be called "unknown".
NO_NAME = r"(?i)^(\[?n/a\]?|-|nan|null|none|)$"


@dataclass(frozen=True, slots=True)
class Numbers:
    """A column as numbers (Float64, null where the cell held none) and what could not be read."""

    values: pl.Series
    placeholders: int = 0
    placeholder: str = ""
    wrong: int = 0
    example: str = ""


def read_numbers(column: pl.Series) -> Numbers:
    """Cells as numbers; placeholder words and anything else that is no number become null and are counted.

    An example is the first in sorted order, so that the order of rows does not matter.
    """
    if column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null):
        return Numbers(column.cast(pl.Float64))
    if column.dtype not in (pl.String, pl.Categorical, pl.Enum):
        filled = len(column) - column.null_count()
        return Numbers(
            pl.Series(column.name, [None] * len(column), pl.Float64), wrong=filled, example=str(column.dtype)
        )
    text = column.cast(pl.String).str.strip_chars()
    values = text.cast(pl.Float64, strict=False)
    failed = text.filter(values.is_null() & text.is_not_null() & (text != ""))
    if failed.is_empty():
        return Numbers(values)
    is_placeholder = failed.str.contains(PLACEHOLDER)
    known, wrong = failed.filter(is_placeholder), failed.filter(~is_placeholder)
    return Numbers(values, len(known), _least(known), len(wrong), _least(wrong))


def _least(texts: pl.Series) -> str:
    return str(texts.min()) if len(texts) else ""


def read_names(column: pl.Series) -> pl.Series:
    """Cells as names: text without outer blanks, whole numbers without a point, null where there is none.

    Raises:
        RecordingError: cells that are neither text nor numbers.
    """
    if column.dtype.is_nested() or column.dtype == pl.Binary:
        raise RecordingError(f'column "{column.name}" is of type {column.dtype}: write names as text or numbers')
    if column.dtype.is_float():
        # A column of integers with holes became float on its way: 3.0 is the rank 3.
        values = column.cast(pl.Float64).fill_nan(None)
        whole = values.is_null() | ((values == values.round(0)) & (values.abs() < 2**53))
        column = values.cast(pl.Int64) if whole.all() else values
    text = column.cast(pl.String).str.strip_chars()
    # Few names, many rows: the pattern is matched once for each name.
    names = text.unique().drop_nulls()
    empty = names.filter(names.str.contains(NO_NAME))
    return text if empty.is_empty() else text.set(text.is_in(empty.implode()), None)
