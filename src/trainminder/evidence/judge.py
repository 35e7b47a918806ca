"""One pass of the method *default* over one task: every metric by itself, then all of them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trainminder.align import panels
from trainminder.coverage import ACTIVITY
from trainminder.errors import Unobservable
from trainminder.evidence.departure import Departures, Followed, follow_panel
from trainminder.evidence.episodes import Episodes, Weighed, domains_of, weigh_signs
from trainminder.evidence.findings import Suspicion, limit_of, trail_of, verdicts_of
from trainminder.evidence.gather import MetricSigns, gather, signs_of
from trainminder.evidence.life import LifeState, progress, work
from trainminder.evidence.silence import Heard, follow_silence
from trainminder.evidence.weights import Weights
from trainminder.settings import DetectSettings
from trainminder.types import IntArray, MetricSpec, MetricTrace, Panel, RawTask, Trail, Verdict, WindowScores

__all__ = ["EvidenceState", "Judged", "Judgement"]

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class EvidenceState:
    """What a pass leaves for the next one over the same task, in each part's own words."""

    life: LifeState = field(default_factory=LifeState)
    live_at: float = -np.inf
    followed: Mapping[Key, Followed] = field(default_factory=dict)
    heard: Mapping[str, Heard] = field(default_factory=dict)
    episodes: Episodes | None = None
    judged_at: float = -np.inf


@dataclass(frozen=True, slots=True)
class Judged:
    """What one metric gave: its signs, and what is remembered of it."""

    signs: MetricSigns
    followed: Mapping[Key, Followed]
    heard: Heard
    progress: np.ndarray | None
    traces: tuple[MetricTrace, ...]


class Judgement:
    """The judging of one task: metrics come in, each by itself; then everything is weighed."""

    def __init__(
        self,
        raw: RawTask,
        settings: DetectSettings,
        group_names: Sequence[str],
        group_of: IntArray,
        state: EvidenceState,
        *,
        keep_traces: bool = False,
    ) -> None:
        self._raw, self._settings, self._state = raw, settings, state
        self._group_names, self._group_of = tuple(group_names), group_of
        activity = []
        for metric in raw.metrics:
            if metric.metric in ACTIVITY:
                try:
                    activity.append(panels(metric, raw.machines, 1)[0])
                except Unobservable:
                    continue
        self._keep_traces = keep_traces
        self._life, self._life_state = work(activity, state.life, state.live_at)
        self._judged: list[Judged] = []
        self.trail: Trail | None = None

    def judge(self, views: Sequence[Panel], spec: MetricSpec) -> Judged:
        """Follow the views of one metric."""
        followed: dict[Key, Followed] = {}
        departures: list[Departures] = []
        for panel in views:
            key = (spec.name, panel.view)
            live = self._life.at(panel.times)
            seen, followed[key] = follow_panel(
                panel,
                spec,
                live,
                self._group_names,
                self._group_of,
                self._state.followed.get(key),
                keep_reached=self._keep_traces,
            )
            departures.append(seen)
        silence, heard = follow_silence(views[-1], self._state.heard.get(spec.name))
        first = departures[0].first
        lost = progress(views[0], self._life.at(views[0].times)[first:], first, self._life_state)
        signs = signs_of(departures, silence, None if lost is None else lost[0])
        traces = tuple(trace_of(each, spec, self._group_of) for each in departures) if self._keep_traces else ()
        return Judged(signs, followed, heard, None if lost is None else lost[1], traces)

    def add(self, judged: Judged) -> None:
        """Take in what one metric gave, in the order in which metrics are asked."""
        if len(judged.signs.times):
            self._judged.append(judged)

    @property
    def traces(self) -> tuple[MetricTrace, ...]:
        """What was seen of each view, where that was to be kept."""
        return tuple(trace for judged in self._judged for trace in judged.traces)

    def conclude(self, known: Sequence[Verdict], warnings: list[str]) -> tuple[tuple[Verdict, ...], EvidenceState]:
        """Weigh what came in: the verdicts in the order in which they stood, those known already first.

        Args:
            known: verdicts that stand already.
        """
        del warnings  # everything there is to say stands in the evidence
        suspicion, episodes = self.weigh()
        verdicts = tuple(known)
        if suspicion is not None:
            limit = limit_of(self._settings.false_alarms_per_machine_day, suspicion)
            named = {verdict.machine for verdict in known}
            verdicts += verdicts_of(suspicion, limit, self.signs, self._raw, named)
            if self._keep_traces:
                self.trail = trail_of(suspicion, limit)
        return verdicts, self._left(episodes)

    @property
    def signs(self) -> list[MetricSigns]:
        """What every metric says."""
        return [judged.signs for judged in self._judged]

    def weigh(self, weights: Weights = Weights()) -> tuple[Suspicion | None, Episodes | None]:  # noqa: B008 frozen
        """How much there is against every machine at every instant; None where there is nothing new.

        Args:
            weights: others than those that convict, to see what a part of the evidence is worth.
        """
        weighed: list[Weighed] = []
        episodes = self._state.episodes
        if self._judged:
            domains = domains_of(self._raw.machines, self._raw.domains)
            for some in gather(self.signs, self._life):
                found, episodes = weigh_signs(some, episodes, self._raw.machines, domains, weights)
                weighed.append(found)
        if episodes is None or not weighed:
            return None, episodes
        return Suspicion.of(weighed, self._raw.machines, episodes.causes), episodes

    def _left(self, episodes: Episodes | None) -> EvidenceState:
        state = self._state
        memories = {judged.signs.metric: judged.progress for judged in self._judged if judged.progress is not None}
        return EvidenceState(
            life=LifeState(
                self._life_state.idle_seconds,
                self._life_state.grace_seconds,
                {**state.life.progress, **memories},
            ),
            live_at=max(state.live_at, float(self._life.times[-1])) if len(self._life.times) else state.live_at,
            followed={**state.followed, **{k: v for judged in self._judged for k, v in judged.followed.items()}},
            heard={**state.heard, **{judged.signs.metric: judged.heard for judged in self._judged}},
            episodes=episodes,
        )


def trace_of(departures: Departures, spec: MetricSpec, group_of: IntArray) -> MetricTrace:
    """What was seen of one view, for the report: of each machine, the row that departed the most.

    ``normal_score`` holds by how much a machine departs: at 1, the threshold, a departure begins.
    """
    panel = departures.panel
    shape = (len(panel.machines), len(panel.times))
    score, rows = np.full(shape, np.nan), np.full(shape, -1, dtype=np.int64)
    for row, machine in enumerate(panel.row_machine.tolist()):
        reached = departures.reached[:, row].astype(np.float64)
        of_machine, row_of = score[machine, departures.first :], rows[machine, departures.first :]
        is_more = ~(reached <= of_machine) & ~np.isnan(reached)
        of_machine[is_more], row_of[is_more | (row_of < 0)] = reached[is_more], row
    threshold = np.where(np.isnan(score), np.nan, 1.0)
    scores = WindowScores(
        panel.metric,
        panel.view,
        panel.machines,
        panel.times,
        panel.step_seconds,
        np.full(shape, np.nan),
        score,
        threshold,
        group_of,
    )
    return MetricTrace(spec, replace(panel, rows=rows), scores)
