"""One pass of the method *default* over one task: every metric by itself, then all of them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trainminder.coverage import ACTIVITY
from trainminder.evidence.causes import Cause
from trainminder.evidence.departed import Departed
from trainminder.evidence.departure import Departures, Followed, follow_panel
from trainminder.evidence.episodes import Episodes, Weighed, domains_of, weigh_signs
from trainminder.evidence.findings import Scene, Suspicion, limit_of, trail_of, verdicts_of
from trainminder.evidence.gather import MetricSigns, Rhythm, gather, rhythm_of, signs_of
from trainminder.evidence.life import LifeState, progress, work
from trainminder.evidence.silence import Heard, follow_silence
from trainminder.evidence.weights import Weights
from trainminder.past import Past
from trainminder.settings import DetectSettings
from trainminder.types import BoolArray, IntArray, MetricSpec, MetricTrace, Panel, Trail, Verdict, WindowScores

__all__ = ["EvidenceState", "Judged", "Judgement"]

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class EvidenceState:
    """What a block leaves for the next one of the same task, in each part's own words.

    ``last``: by metric, its signs of its last instant; ``rhythm``: the instants that are judged; ``causes``: those
    that ever were there; ``departed``, ``pasts``: by metric, what verdicts are told by.
    """

    life: LifeState = field(default_factory=LifeState)
    followed: Mapping[Key, Followed] = field(default_factory=dict)
    heard: Mapping[str, Heard] = field(default_factory=dict)
    last: Mapping[str, MetricSigns] = field(default_factory=dict)
    rhythm: Rhythm | None = None
    episodes: Episodes | None = None
    departed: Mapping[str, Departed] = field(default_factory=dict)
    pasts: Mapping[str, tuple[Past, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Judged:
    """What one metric gave: its signs, and what is remembered of it."""

    spec: MetricSpec
    signs: MetricSigns
    followed: Mapping[Key, Followed]
    heard: Heard
    progress: np.ndarray | None
    departed: Departed
    pasts: tuple[Past, ...]
    traces: tuple[MetricTrace, ...]


class Judgement:
    """The judging of one block of a task: metrics come in, each by itself; then everything is weighed.

    Args:
        activity: machine-level views of those metrics in ``coverage.ACTIVITY`` that the block has.
        domains: what machines share -> its machines.
        until: instants up to this one are judged.
        group_of: (machine,) index into ``group_names``; -1: compared with nobody.
    """

    def __init__(
        self,
        machines: tuple[str, ...],
        activity: Sequence[Panel],
        until: float,
        settings: DetectSettings,
        group_names: Sequence[str],
        group_of: IntArray,
        state: EvidenceState,
        *,
        groups: Mapping[str, str] | None = None,
        domains: Mapping[str, tuple[str, ...]] | None = None,
        keep_traces: bool = False,
    ) -> None:
        self._machines, self._until, self._settings, self._state = machines, until, settings, state
        self._group_names, self._group_of = tuple(group_names), group_of
        self._groups, self._domains = groups or {}, domains or {}
        self._keep_traces = keep_traces
        self._life, self._life_state = work([panel for panel in activity if panel.metric in ACTIVITY], state.life)
        self._judged: list[Judged] = []
        self.trail: Trail | None = None

    def judge(self, views: Sequence[Panel], spec: MetricSpec, counts: BoolArray) -> Judged:
        """Follow the views of one metric.

        Args:
            counts: (new instant,) whether the metric counts.
        """
        state, name = self._state, spec.name
        live = self._life.at(views[0].times[views[0].first :])
        followed: dict[Key, Followed] = {}
        departures: list[Departures] = []
        for panel in views:
            key = (name, panel.view)
            seen, followed[key] = follow_panel(
                panel,
                spec,
                live,
                self._group_names,
                self._group_of,
                state.followed.get(key),
                keep_reached=self._keep_traces,
            )
            departures.append(seen)
        silence, heard = follow_silence(views[-1], state.heard.get(name))
        lost = progress(views[0], live, self._life_state)
        signs = signs_of(departures, silence, counts, None if lost is None else lost[0])
        known = {past.view: past for past in state.pasts.get(name, ())}
        return Judged(
            spec,
            signs,
            followed,
            heard,
            None if lost is None else lost[1],
            Departed.after(state.departed.get(name), signs),
            tuple(Past.after(known.get(panel.view), panel) for panel in views),
            tuple(trace_of(each, spec, self._group_of) for each in departures) if self._keep_traces else (),
        )

    def add(self, judged: Judged) -> None:
        """Take in what one metric gave, in the order in which metrics are asked."""
        self._judged.append(judged)

    @property
    def traces(self) -> tuple[MetricTrace, ...]:
        """What was seen of each view, where that was to be kept."""
        return tuple(trace for judged in self._judged for trace in judged.traces)

    @property
    def departed(self) -> dict[str, Departed]:
        """What departed, by metric: those of this block in their order, then others."""
        return {judged.spec.name: judged.departed for judged in self._judged} | {
            name: each for name, each in self._state.departed.items() if name not in self._names
        }

    def conclude(
        self, known: Sequence[Verdict], specs: Mapping[str, MetricSpec]
    ) -> tuple[tuple[Verdict, ...], EvidenceState]:
        """Weigh what came in: the verdicts in the order in which they stood, those known already first.

        Args:
            known: verdicts that stand already.
            specs: of all metrics, in the order in which they are asked.
        """
        suspicion, episodes, rhythm = self.weigh()
        state = self._left(episodes, rhythm)
        verdicts = tuple(known)
        if suspicion is not None:
            limit = limit_of(self._settings.false_alarms_per_machine_day, suspicion)
            departed = self.departed
            in_order = {name: departed[name] for name in specs if name in departed}
            scene = Scene(in_order, state.pasts, specs, self._groups, self._domains)
            verdicts += verdicts_of(suspicion, limit, scene, {verdict.machine for verdict in known})
            if self._keep_traces:
                self.trail = trail_of(suspicion, limit)
        return verdicts, state

    def weigh(
        self,
        weights: Weights = Weights(),  # noqa: B008 frozen
    ) -> tuple[Suspicion | None, Episodes | None, Rhythm | None]:
        """How much there is against every machine at every new instant; None where there is none.

        Args:
            weights: others than those that convict, to see what a part of the evidence is worth.
        """
        state, episodes = self._state, self._state.episodes
        signs = [judged.signs.after(state.last.get(judged.spec.name)) for judged in self._judged]
        signs += [each.of(self._machines) for name, each in state.last.items() if name not in self._names]
        if not signs:
            return None, episodes, state.rhythm
        rhythm = state.rhythm or rhythm_of([judged.signs for judged in self._judged])
        times, rhythm = rhythm.until(self._until)
        weighed: list[Weighed] = []
        domains = domains_of(self._machines, self._domains)
        causes: tuple[Cause, ...] = episodes.causes if episodes else ()
        for some in gather(signs, self._life, times, rhythm.step_seconds, causes):
            found, episodes = weigh_signs(some, episodes, self._machines, domains, weights)
            weighed.append(found)
        if episodes is None or not weighed:
            return None, episodes, rhythm
        return Suspicion.of(weighed, self._machines, episodes.causes), episodes, rhythm

    @property
    def _names(self) -> set[str]:
        return {judged.spec.name for judged in self._judged}

    def _left(self, episodes: Episodes | None, rhythm: Rhythm | None) -> EvidenceState:
        state, judged = self._state, self._judged
        memories = {each.spec.name: each.progress for each in judged if each.progress is not None}
        return EvidenceState(
            life=replace(self._life_state, progress={**state.life.progress, **memories}),
            followed={**state.followed, **{key: what for each in judged for key, what in each.followed.items()}},
            heard={**state.heard, **{each.spec.name: each.heard for each in judged}},
            last={**state.last, **{each.spec.name: each.signs.last() for each in judged}},
            rhythm=rhythm,
            episodes=episodes,
            departed=self.departed,
            pasts={**state.pasts, **{each.spec.name: each.pasts for each in judged}},
        )


def trace_of(departures: Departures, spec: MetricSpec, group_of: IntArray) -> MetricTrace:
    """What was seen of one view, for the report: of each machine, the row that departed the most.

    ``normal_score`` holds by how much a machine departs: at 1, the threshold, a departure begins.
    """
    panel = departures.panel
    panel = replace(panel, values=panel.values[:, panel.first :], present=panel.present[:, panel.first :])
    panel = replace(panel, times=panel.times[panel.first :], first=0)
    shape = (len(panel.machines), len(panel.times))
    score, rows = np.full(shape, np.nan), np.full(shape, -1, dtype=np.int64)
    for row, machine in enumerate(panel.row_machine.tolist()):
        reached = departures.reached[:, row].astype(np.float64)
        of_machine, row_of = score[machine], rows[machine]
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
