"""One pass over one task: the metrics that can be judged go through a method. No network, no files, no clock.

Named methods: *default* (``evidence``) gathers evidence over time and metrics; *paper* (``paper``) follows Minder
(NSDI '25). State comes in as an argument and goes out as a result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trainminder import evidence, paper
from trainminder.align import panels
from trainminder.coverage import Sight, least_samples
from trainminder.errors import TooFewMachines, Unobservable
from trainminder.order import ordered
from trainminder.settings import DetectSettings
from trainminder.suspect import without_dead_fields
from trainminder.types import Denoiser, IntArray, MetricSpec, Panel, PassResult, RawTask, Status, Verdict
from trainminder.wording import counted, some_names

__all__ = ["METHODS", "PassState", "admitted", "groups_of", "ordered_metrics", "run_pass"]

#: The named methods.
METHODS = ("default", "paper")

#: Metrics judged at a time: while one waits for a single core, another's loops fill the others.
METRICS_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class PassState:
    """What a pass leaves for the next one over the same task: the method's own state, and what stands already."""

    paper: paper.PaperState = field(default_factory=paper.PaperState)
    evidence: evidence.EvidenceState = field(default_factory=evidence.EvidenceState)
    is_resumed: bool = False
    verdicts: tuple[Verdict, ...] = ()


def ordered_metrics(raw: RawTask, settings: DetectSettings) -> tuple[str, ...]:
    """The metrics of a task in the order they are asked: that which the settings state, else a learned one."""
    present = {metric.metric for metric in raw.metrics}
    if settings.metrics is not None:
        return tuple(name for name in settings.metrics if name in present)
    return ordered((name for name in raw.specs if name in present), settings.metric_order)


def admitted(
    raw: RawTask, settings: DetectSettings, group_of: IntArray, sight: Sight
) -> Iterator[tuple[MetricSpec, tuple[Panel, ...]]]:
    """The metrics that can be judged, in order, each with its views; ``sight`` notes what is seen and what cannot be.

    Args:
        group_of: (machine,) as ``groups_of`` gave it.
    """
    by_name = {metric.metric: metric for metric in raw.metrics}
    is_comparable = bool((group_of >= 0).any())
    for name in ordered_metrics(raw, settings):
        spec = raw.specs[name]
        try:
            sight.glimpse(by_name[name], raw.machines)
            views = panels(by_name[name], raw.machines, least_samples(settings))
            sight.look(views[0])
            if not is_comparable:
                continue
            sight.admit(views[0], spec, settings)
        except Unobservable as unusable:
            sight.unusable.append(str(unusable))
            continue
        yield spec, views


def run_pass(
    raw: RawTask,
    settings: DetectSettings,
    denoiser_for: Callable[[str], Denoiser],
    state: PassState | None = None,
    *,
    keep_traces: bool = False,
) -> tuple[PassResult, PassState]:
    """Judge one task once.

    Args:
        raw: the task's series; of a resumed task, from at least one window's samples before the newest
            instant judged so far.
        denoiser_for: gives the denoising model of a metric; asked by the method *paper* only.
        state: what the last pass over the task left; None at the start.
        keep_traces: keep panels and scores for the report; memory then grows with machines x seconds x metrics.
    Returns:
        the result, whose verdict is *unknown* where nothing could be observed, and the state for the next pass.
    Raises:
        ModelError: a model is missing or does not fit.
    """
    state = state or PassState()
    sight = Sight()
    raw, distrusted = without_dead_fields(raw, settings.window_samples)
    sight.warnings += distrusted
    verdicts: tuple[Verdict, ...] = state.verdicts
    status: Status = "unknown"
    reason: str | None = None
    names, group_of = groups_of(raw, settings.min_machines, sight.warnings)
    judgement: paper.Judgement | evidence.Judgement
    if settings.method == "paper":
        judgement = paper.Judgement(settings, denoiser_for, names, group_of, state.paper, keep_traces=keep_traces)
    else:
        judgement = evidence.Judgement(raw, settings, names, group_of, state.evidence, keep_traces=keep_traces)
    left: Any = None
    try:
        with ThreadPoolExecutor(METRICS_AT_ONCE, "metric") as pool:
            pending: deque[Future[Any]] = deque()
            for spec, views in admitted(raw, settings, group_of, sight):
                pending.append(pool.submit(judgement.judge, views, spec))
                # No more than these are in memory at once; they are taken in by their order, whichever ends first.
                if len(pending) > METRICS_AT_ONCE:
                    judgement.add(pending.popleft().result())
            while pending:
                judgement.add(pending.popleft().result())
        sight.note_silent(raw)
        _check_comparable(raw, settings, group_of)
        verdicts, left = judgement.conclude(state.verdicts, sight.warnings)
        if not verdicts:
            sight.check_observed(raw, settings, is_resumed=state.is_resumed)
            sight.check_all_there(settings)
        status = "faulty" if verdicts else "none"
    except Unobservable as unknown:
        reason = str(unknown)
    result = PassResult(
        task=raw.task,
        method=settings.method,
        from_at=raw.from_at,
        to_at=raw.to_at,
        machines=raw.machines,
        status=status,
        reason=reason,
        verdicts=verdicts,
        coverage=sight.coverage(raw),
        warnings=(*raw.warnings, *sight.warnings, *sight.unusable),
        traces=judgement.traces,
        trail=judgement.trail,
    )
    return result, PassState(
        paper=left if isinstance(left, paper.PaperState) else state.paper,
        evidence=left if isinstance(left, evidence.EvidenceState) else state.evidence,
        is_resumed=state.is_resumed or left is not None,
        verdicts=verdicts,
    )


def groups_of(raw: RawTask, min_machines: int, warnings: list[str]) -> tuple[tuple[str, ...], IntArray]:
    """Names of the groups, and (machine,) the group of each; -1 in a group too small to compare."""
    labels = [raw.groups.get(machine, "") for machine in raw.machines]
    names = tuple(sorted(set(labels)))
    small = {name for name in names if labels.count(name) < min_machines}
    if small and len(names) > 1:
        shown = [f'"{name}" ({labels.count(name)})' for name in sorted(small)]
        warnings.append(f"groups with fewer than {min_machines} machines are not judged: {some_names(shown)}")
    index = {name: -1 if name in small else number for number, name in enumerate(names)}
    return names, np.array([index[label] for label in labels], dtype=np.int64)


def _check_comparable(raw: RawTask, settings: DetectSettings, group_of: IntArray) -> None:
    """Whether enough machines can be compared.

    Raises:
        TooFewMachines: fewer than ``detect.min_machines`` in the task, or in each of its groups.
    """
    if (group_of >= 0).any():
        return
    count = len(raw.machines)
    where = f" in groups of fewer than {settings.min_machines}" if count >= settings.min_machines else ""
    raise TooFewMachines(
        f"{counted(count, 'machine')}{where}, and at least {settings.min_machines} comparable ones are needed: "
        "of two, neither stands out"
    )
