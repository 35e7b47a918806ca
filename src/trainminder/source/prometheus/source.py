"""Live tasks from a Prometheus-compatible store: Prometheus, VictoriaMetrics, Mimir, Thanos.

Every metric is asked with a range query on instants that are multiples of its sampling interval, and never looks
back further than its window. Docs: live-stores.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from trainminder.clock import Clock, SystemClock
from trainminder.errors import MembershipError, SettingsError, StoreError
from trainminder.settings import MembershipSettings, StoreSettings
from trainminder.source.prometheus.http import RefusedError, StoreClient
from trainminder.source.prometheus.names import machine_name, strip_port
from trainminder.source.prometheus.queries import (
    RATE_INTERVALS,
    Grid,
    is_rate,
    queries_of,
    range_expression,
    render,
    selector_of,
    series_name,
    task_matchers,
)
from trainminder.source.prometheus.ranges import DEFAULT_INTERVAL_SECONDS, FEWEST_POINTS, RangeReader
from trainminder.source.prometheus.series import (
    Fetched,
    build_raw,
    check_clusters,
    identify,
    join_answers,
    kept,
    renamed_machines,
)
from trainminder.source.prometheus.stale import ended_warnings, without_carried, without_edges
from trainminder.types import FoundAs, MetricQuery, MetricSpec, RawMetric, RawTask, Task
from trainminder.wording import iso_time, some_names

__all__ = ["Begins", "PrometheusSource"]


@dataclass(frozen=True, slots=True)
class Begins:
    """From when each metric is asked for.

    ``reached``: up to when samples of a metric came before, Unix seconds; others are asked for from the beginning.
    ``overlap_seconds``: so much is asked for again, in which more may have come.
    """

    reached: Mapping[str, float] = field(default_factory=dict)
    overlap_seconds: float = 0.0

    def at(self, metric: str, query: MetricQuery, interval: float, from_at: float) -> float:
        """The first instant of a metric that is sampled so often, Unix seconds."""
        if metric not in self.reached:
            return from_at
        # The samples of a rate beside a gap are left out, which takes those around it to see.
        seen = RATE_INTERVALS * interval if is_rate(query) else 0.0
        return max(from_at, self.reached[metric] - max(self.overlap_seconds, seen))

    def of(self, item: Fetched, from_at: float) -> float:
        """The same of what was fetched."""
        return self.at(item.spec.name, item.query, item.interval, from_at)


@dataclass(slots=True)
class _Outcome:
    """One metric's fetch: series, or why there are none."""

    item: Fetched | None = None
    notes: list[str] = field(default_factory=list)
    restarted: set[str] = field(default_factory=set)
    is_assumed: bool = False
    refused: RefusedError | None = None
    store_warnings: tuple[str, ...] = ()
    store_infos: tuple[str, ...] = ()


