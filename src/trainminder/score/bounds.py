"""Bounds of sums of distances by clusters: what thousands of machines need not be compared one by one for.

A machine's squared distances to the members of a cluster have a mean and a variance that follow from the cluster's
moments about its centre alone, and lie between those of a ball around it. Of all distributions with these, two of two
points each make the mean distance least and greatest (the root is concave, and its third derivative positive: a
Chebyshev system). Both are closed formulas, exact where a cluster is small or far away; summed over clusters they bound
the sum of distances. Loops in single precision are widened by more than their rounding, and so are those of the exact
sums: what bounds decide, exact sums decide alike.

Work: machines x clusters, in place of machines x machines.
"""

from __future__ import annotations

import numpy as np

from trainminder.score.bounds_kernel import bound
from trainminder.score.sums import in_parallel
from trainminder.types import BoolArray, Float32Array, FloatArray, IntArray

__all__ = ["sum_bounds"]


def sum_bounds(
    embeddings: Float32Array, judged: BoolArray, members: IntArray, windows: IntArray, clusters: int
) -> tuple[FloatArray, FloatArray]:
    """Bounds of the members' sums of Euclidean distances to the other members, in some windows.

    Args:
        embeddings: (machine, window, width), no NaN where judged.
        judged: (machine, window), True where the machine takes part.
        members: (member,) the machines compared with each other.
        clusters: at most so many; more take longer and bound more closely.
    Returns:
        lower and upper bounds, (member, one of ``windows``), NaN where not judged; the upper may be infinite.
    """
    low, high = (np.full((len(members), len(windows)), np.nan) for _ in range(2))

    def work(some: IntArray) -> None:
        columns = slice(int(some[0]), int(some[-1]) + 1)
        bound(embeddings, judged, members, windows[some], clusters, low[:, columns], high[:, columns])

    if len(windows):
        in_parallel(np.arange(len(windows)), work)
    return low, high
