"""Tasks that the settings name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from trainminder.errors import MembershipError
from trainminder.settings import TaskSettings
from trainminder.types import Task

__all__ = ["StaticMembership"]


class StaticMembership:
    """Membership as written in ``tasks:``; the same whatever the time."""

    def __init__(self, tasks: Iterable[TaskSettings]) -> None:
        self._tasks = {task.name: task for task in tasks}

    def __contains__(self, name: str) -> bool:
        return name in self._tasks

    def fetch_task(self, name: str, from_at: float, to_at: float) -> Task:  # noqa: ARG002 - the port's signature
        """The task of that name.

        Raises:
            MembershipError: the settings name no such task, or name it without machines and matcher.
        """
        found = self._tasks.get(name)
        if found is None:
            near = difflib.get_close_matches(name, self._tasks, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            known = ", ".join(sorted(self._tasks)) or "none"
            raise MembershipError(f'no task "{name}" in the settings (tasks: {known}){hint}')
        if found.machines is not None and not found.machines:
            raise MembershipError(f'task "{name}" has an empty list of machines: name them, or leave the key out')
        machines = None if found.machines is None else tuple(sorted(set(found.machines)))
        return Task(
            name=name, machines=machines, matcher=found.matcher, groups=dict(found.groups), domains=dict(found.domains)
        )
