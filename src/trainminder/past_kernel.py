"""The loop that adds cells up in bins, compiled. ``past`` says what it is for."""

from __future__ import annotations

from typing import Any

from trainminder.compiled import compiled

__all__ = ["add_up"]


@compiled()
def add_up(values: Any, present: Any, bin_of: Any, sums: Any, counts: Any) -> None:
    """Add cells to their bins, in the order of time.

    Args:
        values, present: (row, cell). bin_of: (cell,) index of each one's bin.
        sums, counts: (bin, row); changed in place.
    """
    for row in range(len(values)):
        for cell in range(len(bin_of)):
            if present[row, cell]:
                sums[bin_of[cell], row] += values[row, cell]
                counts[bin_of[cell], row] += 1
