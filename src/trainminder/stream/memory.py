"""All that a stream remembers, and the classes of which it is made."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from trainminder.align import Placing, Sampling
from trainminder.align.placing import Grid
from trainminder.coverage import Seen
from trainminder.evidence.causes import Cause
from trainminder.evidence.departed import Departed
from trainminder.evidence.departure import Followed
from trainminder.evidence.episodes import Episodes
from trainminder.evidence.gather import MetricSigns, Rhythm
from trainminder.evidence.judge import EvidenceState
from trainminder.evidence.life import LifeState
from trainminder.evidence.silence import Heard
from trainminder.feed import Feed
from trainminder.paper import PaperState
from trainminder.past import Past
from trainminder.pipeline import Fleet, PassState
from trainminder.suspect import Distrusted, Shown
from trainminder.types import Continuity, Evidence, MetricQuery, MetricSpec, RawTask, Verdict

__all__ = ["SAVED", "Memory", "TaskFacts"]


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What is known of the task beside its samples."""

    name: str
    from_at: float
    to_at: float
    fleet: Fleet
    metrics_absent: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    is_stated: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """All that a stream remembers: samples that are not settled, what was judged, and the task."""

    feed: Feed
    state: PassState = field(default_factory=PassState)
    task: TaskFacts | None = None
    late: int = 0
    """Samples that came too late."""

    def with_samples(self, raw: RawTask) -> Memory:
        """With more samples, and what they say of the task."""
        feed, known = self.feed.with_samples(raw), self.task
        specs, groups, domains = dict(raw.specs), dict(raw.groups), dict(raw.domains)
        if known is not None:
            fleet = known.fleet
            specs, groups, domains = {**fleet.specs, **specs}, {**fleet.groups, **groups}, {**fleet.domains, **domains}
        names = raw.machines
        if known is not None and names == known.fleet.machines:
            # The same object, so that nothing needs to be looked up by name.
            names = known.fleet.machines
        elif not raw.is_stated:
            reporting = {row[0] for placing in feed.placings.values() for row in placing.rows}
            names = tuple(sorted(reporting.union(names)))
            names = known.fleet.machines if known is not None and names == known.fleet.machines else names
        task = TaskFacts(
            raw.task,
            raw.from_at if known is None else min(raw.from_at, known.from_at),
            raw.to_at if known is None else max(raw.to_at, known.to_at),
            Fleet(names, specs, groups, domains),
            tuple(name for name in raw.metrics_absent if name not in feed.placings),
            raw.warnings,
            raw.is_stated,
        )
        return replace(self, feed=feed, task=task, late=self.late + self._too_late(raw))

    def _too_late(self, raw: RawTask) -> int:
        """How many samples come too late, but for those that were taken in before."""
        late = 0
        for metric in raw.metrics:
            some = np.flatnonzero(metric.times <= self.feed.settled_until)
            pasts = self.state.evidence.pasts.get(metric.metric) or self.state.paper.pasts.get(metric.metric)
            if not len(some) or not pasts:
                continue
            place = {row: number for number, row in enumerate(pasts[-1].rows)}
            given = zip(metric.machines, metric.devices, strict=True)
            row_of = np.array([place.get(row, -1) for row in given], dtype=np.int64)
            rows = np.repeat(row_of, np.diff(metric.offsets))[some]
            late += pasts[-1].unknown(rows, metric.times[some])
        return late


#: What a saved stream may hold.
SAVED = (
    Cause,
    Continuity,
    Departed,
    Distrusted,
    Episodes,
    Evidence,
    EvidenceState,
    Feed,
    Fleet,
    Followed,
    Grid,
    Heard,
    LifeState,
    Memory,
    MetricQuery,
    MetricSigns,
    MetricSpec,
    PaperState,
    PassState,
    Past,
    Placing,
    Rhythm,
    Sampling,
    Seen,
    Shown,
    TaskFacts,
    Verdict,
)
