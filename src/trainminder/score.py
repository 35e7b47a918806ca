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
from itertools import pairwise
from statistics import NormalDist

import numpy as np

from trainminder.score_kernel import KINDS, distance_sums
from trainminder.types import BoolArray, Distance, Float32Array, FloatArray, IntArray

__all__ = ["PRIOR_MACHINES", "candidate_threshold", "dissimilarity", "normal_score"]

#: How many machines the metric's ordinary spread counts as.
PRIOR_MACHINES = 12.0
#: Mean and standard deviation of |k|-like sums among normal machines, in units of their own deviation.
FOLDED_MEAN = 2.0 / np.sqrt(np.pi)
FOLDED_DEVIATION = 0.4265
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
        in_parallel(
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
    # A lasting difference of one unit per sample is this long as an embedding distance.
    length = {"euclidean": np.sqrt(width), "manhattan": float(width), "chebyshev": 1.0}[distance]
    ordinary = FOLDED_DEVIATION * spread * length
    for group in np.unique(group_of[group_of >= 0]):
        members = np.flatnonzero(group_of == group)
        part = sums[members]
        judged = ~np.isnan(part)
        count = judged.sum(axis=0)
        enough = count >= min_machines
        if not enough.any():
            continue
        part, judged, n = part[:, enough], judged[:, enough], count[enough].astype(np.float64)
        centred = np.where(judged, part - np.where(judged, part, 0.0).sum(axis=0) / n, 0.0)
        squares = (centred**2).sum(axis=0)
        # Mean and variance of the others, in closed form from those of all.
        beyond = centred * n / (n - 1.0) / (n - 2.0)
        others = np.maximum(squares - centred**2 * n / (n - 1.0), 0.0) / (n - 2.0) / (n - 2.0) ** 2
        prior = ordinary[enough]
        freedom = PRIOR_MACHINES + n - 2.0
        pooled = (PRIOR_MACHINES * prior**2 + (n - 2.0) * others) / freedom
        deviation = np.sqrt(np.maximum(pooled, (LEAST_SHARE * prior) ** 2) * n / (n - 1.0))
        out = np.maximum(FOLDED_MEAN + FOLDED_DEVIATION * beyond / deviation, 0.0)
        deviate = (8 * freedom + 1) / (8 * freedom + 3) * np.sqrt(freedom * np.log1p(out**2 / freedom))
        where = np.ix_(members, np.flatnonzero(enough))
        score[where] = np.where(judged, deviate, np.nan)
        limits = {int(k): candidate_threshold(int(k), false_alarm_probability) for k in np.unique(n)}
        threshold[where] = np.where(judged, [limits[int(k)] for k in n], np.nan)
    return score, threshold


def candidate_threshold(machines: int, false_alarm_probability: float) -> float:
    """The normal score that the most extreme of ``machines`` healthy ones passes with that chance."""
    return -NormalDist().inv_cdf(false_alarm_probability / (2.0 * machines))


def in_parallel(count: int, work: Callable[[int, int], None], threads: int | None = None) -> None:
    """Run ``work(first, last)`` over slices of ``range(count)`` on all cores; the work must let go of the GIL."""
    threads = threads or os.cpu_count() or 1
    edges = np.linspace(0, count, min(threads * 4, count) + 1, dtype=int)
    if threads == 1 or count < 2:
        work(0, count)
        return
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, int(a), int(b)) for a, b in pairwise(edges)]:
            done.result()
