"""Which machines form a task: as the settings name them, or by a label in the store.

Here belongs everything that turns a task's name into its machines and matchers; nothing here reads
the metrics themselves.
"""

from __future__ import annotations

from typing import Protocol

from trainminder.types import Task

__all__ = ["MembershipSource"]


class MembershipSource(Protocol):
    """The port of all membership sources."""

    def fetch_task(self, name: str, from_at: float, to_at: float) -> Task:
        """The task of that name as it was between two instants.

        Raises:
            MembershipError: no such task, or it could not be asked for.
        """
        ...
