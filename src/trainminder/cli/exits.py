"""The exit codes: a contract that scripts rely on."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ExitCode"]


class ExitCode(IntEnum):
    """What a command returns; returning None means ``OK``."""

    OK = 0
    """It ran, and nothing is faulty (or it was not told to fail on that)."""
    ERROR = 1
    """Wrong usage, wrong settings, an unreadable source: it did not do what was asked."""
    FAULTY = 2
    """It ran and something is faulty; only with --fail-on-faulty."""
    UNKNOWN = 3
    """It ran and could not observe the task: neither healthy nor faulty."""
    INTERRUPTED = 130
    """Ctrl-C."""
