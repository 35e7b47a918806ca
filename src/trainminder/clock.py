"""Where the time comes from: a port, so that tests and replays decide what now is."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Tells the time in Unix seconds (UTC)."""

    def now(self) -> float: ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        return time.time()
