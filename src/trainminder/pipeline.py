"""One block of one task through a method: views of its metrics, judged, and what it leaves. No network, files or clock.

Named methods: *default* (``evidence``) gathers evidence over time and metrics; *paper* (``paper``) follows Minder
(NSDI '25). State comes in as an argument and goes out as a result: judging a task block by block, however it is cut,
gives what judging all of it at once gives.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trainminder import evidence, paper
from trainminder.align import Cells, views_of
from trainminder.coverage import ACTIVITY, Seen, window_samples_of
from trainminder.feed import Block
from trainminder.order import ordered
from trainminder.settings import DetectSettings
from trainminder.suspect import Distrusted
from trainminder.types import BoolArray, Denoiser, IntArray, MetricSpec, MetricTrace, Panel, Trail, Verdict
from trainminder.wording import some_names

__all__ = ["METHODS", "Fleet", "PassState", "Traced", "View", "groups_of", "judge_block", "ordered_metrics", "viewed"]

#: The named methods.
METHODS = ("default", "paper")

#: Metrics judged at a time: while one waits for a single core, another's loops fill the others.
METRICS_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Fleet:
    """The machines of a task, in the order of every result's machine axis, and what is known of them."""

    machines: tuple[str, ...]
    specs: Mapping[str, MetricSpec]
    groups: Mapping[str, str] = field(default_factory=dict)
    domains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PassState:
    """What the blocks so far leave for the next one: the method's own state, what was seen, and what stands."""

    paper: paper.PaperState = field(default_factory=paper.PaperState)
    evidence: evidence.EvidenceState = field(default_factory=evidence.EvidenceState)
    seen: Mapping[str, Seen] = field(default_factory=dict)
    distrusted: Distrusted = field(default_factory=Distrusted)
    verdicts: tuple[Verdict, ...] = ()
    others: tuple[str, ...] = ()
    """Machines that stood out as long as the verdict's, but not first."""


@dataclass(frozen=True, slots=True)
class View:
    """One metric of a block: its panels, the first of whole machines, and (new instant,) whether it counts."""

    spec: MetricSpec
    panels: tuple[Panel, ...]
    counts: BoolArray


@dataclass(frozen=True, slots=True)
class Traced:
    """What is kept of a block for the report."""

    traces: tuple[MetricTrace, ...] = ()
    trail: Trail | None = None


def ordered_metrics(specs: Mapping[str, MetricSpec], settings: DetectSettings) -> tuple[str, ...]:
    """Metrics in the order they are asked: that which the settings state, else a learned one.

    Args:
        specs: of the metrics that there are.
    """
    if settings.metrics is not None:
        return tuple(name for name in settings.metrics if name in specs)
    return ordered(specs, settings.metric_order)


def viewed(
    cells: Mapping[str, Cells], fleet: Fleet, settings: DetectSettings, seen: Mapping[str, Seen]
) -> tuple[dict[str, View], dict[str, Seen]]:
    """The metrics of a block as they are judged, in their order; and what was seen of them by now."""
    views: dict[str, View] = {}
    now = dict(seen)
    for name in ordered_metrics(fleet.specs, settings):
        if name not in cells:
            continue
        panels = views_of(cells[name], fleet.machines, window_samples_of(settings))
        before = seen.get(name) or Seen(name, panels[0].step_seconds)
        now[name], counts = before.plus(panels[0], settings.max_missing_ratio)
        counts &= bool((now[name].heard > -np.inf).sum() >= settings.min_machines)
        views[name] = View(fleet.specs[name], panels, counts)
    return views, now


def judge_block(
    block: Block,
    fleet: Fleet,
    settings: DetectSettings,
    denoiser_for: Callable[[str], Denoiser],
    state: PassState,
    *,
    keep_traces: bool = False,
) -> tuple[PassState, Traced]:
    """Judge a block of a task.

    Args:
        denoiser_for: gives the denoising model of a metric; asked by the method *paper* only.
        keep_traces: keep panels and scores for the report; memory then grows with machines x seconds x metrics.
    Returns:
        what is left, its verdicts among it; and what was kept.
    Raises:
        ModelError: a model is missing or does not fit.
    """
    names, group_of = groups_of(fleet, settings.min_machines, [])
    views, seen = viewed(block.cells, fleet, settings, state.seen)
    state = replace(state, distrusted=state.distrusted.plus(block.distrusted), seen=seen)
    if not views or not (group_of >= 0).any():
        return state, Traced()
    if settings.method == "paper":
        by_paper = paper.Judgement(settings, denoiser_for, names, group_of, state.paper, keep_traces=keep_traces)
        _judge_all(by_paper, views)
        verdicts, others, left = by_paper.conclude(state.verdicts)
        others = tuple(sorted({*state.others, *others}))
        return replace(state, paper=left, verdicts=verdicts, others=others), Traced(by_paper.traces)
    by_evidence = evidence.Judgement(
        fleet.machines,
        [view.panels[0] for name, view in views.items() if name in ACTIVITY],
        block.until,
        settings,
        names,
        group_of,
        state.evidence,
        groups=fleet.groups,
        domains=fleet.domains,
        keep_traces=keep_traces,
    )
    _judge_all(by_evidence, views)
    verdicts, gathered = by_evidence.conclude(
        state.verdicts, {name: fleet.specs[name] for name in ordered_metrics(fleet.specs, settings)}
    )
    return replace(state, evidence=gathered, verdicts=verdicts), Traced(by_evidence.traces, by_evidence.trail)


def _judge_all(judgement: paper.Judgement | evidence.Judgement, views: Mapping[str, View]) -> None:
    with ThreadPoolExecutor(METRICS_AT_ONCE, "metric") as pool:
        pending: deque[Future[Any]] = deque()
        for view in views.values():
            pending.append(pool.submit(judgement.judge, view.panels, view.spec, view.counts))
            # No more than these are in memory at once; they are taken in by their order, whichever ends first.
            if len(pending) > METRICS_AT_ONCE:
                judgement.add(pending.popleft().result())
        while pending:
            judgement.add(pending.popleft().result())


def groups_of(fleet: Fleet, min_machines: int, warnings: list[str]) -> tuple[tuple[str, ...], IntArray]:
    """Names of the groups, and (machine,) the group of each; -1 in a group too small to compare."""
    if not fleet.groups:
        return ("",), np.full(len(fleet.machines), -1 if len(fleet.machines) < min_machines else 0, dtype=np.int64)
    labels = [fleet.groups.get(machine, "") for machine in fleet.machines]
    sizes = Counter(labels)
    names = tuple(sorted(sizes))
    small = {name for name in names if sizes[name] < min_machines}
    if small and len(names) > 1:
        shown = [f'"{name}" ({sizes[name]})' for name in sorted(small)]
        warnings.append(f"groups with fewer than {min_machines} machines are not judged: {some_names(shown)}")
    index = {name: -1 if name in small else number for number, name in enumerate(names)}
    return names, np.array([index[label] for label in labels], dtype=np.int64)
