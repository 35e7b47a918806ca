"""Standing out: the normal scores of windows, as far as they must be known to say who stands out.

Of a few thousand machines and more, sums of distances are bounded first (``bounds``): in nearly every window that says
for certain that nobody passes the threshold, or who does and is furthest. Only what it does not say is summed exactly.
So the candidate of each window is that of the exact sums; scores are in the middle of their bounds, and of a candidate
certain to ``CERTAIN_SHARE``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainminder.align import column_medians
from trainminder.score.bounds import sum_bounds
from trainminder.score.normal import length_of, normal_score, ordinary_deviation, score_bounds, thresholds
from trainminder.score.sums import add_sums
from trainminder.score.sums_kernel import sums_of
from trainminder.types import BoolArray, Distance, Float32Array, FloatArray, IntArray, Panel, Scale

__all__ = ["Scored", "backed_score", "stand_out"]

#: What a machine's data must show of its embedding's distance to its peers.
BACKED_SHARE = 0.5
#: Clusters by which sums are bounded, one after the other, before they are summed exactly: each only where so many
#: machines are judged for each cluster that it takes a fraction of the time of the sums.
CLUSTERS, MACHINES_PER_CLUSTER = (16, 64), 150
#: Machines of a window that may pass the threshold whose sums are made exact before the next step is taken.
CONTENDERS = 8
#: Of a candidate, the bounds of the score lie no further apart than this share of it.
CERTAIN_SHARE = 0.2
#: Relative rounding of ``sums_of`` and of the exact sums, with a margin.
ROUNDING = 1e-5


@dataclass(frozen=True, slots=True)
class Scored:
    """Dissimilarity, normal score and threshold: (machine, window) each, NaN where not judged."""

    sums: FloatArray
    score: FloatArray
    threshold: FloatArray


def stand_out(
    embeddings: Float32Array,
    judged: BoolArray,
    group_of: IntArray,
    panel: Panel,
    scale: Scale,
    *,
    distance: Distance = "euclidean",
    false_alarm_probability: float,
    min_machines: int = 3,
) -> Scored:
    """Score the windows of one view of one metric.

    Args:
        embeddings, judged, group_of: as of ``dissimilarity``.
        false_alarm_probability, min_machines: as of ``normal_score``.
    """
    width = embeddings.shape[2]
    sums = np.full(judged.shape, np.nan)
    bounded: list[_Bounded] = []
    windows = np.arange(judged.shape[1])
    for group in np.unique(group_of[group_of >= 0]):
        members = np.flatnonzero(group_of == group)
        count, is_open = judged[members].sum(axis=0), np.ones(len(windows), dtype=np.bool_)
        limits = thresholds(len(members), false_alarm_probability, min_machines)
        for clusters in CLUSTERS if distance == "euclidean" else ():
            some = windows[is_open & (count >= max(MACHINES_PER_CLUSTER * clusters, min_machines))]
            if len(some):
                attempt = _Attempt(embeddings, judged, members, some, panel, scale, limits)
                bounded.append(attempt.by(clusters))
                is_open[bounded[-1].windows] = False
        add_sums(embeddings, judged, members, windows[is_open], distance, sums)
    score, threshold = normal_score(
        sums,
        scale.spread,
        group_of,
        width=width,
        distance=distance,
        false_alarm_probability=false_alarm_probability,
        min_machines=min_machines,
    )
    score = backed_score(score, threshold, sums, panel, scale, group_of, width=width, distance=distance)
    for found in bounded:
        cells = np.ix_(found.members, found.windows)
        sums[cells], score[cells], threshold[cells] = found.scored.sums, found.scored.score, found.scored.threshold
    return Scored(sums, score, threshold)


@dataclass(frozen=True, slots=True)
class _Bounded:
    """Windows of one group that bounds decide. ``scored``: (member, one of ``windows``)."""

    members: IntArray
    windows: IntArray
    scored: Scored


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The attempt to decide some windows of one group by bounds."""

    embeddings: Float32Array
    judged: BoolArray
    members: IntArray
    windows: IntArray
    panel: Panel
    scale: Scale
    limits: FloatArray

    def by(self, clusters: int) -> _Bounded:
        """The windows that so many clusters decide."""
        low, high = sum_bounds(self.embeddings, self.judged, self.members, self.windows, clusters)
        is_decided = np.isfinite(np.where(np.isnan(high), 0.0, high)).all(axis=0)
        low, high = np.where(is_decided, low, np.nan), np.where(is_decided, high, np.nan)
        ordinary = ordinary_deviation(self.scale.spread[self.windows], "euclidean", self.embeddings.shape[2])
        count = self.judged[np.ix_(self.members, self.windows)].sum(axis=0)
        limit = self.limits[count]
        lower, upper = score_bounds(low, high, ordinary)
        contending = (upper > limit).sum(axis=0)
        is_decided &= contending <= CONTENDERS
        open_ = np.flatnonzero(is_decided & (contending > 0))
        place, column = np.nonzero(upper[:, open_] > limit[open_])
        if len(place):
            machine, window = self.members[place], self.windows[open_[column]]
            exact = sums_of(self.embeddings, self.judged, self.members, machine, window)
            low[place, open_[column]], high[place, open_[column]] = exact * (1.0 - ROUNDING), exact * (1.0 + ROUNDING)
            lower[:, open_], upper[:, open_] = score_bounds(low[:, open_], high[:, open_], ordinary[open_])
            shown = _departure(self.panel, self.scale, self.members, machine, window, self.embeddings.shape[2])
            # A machine's share of what its embedding shows, as in ``backed_score``.
            embedded = exact / (count[open_[column]] - 1) / length_of("euclidean", self.embeddings.shape[2])
            its = (place, open_[column])
            lower[its] *= np.fmin(shown / (BACKED_SHARE * embedded * (1.0 + ROUNDING)), 1.0)
            upper[its] *= np.fmin(shown / (BACKED_SHARE * embedded * (1.0 - ROUNDING)), 1.0)
            is_decided[open_] = _is_decided(lower[:, open_], upper[:, open_], limit[open_])
        done = np.flatnonzero(is_decided)
        judged = ~np.isnan(low[:, done])
        scored = Scored(
            0.5 * (low[:, done] + high[:, done]),
            0.5 * (lower[:, done] + upper[:, done]),
            np.where(judged, limit[done], np.nan),
        )
        return _Bounded(self.members, self.windows[done], scored)


