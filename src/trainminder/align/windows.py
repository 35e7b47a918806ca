"""Windows: what is compared of them, whether they may be judged, their bounds and means. Pure.

Where this departs from the paper (Minder, NSDI '25), and why: physical bounds stand in for the observed minimum and
maximum where the catalogue has them; others use the extremes seen up to the window's end, so that no window depends on
what came after it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trainminder.errors import Unobservable
from trainminder.types import BoolArray, FloatArray, MetricSpec, Panel, Scale

__all__ = [
    "LEAST_RANGE",
    "Bounds",
    "column_medians",
    "compared_samples",
    "from_second",
    "is_judged",
    "looks_back",
    "normalisation",
    "window_means",
]

#: A spread below this share of the full scale is below what the denoiser resolves.
LEAST_SPREAD = 1e-3
#: Values closer together than this cannot be told apart in normalised units.
LEAST_RANGE = 1e-100
#: What is compared of a window spans at most this much.
COMPARED_SECONDS = 60.0


def from_second(panel: Panel, first: int, last: int) -> Panel:
    """The seconds of a panel from one (included) to another (excluded), and the windows that lie within."""
    windows = max(last - panel.window_samples + 1, first)
    return replace(
        panel,
        times=panel.times[first:last],
        values=panel.values[:, first:last],
        present=panel.present[:, first:last],
        rows=panel.rows[:, first:windows],
        first=max(panel.first - first, 0),
    )


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the greatest value seen so far, second by second: (second,), in the metric's unit; +-inf: none."""

    low: FloatArray
    high: FloatArray
    seen: tuple[float, float]

    @classmethod
    def of(cls, panel: Panel, seen: tuple[float, float] | None = None) -> Bounds:
        """The bounds of a panel.

        Args:
            seen: least and greatest value before it.
        """
        least, greatest = seen or (np.inf, -np.inf)
        low = np.where(panel.present, panel.values, np.inf).min(axis=0, initial=np.inf)
        high = np.where(panel.present, panel.values, -np.inf).max(axis=0, initial=-np.inf)
        return cls(
            np.minimum(np.minimum.accumulate(low), least),
            np.maximum(np.maximum.accumulate(high), greatest),
            (least, greatest),
        )

    @property
    def extremes(self) -> tuple[float, float]:
        """Least and greatest value of all."""
        return self.before(len(self.low))

    def before(self, second: int) -> tuple[float, float]:
        """Least and greatest value before a second."""
        return (float(self.low[second - 1]), float(self.high[second - 1])) if second else self.seen


def compared_samples(step_seconds: float, window_samples: int) -> int:
    """How many of a window's newest samples are compared: those of the last minute, at least two.

    The denoiser always sees the whole window. At slow sampling a window spans minutes, and a burst would stay in
    it for that long and look lasting; at up to 8 s sampling the whole of the paper's window is compared.
    """
    return int(min(max(COMPARED_SECONDS / step_seconds, 2.0), window_samples))


def window_means(values: FloatArray, window_samples: int) -> FloatArray:
    """(row, window): the mean of each window of ``values`` (row, second); the same wherever the values begin."""
    windows = max(values.shape[1] - window_samples + 1, 0)
    totals = values[:, :windows].copy()
    for sample in range(1, window_samples if windows else 0):
        totals += values[:, sample : sample + windows]
    totals /= window_samples
    return totals


def column_medians(values: FloatArray, counted: BoolArray) -> FloatArray:
    """(column,): the median of the counted cells of each column; NaN where none is."""
    ordered = np.sort(np.where(counted, values, np.inf).T, axis=1)
    count = counted.sum(axis=0)
    column = np.arange(len(ordered))
    low, high = np.maximum(count - 1, 0) // 2, np.minimum(count // 2, len(values) - 1)
    middle = 0.5 * (ordered[column, low] + ordered[column, high])
    medians: FloatArray = np.where(count > 0, middle, np.nan)
    return medians


def is_judged(present: BoolArray, window_samples: int) -> BoolArray:
    """(row, window): whether a window may be judged: its newest sample is there, and so is half of it.

    A padded cell is no observation. Asking for the newest also keeps a window from being padded with a
    sample that comes after it.
    """
    counts = np.cumsum(present, axis=1, dtype=np.int32)
    inside = counts[:, window_samples - 1 :].copy()
    inside[:, 1:] -= counts[:, :-window_samples]
    judged: BoolArray = present[:, window_samples - 1 :] & (2 * inside >= window_samples)
    return judged


def looks_back(window_samples: int) -> int:
    """How many samples before a new one its windows need: the rest of the window, and what it is padded with.

    A window that may be judged has half its samples, the newest among them: none of them is padded from further away.
    """
    return window_samples - 1 + (window_samples + 1) // 2


def normalisation(panel: Panel, spec: MetricSpec, seen: tuple[float, float] | None = None) -> Scale:
    """Min-max bounds and ordinary spread of a metric, window by window.

    A physical bound of the catalogue stands; otherwise the least and the greatest value seen so far do.

    Args:
        seen: least and greatest value before the panel.
    Raises:
        Unobservable: the metric has no sample at all.
    """
    bounds = Bounds.of(panel, seen)
    least, greatest = bounds.extremes
    if least > greatest:
        raise Unobservable(f"{panel.metric}: no sample")
    width = panel.window_samples
    # Before the first sample of all there is nothing to judge: any bounds serve.
    low = np.where(np.isfinite(bounds.low), bounds.low, 0.0)[width - 1 :]
    high = np.where(np.isfinite(bounds.high), bounds.high, 1.0)[width - 1 :]
    if spec.lower is not None:
        low = np.full_like(low, spec.lower)
    if spec.upper is not None:
        high = np.full_like(high, spec.upper)
    # A step of one is nothing beside a large number.
    high = np.where(high - low > LEAST_RANGE, high, low + np.maximum(np.abs(low), 1.0))
    judged = is_judged(panel.present, width)
    level = np.nan_to_num(np.abs(column_medians(window_means(panel.values, width), judged)))
    spread = np.maximum(np.maximum(spec.spread, spec.spread_ratio * level) / (high - low), LEAST_SPREAD)
    return Scale(low, high, spread)
