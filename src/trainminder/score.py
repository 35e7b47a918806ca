"""Scoring: embeddings to dissimilarity to normal score. Pure, hot.

The *dissimilarity* is the paper's: a machine's sum of distances to all others. The *normal score* is
where we depart from it. A z-score of the sums cannot exceed (n - 1)/sqrt(n), so that a fixed threshold
is blind on small tasks, and the most extreme of 4,000 healthy machines passes one that suits 40. Ours
says how many ordinary standard deviations a machine lies from its peers, and its threshold follows from
one number, the chance of a false candidate in a window, at any number of machines:

1. *Leave one out.* Each machine is held against the mean and spread of the others only, so that a fault
   does not hide behind the spread it makes itself.
2. *What is known beforehand.* The spread of few machines is hardly known: of three, two may agree by
   chance. It is shrunk towards the metric's ordinary spread, which counts as ``PRIOR_MACHINES`` more
   (the moderated variance of small-sample statistics), and never falls below a third of that.
3. *The shape of a sum of distances.* The sum folds both sides of the peers onto one: for a machine k
   standard deviations out among normal peers it tends to |k|, with mean 2/sqrt(pi) and standard deviation
   0.4265 in units of theirs. That line turns the standardised sum back into k.
4. *Degrees of freedom.* Student's k becomes the normal deviate of equal tail (Wallace, 1959), so that
   one threshold fits.
5. *The largest of n.* The threshold is the deviate that the most extreme of n healthy machines
   passes with the stated chance.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist

import numpy as np

from trainminder.align import column_medians
from trainminder.score_kernel import KINDS, distance_sums
from trainminder.types import BoolArray, Distance, Float32Array, FloatArray, IntArray, Panel, Scale

__all__ = ["backed_score", "candidate_threshold", "dissimilarity", "normal_score"]

#: How many machines the metric's ordinary spread counts as.
PRIOR_MACHINES = 12.0
#: Mean and standard deviation of |k|-like sums among normal machines, in units of their own deviation.
FOLDED_MEAN = 2.0 / np.sqrt(np.pi)
FOLDED_DEVIATION = 0.4265
#: What a machine's data must show of its embedding's distance to its peers.
BACKED_SHARE = 0.5
#: Least spread believed, as a share of the ordinary one.
LEAST_SHARE = 1.0 / 3.0


def dissimilarity(
    embeddings: Float32Array, judged: BoolArray, group_of: IntArray, distance: Distance = "euclidean"
) -> FloatArray:
    """Sum each machine's distances to all the others of its group, window by window.

    Args:
        embeddings: (machine, window, width), normalised units, no NaN where judged.
        judged: (machine, window), True where the machine takes part.
        group_of: (machine,) group of each machine; -1 takes part nowhere.
    Returns:
        (machine, window), >= 0, larger means further from its peers; NaN where not judged.
    Source: Minder, NSDI '25, similarity-based distance check.
    """
    sums = np.full(judged.shape, np.nan)
    for group in np.unique(group_of[group_of >= 0]):
        members = np.flatnonzero(group_of == group)
        _in_parallel(
            judged.shape[1],
            lambda first, last, members=members: distance_sums(  # type: ignore[misc]
                embeddings, judged, members, KINDS[distance], (first, last), sums
            ),
        )
    return sums


def normal_score(
    sums: FloatArray,
    spread: FloatArray,
    group_of: IntArray,
    *,
    width: int,
    distance: Distance = "euclidean",
    false_alarm_probability: float,
    min_machines: int = 3,
) -> tuple[FloatArray, FloatArray]:
    """How many ordinary standard deviations each machine lies from its peers, and the threshold.

    Args:
        sums: (machine, window) dissimilarity, NaN where not judged.
        spread: (window,) ordinary standard deviation between healthy machines, normalised units, > 0.
        group_of: (machine,) group of each machine, -1 for none.
        width: width of the embeddings the sums come from.
        false_alarm_probability: chance that any machine of a healthy group passes in one window.
        min_machines: fewest machines of a group that can be judged, >= 3.
    Returns:
        score: (machine, window), >= 0; NaN where not judged or too few are.
        threshold: (machine, window); NaN likewise.
    """
    score = np.full(sums.shape, np.nan)
    threshold = np.full(sums.shape, np.nan)
    ordinary = FOLDED_DEVIATION * spread * _length(distance, width)
    for group in np.unique(group_of[group_of >= 0]):
        members = np.flatnonzero(group_of == group)
        limits = np.array([candidate_threshold(max(n, 1), false_alarm_probability) for n in range(len(members) + 1)])
        limits[:min_machines] = np.nan

        def work(first: int, last: int, members: IntArray = members, limits: FloatArray = limits) -> None:
            part = sums[members, first:last]
            deviate, count = _deviates(part, ordinary[first:last])
            score[members, first:last] = np.where(count >= min_machines, deviate, np.nan)
            threshold[members, first:last] = np.where(np.isnan(part), np.nan, limits[count])

        _in_parallel(sums.shape[1], work)
    return score, threshold


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
        cells = window[:, None] + np.arange(panel.window_samples - width, panel.window_samples)
        seconds, column = np.unique(cells, return_inverse=True)
        rows = np.isin(panel.row_machine, members)
        medians = column_medians(panel.values[rows][:, seconds], panel.present[rows][:, seconds])
        own = panel.values[panel.rows[machine, window][:, None], cells]
        departure = np.sqrt(np.mean((own - medians[column.reshape(cells.shape)]) ** 2, axis=1))
        departure /= scale.high[window] - scale.low[window]
        others = np.maximum((~np.isnan(sums[members])).sum(axis=0)[window] - 1, 1)
        embedded = sums[machine, window] / others / _length(distance, width)
        # A second in which nobody has a sample has no median: nothing can be said against the score then.
        backed[machine, window] *= np.fmin(departure / (BACKED_SHARE * embedded), 1.0)
    return backed


def _length(distance: Distance, width: int) -> float:
    """How long a lasting difference of one unit per sample is as an embedding distance."""
    return {"euclidean": float(np.sqrt(width)), "manhattan": float(width), "chebyshev": 1.0}[distance]


def _deviates(sums: FloatArray, ordinary: FloatArray) -> tuple[FloatArray, IntArray]:
    """The normal score of one group, (machine, window), NaN where not judged; and (window,) how many are."""
    judged = ~np.isnan(sums)
    count = judged.sum(axis=0)
    # With fewer than three nothing can be said; the caller drops those.
    n = np.maximum(count, 3).astype(np.float64)
    centred = np.where(judged, sums, 0.0)
    centred = np.where(judged, centred - centred.sum(axis=0) / n, 0.0)
    squared = centred**2
    # Mean and variance of the others, in closed form from those of all.
    others = np.maximum(squared.sum(axis=0) - squared * (n / (n - 1.0)), 0.0)
    freedom = PRIOR_MACHINES + n - 2.0
    pooled = (PRIOR_MACHINES * ordinary**2 + others / (n - 2.0) ** 2) / freedom
    deviation = np.sqrt(np.maximum(pooled, (LEAST_SHARE * ordinary) ** 2) * (n / (n - 1.0)))
    beyond = centred * (n / (n - 1.0) / (n - 2.0))
    out = np.maximum(FOLDED_MEAN + FOLDED_DEVIATION * beyond / deviation, 0.0)
    deviate = (8 * freedom + 1) / (8 * freedom + 3) * np.sqrt(freedom * np.log1p(out**2 / freedom))
    return np.where(judged, deviate, np.nan), count


@lru_cache(maxsize=65536)
def candidate_threshold(machines: int, false_alarm_probability: float) -> float:
    """The normal score that the most extreme of ``machines`` healthy ones passes with that chance."""
    return -NormalDist().inv_cdf(false_alarm_probability / (2.0 * machines))


def _in_parallel(count: int, work: Callable[[int, int], None]) -> None:
    """Run ``work(first, last)`` over slices of ``range(count)`` on all cores; the work must let go of the GIL."""
    threads = os.cpu_count() or 1
    edges = np.linspace(0, count, min(threads * 4, count) + 1, dtype=int)
    if threads == 1 or count < 2:
        work(0, count)
        return
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, int(a), int(b)) for a, b in pairwise(edges)]:
            done.result()