def _is_decided(lower: FloatArray, upper: FloatArray, limit: FloatArray) -> BoolArray:
    """(window,) whether bounds of scores, (machine, window), say that nobody passes, or who does and is furthest."""
    windows = np.arange(lower.shape[1])
    lower, upper = np.nan_to_num(lower, nan=-np.inf), np.nan_to_num(upper, nan=-np.inf)
    first = lower.argmax(axis=0)
    least, most = lower[first, windows], upper[first, windows]
    upper[first, windows] = -np.inf
    second = upper.max(axis=0)
    nobody = np.maximum(most, second) <= limit
    decided: BoolArray = nobody | ((least > np.maximum(limit, second)) & (most - least <= CERTAIN_SHARE * least))
    return decided


def backed_score(
    score: FloatArray,
    threshold: FloatArray,
    sums: FloatArray,
    panel: Panel,
    scale: Scale,
    group_of: IntArray,
    *,
    width: int,
    distance: Distance = "euclidean",
) -> FloatArray:
    """The normal score, lowered where the data do not show what the embedding does.

    A denoiser renders a window as a whole: a burst in its older part bends the rest, so that a machine would stand
    out for as long as the burst is in the window, not as long as it lasts. A machine that passes the threshold must
    lie from its peers' median, in the samples compared, by at least ``BACKED_SHARE`` of its distance to its peers;
    with less, its score falls in proportion.

    Args:
        score, threshold, sums: (machine, window), as ``normal_score`` and ``dissimilarity`` gave them.
        width: newest samples of each window that are compared.
    Returns:
        (machine, window).
    """
    backed = score.copy()
    for group in np.unique(group_of[group_of >= 0]):
        members = np.flatnonzero(group_of == group)
        place, window = np.nonzero(score[members] > threshold[members])
        if not len(place):
            continue
        machine = members[place]
        departure = _departure(panel, scale, members, machine, window, width)
        others = np.maximum((~np.isnan(sums[members])).sum(axis=0)[window] - 1, 1)
        embedded = sums[machine, window] / others / length_of(distance, width)
        # A second in which nobody has a sample has no median: nothing can be said against the score then.
        backed[machine, window] *= np.fmin(departure / (BACKED_SHARE * embedded), 1.0)
    return backed


def _departure(
    panel: Panel, scale: Scale, members: IntArray, machine: IntArray, window: IntArray, width: int
) -> FloatArray:
    """How far each of these (machine, window) lies from its group's median, per sample, in normalised units."""
    cells = window[:, None] + np.arange(panel.window_samples - width, panel.window_samples)
    seconds, column = np.unique(cells, return_inverse=True)
    rows = np.isin(panel.row_machine, members)
    medians = column_medians(panel.values[rows][:, seconds], panel.present[rows][:, seconds])
    own = panel.values[panel.rows[machine, window][:, None], cells]
    departure: FloatArray = np.sqrt(np.mean((own - medians[column.reshape(cells.shape)]) ** 2, axis=1))
    departure /= scale.high[window] - scale.low[window]
    return departure
