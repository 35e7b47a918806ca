"""The past: what rows of a view were lately, in bins of some seconds, for the words of a verdict. Pure.

Samples themselves are let go once they are judged. What is kept grows with the machines, not with the time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from trainminder.align import Row
from trainminder.carrying import carried, of_same
from trainminder.past_kernel import add_up
from trainminder.types import FloatArray, Int32Array, IntArray, Panel, View

__all__ = ["KEPT_SECONDS", "Past", "rows_of"]

#: How far back is looked, and how long a bin is at one sample a second.
KEPT_SECONDS, BIN_SECONDS = 900.0, 10.0
#: Where sampling is faster than one a second, bins are shorter, and no more are kept than this.
MOST_BINS = 900


@dataclass(frozen=True, slots=True, eq=False)
class Past:
    """Of one view of a metric: of each bin the ``sums`` and ``counts`` of samples, (row,); bin ``b`` begins at
    ``b * seconds``.

    ``bins``: (bin,) their numbers; ``began``: the first instant of all. Bins that do not change are never copied.
    """

    metric: str
    view: View
    step_seconds: float
    seconds: float
    began: float
    rows: tuple[Row, ...] = ()
    bins: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    sums: tuple[FloatArray, ...] = ()
    counts: tuple[Int32Array, ...] = ()

    @classmethod
    def after(cls, past: Past | None, panel: Panel) -> Past:
        """With what is new in a panel, and without what is too long ago."""
        times = panel.times[panel.first :]
        rows = rows_of(panel)
        if past is None or past.step_seconds != panel.step_seconds:
            began, step = float(times[0]) if len(times) else np.inf, panel.step_seconds
            past = cls(panel.metric, panel.view, step, max(BIN_SECONDS * min(step, 1.0), step), began)
        number = np.floor(times / past.seconds + 1e-9).astype(np.int64)
        oldest = number[0] - round(past.kept_seconds / past.seconds) if len(number) else 0
        kept = np.flatnonzero(past.bins >= oldest).tolist()
        if rows is past.rows or rows == past.rows:
            sums = {int(past.bins[b]): past.sums[b] for b in kept}
            counts = {int(past.bins[b]): past.counts[b] for b in kept}
        else:
            sums = {int(past.bins[b]): carried(rows, past.rows, past.sums[b], 0.0) for b in kept}
            counts = {int(past.bins[b]): carried(rows, past.rows, past.counts[b], 0) for b in kept}
        filled, bin_of = np.unique(number, return_inverse=True)
        more, samples = np.zeros((len(filled), len(rows))), np.zeros((len(filled), len(rows)), dtype=np.int32)
        for place, b in enumerate(filled.tolist()):
            if b in sums:
                more[place], samples[place] = sums[b], counts[b]
        new = slice(panel.first, None)
        add_up(panel.values[:, new], panel.present[:, new], bin_of, more, samples)
        sums |= zip(filled.tolist(), more, strict=True)
        counts |= zip(filled.tolist(), samples, strict=True)
        bins = np.array(sorted(sums), dtype=np.int64)
        in_order = bins.tolist()
        return replace(
            past, rows=rows, bins=bins, sums=tuple(sums[b] for b in in_order), counts=tuple(counts[b] for b in in_order)
        )

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
        for b in np.unique(at[is_kept]).tolist():
            in_it = is_kept & (at == b)
            known[in_it] = self.counts[b][cells[0][in_it]]
        # A bin that begins before what is kept says nothing.
        is_old = cells[1] < (self.bins[0] if len(self.bins) else 0)
        return int(np.maximum(given - known, 0)[~is_old].sum())

    def means(self, which: IntArray) -> FloatArray:
        """(row,): the mean of what there is in some bins; NaN where there is nothing."""
        total, count = np.zeros(len(self.rows)), np.zeros(len(self.rows), dtype=np.int64)
        for b in which.tolist():
            total += self.sums[b]
            count += self.counts[b]
        means: FloatArray = np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
        return means

    def each(self, which: IntArray) -> FloatArray:
        """(row, bin): the mean of each of some bins; NaN where there is nothing."""
        shape = (len(which), len(self.rows))
        count = np.array([self.counts[b] for b in which.tolist()], dtype=np.int64).reshape(shape)
        total = np.array([self.sums[b] for b in which.tolist()]).reshape(shape)
        means: FloatArray = np.divide(total, count, out=np.full(shape, np.nan), where=count > 0).T
        return means


def rows_of(panel: Panel) -> tuple[Row, ...]:
    """Machine and device of each row of a view."""
    return _rows(panel.machines, panel.row_machine, panel.row_device)


@of_same(256)
def _rows(machines: tuple[str, ...], row_machine: IntArray, row_device: tuple[str | None, ...]) -> tuple[Row, ...]:
    return tuple((machines[m], device) for m, device in zip(row_machine.tolist(), row_device, strict=True))
