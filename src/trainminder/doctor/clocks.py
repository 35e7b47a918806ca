"""Machines whose instants are shifted against the others': clocks that go wrong, or data that come late. Pure.

The series of a task move alike. Where a machine's is its peers' median wave, but some intervals earlier or later, its
instants are shifted. Said only where that is convincing: the wave is common, the machine does not follow it as it
stands, one shift makes it follow, no other does nearly as well (a periodic wave fits again after each period), and no
metric speaks against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainminder.types import BoolArray, FloatArray, Panel

__all__ = ["Alignment", "alignment_of", "shifted_machines"]

FEWEST_MACHINES, FEWEST_SAMPLES = 4, 30
#: Correlation with the peers' wave: at least this at the shift that fits (and, as it stands, for most machines); at
#: most that as it stands; and a lead over every shift that is not next to it.
GOOD, POOR, LEAD = 0.8, 0.5, 0.15
#: A shift of fewer intervals is scrape offset and jitter.
LEAST_SHIFT = 3
LONGEST_SHIFT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Alignment:
    """What one metric says: who follows the wave as it stands, and who by which shift in seconds (later is more)."""

    step_seconds: float
    aligned: frozenset[str]
    shifts: Mapping[str, float]


def alignment_of(panel: Panel) -> Alignment | None:
    """What a metric says about clocks; None where its wave is not common enough to tell.

    Args:
        panel: one row per machine (view *machine* or *mean*).
    """
    enough = panel.present.mean(axis=1) >= 0.8
    values, rows = panel.values[enough], np.flatnonzero(enough)
    if len(rows) < FEWEST_MACHINES or values.shape[1] < FEWEST_SAMPLES:
        return None
    as_it_stands = _correlation(values, np.median(values, axis=0))
    if not np.median(as_it_stands) >= GOOD:
        return None
    names = [panel.machines[panel.row_machine[row]] for row in rows]
    shifts: dict[str, float] = {}
    for index in np.flatnonzero(as_it_stands < POOR).tolist():
        wave = np.median(np.delete(values, index, axis=0), axis=0)
        cells = _convincing_shift(values[index], wave, panel.step_seconds)
        if cells:
            shifts[names[index]] = cells * panel.step_seconds
    aligned = frozenset(names[index] for index in np.flatnonzero(as_it_stands >= GOOD).tolist())
    return Alignment(panel.step_seconds, aligned, shifts)


def shifted_machines(alignments: Sequence[Alignment]) -> dict[str, float]:
    """machine -> seconds its instants are later than its peers' (negative: earlier), where the metrics agree."""
    found: dict[str, float] = {}
    for machine in sorted({name for one in alignments for name in one.shifts}):
        if any(machine in one.aligned for one in alignments):
            continue
        shifts = [one.shifts[machine] for one in alignments if machine in one.shifts]
        # One metric alone may be a coincidence, unless there is no other that could tell.
        if len(shifts) < min(2, len(alignments)) or max(shifts) - min(shifts) > max(
            one.step_seconds for one in alignments
        ):
            continue
        found[machine] = float(np.median(shifts))
    return found


def _convincing_shift(series: FloatArray, wave: FloatArray, step_seconds: float) -> int:
    """By how many samples a series is later than the wave; 0 where no shift is convincing."""
    most = min(len(wave) // 4, int(LONGEST_SHIFT_SECONDS / step_seconds))
    shifts = np.arange(-most, most + 1)
    fits = np.array(
        [_correlation(_after(series, shift)[None, :], _after(wave, -shift))[0] for shift in shifts.tolist()]
    )
    best = int(fits.argmax())
    # Next to the best shift the fit falls off slowly where the wave is smooth: only a second peak competes.
    apart = np.abs(shifts - shifts[best]) > 1
    slope = _same_peak(fits, best)
    rival = fits[apart & ~slope].max(initial=-1.0)
    is_inside = 0 < best < len(shifts) - 1
    if is_inside and fits[best] >= GOOD and fits[best] - rival >= LEAD and abs(shifts[best]) >= LEAST_SHIFT:
        return int(shifts[best])
    return 0


def _after(values: FloatArray, shift: int) -> FloatArray:
    """The part that overlaps when moved: without its first ``shift`` values, or without its last ``-shift``."""
    return values[shift:] if shift >= 0 else values[:shift]


def _same_peak(fits: FloatArray, best: int) -> BoolArray:
    """Which shifts lie on the slope down from the best one."""
    falls = np.diff(fits) <= 0
    right = best + int(np.argmin(np.append(falls[best:], False)))
    rises = np.diff(fits)[:best][::-1] >= 0
    left = best - int(np.argmin(np.append(rises, False)))
    index = np.arange(len(fits))
    return (index >= left) & (index <= right)


def _correlation(rows: FloatArray, wave: FloatArray) -> FloatArray:
    """(row,): Pearson's correlation of each row with the wave; 0 where either is constant."""
    centred = rows - rows.mean(axis=1, keepdims=True)
    middle = wave - wave.mean()
    moves = (np.ptp(rows, axis=1) > 0) & (np.ptp(wave) > 0)
    size = np.sqrt((centred**2).sum(axis=1) * (middle**2).sum())
    result: FloatArray = np.divide(centred @ middle, size, out=np.zeros(len(rows)), where=moves)
    return result
