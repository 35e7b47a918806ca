"""The publication's baseline: statistics of each window, reduced by principal components, and Mahalanobis distances.

Per machine and window: mean, variance, skewness and kurtosis of each metric; principal components of these; the sum of
a machine's Mahalanobis distances to all others; then the same candidate and continuity as everywhere.

What the publication leaves open, and how it is filled here:

* What a covariance is measured on: statistics beside the mean of the machines in the same window, over the windows of
  the first fifth of the data (five minutes at most), in which no machine is judged. Within one window, any few machines
  are equally far apart by that distance; over all windows, what everybody does together would pass for noise, and a
  fault that lasts for an ordinary direction.
* Components that explain ``EXPLAINED`` of the variance are kept.
* Sums become normal scores as in ``trainminder.score``, whose ordinary deviation follows from the distance: between
  points of unit variance in k dimensions it has a standard deviation of about one half, whatever k is.
"""

from __future__ import annotations

import numpy as np

from trainminder.bench.methods.joint import Joint, join, learned_windows
from trainminder.bench.methods.prepared import SETTINGS, Prepared
from trainminder.score import FOLDED_DEVIATION, dissimilarity, normal_score
from trainminder.types import BoolArray, Float32Array, FloatArray

__all__ = ["mahalanobis", "statistics"]

EXPLAINED = 0.95
#: Standard deviation, in normalised units, below which a window has no shape.
FLAT = 1e-5
ORDINARY_DEVIATION = 0.5


def mahalanobis(prepared: Prepared) -> tuple[Joint, FloatArray] | None:
    """Normal scores of the sums of Mahalanobis distances."""
    joint = join(prepared)
    if joint is None:
        return None
    channels = enumerate(joint.channels)
    parts = [joint.filled(number, statistics(channel.windows(joint.at[number]))) for number, channel in channels]
    statistic = np.concatenate(parts, axis=2)
    judged = joint.enough()
    sums = np.full(judged.shape, np.nan)
    learned = learned_windows(joint)
    for group in np.unique(joint.group_of[joint.group_of >= 0]):
        members = np.flatnonzero(joint.group_of == group)
        sums[members] = _sums(statistic[members], judged[members], learned)
    score, _ = normal_score(
        sums,
        np.full(len(joint.ends_at), ORDINARY_DEVIATION / FOLDED_DEVIATION),
        joint.group_of,
        width=1,
        false_alarm_probability=SETTINGS.false_alarm_probability,
        min_machines=SETTINGS.min_machines,
    )
    return joint, score


def statistics(windows: Float32Array) -> Float32Array:
    """(machine, window, 4): mean, variance, skewness and excess kurtosis of (machine, window, sample) windows.

    A window without variation has neither skewness nor kurtosis: both are 0.
    """
    mean = windows.mean(axis=2, dtype=np.float64)
    centred = windows - mean[:, :, None]
    squared = centred**2
    variance = squared.mean(axis=2)
    has_shape = variance > FLAT**2
    scale = np.where(has_shape, variance, 1.0)
    skewness = np.where(has_shape, (squared * centred).mean(axis=2) / scale**1.5, 0.0)
    kurtosis = np.where(has_shape, (squared**2).mean(axis=2) / scale**2 - 3.0, 0.0)
    return np.stack([mean, variance, skewness, kurtosis], axis=2).astype(np.float32)


def _sums(statistic: Float32Array, judged: BoolArray, learned: int) -> FloatArray:
    """(machine, window) sums of distances within one group; NaN in the windows that are only learned from."""
    sums = np.full(judged.shape, np.nan)
    counted = judged[:, :learned, None]
    seen = np.where(counted, statistic[:, :learned], 0.0).astype(np.float64)
    centre = seen.sum(axis=0) / np.maximum(counted.sum(axis=0), 1)
    points = (seen - centre)[judged[:, :learned]]
    # Fewer points than dimensions leave directions in which nothing varied, and anything would be far.
    if len(points) > statistic.shape[2]:
        whitened = (statistic[:, learned:] @ _whitening(points)).astype(np.float32)
        sums[:, learned:] = dissimilarity(whitened, judged[:, learned:], np.zeros(len(sums), dtype=np.int64))
    return sums


def _whitening(points: FloatArray) -> FloatArray:
    """(statistic, component): takes statistics to components of unit variance in these points (point, statistic)."""
    covariance = points.T @ points / len(points)
    deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    scale = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > FLAT**2)
    values, vectors = np.linalg.eigh(covariance * np.outer(scale, scale))
    values, vectors = values[::-1], vectors[:, ::-1]
    kept = int(np.searchsorted(np.cumsum(values) / max(values.sum(), 1e-12), EXPLAINED)) + 1
    kept = min(kept, int((values > 1e-9).sum()))
    whitening: FloatArray = scale[:, None] * vectors[:, :kept] / np.sqrt(values[:kept])
    return whitening
