"""One pass over one task: align, denoise, score, decide. State in, state out; no network, no files, no clock.

Named methods (``METHODS``): *paper* follows Minder (NSDI '25) but for the departures that ``align``, ``score`` and
``docs/detection.md`` state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from trainminder.align import compared_samples, is_judged, normalisation, panels
from trainminder.coverage import Sight, lasting_seconds
from trainminder.decide import follow, unite, verdict_of
from trainminder.errors import TooFewMachines, Unobservable
from trainminder.order import ordered
from trainminder.score import backed_score, dissimilarity, normal_score
from trainminder.settings import DetectSettings
from trainminder.suspect import without_dead_fields
from trainminder.types import (
    Continuity,
    Denoiser,
    IntArray,
    MetricSpec,
    MetricTrace,
    Panel,
    PassResult,
    RawTask,
    Scale,
    Status,
    Verdict,
    View,
    WindowScores,
)
from trainminder.wording import counted, some_names

__all__ = ["METHODS", "PassState", "admitted", "groups_of", "ordered_metrics", "run_pass", "window_scores"]

#: Name -> the method that runs. *default* is the best that this version has.
METHODS = {"default": "paper", "paper": "paper"}

#: Metrics judged at a time: while one waits for a single core, another's loops fill the others.
METRICS_AT_ONCE = 2

Key = tuple[str, View, str]


@dataclass(frozen=True, slots=True)
class PassState:
    """What a pass leaves for the next one over the same task.

    ``continuity``: by (metric, view, group). ``seen``: least and greatest value by metric. ``judged_at``: the
    instant of the newest window judged, by (metric, view). ``verdicts``: what stands already.
    """

    continuity: Mapping[Key, Continuity] = field(default_factory=dict)
    seen: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    judged_at: Mapping[tuple[str, View], float] = field(default_factory=dict)
    verdicts: tuple[Verdict, ...] = ()


@dataclass(frozen=True, slots=True)
class _Judged:
    """What judging gave, of one metric or of all."""

    traces: list[MetricTrace] = field(default_factory=list)
    found: list[Verdict] = field(default_factory=list)
    continuity: dict[Key, Continuity] = field(default_factory=dict)
    seen: dict[str, tuple[float, float]] = field(default_factory=dict)
    judged_at: dict[tuple[str, View], float] = field(default_factory=dict)

    def add(self, other: _Judged) -> None:
        """Take in what another metric gave."""
        self.traces.extend(other.traces)
        self.found.extend(other.found)
        self.continuity.update(other.continuity)
        self.seen.update(other.seen)
        self.judged_at.update(other.judged_at)


@dataclass(frozen=True, slots=True)
class _Judge:
    """What stays the same while a pass goes from metric to metric."""

    settings: DetectSettings
    state: PassState
    group_names: tuple[str, ...]
    group_of: IntArray
    keep_traces: bool

    def judge(self, views: Sequence[Panel], spec: MetricSpec, denoiser: Denoiser) -> _Judged:
        """Take the views of one metric through denoise, score and decide."""
        judged = _Judged()
        for panel in views:
            self._judge_view(panel, spec, denoiser, judged)
        return judged

    def _judge_view(self, panel: Panel, spec: MetricSpec, denoiser: Denoiser, judged: _Judged) -> None:
        scale = normalisation(panel, spec, self.state.seen.get(spec.name))
        judged.seen[spec.name] = (float(scale.low[-1]), float(scale.high[-1]))
        scores = window_scores(panel, scale, denoiser, self.settings, self.group_of)
        trace = MetricTrace(spec, panel, scores)
        judged_at = self.state.judged_at.get((spec.name, panel.view), -np.inf)
        # A cut may move the grid by rounding; half a step is far from both neighbours.
        first = int(np.searchsorted(scores.ends_at, judged_at + panel.step_seconds / 2))
        judged.judged_at[spec.name, panel.view] = max(judged_at, float(scores.ends_at[-1]))
        for group in np.unique(self.group_of[self.group_of >= 0]):
            key = (spec.name, panel.view, self.group_names[group])
            continuity, confirmed = follow(
                scores,
                int(group),
                self.state.continuity.get(key),
                continuity_seconds=lasting_seconds(panel.step_seconds, self.settings),
                patience_seconds=self.settings.window_samples * panel.step_seconds,
                first_window=first,
            )
            if continuity is not None:
                judged.continuity[key] = continuity
            if confirmed is not None:
                judged.found.append(verdict_of(confirmed, trace))
        if self.keep_traces:
            judged.traces.append(trace)


def window_scores(
    panel: Panel, scale: Scale, denoiser: Denoiser, settings: DetectSettings, group_of: IntArray
) -> WindowScores:
    """Denoise and score one view of one metric.

    Args:
        group_of: (machine,) as ``groups_of`` gave it.
    """
    judged_rows = is_judged(panel.present, panel.window_samples)
    windows = np.arange(panel.rows.shape[1])
    judged = (panel.rows >= 0) & judged_rows[np.maximum(panel.rows, 0), windows]
    width = compared_samples(panel.step_seconds, panel.window_samples)
    embeddings = denoiser.embed(panel.values, panel.rows, scale.low, scale.high)[:, :, -width:]
    sums = dissimilarity(embeddings, judged, group_of, settings.distance)
    score, threshold = normal_score(
        sums,
        scale.spread,
        group_of,
        width=width,
        distance=settings.distance,
        false_alarm_probability=settings.false_alarm_probability,
        min_machines=settings.min_machines,
    )
    score = backed_score(score, threshold, sums, panel, scale, group_of, width=width, distance=settings.distance)
    ends_at = panel.times[panel.window_samples - 1 :]
    return WindowScores(
        panel.metric, panel.view, panel.machines, ends_at, panel.step_seconds, sums, score, threshold, group_of
    )


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
            views = panels(by_name[name], raw.machines, settings.window_samples)
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
        denoiser_for: gives the denoising model of a metric.
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
    judged = _Judged()
    verdicts: tuple[Verdict, ...] = ()
    status: Status = "unknown"
    reason: str | None = None
    names, group_of = groups_of(raw, settings.min_machines, sight.warnings)
    judge = _Judge(settings, state, names, group_of, keep_traces)
    try:
        with ThreadPoolExecutor(METRICS_AT_ONCE, "metric") as pool:
            pending: deque[Future[_Judged]] = deque()
            for spec, views in admitted(raw, settings, group_of, sight):
                pending.append(pool.submit(judge.judge, views, spec, denoiser_for(spec.name)))
                # No more than these are in memory at once; they are taken in by their order, whichever ends first.
                if len(pending) > METRICS_AT_ONCE:
                    judged.add(pending.popleft().result())
            while pending:
                judged.add(pending.popleft().result())
        sight.note_silent(raw)
        _check_comparable(raw, settings, group_of)
        verdicts, others = unite(judged.found)
        verdicts = state.verdicts or verdicts
        if others:
            sight.warnings.append(f"stood out as long as the verdict's machine, but not first: {some_names(others)}")
        if not verdicts:
            sight.check_observed(raw, settings, is_resumed=bool(state.judged_at))
            sight.check_all_there(settings)
        status = "faulty" if verdicts else "none"
    except Unobservable as unknown:
        reason = str(unknown)
    result = PassResult(
        task=raw.task,
        method=METHODS[settings.method],
        from_at=raw.from_at,
        to_at=raw.to_at,
        machines=raw.machines,
        status=status,
        reason=reason,
        verdicts=verdicts,
        coverage=sight.coverage(raw),
        warnings=(*raw.warnings, *sight.warnings, *sight.unusable),
        traces=tuple(judged.traces),
    )
    left = PassState(
        continuity=judged.continuity,
        seen={**state.seen, **judged.seen},
        judged_at={**state.judged_at, **judged.judged_at},
        verdicts=verdicts,
    )
    return result, left


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
