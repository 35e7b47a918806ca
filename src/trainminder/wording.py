"""How names, numbers and instants are put in words wherever they are read: messages, warnings, tables, reports.

Knows text only: what is to be said about a verdict or a metric is said where that belongs.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

__all__ = [
    "bounds",
    "clock_time",
    "counted",
    "date_time",
    "iso_time",
    "machine_and_device",
    "number",
    "plain",
    "quantity",
    "ratio_as_percent",
    "scale_for",
    "shortened",
    "some_names",
    "span",
]

#: Controls, invisible formatting (bidirectional overrides can make one name look like another),
#: lone surrogates, line and paragraph separators.
_UNPRINTABLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def plain(text: str) -> str:
    """``text`` on one line, with everything that could steer a terminal or hide in a page shown as an escape."""
    return "".join(
        character.encode("unicode_escape").decode() if unicodedata.category(character) in _UNPRINTABLE else character
        for character in text
    )


def shortened(text: str, longest: int) -> str:
    """``text``, its middle left out when it is longer; the end says more than the start, so more of it stays."""
    if len(text) <= longest:
        return text
    tail = (longest - 1) * 2 // 3
    return f"{text[: longest - 1 - tail]}…{text[-tail:]}"


def some_names(names: Sequence[str], most: int = 5) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def counted(count: int, one: str) -> str:
    """``1 machine``, ``2 machines``."""
    return f"{count} {one}" if count == 1 else f"{count} {one}s"


def machine_and_device(machine: str, device: str | None) -> str:
    """``gpu-03`` or ``gpu-03 (gpu5)``."""
    return machine if device is None else f"{machine} ({device})"


def number(value: float, digits: int = 3) -> str:
    """``value`` with that many significant digits and no exponent."""
    text = f"{value:.{digits}g}"
    return f"{float(text):.0f}" if "e" in text and abs(value) >= 1 else text


def scale_for(largest: float, unit: str) -> tuple[float, str]:
    """The divisor and the unit's name that keep values up to ``largest`` readable."""
    stem = {"bytes/s": "B/s", "C": "°C", "percent": "%", "ratio": ""}.get(unit, unit)
    if unit.endswith("/s"):
        for factor, prefix in _PREFIXES:
            if abs(largest) >= factor:
                return factor, f"{prefix}{stem}" if unit == "bytes/s" else f"{prefix} {stem}"
    return 1.0, stem


def quantity(value: float, unit: str, digits: int = 3) -> str:
    """``value`` with its unit, such as ``4.1 GB/s``."""
    factor, name = scale_for(value, unit)
    return f"{number(value / factor, digits)} {name}".rstrip()


def bounds(lower: float | None, upper: float | None) -> str:
    """``0..100``; an open end is left out, and nothing is left of two."""
    if lower is None and upper is None:
        return ""
    return "..".join("" if bound is None else f"{bound:g}" for bound in (lower, upper))


def ratio_as_percent(ratio: float) -> str:
    """A share as percent; a share that is not zero never reads as 0 %."""
    if 0 < ratio < 0.0001:
        return "under 0.01 %"
    return f"{number(ratio * 100, 2 if ratio < 0.1 else 3)} %"


def _utc(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def clock_time(at: float, near: float | None = None) -> str:
    """UTC time of day; with its date when ``near`` lies on another day."""
    moment = _utc(at)
    same_day = near is None or _utc(near).date() == moment.date()
    return f"{moment:%H:%M:%S}" if same_day else f"{moment:%Y-%m-%d %H:%M:%S}"


def date_time(at: float) -> str:
    """UTC date and time of day."""
    return f"{_utc(at):%Y-%m-%d %H:%M:%S}"


def iso_time(at: float, timespec: Literal["seconds", "milliseconds"] = "seconds") -> str:
    """UTC date and time of day as ISO 8601."""
    return _utc(at).isoformat(timespec=timespec).replace("+00:00", "Z")


def span(seconds: float) -> str:
    """A duration in seconds, as a whole number where it is one."""
    return f"{seconds:.0f} s" if seconds >= 10 or seconds == round(seconds) else f"{number(seconds, 2)} s"
