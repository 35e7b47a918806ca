"""One pass of the method *paper* over one task: windows of each metric denoised, compared, and followed.

It follows Minder (NSDI '25) but for the departures that ``align``, ``score`` and ``docs/detection.md`` state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trainminder.align import compared_samples, is_judged, normalisation
from trainminder.coverage import lasting_seconds
from trainminder.decide import follow, unite, verdict_of
from trainminder.score import backed_score, dissimilarity, normal_score
from trainminder.settings import DetectSettings
from trainminder.types import (
    Continuity,
    Denoiser,
    IntArray,
    MetricSpec,
    MetricTrace,
    Panel,
    Scale,
    Trail,
    Verdict,
    View,
    WindowScores,
)
from trainminder.wording import some_names

__all__ = ["Judged", "Judgement", "PaperState", "window_scores"]

Key = tuple[str, View, str]


@dataclass(frozen=True, slots=True)
class PaperState:
    """What a pass leaves for the next one over the same task.

    ``continuity``: by (metric, view, group). ``seen``: least and greatest value by metric. ``judged_at``: the
    instant of the newest window judged, by (metric, view).
    """

    continuity: Mapping[Key, Continuity] = field(default_factory=dict)
    seen: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    judged_at: Mapping[tuple[str, View], float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Judged:
    """What judging gave, of one metric or of all."""

    traces: list[MetricTrace] = field(default_factory=list)
    found: list[Verdict] = field(default_factory=list)
    continuity: dict[Key, Continuity] = field(default_factory=dict)
    seen: dict[str, tuple[float, float]] = field(default_factory=dict)
    judged_at: dict[tuple[str, View], float] = field(default_factory=dict)

    def add(self, other: Judged) -> None:
        """Take in what another metric gave."""
        self.traces.extend(other.traces)
        self.found.extend(other.found)
        self.continuity.update(other.continuity)
        self.seen.update(other.seen)
        self.judged_at.update(other.judged_at)


class Judgement:
    """The judging of one task: metrics come in, each by itself; then they are united."""

    def __init__(
        self,
        settings: DetectSettings,
        denoiser_for: Callable[[str], Denoiser],
        group_names: Sequence[str],
        group_of: IntArray,
        state: PaperState,
        *,
        keep_traces: bool,
    ) -> None:
        self._settings, self._state, self._keep_traces = settings, state, keep_traces
        self._denoiser_for = denoiser_for
        self._group_names, self._group_of = tuple(group_names), group_of
        self._judged = Judged()
        self.trail: Trail | None = None

    def judge(self, views: Sequence[Panel], spec: MetricSpec) -> Judged:
        """Take the views of one metric through denoise, score and decide."""
        judged = Judged()
        denoiser = self._denoiser_for(spec.name)
        for panel in views:
            self._judge_view(panel, spec, denoiser, judged)
        return judged

    def add(self, judged: Judged) -> None:
        """Take in what one metric gave, in the order in which metrics are asked."""
        self._judged.add(judged)

    @property
    def traces(self) -> tuple[MetricTrace, ...]:
        """What was seen of each view, where that was to be kept."""
        return tuple(self._judged.traces)

    def conclude(self, known: Sequence[Verdict], warnings: list[str]) -> tuple[tuple[Verdict, ...], PaperState]:
        """The verdict: the first that any metric gave, if none stands already.

        Args:
            warnings: gets a line about others that stood out as long.
        """
        verdicts, others = unite(self._judged.found)
        if others:
            warnings.append(f"stood out as long as the verdict's machine, but not first: {some_names(others)}")
        state = PaperState(
            continuity=self._judged.continuity,
            seen={**self._state.seen, **self._judged.seen},
            judged_at={**self._state.judged_at, **self._judged.judged_at},
        )
        return tuple(known) or verdicts, state

    def _judge_view(self, panel: Panel, spec: MetricSpec, denoiser: Denoiser, judged: Judged) -> None:
        scale = normalisation(panel, spec, self._state.seen.get(spec.name))
        judged.seen[spec.name] = (float(scale.low[-1]), float(scale.high[-1]))
        scores = window_scores(panel, scale, denoiser, self._settings, self._group_of)
        trace = MetricTrace(spec, panel, scores)
        judged_at = self._state.judged_at.get((spec.name, panel.view), -np.inf)
        # A cut may move the grid by rounding; half a step is far from both neighbours.
        first = int(np.searchsorted(scores.ends_at, judged_at + panel.step_seconds / 2))
        judged.judged_at[spec.name, panel.view] = max(judged_at, float(scores.ends_at[-1]))
        for group in np.unique(self._group_of[self._group_of >= 0]):
            key = (spec.name, panel.view, self._group_names[group])
            continuity, confirmed = follow(
                scores,
                int(group),
                self._state.continuity.get(key),
                continuity_seconds=lasting_seconds(panel.step_seconds, self._settings),
                patience_seconds=self._settings.window_samples * panel.step_seconds,
                first_window=first,
            )
            if continuity is not None:
                judged.continuity[key] = continuity
            if confirmed is not None:
                judged.found.append(verdict_of(confirmed, trace))
        if self._keep_traces:
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
