"""Files as tables: finding the format, opening, and writing in one stroke. Knows nothing of metrics."""

from __future__ import annotations

import codecs
import csv
import gzip
import os
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from trainminder.errors import RecordingError

__all__ = ["Table", "check_writable", "list_files", "open_table", "stem_of", "write_table"]

PARQUET_SUFFIXES = (".parquet", ".pq")
CSV_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
SUFFIXES = (*PARQUET_SUFFIXES, *CSV_SUFFIXES)
SEPARATORS = ",;\t|"

# A damaged file may make the Parquet reader panic, which is no Exception.
_READ_ERRORS = (OSError, EOFError, zlib.error, pl.exceptions.PolarsError, pl.exceptions.PanicException)


@dataclass(frozen=True, slots=True)
class Table:
    """A file whose column names are known and whose cells are read on demand."""

    path: Path
    columns: tuple[str, ...]
    text: bytes | None = None
    """A CSV file's content, UTF-8; None: Parquet."""
    separator: str = ","

    def read(self, names: Sequence[str]) -> pl.DataFrame:
        """The named columns; every cell of a CSV file is text or null.

        Raises:
            RecordingError: the file is damaged.
        """
        if not names:
            return pl.DataFrame()
        try:
            if self.text is None:
                return pl.read_parquet(self.path, columns=list(names), glob=False, hive_partitioning=False)
            places = sorted(self.columns.index(name) for name in names)
            frame = pl.read_csv(self.text, columns=places, separator=self.separator, infer_schema=False)
        except _READ_ERRORS as error:
            raise RecordingError(f"{self.path} is damaged: {_first_line(error)}: write it again") from error
        frame.columns = [self.columns[place] for place in places]
        # A blank line is no row.
        return frame.filter(~pl.all_horizontal(pl.all().is_null()))


def stem_of(path: Path) -> str:
    """The file's name without the endings of a recording."""
    for suffix in SUFFIXES:
        if path.name.lower().endswith(suffix):
            return path.name[: -len(suffix)] or path.name
    return path.stem


def list_files(path: Path) -> list[Path]:
    """The recordings at ``path``, sorted by name: the file itself, or those in the folder.

    Raises:
        RecordingError: nothing is there, or a folder without recordings.
    """
    try:
        if not path.is_dir():
            if not path.exists():
                raise RecordingError(f"{path} does not exist: give a Parquet or CSV file, or a folder of them")
            if not path.is_file():
                # Its end may never come, and it cannot be read twice.
                raise RecordingError(f"{path} is no regular file: write the data to a Parquet or CSV file first")
            return [path]
        names = sorted(path.iterdir())
    except OSError as error:
        raise RecordingError(f"{path} cannot be read: {error.strerror}") from error
    files = [file for file in names if file.name.lower().endswith(SUFFIXES) and not file.name.startswith(".")]
    if not files:
        raise RecordingError(f"folder {path} holds no recording: expected files that end in {', '.join(SUFFIXES)}")
    return files


def open_table(path: Path) -> Table:
    """Find the format and the columns of a file.

    Raises:
        RecordingError: unreadable, empty, damaged, of another format, or a column name twice.
    """
    try:
        with path.open("rb") as file:
            head = file.read(4)
            if not head:
                raise RecordingError(f"{path} is empty: record it again")
            if head == b"PAR1":
                # The open file, not its name: a name may hold signs of a pattern.
                return Table(path, tuple(pl.read_parquet_schema(file)))
        name = path.name.lower()
        if name.endswith(PARQUET_SUFFIXES):
            raise RecordingError(f"{path} is not a Parquet file (it begins with {head!r}): write it again")
        if not name.endswith(CSV_SUFFIXES):
            raise RecordingError(f"{path} is of no known format: convert it to Parquet or CSV ({', '.join(SUFFIXES)})")
        content = path.read_bytes()
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
    except _READ_ERRORS as error:
        reason = getattr(error, "strerror", None) or _first_line(error)
        raise RecordingError(f"{path} cannot be read: {reason}: write it again, or check its rights") from error
    return _open_csv(path, content)


def _open_csv(path: Path, content: bytes) -> Table:
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        content = content.decode("utf-16", errors="replace").encode()
    content = content.removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n")
    if b"\n" not in content:
        content = content.replace(b"\r", b"\n")
    header = content.partition(b"\n")[0].decode("utf-8", errors="replace").rstrip("\r")
    if "\0" in header or "\ufffd" in header:
        raise RecordingError(f"{path} is not UTF-8 text: write it as CSV in UTF-8, or as Parquet")
    if not header:
        raise RecordingError(f"{path} is empty: record it again")
    # A wide table read with the wrong separator is one long field.
    csv.field_size_limit(max(csv.field_size_limit(), len(header) + 1))
    try:
        names = {mark: next(csv.reader([header], delimiter=mark, skipinitialspace=True)) for mark in SEPARATORS}
    except csv.Error as error:
        raise RecordingError(f"{path} has no readable header line: {error}: write it again") from error
    separator = max(SEPARATORS, key=lambda mark: len(names[mark]))
    columns = tuple(name.strip() for name in names[separator])
    doubled = [name for name, count in Counter(columns).items() if count > 1 and name]
    if doubled:
        raise RecordingError(f'{path} has the column "{doubled[0]}" twice: rename one of them')
    return Table(path, columns, content, separator)


def check_writable(path: Path) -> None:
    """Whether a recording may be written there, as far as that shows before there is one.

    Raises:
        RecordingError: another ending, or no such folder.
    """
    if not path.name.lower().endswith((*PARQUET_SUFFIXES, ".csv", ".csv.gz")):
        raise RecordingError(f"{path} ends in no known format: use .parquet, .csv or .csv.gz")
    if not path.parent.is_dir():
        raise RecordingError(f"{path} cannot be written: {path.parent} is no folder: choose a folder that exists")


def write_table(frame: pl.DataFrame, path: Path) -> None:
    """Write Parquet or CSV, by the file's ending, in one stroke: a reader sees the old file or the whole new one.

    Raises:
        RecordingError: another ending, or the file cannot be written.
    """
    check_writable(path)
    name = path.name.lower()
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        if name.endswith(PARQUET_SUFFIXES):
            frame.write_parquet(part)
        elif name.endswith(".csv"):
            frame.write_csv(part)
        else:
            part.write_bytes(gzip.compress(frame.write_csv().encode(), compresslevel=6, mtime=0))
        part.replace(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = getattr(error, "strerror", None) or _first_line(error)
        raise RecordingError(f"{path} cannot be written: {reason}: choose a folder that exists") from error
    finally:
        part.unlink(missing_ok=True)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
