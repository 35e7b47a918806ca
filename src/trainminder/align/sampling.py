"""How a metric is sampled: at which interval, or whenever something happens. Pure.

The interval is that of the data, not always one second as in the paper (Minder, NSDI '25): at 30 s sampling, a grid of
one second would be 97 % padding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainminder.errors import Unobservable
from trainminder.types import FloatArray, RawMetric

__all__ = ["STRETCHES", "Sampling", "deciding_until", "sampling_of", "shared_offset"]

#: Share of irregular steps, or of cells without any machine's sample, above which sampling is event-driven.
MOST_IRREGULAR = 0.25
#: Samples of a series that tell its scrape offset, about.
PHASE_SAMPLES = 100
#: Sampling faster than this is a wrong unit of time.
SHORTEST_STEP_SECONDS = 5e-4
#: The first of these stretches of data, in seconds, that holds so many intervals decides how a metric is sampled.
STRETCHES, LEAST_INTERVALS = (300.0, 600.0, 1200.0), 20


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a metric is sampled: every ``step_seconds``; or, where ``hold_seconds`` is not 0, when something happens.

    Event-driven series (one sample per training step, say) have gaps that are no losses: a value holds
    until the next, for at most ``hold_seconds``.
    """

    step_seconds: float
    hold_seconds: float = 0.0

    @property
    def hold_cells(self) -> int:
        """For how many cells a value holds."""
        return int(self.hold_seconds / self.step_seconds + 0.5) if self.hold_seconds else 0


def sampling_of(raw: RawMetric) -> Sampling:
    """How a metric is sampled, from the instants of all its series.

    The interval is the median over series of each one's mean interval, taken over the whole number of intervals
    it spans, so that neither gaps nor jitter move it; within 0.5 % of whole seconds it is taken as that. The
    metric is event-driven if its steps are no multiples of an interval, or if in many cells of the grid no
    machine at all has a sample: losses strike machines singly.

    Raises:
        Unobservable: no series has two samples, or they lie closer together than any sampling.
    """
    if raw.interval_seconds is not None:
        return Sampling(raw.interval_seconds)
    steps = np.diff(raw.times)
    inside = np.ones(len(steps), dtype=np.bool_)
    seams = raw.offsets[1:-1] - 1
    inside[seams[(seams >= 0) & (seams < len(steps))]] = False
    if not inside.any():
        raise Unobservable(f"{raw.metric}: no machine has two samples")
    # The lower quartile, not the median: where most samples are lost the median step spans several intervals.
    typical = float(np.quantile(steps[inside], 0.25))
    if typical < SHORTEST_STEP_SECONDS:
        raise Unobservable(
            f"{raw.metric}: its samples are {typical:.3g} s apart, which no exporter is: "
            "state the unit of the instants (recording.time_unit)"
        )
    multiples = steps / typical
    counts = np.where(inside, np.maximum(np.rint(multiples), 1.0), 0.0)
    starts = raw.offsets[:-1][np.diff(raw.offsets) >= 2]
    intervals = np.add.reduceat(np.where(inside, steps, 0.0), starts) / np.add.reduceat(counts, starts)
    interval = float(np.median(intervals))
    whole = round(interval)
    interval = float(whole) if whole and abs(interval - whole) <= 0.005 * whole else round(interval, 6)
    off_beat = float((np.abs(multiples - np.rint(multiples)) > 0.25)[inside].mean())
    cells = np.unique(np.rint(raw.times / interval))
    empty = 1.0 - len(cells) / (cells[-1] - cells[0] + 1)
    if max(off_beat, empty) <= MOST_IRREGULAR:
        return Sampling(interval)
    return Sampling(interval, hold_seconds=float(np.quantile(steps[inside], 0.95)))


def deciding_until(times: FloatArray, offsets: np.ndarray, seen_until: float) -> float | None:
    """Up to which instant samples decide how a metric is sampled; None: more must come.

    Whoever sees the data in pieces and whoever sees all of it decide by the same samples.

    Args:
        times, offsets: as in ``RawMetric``, of all that came since the first.
        seen_until: nothing more comes of what was before this.
    """
    began = float(times.min())
    for stretch in STRETCHES:
        if seen_until < began + stretch:
            return None
        steps = np.diff(times)
        inside = times[1:] < began + stretch
        seams = offsets[1:-1] - 1
        inside[seams[(seams >= 0) & (seams < len(steps))]] = False
        if inside.any() and np.quantile(steps[inside], 0.25) * LEAST_INTERVALS <= stretch:
            return began + stretch
    return began + STRETCHES[-1]


def shared_offset(raw: RawMetric, step_seconds: float) -> float:
    """The scrape offset of the task as a whole, in seconds (-0.5..0.5 steps): the direction most series share.

    Source: circular mean; rounded, so that metrics sampled together get one grid and equal instants.
    """
    series = len(raw.machines)
    rows = np.repeat(np.arange(series), np.diff(raw.offsets))
    # A constant offset shows in some of the samples as well as in all.
    filled = int(np.count_nonzero(np.diff(raw.offsets)))
    some = slice(None, None, max(len(raw.times) // max(filled, 1) // PHASE_SAMPLES, 1))
    angles = 2 * np.pi * np.mod(raw.times[some] / step_seconds, 1.0)
    sums = np.bincount(rows[some], np.cos(angles), series) + 1j * np.bincount(rows[some], np.sin(angles), series)
    # Series weigh alike, whatever their number of samples.
    each = np.where(np.abs(sums) > 0, sums / np.maximum(np.abs(sums), 1e-300), 0)
    total = each.sum()
    # Offsets spread evenly over the interval have no common direction: then the epoch's grid serves.
    shared = np.angle(total) / (2 * np.pi) if np.abs(total) > 0.1 * np.count_nonzero(sums) else 0.0
    quantum = 0.1 * min(step_seconds, 1.0)
    return round(float(shared) * step_seconds / quantum) * quantum
