"""Rows of one file as instants, names and numbers; what is decided from column names, and what is said about cells."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from trainminder.errors import RecordingError
from trainminder.settings import RecordingSettings
from trainminder.source.recordings.cells import Numbers, read_names, read_numbers
from trainminder.source.recordings.tables import Table
from trainminder.source.recordings.timestamps import read_instants
from trainminder.types import MetricSpec
from trainminder.wording import some_names

__all__ = ["KEYS", "Header", "Part", "with_nearest"]

KEYS = ("timestamp", "machine", "device", "group", "task")
LONG = ("metric", "value")
SHOWN_NAMES = 12
# Names that other tools give our two required columns.
USUAL_NAMES: Mapping[str, tuple[str, ...]] = {
    "timestamp": ("time", "ts", "datetime", "date", "t", "t_s", "_time"),
    "machine": ("node", "host", "hostname", "instance", "nodename", "server", "rank", "worker", "name"),
}


@dataclass
class Part:
    """One file's rows of one task.

    Each block holds ``timestamp`` (Float64), ``machine``, ``device``, ``group`` (String) and one Float64 column for
    each metric; only machine and timestamp are never null.
    """

    path: Path
    blocks: list[pl.DataFrame]
    skipped: list[str]
    warnings: list[str]
    columns: dict[str, str]
    """Metric -> the file's own name of it."""


class Header:
    """A file of which the columns are chosen and nothing is read yet."""

    def __init__(
        self, table: Table, settings: RecordingSettings, wanted: Mapping[str, MetricSpec], says_skipped: bool
    ) -> None:
        self.table = table
        self.settings = settings
        self.wanted = wanted
        self.says_skipped = says_skipped
        self.original = {settings.columns.get(name, name): name for name in table.columns if name}
        """Our name of a column -> the file's."""
        unknown = [name for name in settings.columns if name not in table.columns]
        # In a long file metrics are renamed as columns are.
        self.said = (
            [f"columns to rename that are not there: {some_names(unknown)} (recording.columns, --column)"]
            if unknown and not self._is_long
            else []
        )

    @property
    def has_tasks(self) -> bool:
        return "task" in self.original

    def read(self) -> pl.DataFrame:
        """The cells of the columns in use, under our names.

        Raises:
            RecordingError: timestamp or machine is missing, two columns of one name, no rows, damaged.
        """
        for name in filter(None, self.table.columns):
            new = self.settings.columns.get(name, name)
            if self.original[new] != name:
                raise RecordingError(
                    f'{self.table.path}: columns "{name}" and "{self.original[new]}" would both be "{new}": '
                    f"change recording.columns"
                )
        for key in ("timestamp", "machine"):
            if key not in self.original:
                raise RecordingError(_missing_key(key, self.table))
        in_use = self._names_in_use()
        used = {new: name for new, name in self.original.items() if new in in_use}
        frame = self.table.read(list(used.values())).select(pl.col(name).alias(new) for new, name in used.items())
        if frame.is_empty():
            raise RecordingError(f"{self.table.path} has columns but no rows: record it again")
        return frame

    def read_tasks(self) -> Mapping[str, pl.DataFrame]:
        """The same by task, as the task column names them; empty where it names none."""
        frame = self.read()
        frame = frame.with_columns(read_names(frame["task"]))
        tasks = frame.partition_by("task", maintain_order=True, as_dict=True)
        named = {str(name): rows for (name,), rows in tasks.items() if name is not None}
        if lost := frame["task"].null_count():
            self.said.append(f"rows without a task are dropped: {lost}" if named else "no row names a task")
        return named

    @property
    def _is_long(self) -> bool:
        return self.original.keys() >= set(LONG)

    def _names_in_use(self) -> set[str]:
        return {*KEYS, *(LONG if self._is_long else self.wanted)}

    def part(self, rows: pl.DataFrame) -> Part:
        """Turn raw cells into instants, names and numbers.

        Raises:
            RecordingError: an instant or a name that is none, or no usable row.
            SettingsError: recording.timezone is no zone.
        """
        path = self.table.path
        nothing = pl.Series([None] * len(rows), dtype=pl.String)
        try:
            instants, said = read_instants(rows["timestamp"].rename(self.original["timestamp"]), self.settings)
            names = {
                key: read_names(rows[key].rename(self.original[key])) if key in rows.columns else nothing
                for key in ("machine", "device", "group")
            }
        except RecordingError as error:
            raise RecordingError(f"{path}: {error}") from error
        said = self.said + said
        keys = pl.DataFrame({"timestamp": instants, **names})
        for key, what in (("machine", "a machine"), ("timestamp", "an instant")):
            if lost := keys[key].null_count():
                said.append(f"rows without {what} are dropped: {lost}")
        usable = keys["machine"].is_not_null() & keys["timestamp"].is_not_null()
        if not usable.any():
            raise RecordingError(f"{path} has no row with both an instant and a machine: fill these columns")
        in_use = self._names_in_use()
        skipped = [name for new, name in self.original.items() if new not in in_use]
        if self._is_long:
            blocks, unknown = self._read_long(keys, rows, usable, said)
            skipped += unknown
            columns = {new: name for name, new in self.settings.columns.items() if new in self.wanted}
        else:
            cells = {name: read_numbers(rows[name]) for name in self.wanted if name in rows.columns}
            said += _cell_warnings({self.original[name]: numbers for name, numbers in cells.items()})
            block = keys.with_columns(numbers.values.alias(name) for name, numbers in cells.items())
            blocks = [block.filter(usable)]
            columns = {name: self.original[name] for name in cells}
        if skipped and self.says_skipped:
            said.append(_skipped_warning(skipped, self.wanted))
        return Part(path, blocks, skipped, said, columns)

    def _read_long(
        self, keys: pl.DataFrame, rows: pl.DataFrame, usable: pl.Series, said: list[str]
    ) -> tuple[list[pl.DataFrame], list[str]]:
        """A block for each metric, and the names that are no metric; renaming applies to metrics as to columns."""
        names = read_names(rows["metric"]).replace(self.settings.columns)
        if lost := names.null_count():
            said.append(f"rows without a metric are dropped: {lost}")
        numbers = read_numbers(rows["value"])
        said += _cell_warnings({self.original["value"]: numbers})
        long = keys.with_columns(names.alias("metric"), numbers.values.alias("value"))
        long = long.filter(usable & names.is_not_null())
        by_metric = {str(name): block for (name,), block in long.partition_by("metric", as_dict=True).items()}
        blocks = [
            block.drop("metric").rename({"value": name}) for name, block in by_metric.items() if name in self.wanted
        ]
        # A machine of which no metric is known is still a machine of the task.
        members = long.group_by("machine", "group").agg(
            pl.col("timestamp").min(), pl.lit(None, pl.String).alias("device")
        )
        return [*blocks, members], sorted(by_metric.keys() - self.wanted.keys())


