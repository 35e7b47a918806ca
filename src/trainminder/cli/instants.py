"""Instants as people write them: epoch numbers, ISO 8601, or relative to now."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import typer

from trainminder.clock import SystemClock
from trainminder.errors import SettingsError
from trainminder.wording import iso_time

__all__ = ["Instant", "parse_instant", "read_instant"]

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_NUMBER = re.compile(r"\d+(\.\d+)?")
_RELATIVE = re.compile(r"(now)?-(?P<parts>(\d+(\.\d+)?[smhd])+)")
_FORMS = 'write 2026-03-01T10:00:00Z, Unix seconds, "now" or "-15m"'

# Seconds before 1973 or after 5138 are something else: milliseconds of 1973 begin where seconds of 5138 end.
_SECONDS = (1e8, 1e11)


@dataclass(frozen=True, slots=True)
class Instant:
    """An instant, and what was decided for the user in reading it."""

    at: float
    """Unix seconds (UTC)."""
    note: str | None = None


def parse_instant(text: str, now: float | None = None) -> float:
    """``read_instant``, with its note said on standard error.

    Args:
        text: the instant as the user wrote it.
        now: Unix seconds that relative instants count from; None: the system clock's.
    Raises:
        SettingsError: not an instant.
    """
    instant = read_instant(text, SystemClock().now() if now is None else now)
    if instant.note:
        typer.echo(f"note: {instant.note}", err=True)
    return instant.at


def read_instant(text: str, now: float) -> Instant:
    """The instant that ``text`` means.

    Args:
        text: Unix seconds or milliseconds (told apart by magnitude), ISO 8601 (UTC where it carries no
            zone), ``now``, or ``-15m``, ``-1h30m``, ``now-2d`` (units s, m, h, d).
        now: Unix seconds.
    Raises:
        SettingsError: none of these.
    """
    text = text.strip()
    if text == "now":
        return Instant(now)
    if relative := _RELATIVE.fullmatch(text):
        parts = re.findall(r"([\d.]+)([smhd])", relative["parts"])
        try:
            back = sum((timedelta(**{_UNITS[unit]: float(amount)}) for amount, unit in parts), timedelta())
        except OverflowError as error:
            raise SettingsError(f'"{text}" is further back than time goes: {_FORMS}') from error
        return Instant(now - back.total_seconds())
    if _NUMBER.fullmatch(text):
        number = float(text)
        if _SECONDS[0] <= number < _SECONDS[1]:
            return Instant(number)
        if _SECONDS[1] <= number < _SECONDS[1] * 1000:
            at = number / 1000
            return Instant(at, f"{text} was taken as milliseconds: {iso_time(at, 'milliseconds')}")
    return _read_iso(text)


def _read_iso(text: str) -> Instant:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise SettingsError(f'"{text}" is not an instant: {_FORMS}') from error
    if moment.tzinfo is not None:
        return Instant(moment.timestamp())
    at = moment.replace(tzinfo=UTC).timestamp()
    return Instant(at, f"{text} carries no zone and was taken as UTC: {iso_time(at)}")
