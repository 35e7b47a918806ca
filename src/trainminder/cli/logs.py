"""Logs of the command line: standard error, UTC, nothing else's."""

from __future__ import annotations

import logging
import sys
import time
from typing import Literal, TextIO

__all__ = ["LogLevel", "is_debugging", "log_to_stderr"]

LogLevel = Literal["debug", "info", "warning", "error"]

_LOGGER = logging.getLogger("trainminder")


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to whatever standard error is at that moment, not to the one it was made with."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def log_to_stderr(level: LogLevel) -> None:
    """Send Trainminder's own log records of at least ``level`` to standard error; repeating it is harmless."""
    if not any(isinstance(handler, _StderrHandler) for handler in _LOGGER.handlers):
        formatter = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%SZ")
        formatter.converter = time.gmtime
        handler = _StderrHandler()
        handler.setFormatter(formatter)
        _LOGGER.addHandler(handler)
    _LOGGER.setLevel(level.upper())


def is_debugging() -> bool:
    """Whether tracebacks are wanted."""
    return _LOGGER.isEnabledFor(logging.DEBUG)
