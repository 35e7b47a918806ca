"""How a range is asked for: what exists, how often it is sampled, slices, and stores that refuse."""

from __future__ import annotations

import math
import re
import threading
from dataclasses import dataclass, field

from trainminder.errors import StoreError
from trainminder.settings import MembershipSettings, StoreSettings
from trainminder.source.prometheus.http import TIMED_OUT, TOO_LARGE, RefusedError, StoreClient
from trainminder.source.prometheus.matrix import MatrixAnswer
from trainminder.source.prometheus.queries import (
    Grid,
    duration,
    machine_regex,
    measured_interval,
    probe,
    render,
    selector_of,
)
from trainminder.types import MetricQuery

__all__ = ["DEFAULT_INTERVAL_SECONDS", "FEWEST_POINTS", "Look", "RangeReader"]

#: Prometheus' own usual scrape interval, taken where nothing could be measured; a warning says so.
DEFAULT_INTERVAL_SECONDS = 15.0
#: Instant queries look at no more than this at once: they read every raw sample.
PROBE_SECONDS = 3600.0
#: So long, what was learned of a query is taken for true.
LOOK_SECONDS = 300.0
#: Machines whose raw samples tell the sampling interval; series read for it where no label names a machine.
PROBED_MACHINES = 4
MOST_UNNAMED = 100
#: Below this a refused range is not halved again.
FEWEST_POINTS = 16

_LIMIT = re.compile(
    r"maximum resolution|too many|more than|points per|max(imum)?[- ](samples|points|series|number)"
    r"|limit|exceed|too large|timed? ?out|timeout",
    re.IGNORECASE,
)


def _is_limit(error: RefusedError) -> bool:
    """Whether a smaller question may be answered."""
    return error.status in (400, TIMED_OUT, TOO_LARGE, 422, 500, 503, 504) and bool(_LIMIT.search(error.text))


@dataclass(slots=True)
class Look:
    """What is learned about a query before its range is asked for."""

    series: int | None = None
    """How many series there are; None: the store cannot tell."""
    interval: float | None = None
    """Seconds between samples; None: not measured."""
    notes: list[str] = field(default_factory=list)
    restarted: set[str] = field(default_factory=set)
    """Values of the machine label whose counters went back to zero."""


class RangeReader:
    """Asks one store for ranges; may be used from several threads."""

    def __init__(self, client: StoreClient, store: StoreSettings, membership: MembershipSettings) -> None:
        self._client = client
        self._store = store
        self._membership = membership
        self._answers_instant = threading.Event()
        self._answers_instant.set()
        self._looks: dict[tuple[str, str], tuple[float, Look]] = {}

    def look(self, query: MetricQuery, matcher: str, from_at: float, to_at: float) -> Look:
        """How many series there are, and how often they are sampled; looked up anew every few minutes."""
        key = (query.query, matcher)
        at, known = self._looks.get(key, (-math.inf, None))
        if known is None or not at <= to_at < at + LOOK_SECONDS:
            known = self._look(query, matcher, from_at, to_at)
            self._looks[key] = to_at, known
        return known

    def _look(self, query: MetricQuery, matcher: str, from_at: float, to_at: float) -> Look:
        look = Look(interval=self._store.interval_seconds)
        seconds = min(max(to_at - from_at, 300.0), PROBE_SECONDS)
        text = probe(query, matcher, seconds)
        if text is None:
            return look
        # Of a long range the end is looked at, then the beginning: what ran there counts too.
        instants = [to_at] if to_at - from_at <= PROBE_SECONDS else [to_at, from_at + PROBE_SECONDS]
        for at in instants:
            answer = self._instant(text, at)
            if answer is None:
                return look
            if answer.labels:
                look.series = len(answer.labels)
                if look.interval is None:
                    self._measure(look, query, matcher, answer, at, seconds)
                if text.startswith("resets("):
                    look.restarted = self._restarted(answer)
                return look
        # In between there may be more that neither end has seen.
        look.series = 0 if len(instants) == 1 else None
        return look

    def _measure(
        self, look: Look, query: MetricQuery, matcher: str, found: MatrixAnswer, at: float, seconds: float
    ) -> None:
        label = self._membership.machine_label
        names = sorted({labels[label] for labels in found.labels if labels.get(label)})
        picked = (
            sorted({names[i * (len(names) - 1) // (PROBED_MACHINES - 1)] for i in range(PROBED_MACHINES)})
            if names
            else []
        )
        if not picked and len(found.labels) > MOST_UNNAMED:
            return
        few = ",".join(text for text in (matcher, machine_regex(picked, label) if picked else "") if text)
        answer = self._instant(f"{render(selector_of(query) or '', matcher=few)}[{duration(seconds)}]", at)
        measured = measured_interval(answer) if answer else None
        if measured is None:
            return
        shortest, look.interval = measured
        if look.interval > 1.5 * shortest:
            look.notes.append(
                f"sampled every {shortest:g} s on some machines and every {look.interval:g} s on others: "
                f"judged at {look.interval:g} s"
            )

    def _instant(self, expression: str, at: float) -> MatrixAnswer | None:
        """The answer of an instant query; None where this store answers none such."""
        if not self._answers_instant.is_set():
            return None
        try:
            return self._client.query(expression, at)
        except RefusedError as error:
            if error.status in (404, 405):
                self._answers_instant.clear()
            elif error.status not in (400, 422) and not _is_limit(error):
                raise
            return None

    def _restarted(self, answer: MatrixAnswer) -> set[str]:
        label = self._membership.machine_label
        return {
            labels.get(label, "") for labels, resets in zip(answer.labels, answer.values, strict=True) if resets > 0
        }

    def fetch_slice(self, metric: str, expression: str, grid: Grid, depth: int = 0) -> list[MatrixAnswer]:
        """One slice of a range; halved as long as the store finds it too large."""
        step = grid.step_ms / 1000.0
        try:
            return [self._client.query_range(expression, grid.first_ms / 1000.0, grid.last_ms / 1000.0, step)]
        except RefusedError as error:
            if not _is_limit(error):
                raise
            # Each try at a store that is merely slow costs the full timeout.
            if error.status == TIMED_OUT and (grid.points <= FEWEST_POINTS or depth >= 2):
                raise
            if grid.points <= FEWEST_POINTS:
                raise StoreError(
                    f"{metric}: the store refuses even {grid.points} points at a step of {step:g} s: {error.text}: "
                    f"set store.interval_seconds to {2 * step:g} or more, or ask for fewer machines"
                ) from error
            halves = grid.slices(-(-grid.points // 2))
            return [answer for half in halves for answer in self.fetch_slice(metric, expression, half, depth + 1)]
