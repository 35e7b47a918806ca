"""The normal score: how strange a machine's dissimilarity is.

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

from functools import lru_cache
from statistics import NormalDist

import numpy as np

from trainminder.score.normal_kernel import FOLDED_DEVIATION, normal_scores
from trainminder.score.sums import in_parallel
from trainminder.types import Distance, FloatArray, IntArray

__all__ = [
    "FOLDED_DEVIATION",
    "candidate_threshold",
    "length_of",
    "normal_score",
    "ordinary_deviation",
    "score_bounds",
    "thresholds",
]


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
    ordinary = ordinary_deviation(spread, distance, width)
    for group in np.unique(group_of[group_of >= 0]):
        members = np.flatnonzero(group_of == group)
        limits = thresholds(len(members), false_alarm_probability, min_machines)
        part = sums[members]
        count = (~np.isnan(part)).sum(axis=0)
        scored, _ = score_bounds(part, part, ordinary)
        score[members] = np.where(count >= min_machines, scored, np.nan)
        threshold[members] = np.where(np.isnan(part), np.nan, limits[count])
    return score, threshold


def score_bounds(low: FloatArray, high: FloatArray, ordinary: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Bounds of the normal score by those of the sums, for one group.

    The score rises with a machine's own sum, and falls, of one that is beyond the mean, with the spread of the others'.
    That spread is the length of a vector, which differs from that of the sums' middles by no more than the length of
    what they may be off.

    Args:
        low, high: (machine, window), NaN where not judged; finite, low <= high.
        ordinary: (window,) as ``ordinary_deviation`` gave it.
    Returns:
        lower and upper bounds, (machine, window), NaN where not judged.
    """
    lower, upper = np.empty(low.shape), np.empty(low.shape)

    def work(some: IntArray) -> None:
        part = slice(int(some[0]), int(some[-1]) + 1)
        normal_scores(low[:, part], high[:, part], ordinary[part], lower[:, part], upper[:, part])

    if low.shape[1]:
        in_parallel(np.arange(low.shape[1]), work)
    return lower, upper


def ordinary_deviation(spread: FloatArray, distance: Distance, width: int) -> FloatArray:
    """(window,) the ordinary deviation of sums of distances per other machine.

    Args:
        spread, width: as of ``normal_score``.
    """
    ordinary: FloatArray = FOLDED_DEVIATION * spread * length_of(distance, width)
    return ordinary


def thresholds(machines: int, false_alarm_probability: float, min_machines: int) -> FloatArray:
    """(machines + 1,) the threshold where so many are judged; NaN where too few are."""
    limits = np.array([candidate_threshold(max(n, 1), false_alarm_probability) for n in range(machines + 1)])
    limits[:min_machines] = np.nan
    return limits


def length_of(distance: Distance, width: int) -> float:
    """How long a lasting difference of one unit per sample is as an embedding distance."""
    return {"euclidean": float(np.sqrt(width)), "manhattan": float(width), "chebyshev": 1.0}[distance]


@lru_cache(maxsize=65536)
def candidate_threshold(machines: int, false_alarm_probability: float) -> float:
    """The normal score that the most extreme of ``machines`` healthy ones passes with that chance."""
    return -NormalDist().inv_cdf(false_alarm_probability / (2.0 * machines))
