"""The loop that counts what is there of what should be, compiled. ``coverage`` says what it is for."""

from __future__ import annotations

from typing import Any

from trainminder.compiled import compiled

__all__ = ["count"]


@compiled()
def count(
    values: Any, present: Any, times: Any, machine_of: Any, forgotten: float, heard: Any, expected: Any, there: Any
) -> tuple[float, float]:
    """Count the samples of each instant, and those there should be: of who was heard, until it is forgotten.

    Args:
        values, present: (row, instant). times: (instant,). machine_of: (row,).
        forgotten: seconds after the last sample until which one is expected.
        heard: (machine,) instant of the newest sample, -inf: none; changed in place.
        expected, there: (instant,), to be added to.
    Returns:
        least and greatest value.
    """
    least, greatest = float("inf"), float("-inf")
    for row in range(len(machine_of)):
        last = heard[machine_of[row]]
        for t in range(len(times)):
            if present[row, t]:
                last = times[t]
                there[t] += 1
                least = min(least, values[row, t])
                greatest = max(greatest, values[row, t])
            if times[t] - last <= forgotten:
                expected[t] += 1
        heard[machine_of[row]] = last
    return least, greatest
