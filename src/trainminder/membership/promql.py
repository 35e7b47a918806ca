"""A task found in the store itself, by a label that carries its name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from trainminder.errors import MembershipError, StoreError
from trainminder.membership.static import StaticMembership
from trainminder.settings import MembershipSettings, Settings
from trainminder.source.prometheus.http import RefusedError, StoreClient
from trainminder.source.prometheus.names import quote
from trainminder.source.prometheus.queries import metric_names
from trainminder.types import MetricSpec, Task
from trainminder.wording import some_names

__all__ = ["PromqlMembership", "find_task"]

#: Prometheus looks back five minutes from each instant, so instants this far apart see every series that goes on.
LOOK_BACK_SECONDS = 300.0
#: It does not look back past the end of a series: of one that ended in a short range, earlier instants must be asked.
LEAST_INSTANTS, MOST_INSTANTS = 12, 1000
SHOWN_NAMES = 10

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class PromqlMembership:
    """Membership by label: the first of ``membership.task_labels`` under which the store knows the name.

    Args:
        client: the way to the store.
        settings: the labels to try.
        catalogue: only series of its metrics are looked at; a label such as ``job`` sits on many others.
    """

    def __init__(self, client: StoreClient, settings: MembershipSettings, catalogue: Mapping[str, MetricSpec]) -> None:
        self._client = client
        self._settings = settings
        names = dict.fromkeys(name for spec in catalogue.values() for name in metric_names(spec))
        self._metrics = f"__name__=~{quote('|'.join(names))}" if names else '__name__!=""'

    def fetch_task(self, name: str, from_at: float, to_at: float) -> Task:
        """The task of that name as it was between two instants.

        Raises:
            MembershipError: no label carries that name; the message lists names that there are.
            StoreError: the store could not be asked.
        """
        if not name or not name.isprintable():
            raise MembershipError(f"the task name {name!r} is empty or holds control characters: give a printable name")
        for label in self._settings.task_labels:
            if not _LABEL.fullmatch(label):
                raise MembershipError(f'membership.task_labels holds "{label}", which is no label name: correct it')
            matcher = f"{label}={quote(name)}"
            if self._has_series(matcher, from_at, to_at):
                return Task(name=name, matcher=matcher, note=f"task {name} was found by the label {matcher}")
        raise MembershipError(self._not_found(name, from_at, to_at))

    def _has_series(self, matcher: str, from_at: float, to_at: float) -> bool:
        # A range query at a coarse step: every store answers it, and it sees what ran at any time in the range.
        span = to_at - from_at
        step = max(min(LOOK_BACK_SECONDS, span / LEAST_INSTANTS), span / MOST_INSTANTS, 1.0)
        expression = f"count({{{self._metrics},{matcher}}})"
        first = max(from_at, to_at - step * (MOST_INSTANTS - 1))
        # Counted from the end, so that a task that has just begun is seen.
        first = to_at - int((to_at - first) // step) * step
        return bool(self._client.query_range(expression, first, to_at, step).labels)

    def _not_found(self, name: str, from_at: float, to_at: float) -> str:
        known: dict[str, list[str]] = {}
        for label in self._settings.task_labels:
            try:
                values = self._client.label_values(label, f"{{{self._metrics}}}", from_at, to_at)
            except (RefusedError, StoreError):
                continue  # only a help: the error itself stands
            if values:
                known[label] = values
        every = sorted({value for values in known.values() for value in values})
        near = difflib.get_close_matches(name, every, n=1)
        hint = f', did you mean "{near[0]}"?' if near else ""
        shown = "; ".join(f"{label}: {some_names(values, SHOWN_NAMES)}" for label, values in known.items())
        return (
            f'no task "{name}" at {self._client.address}{hint} (labels tried: {", ".join(self._settings.task_labels)}; '
            f"{shown or 'none of them is on any series of the catalogue'}): set membership.task_labels to the label "
            f"that names tasks, or name the task in the settings under tasks"
        )


def find_task(
    name: str,
    settings: Settings,
    client: StoreClient,
    catalogue: Mapping[str, MetricSpec],
    from_at: float,
    to_at: float,
) -> Task:
    """The task of that name: from the settings if they name it, else from the store.

    Raises:
        MembershipError: neither knows it.
        StoreError: the store could not be asked.
    """
    static = StaticMembership(settings.tasks)
    if name in static:
        return static.fetch_task(name, from_at, to_at)
    return PromqlMembership(client, settings.membership, catalogue).fetch_task(name, from_at, to_at)