class PrometheusSource:
    """A ``MetricSource`` over one store.

    Args:
        client: the way to the store.
        catalogue: canonical name -> specification with queries.
        metrics: wanted canonical names, in order; None: the whole catalogue.
        extra_sentinels: more values that mean "no value", in the exporter's unit or the metric's.
    Raises:
        SettingsError: a wanted metric is not in the catalogue.
    """

    def __init__(
        self,
        client: StoreClient,
        catalogue: Mapping[str, MetricSpec],
        store: StoreSettings,
        membership: MembershipSettings,
        metrics: Sequence[str] | None = None,
        extra_sentinels: Iterable[float] = (),
        clock: Clock | None = None,
    ) -> None:
        names = list(catalogue) if metrics is None else list(dict.fromkeys(metrics))
        unknown = [name for name in names if name not in catalogue]
        if unknown:
            raise SettingsError(f'no metric "{unknown[0]}" in the catalogue: admit it with --metric {unknown[0]}=UNIT')
        self._client = client
        self._specs = [catalogue[name] for name in names]
        self._store = store
        self._membership = membership
        self._sentinels = tuple(extra_sentinels)
        self._clock = clock or SystemClock()
        self._reader = RangeReader(client, store, membership)

    def fetch_raw(self, task: Task, from_at: float, to_at: float, begins: Begins | None = None) -> RawTask:
        """Every wanted metric of the task between two instants (Unix seconds, both included).

        Args:
            begins: from when a metric is asked for, where that is later than ``from_at``.
        Raises:
            MembershipError: no series of the task were found.
            StoreError: the store could not be read, or one machine name stands for machines of two clusters.
            SettingsError: the range is empty.
        """
        if not from_at < to_at:
            raise SettingsError(
                f"the range from {iso_time(from_at)} to {iso_time(to_at)} is empty: give it a later end"
            )
        task, begins = self._plain_names(task), begins or Begins()
        with (
            ThreadPoolExecutor(self._store.concurrency, "metric") as pool,
            ThreadPoolExecutor(self._store.concurrency, "slice") as slices,
        ):
            outcomes = list(
                pool.map(lambda spec: self._fetch_metric(spec, task, from_at, to_at, begins, slices), self._specs)
            )
        warnings = self._first_warnings(outcomes, to_at)
        fetched = [outcome.item for outcome in outcomes if outcome.item is not None]
        if not fetched:
            raise self._nothing(task, outcomes, from_at, to_at)
        warnings += self._drop_carried(fetched, task, min(begins.of(item, from_at) for item in fetched), to_at)
        warnings += self._name_rows(fetched, task)
        raws, notes = self._built(fetched)
        warnings += notes
        if not raws:
            raise MembershipError(
                f'task "{task.name}": the store has series, but none of its samples between {iso_time(from_at)} and '
                f"{iso_time(to_at)} names a machine of the task and holds a number: {'; '.join(warnings[-3:])}"
            )
        # A machine that sends nothing but blanks is seen all the same: its data are missing, not the machine.
        seen = sorted({row[0] for item in fetched for row in item.rows if row is not None})
        members = task.machines if task.machines is not None else tuple(seen)
        silent = sorted(set(members) - set(seen))
        if silent:
            warnings.append(f"members that have no series at all: {some_names(silent)}")
        warnings += ended_warnings(fetched, members)
        found = {raw.metric for raw in raws}
        store_warnings = dict.fromkeys(text for outcome in outcomes for text in outcome.store_warnings)
        return RawTask(
            task=task.name,
            from_at=from_at,
            to_at=to_at,
            machines=tuple(sorted(members)),
            metrics=tuple(raws),
            specs={item.spec.name: item.spec for item in fetched if item.spec.name in found},
            groups=self._groups(fetched, task, warnings),
            domains=self._domains(fetched, task),
            metrics_absent=tuple(spec.name for spec in self._specs if spec.name not in found),
            warnings=tuple(dict.fromkeys([f"the store says: {text}" for text in store_warnings] + warnings)),
            is_partial=bool(store_warnings),
            is_stated=task.machines is not None,
            sources={
                item.spec.name: FoundAs(series_name(item.query), item.query.exporter)
                for item in fetched
                if item.spec.name in found
            },
        )

    def _plain_names(self, task: Task) -> Task:
        """The task's own names brought to the form that series are given."""
        if not self._membership.strip_port:
            return task
        machines = None if task.machines is None else tuple(sorted({strip_port(name) for name in task.machines}))
        groups = {strip_port(name): group for name, group in task.groups.items()}
        domains = {name: tuple(strip_port(machine) for machine in those) for name, those in task.domains.items()}
        return dataclasses.replace(task, machines=machines, groups=groups, domains=domains)

    # ------------------------------------------------------------ one metric

    def _fetch_metric(
        self, spec: MetricSpec, task: Task, from_at: float, to_at: float, begins: Begins, slices: ThreadPoolExecutor
    ) -> _Outcome:
        outcome = _Outcome()
        for query in queries_of(spec):
            try:
                found = self._fetch_query(spec, query, task, from_at, to_at, begins, slices)
            except RefusedError as error:
                # One query that this store cannot answer must not take the others down; a store without API must.
                if error.status not in (400, 422):
                    raise
                outcome.refused = error
                outcome.notes.append(f"{spec.name} ({query.exporter}): {error}")
                continue
            if found is not None:
                return found
        return outcome

    def _fetch_query(
        self,
        spec: MetricSpec,
        query: MetricQuery,
        task: Task,
        from_at: float,
        to_at: float,
        begins: Begins,
        slices: ThreadPoolExecutor,
    ) -> _Outcome | None:
        template = query.query if query.kind == "expression" else selector_of(query) or query.query
        matchers = task_matchers(task, self._membership, template)
        looks = [(matcher, self._reader.look(query, matcher, from_at, to_at)) for matcher in matchers]
        looks = [(matcher, look) for matcher, look in looks if look.series != 0]
        if not looks:
            return None
        measured = [look.interval for _, look in looks if look.interval is not None]
        interval = max(measured) if measured else DEFAULT_INTERVAL_SECONDS
        grid = Grid.between(begins.at(spec.name, query, interval, from_at), to_at, interval)
        if not grid.points:
            return _Outcome(notes=[f"{spec.name}: the range holds no multiple of its interval of {interval:g} s"])
        jobs = []
        for matcher, look in looks:
            expression = range_expression(query, matcher, interval, self._membership.machine_label)
            points = min(
                self._store.max_points, max(FEWEST_POINTS, self._store.max_samples // max(1, look.series or 1))
            )
            jobs += [(expression, piece) for piece in grid.slices(points)]
        answers = [
            answer
            for part in slices.map(lambda job: self._reader.fetch_slice(spec.name, *job), jobs)
            for answer in part
        ]
        answer = join_answers(answers)
        if "__name__" not in query.query:
            # A store that answers with other series than asked for is not to be believed in these.
            asked = [labels.get("__name__", "") in query.query for labels in answer.labels]
            answer = kept(answer, np.repeat(np.array(asked, dtype=np.bool_), np.diff(answer.offsets)))
        if not measured and len(answer.times) > len(answer.labels):
            # What came back is coarser than what was assumed.
            gaps = np.diff(answer.times)
            interval = max(interval, float(np.median(gaps[gaps > 0])))
        if is_rate(query):
            answer = without_edges(answer, grid, interval)
        notes = [note for _, look in looks for note in look.notes]
        if query.kind == "counter" and spec.declared and not spec.queries:
            notes.append("its name is a counter's: judged by its rate per second")
        if query.kind == "expression" and "$matcher" not in query.query:
            notes.append("its query has no $matcher, so it is not limited to the task")
        if not len(answer.times):
            return None
        return _Outcome(
            item=Fetched(spec, query, interval, answer),
            notes=[f"{spec.name}: {note}" for note in notes],
            restarted={machine_name(value, self._membership) for _, look in looks for value in look.restarted},
            is_assumed=not measured,
            store_warnings=answer.warnings,
            store_infos=answer.infos,
        )

    # ------------------------------------------------------------ all metrics

    def _first_warnings(self, outcomes: Sequence[_Outcome], to_at: float) -> list[str]:
        warnings: list[str] = []
        now = self._clock.now()
        if to_at > now + 1.0:
            warnings.append(
                f"the range ends at {iso_time(to_at)}, {to_at - now:.0f} s from now: nothing is known of the future"
            )
        assumed = [outcome.item.spec.name for outcome in outcomes if outcome.is_assumed and outcome.item]
        if assumed:
            warnings.append(
                f"the sampling interval of {some_names(assumed)} could not be measured: {DEFAULT_INTERVAL_SECONDS:g} s "
                f"is assumed; set store.interval_seconds"
            )
        restarts: dict[str, list[str]] = {}
        for outcome in outcomes:
            if outcome.item is not None:
                for machine in outcome.restarted:
                    restarts.setdefault(machine, []).append(outcome.item.spec.name)
        warnings += [
            f"machine {machine}: the counters of {some_names(names)} started again from zero: a restart?"
            for machine, names in sorted(restarts.items())
        ]
        warnings += [note for outcome in outcomes for note in outcome.notes]
        infos = dict.fromkeys(text for outcome in outcomes for text in outcome.store_infos)
        return warnings + [f"note of the store: {text}" for text in infos]

    def _nothing(
        self, task: Task, outcomes: Sequence[_Outcome], from_at: float, to_at: float
    ) -> StoreError | MembershipError:
        refused = [outcome.refused for outcome in outcomes if outcome.refused is not None]
        if refused and len(refused) == len(outcomes):
            return refused[0]
        asked = f"matcher {task.matcher}" if task.matcher else "no matcher"
        if task.machines is not None:
            asked += f", machines {some_names(task.machines, 3)} by the label {self._membership.machine_label}"
        return MembershipError(
            f'no such task "{task.name}" at {self._client.address}: none of {len(outcomes)} metrics has a sample from '
            f"{iso_time(from_at)} to {iso_time(to_at)} ({asked}): check the matcher, membership.machine_label and the "
            f"time, or name the task in the settings under tasks"
        )

    def _drop_carried(self, fetched: Sequence[Fetched], task: Task, from_at: float, to_at: float) -> list[str]:
        """Leave out values that were carried forward while the target was down."""
        step = min(item.interval for item in fetched)
        grid = Grid.between(from_at, to_at, step)
        try:
            answers = [
                answer
                for matcher in task_matchers(task, self._membership, "up{$matcher}")
                for piece in grid.slices(self._store.max_points)
                for answer in self._reader.fetch_slice("up", render("up{$matcher} == 0", matcher=matcher), piece)
            ]
        except (RefusedError, StoreError):
            return []  # a help that not every store can give; the windows of the queries hold without it
        down = join_answers(answers)
        lines = []
        for item in fetched:
            before = len(item.answer.times)
            item.answer, most = without_carried(item, down)
            # One per series is what our own window carries; more is the store's doing, and worth a word.
            if most > 1:
                lines.append(
                    f"{item.spec.name}: {before - len(item.answer.times)} values were carried forward while up was 0, "
                    f"and are left out"
                )
        return lines

    def _name_rows(self, fetched: Sequence[Fetched], task: Task) -> list[str]:
        """Settle which machine and device each series belongs to."""
        label = self._membership.machine_label
        lines: list[str] = []
        for item in fetched:
            item.rows = [identify(labels, item.spec, item.query, self._membership) for labels in item.answer.labels]
            nameless = item.rows.count(None)
            if nameless:
                others = some_names(sorted(set().union(*item.answer.labels) - {"__name__"}))
                lines.append(
                    f'{item.spec.name}: {nameless} of {len(item.rows)} series carry no label "{label}" and are left '
                    f"out: set membership.machine_label (they carry {others or 'no label'})"
                )
        renamed = renamed_machines(fetched)
        for old, new in sorted(renamed.items()):
            lines.append(
                f"the names {old} and {new} share one address, one after the other: taken for one machine, {new}; "
                f"set membership.machine_label to a label that does not change"
            )
        members = None if task.machines is None else set(task.machines)
        for item in fetched:
            rows = [row and (renamed.get(row[0], row[0]), row[1]) for row in item.rows]
            item.rows = [row if row and (members is None or row[0] in members) else None for row in rows]
            if item.spec.declared and any(row and row[1] is not None for row in item.rows):
                item.spec = dataclasses.replace(item.spec, level="device")
        check_clusters(fetched, self._store.cluster_labels)
        return lines

    def _built(self, fetched: Sequence[Fetched]) -> tuple[list[RawMetric], list[str]]:
        raws: list[RawMetric] = []
        notes: list[str] = []
        for item in fetched:
            raw, decided = build_raw(item, self._store, self._sentinels)
            notes += decided
            if raw is not None:
                raws.append(raw)
        return raws, notes

    def _groups(self, fetched: Sequence[Fetched], task: Task, warnings: list[str]) -> dict[str, str]:
        label = self._membership.group_label
        seen = {} if label is None else _values(fetched, label)
        several = sorted(machine for machine, groups in seen.items() if len(groups) > 1 and machine not in task.groups)
        if several:
            warnings.append(
                f'{some_names(several)} carry more than one value of the label "{label}": the first in order is taken'
            )
        return {machine: min(groups) for machine, groups in sorted(seen.items())} | dict(task.groups)

    def _domains(self, fetched: Sequence[Fetched], task: Task) -> dict[str, tuple[str, ...]]:
        """What machines share by their labels, named ``label value``, and what the task states."""
        found: dict[str, list[str]] = {}
        for label in self._membership.domain_labels:
            for machine, values in _values(fetched, label).items():
                for value in values:
                    found.setdefault(f"{label} {value}", []).append(machine)
        return {domain: tuple(sorted(machines)) for domain, machines in sorted(found.items())} | dict(task.domains)


def _values(fetched: Sequence[Fetched], label: str) -> dict[str, set[str]]:
    """machine -> the values that its series carry in a label."""
    seen: dict[str, set[str]] = {}
    for item in fetched:
        for row, labels in zip(item.rows, item.answer.labels, strict=True):
            if row is not None and labels.get(label):
                seen.setdefault(row[0], set()).add(labels[label])
    return seen
