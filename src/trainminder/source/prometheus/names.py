"""One name for one machine, from the label of a series; and labels and names written safely into PromQL."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainminder.settings import MembershipSettings

__all__ = ["escape_regex", "machine_name", "matching_label", "quote", "strip_port"]

_PORT = re.compile(r"(?P<host>[^:\[\]]+):\d+")
_BRACKETED = re.compile(r"\[(?P<host>[^\[\]]+)\](:\d+)?")


def strip_port(value: str) -> str:
    """``host:9100``, ``10.0.0.1:9100`` and ``[fd00::1]:9100`` without port; a bare IPv6 address stays whole."""
    found = _BRACKETED.fullmatch(value) or _PORT.fullmatch(value)
    return found["host"] if found else value


def machine_name(value: str, settings: MembershipSettings) -> str:
    """The machine that a label's value names: port cut, then the rewritings in order."""
    name = strip_port(value) if settings.strip_port else value
    for rewrite in settings.machine_rewrites:
        found = re.fullmatch(rewrite.match, name)
        if found:
            name = found.expand(rewrite.replace)
    return name


def quote(text: str) -> str:
    """A PromQL string that stands for exactly this text, whatever it holds."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\x{ord(found[0]):02x}", escaped) + '"'


def escape_regex(text: str) -> str:
    """The text as a regular expression of RE2 that matches only itself."""
    return re.sub(r"[^\w\s]", lambda found: "\\" + found[0] if ord(found[0]) < 128 else found[0], text)


def matching_label(names: Iterable[str], settings: MembershipSettings) -> str:
    """The label matcher that finds these machines, with or without a port; only for names without rewritings."""
    patterns = []
    for name in names:
        pattern = escape_regex(name)
        if settings.strip_port and ":" in name:
            pattern = rf"\[?{pattern}\]?"
        patterns.append(pattern)
    port = "(:[0-9]+)?" if settings.strip_port else ""
    return f"{settings.machine_label}=~{quote('(' + '|'.join(patterns) + ')' + port)}"
