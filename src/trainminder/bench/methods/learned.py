"""Two multivariate detectors of PyOD over vectors that describe a machine in a window beside its peers.

A vector holds, of each view of each metric, how far the window's mean and its standard deviation lie from the median
of the machine's group, in ordinary spreads of the metric: what all machines do together, such as saving a checkpoint,
does not show in it. *knn* takes the distance to the fifth nearest of the vectors learned from, *iforest* an isolation
forest. Both learn from the first fifth of the data (five minutes at most) and judge what comes after it, so that a
fault is not learned as ordinary while it lasts; they look every five seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from trainminder.bench.methods.deciding import fixed_limits
from trainminder.bench.methods.joint import Joint, JointMethod, join, learned_windows
from trainminder.bench.methods.prepared import Prepared
from trainminder.errors import MissingExtra
from trainminder.types import FloatArray

__all__ = ["iforest", "knn"]

#: Fewer vectors say nothing; more are drawn from.
LEAST_VECTORS, MOST_VECTORS = 20, 1024
NEIGHBOURS = 5
#: Vectors judged at a time: bounds the memory of the distances.
AT_ONCE = 16_384
#: A departure beyond this many ordinary spreads is none the worse: what is gone is gone.
FURTHEST = 50.0
#: Robust standard deviations of the scores learned from.
THRESHOLDS = (100.0, 60.0, 40.0, 30.0, 20.0, 15.0, 12.0, 10.0, 8.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.5)


def knn() -> JointMethod:
    """Distance to the fifth nearest neighbour.

    Raises:
        MissingExtra: PyOD is not installed.
    """
    return _method("knn", _knn)


def iforest() -> JointMethod:
    """Isolation forest.

    Raises:
        MissingExtra: PyOD is not installed.
    """
    return _method("iforest", _iforest)


def _method(name: str, detector: Callable[[], Any]) -> JointMethod:
    if find_spec("pyod") is None:
        raise MissingExtra(f"method {name}", "bench")
    return JointMethod(name, partial(_score, detector), THRESHOLDS, fixed_limits)


def _knn() -> Any:
    from pyod.models.knn import KNN

    return KNN(n_neighbors=NEIGHBOURS)


def _iforest() -> Any:
    from pyod.models.iforest import IForest

    return IForest(random_state=0)


def _score(detector: Callable[[], Any], prepared: Prepared) -> tuple[Joint, FloatArray] | None:
    """Scores above those learned from, in robust standard deviations of these."""
    joint = join(prepared)
    if joint is None:
        return None
    joint = joint.now_and_then()
    judged = joint.enough()
    vectors = _vectors(joint)
    score = np.full(judged.shape, np.nan)
    learned = learned_windows(joint)
    while learned < len(joint.ends_at) and judged[:, :learned].sum() < LEAST_VECTORS:
        learned += 1
    ordinary = vectors[:, :learned][judged[:, :learned]]
    if len(ordinary) < LEAST_VECTORS:
        return joint, score
    if len(ordinary) > MOST_VECTORS:
        ordinary = ordinary[np.random.default_rng(0).choice(len(ordinary), MOST_VECTORS, replace=False)]
    fitted = detector().fit(ordinary)
    middle = np.median(fitted.decision_scores_)
    deviation = 1.4826 * np.median(np.abs(fitted.decision_scores_ - middle))
    judged[:, :learned] = False
    wanted = vectors[judged]
    parts = [fitted.decision_function(wanted[start : start + AT_ONCE]) for start in range(0, len(wanted), AT_ONCE)]
    score[judged] = (np.concatenate([np.empty(0), *parts]) - middle) / max(deviation, 1e-9)
    return joint, score


def _vectors(joint: Joint) -> FloatArray:
    """(machine, window, 2 * channel)."""
    vectors = np.empty((*joint.judged.shape[1:], 2 * len(joint.channels)))
    for number, channel in enumerate(joint.channels):
        windows = channel.windows(joint.at[number])
        pair = joint.filled(number, np.stack([windows.mean(axis=2), windows.std(axis=2)], axis=2))
        for group in np.unique(joint.group_of):
            members = np.flatnonzero(joint.group_of == group)
            pair[members] -= np.median(pair[members], axis=0)
        pair /= joint.spread(number)[:, None]
        vectors[:, :, 2 * number : 2 * number + 2] = np.clip(pair, -FURTHEST, FURTHEST)
    return vectors
