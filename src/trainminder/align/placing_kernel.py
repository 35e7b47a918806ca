"""The loop that puts samples into cells of a grid, compiled. ``placing`` says what it is for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trainminder.compiled import compiled

__all__ = ["DRIFTED", "SERIES", "merge", "place"]

#: Of one series. ``phase``: its scrape offset from the grid, in steps; ``seen``: its samples; ``cell``: that of its
#: newest sample, ``apart``: how far that was from the cell's instant; ``value``, ``heard``: of its newest sample.
SERIES = np.dtype([("phase", "f8"), ("seen", "i8"), ("cell", "i8"), ("apart", "f8"), ("value", "f8"), ("heard", "f8")])
#: So many samples back a series' scrape offset is remembered.
REMEMBERED = 64.0
#: An offset beyond this has drifted into the next cell.
DRIFTED = 0.75

#: So many cells after an instant none can lie that a sample of it is put into.
FAR = 2


@compiled()
def place(
    times: Any,
    values: Any,
    offsets: Any,
    starts: Any,
    step: float,
    shared: float,
    hold: int,
    first: int,
    closed: int,
    series: Any,
    out: Any,
    present: Any,
    kept_from: Any,
) -> None:
    """Put samples into the cells from ``first`` on, of which those up to ``closed`` are settled.

    Args:
        times, values, offsets: as in ``RawMetric``. starts: (row,) the first sample that is not in a settled cell.
        step, shared: the grid's; cell c is at ``shared + c * step``.
        hold: cells for which a value holds; 0: the series is sampled regularly.
        series: (row,) of ``SERIES``, as of the cell before ``first``; taken to that of ``closed``.
        out, present: (row, cell), NaN and False; to be filled.
        kept_from: (row,) to be filled: ``starts`` of the next cells.
    """
    cells = out.shape[1]
    work = series.copy()
    for row in range(len(series)):
        it = work[row]
        kept_from[row] = starts[row]
        held_cell, held_value = it.cell, it.value
        had = it.seen > 0
        for i in range(starts[row], offsets[row + 1]):
            x = (times[i] - shared) / step
            if x > first + cells + FAR:
                # This one and those after it are of later cells.
                break
            if hold > 0:
                phase = 0.0
            elif it.seen == 0:
                phase = it.phase = x - np.rint(x)
            else:
                phase = it.phase
            c = int(np.rint(x - phase))
            residual = x - phase - c
            seen_before = it.seen
            it.seen += 1
            it.heard = times[i]
            if hold == 0:
                it.phase += residual * max(1.0 / it.seen, 1.0 / REMEMBERED)
                if abs(it.phase) > DRIFTED:
                    it.phase -= math.copysign(1.0, it.phase)
            apart = abs(residual)
            if seen_before == 0 or c > it.cell or (c == it.cell and apart < it.apart):
                # Of two samples in one cell the one nearer to its instant stays.
                it.cell, it.apart, it.value = c, apart, values[i]
                if 0 <= c - first < cells:
                    out[row, c - first] = values[i]
                    present[row, c - first] = True
            if it.cell <= closed:
                series[row] = it
                kept_from[row] = i + 1
        if hold > 0:
            # A value holds until the next.
            for k in range(cells):
                if present[row, k]:
                    had, held_cell, held_value = True, first + k, out[row, k]
                elif had and first + k - held_cell <= hold:
                    out[row, k] = held_value
                    present[row, k] = True


@compiled()
def merge(
    times_a: Any,
    values_a: Any,
    offsets_a: Any,
    row_a: Any,
    times_b: Any,
    values_b: Any,
    offsets_b: Any,
    row_b: Any,
    rows: int,
    after: float,
    times: Any,
    values: Any,
    offsets: Any,
) -> int:
    """Merge the samples of two sets of series by time; of equal instants the first set's counts.

    Args:
        row_a, row_b: (series,) the row of the result that each is; -1: none. Of one row, one series of each set.
        after: samples of the second set up to this instant are left out.
        times, values: large enough for both. offsets: (row + 1,).
    Returns:
        how many samples there are.
    """
    of_a, of_b = np.full(rows, -1, dtype=np.int64), np.full(rows, -1, dtype=np.int64)
    for s in range(len(row_a)):
        if row_a[s] >= 0:
            of_a[row_a[s]] = s
    for s in range(len(row_b)):
        if row_b[s] >= 0:
            of_b[row_b[s]] = s
    n = 0
    offsets[0] = 0
    for row in range(rows):
        a, end_a = 0, 0
        if of_a[row] >= 0:
            a, end_a = offsets_a[of_a[row]], offsets_a[of_a[row] + 1]
        b, end_b = 0, 0
        if of_b[row] >= 0:
            b, end_b = offsets_b[of_b[row]], offsets_b[of_b[row] + 1]
        while b < end_b and times_b[b] <= after:
            b += 1
        while a < end_a or b < end_b:
            if b >= end_b or (a < end_a and times_a[a] <= times_b[b]):
                if b < end_b and times_a[a] == times_b[b]:
                    b += 1
                times[n], values[n] = times_a[a], values_a[a]
                a += 1
            else:
                times[n], values[n] = times_b[b], values_b[b]
                b += 1
            n += 1
        offsets[row + 1] = n
    return n
