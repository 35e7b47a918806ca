"""The past: what rows of a view were lately, in bins of some seconds, for the words of a verdict. Pure.

Samples themselves are let go once they are judged. What is kept grows with the machines, not with the time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from trainminder.align import Row
from trainminder.carrying import carried, of_same
from trainminder.past_kernel import add_up
from trainminder.types import FloatArray, IntArray, Panel, View

__all__ = ["KEPT_SECONDS", "Past", "rows_of"]

#: How far back is looked, and how long a bin is at one sample a second.
KEPT_SECONDS, BIN_SECONDS = 900.0, 10.0
#: Where sampling is faster than one a second, bins are shorter, and no more are kept than this.
MOST_BINS = 900


@dataclass(frozen=True, slots=True, eq=False)
class Past:
    """Of one view of a metric: (row, bin) ``sums`` and ``counts`` of samples; bin ``b`` begins at ``b * seconds``.

    ``bins``: (bin,) their numbers; ``began``: the first instant of all.
    """

    metric: str
    view: View
    step_seconds: float
    seconds: float
    began: float
    rows: tuple[Row, ...] = ()
    bins: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    sums: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    counts: IntArray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))

    @classmethod
    def after(cls, past: Past | None, panel: Panel) -> Past:
        """With what is new in a panel, and without what is too long ago."""
        times = panel.times[panel.first :]
        rows = rows_of(panel)
        if past is None or past.step_seconds != panel.step_seconds:
            began, step = float(times[0]) if len(times) else np.inf, panel.step_seconds
            past = cls(panel.metric, panel.view, step, max(BIN_SECONDS * min(step, 1.0), step), began)
        number = np.floor(times / past.seconds + 1e-9).astype(np.int64)
        kept = past.bins >= (number[0] - round(past.kept_seconds / past.seconds) if len(number) else 0)
        bins = np.union1d(past.bins[kept], number)
        sums, counts = np.zeros((len(rows), len(bins))), np.zeros((len(rows), len(bins)), dtype=np.int64)
        if kept.any():
            at = np.searchsorted(bins, past.bins[kept])
            sums[:, at] = carried(rows, past.rows, past.sums[:, kept], 0.0)
            counts[:, at] = carried(rows, past.rows, past.counts[:, kept], 0)
        new = slice(panel.first, None)
        add_up(panel.values[:, new], panel.present[:, new], np.searchsorted(bins, number), sums, counts)
        return replace(past, rows=rows, bins=bins, sums=sums, counts=counts)

    @property
    def kept_seconds(self) -> float:
        """How far back is looked."""
        return min(KEPT_SECONDS, MOST_BINS * self.seconds)

    def between(self, from_at: float, to_at: float) -> IntArray:
        """Which bins lie between two instants, both included, no further back than is kept.

        A bin of one cell lies where the cell does; of others, those count that do so wholly, if any does.
        """
        from_at = max(from_at, to_at - self.kept_seconds)
        begins = self.bins * self.seconds
        if self.seconds == self.step_seconds:
            at = begins + self.began % self.seconds
            return np.flatnonzero((at >= from_at - 0.5 * self.step_seconds - 1e-6) & (at <= to_at + 1e-6))
        ends = begins + self.seconds
        whole = np.flatnonzero((begins >= from_at - 1e-6) & (ends <= to_at + 1e-6))
        return whole if len(whole) else np.flatnonzero((ends > from_at - 1e-6) & (begins <= to_at + 1e-6))

    def unknown(self, rows: IntArray, times: FloatArray) -> int:
        """How many of some samples are more than is known of their rows and bins.

        Args:
            rows: (sample,) index of the row, -1: not among them. times: (sample,) instants.
        """
        number = np.floor(times / self.seconds + 1e-9).astype(np.int64)
        cells, given = np.unique(np.stack((rows, number)), axis=1, return_counts=True)
        at = np.searchsorted(self.bins, cells[1])
        is_kept = (cells[0] >= 0) & (at < len(self.bins))
        is_kept[is_kept] &= self.bins[at[is_kept]] == cells[1][is_kept]
        known = np.zeros(len(given), dtype=np.int64)
        known[is_kept] = self.counts[cells[0][is_kept], at[is_kept]]
        # A bin that begins before what is kept says nothing.
        is_old = cells[1] < (self.bins[0] if len(self.bins) else 0)
        return int(np.maximum(given - known, 0)[~is_old].sum())

    def means(self, which: IntArray) -> FloatArray:
        """(row,): the mean of what there is in some bins; NaN where there is nothing."""
        count = self.counts[:, which].sum(axis=1)
        means: FloatArray = np.divide(
            self.sums[:, which].sum(axis=1), count, out=np.full(len(count), np.nan), where=count > 0
        )
        return means

    def each(self, which: IntArray) -> FloatArray:
        """(row, bin): the mean of each of some bins; NaN where there is nothing."""
        count = self.counts[:, which]
        means: FloatArray = np.divide(self.sums[:, which], count, out=np.full(count.shape, np.nan), where=count > 0)
        return means


def rows_of(panel: Panel) -> tuple[Row, ...]:
    """Machine and device of each row of a view."""
    return _rows(panel.machines, panel.row_machine, panel.row_device)


@of_same(256)
def _rows(machines: tuple[str, ...], row_machine: IntArray, row_device: tuple[str | None, ...]) -> tuple[Row, ...]:
    return tuple((machines[m], device) for m, device in zip(row_machine.tolist(), row_device, strict=True))
