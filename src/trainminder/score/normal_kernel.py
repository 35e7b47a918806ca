"""The loops of the normal score, compiled. ``normal`` says what they compute, and why."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trainminder.compiled import compiled

__all__ = ["FOLDED_DEVIATION", "FOLDED_MEAN", "LEAST_SHARE", "PRIOR_MACHINES", "normal_scores"]

#: How many machines the metric's ordinary spread counts as.
PRIOR_MACHINES = 12.0
#: Mean and standard deviation of |k|-like sums among normal machines, in units of their own deviation.
FOLDED_MEAN = 2.0 / math.sqrt(math.pi)
FOLDED_DEVIATION = 0.4265
#: Least spread believed, as a share of the ordinary one.
LEAST_SHARE = 1.0 / 3.0


@compiled(error_model="numpy")
def _deviate(centred: float, squares: float, ordinary: float, n: float) -> float:
    """The normal score of a sum less the mean of all, beside the squared deviations of the others from their own mean.

    It rises with the first, and where that is positive falls with the second.
    """
    freedom = PRIOR_MACHINES + n - 2.0
    pooled = (PRIOR_MACHINES * ordinary * ordinary + squares / ((n - 2.0) * (n - 2.0))) / freedom
    least = LEAST_SHARE * ordinary
    deviation = math.sqrt(max(pooled, least * least) * (n / (n - 1.0)))
    beyond = centred * (n / (n - 1.0) / (n - 2.0))
    out = max(FOLDED_MEAN + FOLDED_DEVIATION * beyond / deviation, 0.0)
    return (8.0 * freedom + 1.0) / (8.0 * freedom + 3.0) * math.sqrt(freedom * math.log1p(out * out / freedom))


@compiled(error_model="numpy")
def normal_scores(low: Any, high: Any, ordinary: Any, lower: Any, upper: Any) -> None:
    """The normal scores of one group, as far as sums are known.

    Args:
        low, high: (machine, window) bounds of the sums, NaN where not judged; the same array where they are known.
        ordinary: (window,) as ``normal.ordinary_deviation`` gave it.
        lower, upper: (machine, window) are filled; NaN where not judged.
    """
    machines, windows = low.shape
    for w in range(windows):
        count, total, off_total, off_squared = 0, 0.0, 0.0, 0.0
        for i in range(machines):
            if not math.isnan(low[i, w]):
                off = 0.5 * (high[i, w] - low[i, w])
                count += 1
                total += 0.5 * (low[i, w] + high[i, w])
                off_total += off
                off_squared += off * off
        # With fewer than three nothing can be said; the caller drops those.
        n = float(max(count, 3))
        mean, squared = total / n, 0.0
        for i in range(machines):
            if not math.isnan(low[i, w]):
                centred = 0.5 * (low[i, w] + high[i, w]) - mean
                squared += centred * centred
        for i in range(machines):
            if math.isnan(low[i, w]):
                lower[i, w] = upper[i, w] = np.nan
                continue
            centred = 0.5 * (low[i, w] + high[i, w]) - mean
            others = max(squared - centred * centred * (n / (n - 1.0)), 0.0)
            if off_total == 0.0:
                lower[i, w] = upper[i, w] = _deviate(centred, others, ordinary[w], n)
                continue
            off = 0.5 * (high[i, w] - low[i, w])
            # What the length of the others' deviations may be off.
            off_length = math.sqrt(max(off_squared - off * off, 0.0))
            narrow, wide = max(math.sqrt(others) - off_length, 0.0) ** 2, (math.sqrt(others) + off_length) ** 2
            apart = off * (1.0 - 2.0 / n) + off_total / n
            least, most = centred - apart, centred + apart
            lower[i, w] = _deviate(least, wide if least > 0.0 else narrow, ordinary[w], n)
            upper[i, w] = _deviate(most, narrow if most > 0.0 else wide, ordinary[w], n)
