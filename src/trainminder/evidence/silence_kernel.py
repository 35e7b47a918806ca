"""The loop over instants of who reports, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from trainminder.compiled import compiled

__all__ = ["HEARD", "follow_rows"]

#: Of a row: samples that it gave, instants without one since its last, and how many machines had come by then.
HEARD = np.dtype([("seen", "i8"), ("missing", "i8"), ("came", "i8")])
#: Samples by which a row is known to report, and instants without one by which it has ceased.
KNOWN, CEASED = 5, 3
#: Share of the known rows that must report for the store to be well.
WELL = 0.75


@compiled()
def follow_rows(present: Any, machine_of: Any, rows: Any, came: int, forgotten: int, ceased: Any, ever: Any) -> int:
    """Mark the machines one of whose known rows has ceased while the store is well and nobody came in its place.

    Args:
        present: (instant, row). machine_of: (row,).
        forgotten: instants without a sample after which a row is new.
        rows: (row,) what is remembered; changed in place.
        came: rows that came while most others were there already; it is given back as it is in the end.
        ceased, ever: (instant, machine), to be marked.
    """
    for t in range(len(present)):
        known = there = heard = 0
        for r in range(len(rows)):
            if rows[r].missing >= forgotten:
                rows[r].seen = 0
            known += 1 if rows[r].seen >= KNOWN else 0
            heard += 1 if rows[r].seen > 0 or present[t, r] else 0
        is_established = 2 * known > heard
        known = 0
        for r in range(len(rows)):
            row = rows[r]
            if present[t, r]:
                came += 1 if row.seen == 0 and is_established else 0
                row.seen += 1
                row.missing = 0
                row.came = came
            else:
                row.missing += 1
            if row.seen >= KNOWN:
                known += 1
                there += 1 if present[t, r] else 0
        for r in range(len(rows)):
            row = rows[r]
            if row.seen < KNOWN:
                continue
            ever[t, machine_of[r]] = True
            if row.missing >= CEASED and there >= WELL * known and row.came == came:
                ceased[t, machine_of[r]] = True
    return came