def _missing_key(key: str, table: Table) -> str:
    usual = [name for name in table.columns if name.lower() in USUAL_NAMES[key]]
    near = usual or difflib.get_close_matches(key, table.columns, n=1, cutoff=0.5)
    name = near[0] if near else "NAME"
    hint = f'is it "{name}"? ' if near else ""
    return (
        f'{table.path} has no column "{key}": {hint}say which column it is with --column {name}={key} '
        f'(setting recording.columns, {{"{name}": "{key}"}}); it has {some_names(table.columns, 12)}'
    )


def _cell_warnings(cells: Mapping[str, Numbers]) -> list[str]:
    lines = [
        f'column "{name}": cells that are no numbers count as missing: {cell.wrong}, such as "{cell.example}"; '
        f"write bare numbers with a decimal point"
        for name, cell in cells.items()
        if cell.wrong
    ]
    placeholders = [
        f"{name} {cell.placeholders} ({cell.placeholder})" for name, cell in cells.items() if cell.placeholders
    ]
    if placeholders:
        lines.append(f"cells that say there is no value count as missing: {', '.join(placeholders)}")
    return lines


def with_nearest(names: Sequence[str], wanted: Mapping[str, MetricSpec]) -> list[str]:
    """The names that a message shows, each with the canonical one most like it, and the others as they are."""
    named = []
    for name in names[:SHOWN_NAMES]:
        near = difflib.get_close_matches(name.lower(), wanted, n=1, cutoff=0.6)
        named.append(f"{name} (did you mean {near[0]}?)" if near else name)
    return [*named, *names[SHOWN_NAMES:]]


def _skipped_warning(skipped: Sequence[str], wanted: Mapping[str, MetricSpec]) -> str:
    return (
        f"columns that are no known metric are skipped: {some_names(with_nearest(skipped, wanted), SHOWN_NAMES)}: "
        f"rename them in recording.columns, or admit them with --metric NAME"
    )
