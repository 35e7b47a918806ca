"""From the score of each machine in each window to verdicts, at each threshold: the same for every method.

The candidate and its continuity are those of ``trainminder.decide``. What does not depend on the threshold is done
once: only machines that are the candidate of some window at the loosest threshold can be it at a stricter one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from trainminder.bench.methods.prepared import SETTINGS
from trainminder.coverage import lasting_seconds
from trainminder.decide import Confirmed, follow, unite
from trainminder.score import candidate_threshold
from trainminder.types import FloatArray, IntArray, Verdict, WindowScores

__all__ = ["Found", "chance_limits", "confirmed_at", "fixed_limits"]

#: (window,) number of machines judged -> (threshold, window) the score that a candidate must pass.
Limits = Callable[[IntArray], FloatArray]


class Found:
    """Verdicts as they come in, at each threshold, and what they amount to in the end."""

    def __init__(self, thresholds: Sequence[float], continuity_seconds: float | None = None) -> None:
        self._found: list[list[Verdict]] = [[] for _ in thresholds]
        changed = {} if continuity_seconds is None else {"continuity_seconds": continuity_seconds}
        self._settings = SETTINGS.model_copy(update=changed)

    def add(
        self, scores: WindowScores, limits: Limits, named: Callable[[Confirmed], Verdict], lasting: float | None = None
    ) -> None:
        """Take in what one metric, or all metrics together, say.

        Args:
            named: makes the verdict.
            lasting: seconds that a machine must remain the candidate; None: as long as in a pass.
        """
        if lasting is None:
            lasting = lasting_seconds(scores.step_seconds, self._settings)
        for place, confirmed in confirmed_at(scores, limits, lasting):
            self._found[place].append(named(confirmed))

    def verdicts(self) -> list[tuple[Verdict, ...]]:
        """The earliest verdict at each threshold; of equally early ones, the first that came in."""
        return [unite(some)[0] for some in self._found]


def chance_limits(probabilities: Sequence[float]) -> Limits:
    """Limits of normal scores that the most extreme of so many healthy machines passes with these chances."""

    def limits(count: IntArray) -> FloatArray:
        counts, place = np.unique(count, return_inverse=True)
        enough = [machines for machines in counts.tolist() if machines >= SETTINGS.min_machines]
        by_count = np.full((len(probabilities), len(counts)), np.nan)
        by_count[:, len(counts) - len(enough) :] = [
            [candidate_threshold(machines, chance) for machines in enough] for chance in probabilities
        ]
        return by_count[:, place]

    return limits


def fixed_limits(thresholds: Sequence[float]) -> Limits:
    """Limits that are the thresholds, where there are enough machines to compare."""

    def limits(count: IntArray) -> FloatArray:
        enough = np.where(count >= SETTINGS.min_machines, 0.0, np.nan)
        return np.asarray(np.array(thresholds)[:, None] + enough)

    return limits


def confirmed_at(scores: WindowScores, limits: Limits, lasting: float) -> Iterator[tuple[int, Confirmed]]:
    """The place of a threshold, and what its continuity check confirms, for every threshold and group.

    Args:
        scores: ``threshold`` is not looked at; ``step_seconds`` is that of the samples.
        lasting: seconds that a machine must remain the candidate.
    """
    step = scores.step_seconds
    # Methods that look only now and then are not blind in between.
    hop = float(np.median(np.diff(scores.ends_at))) if len(scores.ends_at) > 1 else step
    for group in np.unique(scores.group_of[scores.group_of >= 0]).tolist():
        some, limit = _ever_candidates(scores, group, limits)
        if not some.machines:
            continue
        for place in range(len(limit)):
            threshold = np.broadcast_to(limit[place], some.normal_score.shape)
            _, confirmed = follow(
                replace(some, threshold=threshold),
                0,
                None,
                continuity_seconds=lasting,
                patience_seconds=max(SETTINGS.window_samples * step, 1.5 * hop),
            )
            if confirmed:
                yield place, confirmed[0]


def _ever_candidates(scores: WindowScores, group: int, limits: Limits) -> tuple[WindowScores, FloatArray]:
    """Those of a group who lead some window and pass its loosest limit.

    Where only others are judged nobody passes, and who was the candidate is unseen: it is as if nobody were judged.

    Returns:
        the scores of these, in the order of names, and the group's limits (threshold, window).
    """
    members = np.flatnonzero(scores.group_of == group)
    part = scores.normal_score[members]
    judged = ~np.isnan(part)
    limit = limits(judged.sum(axis=0))
    filled = np.where(judged, part, -np.inf)
    best, windows = filled.argmax(axis=0), np.arange(part.shape[1])
    leaders = np.unique(best[filled[best, windows] > limit.min(axis=0)])
    rows = part[leaders]
    names = tuple(scores.machines[member] for member in members[leaders].tolist())
    some = replace(
        scores, machines=names, dissimilarity=rows, normal_score=rows, group_of=np.zeros(len(rows), dtype=np.int64)
    )
    return some, limit
