"""Instants of a recording as Unix seconds, from numbers, typed columns or ISO 8601 text.

Whatever is decided for the user (a unit, a zone, a relative start) is said in a warning.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

import numpy as np
import polars as pl

from trainminder.errors import RecordingError, SettingsError
from trainminder.settings import RecordingSettings
from trainminder.source.recordings.cells import read_names

__all__ = ["FACTORS", "read_instants"]

EARLIEST, LATEST = 946_684_800, 4_102_444_800  # 2000-01-01 and 2100-01-01
RELATIVE_END = 1e8  # seconds since a start: three years, far below any Unix time of the span above
FACTORS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
WORDS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}

ISO = (
    r"^(?P<date>\d{4}[-/]\d{2}[-/]\d{2})"
    r"(?:[Tt ]\s*(?P<clock>\d{2}:\d{2})(?P<second>:\d{2})?(?:[.,](?P<fraction>\d+))?)?"
    r"\s*(?P<zone>[Zz]|UTC|GMT|[+-]\d{2}(?::?\d{2})?)?$"
)


def read_instants(column: pl.Series, settings: RecordingSettings) -> tuple[pl.Series, list[str]]:
    """Every cell as Unix seconds (UTC), or as seconds since the start where the numbers are that small.

    Returns:
        Float64, null where the cell is empty; and what was decided, one line each.
    Raises:
        RecordingError: a cell that is no instant between 2000 and 2100, or cells of several kinds.
        SettingsError: recording.timezone is no zone.
    """
    dtype = column.dtype
    if isinstance(dtype, pl.Datetime):
        seconds, said = _from_typed(column, settings)
        _check_span(column, seconds)
        return seconds, said
    if dtype == pl.Date:
        return read_instants(column.cast(pl.Datetime("us")), settings)
    if isinstance(dtype, pl.Duration):
        counted = column.dt.total_nanoseconds().rename(column.name)
        return _from_numbers(counted, settings.model_copy(update={"time_unit": "ns"}))
    if dtype.is_numeric():
        return _from_numbers(column, settings)
    if dtype in (pl.String, pl.Categorical, pl.Enum, pl.Null):
        return _from_text(read_names(column), settings)
    raise RecordingError(f'column "{column.name}" is of type {dtype}: write Unix seconds or ISO 8601 with a zone')


def _from_numbers(column: pl.Series, settings: RecordingSettings) -> tuple[pl.Series, list[str]]:
    name, values = column.name, column.cast(pl.Float64)
    values = values.set(~values.is_finite(), None)
    if values.null_count() == len(values):
        return values, []
    unit, is_relative = _kind_of(values, settings.time_unit, name)
    said = []
    if is_relative:
        said.append(
            f'column "{name}" holds small numbers: taken as {WORDS[unit]} since the start of the recording, '
            f"not as instants"
        )
    elif settings.time_unit == "auto" and unit != "s":
        said.append(
            f'column "{name}" is in {WORDS[unit]} since 1970, judged by its size (recording.time_unit states it)'
        )
    if column.dtype == pl.Float32 and not is_relative:
        raise RecordingError(f'column "{name}" is float32, too coarse for Unix time: write it as float64')
    return _seconds(column if column.dtype.is_integer() else values, FACTORS[unit]), said


def _seconds(counts: pl.Series, factor: int) -> pl.Series:
    """Counts of 1/factor s as seconds, rounded once: polars would multiply by the rounded reciprocal."""
    empty = counts.is_null()
    if counts.dtype.is_integer() and factor == FACTORS["ns"]:
        # Beyond 2**53 an integer is not exact as a float: whole seconds and the rest go apart.
        whole, rest = np.divmod(counts.fill_null(0).cast(pl.Int64).to_numpy(), factor)
        seconds = whole + rest / factor
    else:
        # Adding zero makes one zero of the two.
        seconds = counts.fill_null(0).cast(pl.Float64).to_numpy() / factor + 0.0
    return pl.Series(counts.name, seconds).set(empty, None)


def _kind_of(values: pl.Series, stated: str, name: str) -> tuple[str, bool]:
    """The unit, and whether the numbers count from a start: one answer for the whole column."""
    units = FACTORS if stated == "auto" else {stated: FACTORS[stated]}
    kinds = {(unit, False): values.is_between(EARLIEST * factor, LATEST * factor) for unit, factor in units.items()}
    least = next(iter(units))
    kinds[least, True] = values.is_between(0, RELATIVE_END * units[least], closed="left")
    held = {kind: values.filter(is_kind) for kind, is_kind in kinds.items()}
    is_known = reduce(or_, kinds.values()).fill_null(True)
    if not is_known.all():
        said = "s, ms, us or ns" if stated == "auto" else f"{stated} (recording.time_unit)"
        raise RecordingError(
            f'column "{name}" holds {_least(values.filter(~is_known))}, which is no instant between 2000 and 2100 '
            f"in {said}, nor seconds from 0 up to 1e8: correct it, or set recording.time_unit"
        )
    held = {kind: part for kind, part in held.items() if len(part)}
    if len(held) > 1:
        first, second = (_least(part) for part in list(held.values())[:2])
        raise RecordingError(
            f'column "{name}" mixes units: {first} and {second} cannot both be instants of one recording: '
            f"write all rows in Unix seconds"
        )
    return next(iter(held))


def _least(values: pl.Series) -> str:
    """The least cell as text: the one to name, whatever the order of rows."""
    value = values.min()
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _check_span(shown: pl.Series, seconds: pl.Series) -> None:
    is_odd = ~seconds.is_between(EARLIEST, LATEST).fill_null(True)
    if is_odd.any():
        odd = shown.filter(is_odd)
        raise RecordingError(
            f'column "{shown.name}" holds {_least(odd)}, which is not between 2000 and 2100: correct it or leave it out'
        )


def _from_typed(column: pl.Series, settings: RecordingSettings) -> tuple[pl.Series, list[str]]:
    dtype = column.dtype
    assert isinstance(dtype, pl.Datetime)  # noqa: S101
    said: list[str] = []
    if dtype.time_zone is None:
        column = _localise(column, settings.timezone)
        said.append(f'column "{column.name}" carries no zone: taken as {settings.timezone} (recording.timezone)')
    return _seconds(column.to_physical(), FACTORS[dtype.time_unit]), said


def _localise(column: pl.Series, zone: str) -> pl.Series:
    """Give naive instants a zone.

    Raises:
        SettingsError: no such zone. RecordingError: an hour that the zone's clock skips or shows twice.
    """
    try:
        placed = column.dt.replace_time_zone(zone, ambiguous="null", non_existent="null")
    except pl.exceptions.ComputeError as error:
        raise SettingsError(
            f'recording.timezone: "{zone}" is no zone: use a name such as Europe/Berlin or UTC'
        ) from error
    lost = column.filter(placed.is_null() & column.is_not_null())
    if len(lost):
        raise RecordingError(
            f'column "{column.name}" holds {_least(lost)} without an offset, an hour that the clocks of {zone} skip or '
            f"show twice: write the offset, or set recording.timezone to a fixed one such as Etc/GMT-1"
        )
    return placed


def _from_text(column: pl.Series, settings: RecordingSettings) -> tuple[pl.Series, list[str]]:
    name = column.name
    # Many machines share an instant: each text is read once.
    texts = column.unique().drop_nulls().sort()
    numbers = texts.cast(pl.Float64, strict=False)
    is_number = numbers.is_not_null()
    if is_number.any():
        if not is_number.all():
            raise RecordingError(
                f'column "{name}" mixes numbers ({texts.filter(is_number)[0]}) and text '
                f"({texts.filter(~is_number)[0]}): write all rows in one of them"
            )
        whole = texts.cast(pl.Int64, strict=False)
        seconds, said = _from_numbers(numbers if whole.null_count() else whole, settings)
    elif texts.is_empty():
        return column.cast(pl.Float64), []
    else:
        seconds, said = _from_iso(texts, settings)
        _check_span(texts, seconds)
    return column.replace_strict(texts, seconds, default=None, return_dtype=pl.Float64), said


def _from_iso(texts: pl.Series, settings: RecordingSettings) -> tuple[pl.Series, list[str]]:
    name = texts.name
    parts = texts.str.extract_groups(ISO).struct.unnest()
    clock = parts["clock"].fill_null("00:00") + parts["second"].fill_null(":00")
    naive = (parts["date"].str.replace_all("/", "-") + "T" + clock).str.to_datetime(
        "%Y-%m-%dT%H:%M:%S", strict=False, time_unit="us"
    )
    offset = _offsets(parts["zone"])
    unread = texts.filter(naive.is_null() | (offset.is_null() & parts["zone"].is_not_null()))
    if len(unread):
        raise RecordingError(
            f'column "{name}" holds "{unread[0]}", which is no instant: write Unix seconds, or ISO 8601 with a zone '
            f"such as 2025-10-09T08:53:20Z"
        )
    has_zone = offset.is_not_null()
    said = []
    zones = offset.drop_nulls().n_unique()
    if zones + (not has_zone.all()) > 1:
        said.append(f'column "{name}" mixes zones: each row is read by its own')
    epoch = naive.dt.epoch("s") - offset.fill_null(0)
    if not has_zone.all():
        some = "some instants carry" if has_zone.any() else "the instants carry"
        said.append(f'column "{name}": {some} no zone: taken as {settings.timezone} (recording.timezone)')
        placed = _localise(naive.rename(name).filter(~has_zone), settings.timezone).dt.epoch("s")
        epoch = epoch.scatter((~has_zone).arg_true(), placed)
    # Joined as text, so that the sum is rounded once, as a number written in full would be.
    return (epoch.cast(pl.String) + "." + parts["fraction"].fill_null("0")).cast(pl.Float64), said


def _offsets(zones: pl.Series) -> pl.Series:
    """Seconds east of UTC; null where there is no zone or none that exists."""
    digits = zones.str.replace_all(":", "")
    minutes = digits.str.slice(1, 2).cast(pl.Int64, strict=False) * 60 + digits.str.slice(3, 2).cast(
        pl.Int64, strict=False
    ).fill_null(0)
    signed = minutes * digits.str.starts_with("-").replace_strict({True: -60, False: 60}, return_dtype=pl.Int64)
    offset = signed.set(zones.str.contains(r"^(?:[Zz]|UTC|GMT)$").fill_null(False), 0)
    return offset.set((offset.abs() > 18 * 3600).fill_null(False), None)
