"""Where series come from: recordings (files) and Prometheus-compatible stores.

Here belongs everything that reads the world's samples and gives a ``RawTask``; nothing here aligns,
normalises or judges. Simulated series come from ``simulate``.
"""

from __future__ import annotations

from typing import Protocol

from trainminder.types import RawTask, Task

__all__ = ["MetricSource"]


class MetricSource(Protocol):
    """The port of all sources."""

    def fetch_raw(self, task: Task, from_at: float, to_at: float) -> RawTask:
        """Every wanted metric of the task between two instants (Unix seconds, both included).

        Raises:
            SourceError: the data could not be read; the message names the remedy.
        """
        ...
