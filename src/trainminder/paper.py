"""One pass of the method *paper* over one task: windows of each metric denoised, compared, and followed.

It follows Minder (NSDI '25) but for the departures that ``align``, ``score`` and ``docs/detection.md`` state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trainminder.align import LEAST_RANGE, Bounds, compared_samples, from_second, is_judged, normalisation
from trainminder.coverage import lasting_seconds
from trainminder.decide import unite, verdict_of
from trainminder.past import Past
from trainminder.score import stand_out
from trainminder.settings import DetectSettings
from trainminder.sparing import Windows, followed_sparingly, stride_of
from trainminder.types import (
    BoolArray,
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

__all__ = ["Judged", "Judgement", "PaperState", "window_scores"]

Key = tuple[str, View, str]


@dataclass(frozen=True, slots=True)
class PaperState:
    """What a block leaves for the next one of the same task.

    ``continuity``: by (metric, view, group). ``seen``: least and greatest value by (metric, view). ``pasts``: by
    metric, what the rows of its views were lately.
    """

    continuity: Mapping[Key, Continuity] = field(default_factory=dict)
    seen: Mapping[tuple[str, View], tuple[float, float]] = field(default_factory=dict)
    pasts: Mapping[str, tuple[Past, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Judged:
    """What judging one metric gave."""

    traces: list[MetricTrace] = field(default_factory=list)
    found: list[Verdict] = field(default_factory=list)
    continuity: dict[Key, Continuity | None] = field(default_factory=dict)
    seen: dict[tuple[str, View], tuple[float, float]] = field(default_factory=dict)
    pasts: dict[str, tuple[Past, ...]] = field(default_factory=dict)

    def add(self, other: Judged) -> None:
        """Take in what another metric gave."""
        self.traces.extend(other.traces)
        self.found.extend(other.found)
        self.continuity.update(other.continuity)
        self.seen.update(other.seen)
        self.pasts.update(other.pasts)


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

    def judge(self, views: Sequence[Panel], spec: MetricSpec, counts: BoolArray) -> Judged:
        """Take the views of one metric through denoise, score and decide.

        Args:
            counts: (new instant,) whether the metric counts.
        """
        judged = Judged()
        known = {past.view: past for past in self._state.pasts.get(spec.name, ())}
        pasts = tuple(Past.after(known.get(panel.view), panel) for panel in views)
        judged.pasts[spec.name] = pasts
        for panel, past in zip(views, pasts, strict=True):
            self._judge_view(panel, spec, counts, past, judged)
        return judged

    def add(self, judged: Judged) -> None:
        """Take in what one metric gave, in the order in which metrics are asked."""
        self._judged.add(judged)

    @property
    def traces(self) -> tuple[MetricTrace, ...]:
        """What was seen of each view, where that was to be kept."""
        return tuple(self._judged.traces)

    def conclude(self, known: Sequence[Verdict]) -> tuple[tuple[Verdict, ...], tuple[str, ...], PaperState]:
        """The verdict: the first that any metric gave, if none stands already; and others that stood out as long."""
        verdicts, others = unite(self._judged.found, known)
        both = {**self._state.continuity, **self._judged.continuity}
        state = PaperState(
            continuity={key: continuity for key, continuity in both.items() if continuity is not None},
            seen={**self._state.seen, **self._judged.seen},
            pasts={**self._state.pasts, **self._judged.pasts},
        )
        return verdicts, others, state

    def _judge_view(self, panel: Panel, spec: MetricSpec, counts: BoolArray, past: Past, judged: Judged) -> None:
        width = panel.window_samples
        panel = from_second(panel, max(panel.first - width + 1, 0), len(panel.times))
        if not panel.rows.shape[1] or not panel.present.any():
            return
        bounds = Bounds.of(panel, self._state.seen.get((spec.name, panel.view)))
        judged.seen[spec.name, panel.view] = least, greatest = bounds.extremes
        if greatest - least <= LEAST_RANGE:
            # The same everywhere throughout: nobody stands out.
            return
        denoiser = self._denoiser_for(spec.name)
        counted = counts[len(counts) - panel.rows.shape[1] :]
        lasting = lasting_seconds(panel.step_seconds, self._settings)

        def scores(first: int, last: int) -> WindowScores:
            part = from_second(panel, first, last + width - 1)
            scale = normalisation(part, spec, bounds.before(first))
            found = window_scores(part, scale, denoiser, self._settings, self._group_of)
            found.normal_score[:, ~counted[first:last]] = np.nan
            return found

        def device_in(machine: int, window: int) -> str | None:
            return panel.row_device[int(panel.rows[machine, window])]

        stride = stride_of(lasting, panel.step_seconds)
        given = scores
        if self._keep_traces:
            # All windows are shown, and so all are followed: none is scored twice.
            stride, whole = 1, scores(0, panel.rows.shape[1])
            judged.traces.append(MetricTrace(spec, panel, whole))

            def given(first: int, last: int) -> WindowScores:
                del first, last
                return whole

        windows = Windows(
            panel.machines,
            given,
            judged_windows(panel) & counted,
            panel.times[width - 1 :],
            panel.step_seconds,
            self._group_of,
        )
        for group in np.unique(self._group_of[self._group_of >= 0]).tolist():
            key = (spec.name, panel.view, self._group_names[group])
            judged.continuity[key], found = followed_sparingly(
                windows,
                group,
                self._state.continuity.get(key),
                stride=stride,
                continuity_seconds=lasting,
                patience_windows=width,
                device_in=device_in,
            )
            members = {panel.machines[member] for member in np.flatnonzero(self._group_of == group).tolist()}
            judged.found.extend(verdict_of(each, spec, past, members - {each.machine}) for each in found)


def judged_windows(panel: Panel) -> BoolArray:
    """(machine, window), who can be judged."""
    rows = np.maximum(panel.rows, 0)
    judged: BoolArray = (panel.rows >= 0) & is_judged(panel.present, panel.window_samples)[
        rows, np.arange(panel.rows.shape[1])
    ]
    return judged


def window_scores(
    panel: Panel, scale: Scale, denoiser: Denoiser, settings: DetectSettings, group_of: IntArray
) -> WindowScores:
    """Denoise and score one view of one metric.

    Args:
        group_of: (machine,) as ``groups_of`` gave it.
    """
    judged = judged_windows(panel)
    width = compared_samples(panel.step_seconds, panel.window_samples)
    embeddings = denoiser.embed(panel.values, panel.rows, scale.low, scale.high)[:, :, -width:]
    scored = stand_out(
        embeddings,
        judged,
        group_of,
        panel,
        scale,
        distance=settings.distance,
        false_alarm_probability=settings.false_alarm_probability,
        min_machines=settings.min_machines,
    )
    ends_at = panel.times[panel.window_samples - 1 :]
    return WindowScores(
        panel.metric,
        panel.view,
        panel.machines,
        ends_at,
        panel.step_seconds,
        scored.sums,
        scored.score,
        scored.threshold,
        group_of,
    )
