"""The hot loop of scoring: sums of pairwise distances, without the machine x machine matrix.

Each window is worked through by one thread in one order, so the result does not depend on the number
of threads. Distances are float32 (embeddings are), their sums float64 once per block of machines.
"""

from __future__ import annotations

import numpy as np

from trainminder.compiled import compiled
from trainminder.types import BoolArray, Float32Array, FloatArray, IntArray

__all__ = ["KINDS", "distance_sums", "sums_of"]

EUCLIDEAN, MANHATTAN, CHEBYSHEV = 0, 1, 2
KINDS = {"euclidean": EUCLIDEAN, "manhattan": MANHATTAN, "chebyshev": CHEBYSHEV}

FAST = {"reassoc", "contract", "nsz", "arcp"}

#: Machines whose float32 partial sums are added up before they are carried over to float64.
BLOCK = 64


@compiled(fastmath=FAST)
def _two_by_euclidean8(points, i, n, partial):  # type: ignore[no-untyped-def]
    """The paper's width, unrolled, for machines ``i`` and ``i + 1`` against those behind them.

    Two at a time: each machine's point is loaded once for both, and nothing but the sums is stored.
    """
    a0, a1, a2, a3 = points[0, i], points[1, i], points[2, i], points[3, i]
    a4, a5, a6, a7 = points[4, i], points[5, i], points[6, i], points[7, i]
    b0, b1, b2, b3 = points[0, i + 1], points[1, i + 1], points[2, i + 1], points[3, i + 1]
    b4, b5, b6, b7 = points[4, i + 1], points[5, i + 1], points[6, i + 1], points[7, i + 1]
    p0, p1, p2, p3 = points[0, i + 2 : n], points[1, i + 2 : n], points[2, i + 2 : n], points[3, i + 2 : n]
    p4, p5, p6, p7 = points[4, i + 2 : n], points[5, i + 2 : n], points[6, i + 2 : n], points[7, i + 2 : n]
    sums = partial[i + 2 : n]
    of_a = np.float32(0.0)
    of_b = np.float32(0.0)
    for j in range(len(sums)):
        d0, d1, d2, d3 = p0[j] - a0, p1[j] - a1, p2[j] - a2, p3[j] - a3
        d4, d5, d6, d7 = p4[j] - a4, p5[j] - a5, p6[j] - a6, p7[j] - a7
        e0, e1, e2, e3 = p0[j] - b0, p1[j] - b1, p2[j] - b2, p3[j] - b3
        e4, e5, e6, e7 = p4[j] - b4, p5[j] - b5, p6[j] - b6, p7[j] - b7
        from_a = np.sqrt((d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3) + (d4 * d4 + d5 * d5) + (d6 * d6 + d7 * d7))
        from_b = np.sqrt((e0 * e0 + e1 * e1) + (e2 * e2 + e3 * e3) + (e4 * e4 + e5 * e5) + (e6 * e6 + e7 * e7))
        of_a += from_a
        of_b += from_b
        sums[j] += from_a + from_b
    d0, d1, d2, d3 = b0 - a0, b1 - a1, b2 - a2, b3 - a3
    d4, d5, d6, d7 = b4 - a4, b5 - a5, b6 - a6, b7 - a7
    between = np.sqrt((d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3) + (d4 * d4 + d5 * d5) + (d6 * d6 + d7 * d7))
    return of_a + between, of_b + between


@compiled(fastmath=FAST)
def _general(points, i, kind, row):  # type: ignore[no-untyped-def]
    """Any width and distance."""
    n = i + 1 + len(row)
    row[:] = np.float32(0.0)
    for k in range(points.shape[0]):
        a = points[k, i]
        others = points[k, i + 1 : n]
        if kind == EUCLIDEAN:
            for j in range(len(row)):
                row[j] += (others[j] - a) * (others[j] - a)
        elif kind == MANHATTAN:
            for j in range(len(row)):
                row[j] += abs(others[j] - a)
        else:
            for j in range(len(row)):
                row[j] = max(row[j], abs(others[j] - a))
    if kind == EUCLIDEAN:
        for j in range(len(row)):
            row[j] = np.sqrt(row[j])


@compiled(fastmath=FAST)
def _add(row, partial):  # type: ignore[no-untyped-def]
    """Add the distances to the others' sums and return their own sum."""
    own = np.float32(0.0)
    for j in range(len(row)):
        own += row[j]
        partial[j] += row[j]
    return own


@compiled(fastmath=FAST)
def _sums(embeddings, judged, members, kind, windows, out):  # type: ignore[no-untyped-def]
    width = embeddings.shape[2]
    points = np.empty((width, len(members)), dtype=np.float32)
    who = np.empty(len(members), dtype=np.int64)
    row = np.empty(len(members), dtype=np.float32)
    partial = np.empty(len(members), dtype=np.float32)
    total = np.empty(len(members), dtype=np.float64)
    for window in windows:
        n = 0
        for machine in members:
            if judged[machine, window]:
                who[n] = machine
                for k in range(width):
                    points[k, n] = embeddings[machine, window, k]
                n += 1
        total[:n] = 0.0
        for start in range(0, n, BLOCK):
            stop = min(start + BLOCK, n)
            partial[start:n] = np.float32(0.0)
            i = start
            while i < stop:
                if kind == EUCLIDEAN and width == 8 and i + 1 < stop:
                    of_first, of_second = _two_by_euclidean8(points, i, n, partial)
                    total[i] += of_first
                    total[i + 1] += of_second
                    i += 2
                else:
                    _general(points, i, kind, row[i + 1 : n])
                    total[i] += _add(row[i + 1 : n], partial[i + 1 : n])
                    i += 1
            for j in range(start, n):
                total[j] += partial[j]
        for position in range(n):
            out[who[position], window] = total[position]


def distance_sums(
    embeddings: Float32Array,
    judged: BoolArray,
    members: IntArray,
    kind: int,
    windows: IntArray,
    out: FloatArray,
) -> None:
    """Write each judged member's sum of distances to the other judged members into ``out``.

    Args:
        embeddings: (machine, window, width), float32; no NaN where judged.
        judged: (machine, window).
        members: (member,) the machines compared with each other.
        kind: one of ``KINDS``.
        windows: those to work through.
        out: (machine, window), float64; cells of unjudged machines are left as they are.
    """
    _sums(embeddings, judged, members, kind, windows, out)


@compiled(fastmath=FAST)
def _sums_of(embeddings, judged, members, machines, windows, out):  # type: ignore[no-untyped-def]
    width = embeddings.shape[2]
    for each in range(len(machines)):
        own = embeddings[machines[each], windows[each]]
        total = 0.0
        for other in members:
            if judged[other, windows[each]]:
                its = embeddings[other, windows[each]]
                squared = np.float32(0.0)
                for k in range(width):
                    squared += (its[k] - own[k]) * (its[k] - own[k])
                total += np.sqrt(squared)
        out[each] = total


def sums_of(
    embeddings: Float32Array, judged: BoolArray, members: IntArray, machines: IntArray, windows: IntArray
) -> FloatArray:
    """The sums of Euclidean distances of some machines, each in one window.

    Args:
        embeddings, judged, members: as of ``distance_sums``.
        machines, windows: (each,).
    Returns:
        (each,)
    """
    out = np.empty(len(machines))
    _sums_of(embeddings, judged, members, machines, windows, out)
    return out
