"""Reduces what a pass saw to what a page can show: bands, bins, rankings. Pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainminder.report.evidence import primary_evidence
from trainminder.types import FloatArray, IntArray, MetricTrace, Panel, PassResult, Trail, Verdict

__all__ = [
    "MOST_BINS",
    "MOST_MACHINES",
    "Band",
    "Growth",
    "Heat",
    "Standing",
    "band_of",
    "growth_of",
    "heat_of",
    "rank_traces",
    "score_lines",
    "seconds_above",
    "standing_of",
    "trace_of",
    "unseen_machines",
]

#: Columns of a heatmap and points of a line: about one per two pixels of the page's width.
MOST_BINS = 300
#: Rows of a heatmap: what fits one A4 page with readable names.
MOST_MACHINES = 40


@dataclass(frozen=True, slots=True)
class Standing:
    """One metric and view by its strangest machine, for ranking metrics when no verdict does."""

    trace: MetricTrace
    machine: int | None
    """Index of the strangest machine; None when no machine could be judged."""
    peak: float
    threshold: float
    seconds_above: float
    missing: float
    """Share of padded samples among the rows that were judged."""


@dataclass(frozen=True, slots=True)
class Band:
    """One machine over its peers, (bin,) each, in the metric's unit; NaN where nothing was sampled."""

    first_at: float
    step_seconds: float
    samples_per_bin: int
    peers: int
    suspect: FloatArray
    low: FloatArray
    tenth: FloatArray
    median: FloatArray
    ninetieth: FloatArray
    high: FloatArray


@dataclass(frozen=True, slots=True)
class Heat:
    """Scores, (machine, bin), strangest machine first; NaN where a machine could not be judged."""

    first_at: float
    step_seconds: float
    windows_per_bin: int
    machines: tuple[int, ...]
    scores: FloatArray
    threshold: float


@dataclass(frozen=True, slots=True)
class Growth:
    """The evidence against a few machines over time, (machine, bin), in decades."""

    first_at: float
    step_seconds: float
    instants_per_bin: int
    decades: FloatArray


def trace_of(result: PassResult, verdict: Verdict) -> MetricTrace | None:
    """The trace a verdict rests on: its metric, in the view of its evidence."""
    candidates = [trace for trace in result.traces if trace.spec.name == verdict.metric]
    evidence = primary_evidence(verdict)
    view = evidence.view if evidence else ("device" if verdict.device is not None else None)
    return next((trace for trace in candidates if trace.scores.view == view), candidates[0] if candidates else None)


def seconds_above(trace: MetricTrace) -> FloatArray:
    """Each machine's longest unbroken stay above its threshold: shape (machine,), seconds."""
    with np.errstate(invalid="ignore"):
        above = trace.scores.normal_score > trace.scores.threshold
    longest = np.zeros(len(above))
    run = np.zeros(len(above))
    for column in above.T:
        run = (run + 1.0) * column
        np.maximum(longest, run, out=longest)
    return longest * trace.scores.step_seconds


def rank_traces(result: PassResult) -> list[Standing]:
    """Every trace, the strangest first: longest above the threshold, then nearest to it."""
    standings = [_standing(trace) for trace in result.traces]
    return sorted(standings, key=lambda item: (-item.seconds_above, -_nearness(item)))


def unseen_machines(result: PassResult) -> tuple[str, ...]:
    """Members of the task without a row in any trace; empty when the pass kept no traces."""
    seen = {
        trace.panel.machines[index]
        for trace in result.traces
        for index in np.flatnonzero((trace.panel.rows >= 0).any(axis=1))
    }
    return tuple(machine for machine in result.machines if machine not in seen) if result.traces else ()


def band_of(trace: MetricTrace, machine: int, device: str | None = None, most_bins: int = MOST_BINS) -> Band:
    """One machine's samples over those of the machines it is compared with.

    A bin of several samples shows the machine's sample furthest from the peers' median: a mean would
    hide a one-second drop. Padded samples count nowhere.

    Args:
        machine: index into the panel's machines.
        device: draw this device's own row where the panel has it, not the row judged in each window.
        most_bins: points per line.
    """
    panel, group = trace.panel, trace.scores.group_of
    others = np.flatnonzero((group == group[machine]) & (np.arange(len(group)) != machine))
    peers = _samples(panel, others)
    suspect = _samples(panel, np.array([machine]))[0]
    for row in np.flatnonzero(panel.row_machine == machine):
        if device is not None and panel.row_device[row] == device:
            suspect = np.where(panel.present[row], panel.values[row], np.nan)
    per_bin = _per_bin(len(panel.times), most_bins)
    pooled = _binned(peers, per_bin)
    pooled = pooled.transpose(1, 0, 2).reshape(pooled.shape[1], -1)
    quantiles = _quantiles(pooled, (0, 10, 50, 90, 100))
    own = _binned(suspect[np.newaxis], per_bin)[0]
    distance = np.abs(own - np.nan_to_num(quantiles[2])[:, np.newaxis])
    furthest = np.argmax(np.nan_to_num(distance, nan=-1.0), axis=1)
    return Band(
        first_at=float(panel.times[0]) + (per_bin - 1) / 2 * panel.step_seconds,
        step_seconds=panel.step_seconds * per_bin,
        samples_per_bin=per_bin,
        peers=len(others),
        suspect=own[np.arange(len(own)), furthest],
        low=quantiles[0],
        tenth=quantiles[1],
        median=quantiles[2],
        ninetieth=quantiles[3],
        high=quantiles[4],
    )


def score_lines(
    trace: MetricTrace, machine: int, most_bins: int = MOST_BINS
) -> tuple[float, float, FloatArray, FloatArray, FloatArray]:
    """First instant, step, and by bin: the machine's score, its strangest peer's, its threshold."""
    scores, group = trace.scores, trace.scores.group_of
    others = np.flatnonzero((group == group[machine]) & (np.arange(len(group)) != machine))
    per_bin = _per_bin(len(scores.ends_at), most_bins)
    own = _largest(_binned(scores.normal_score[machine][np.newaxis], per_bin), (0, 2))
    peers = _largest(_binned(scores.normal_score[others], per_bin), (0, 2))
    threshold = _largest(_binned(scores.threshold[machine][np.newaxis], per_bin), (0, 2))
    first_at = float(scores.ends_at[0]) + (per_bin - 1) / 2 * scores.step_seconds
    return first_at, scores.step_seconds * per_bin, own, peers, threshold


def heat_of(trace: MetricTrace, first: tuple[int, ...] = (), most_bins: int = MOST_BINS) -> Heat:
    """The strangest machines' scores, binned by their largest.

    Args:
        first: indices of machines that stand on top whatever their scores.
        most_bins: columns.
    """
    scores = trace.scores
    stay, peak = seconds_above(trace), _largest(scores.normal_score, (1,))
    order = sorted(
        range(len(scores.machines)),
        key=lambda index: (index not in first, -stay[index], -np.nan_to_num(peak[index], nan=-np.inf), index),
    )
    chosen = np.array(order[:MOST_MACHINES], dtype=np.int64)
    # A window of padding alone has a score, but nothing was seen: it is shown as a gap.
    shown = np.where(_is_sampled(trace.panel, chosen), scores.normal_score[chosen], np.nan)
    per_bin = _per_bin(len(scores.ends_at), most_bins)
    return Heat(
        first_at=float(scores.ends_at[0]) + (per_bin - 1) / 2 * scores.step_seconds,
        step_seconds=scores.step_seconds * per_bin,
        windows_per_bin=per_bin,
        machines=tuple(int(index) for index in chosen),
        scores=_largest(_binned(shown, per_bin), (2,)),
        threshold=_middle(scores.threshold),
    )


def growth_of(trail: Trail, most_bins: int = MOST_BINS) -> Growth:
    """The evidence over time, binned by its largest: at every instant, this is what is held against the limit."""
    step = float(np.median(np.diff(trail.times))) if len(trail.times) > 1 else 1.0
    per_bin = _per_bin(len(trail.times), most_bins)
    return Growth(
        first_at=float(trail.times[0]) + (per_bin - 1) / 2 * step,
        step_seconds=step * per_bin,
        instants_per_bin=per_bin,
        decades=_largest(_binned(trail.decades.astype(np.float64), per_bin), (2,)),
    )


def standing_of(result: PassResult, machine: str) -> Standing | None:
    """One machine in the metric in which it departed for longest; None where it never did."""
    best: Standing | None = None
    for trace in result.traces:
        if machine not in trace.scores.machines:
            continue
        standing = _standing(trace, trace.scores.machines.index(machine))
        longest = best.seconds_above if best else 0.0
        if standing.seconds_above > longest:
            best = standing
    return best


def _standing(trace: MetricTrace, machine: int | None = None) -> Standing:
    """One metric by its strangest machine, or by the one asked for."""
    scores, panel = trace.scores, trace.panel
    stay, peak = seconds_above(trace), _largest(scores.normal_score, (1,))
    judged_rows = np.unique(panel.rows[panel.rows >= 0])
    missing = 1.0 - float(panel.present[judged_rows].mean()) if judged_rows.size else 1.0
    if not np.isfinite(peak).any():
        return Standing(trace, None, np.nan, _middle(scores.threshold), 0.0, missing)
    if machine is None:
        machine = int(np.lexsort((-np.nan_to_num(peak, nan=-np.inf), -stay))[0])
    return Standing(
        trace, machine, float(peak[machine]), _middle(scores.threshold[machine]), float(stay[machine]), missing
    )


def _nearness(standing: Standing) -> float:
    ratio = standing.peak / standing.threshold if standing.threshold > 0 else standing.peak
    return ratio if np.isfinite(ratio) else -np.inf


def _middle(values: FloatArray) -> float:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if finite.size else np.nan


def _window_of_sample(panel: Panel) -> IntArray:
    """The window in which each sample is the newest; the first samples belong to the first window."""
    samples = np.arange(len(panel.times)) - panel.window_samples + 1
    return np.clip(samples, 0, panel.rows.shape[1] - 1)


def _samples(panel: Panel, machines: IntArray) -> FloatArray:
    """What was sampled of each machine: (machine, sample), NaN where padded or absent."""
    rows = panel.rows[machines][:, _window_of_sample(panel)]
    instants = np.arange(len(panel.times))
    seen = (rows >= 0) & panel.present[rows, instants]
    return np.where(seen, panel.values[rows, instants], np.nan)


def _is_sampled(panel: Panel, machines: IntArray) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Whether any sample of a machine's window is real: (machine, window)."""
    counts = np.cumsum(panel.present, axis=1, dtype=np.int64)
    counts = np.concatenate([np.zeros((len(counts), 1), dtype=np.int64), counts], axis=1)
    rows = panel.rows[machines]
    starts = np.arange(rows.shape[1])
    real: IntArray = counts[rows, starts + panel.window_samples] - counts[rows, starts]
    return (rows >= 0) & (real > 0)


def _per_bin(columns: int, most_bins: int) -> int:
    return max(1, -(-columns // most_bins))


def _binned(values: FloatArray, per_bin: int) -> FloatArray:
    """(row, column) to (row, bin, column of the bin), the last bin filled up with NaN."""
    bins = -(-values.shape[1] // per_bin)
    padded = np.full((len(values), bins * per_bin), np.nan)
    padded[:, : values.shape[1]] = values
    return padded.reshape(len(values), bins, per_bin)


def _largest(values: FloatArray, axes: tuple[int, ...]) -> FloatArray:
    """Largest of the numbers along axes; NaN (and no warning) where there is none."""
    largest = np.where(np.isnan(values), -np.inf, values).max(axis=axes, initial=-np.inf)
    return np.asarray(np.where(np.isneginf(largest), np.nan, largest))


def _quantiles(pooled: FloatArray, percents: tuple[int, ...]) -> FloatArray:
    """(bin, value) to (percent, bin), NaN where a bin holds no value."""
    quantiles = np.full((len(percents), len(pooled)), np.nan)
    filled = np.flatnonzero(~np.isnan(pooled).all(axis=1)) if pooled.shape[1] else np.array([], dtype=np.int64)
    if filled.size:
        quantiles[:, filled] = np.nanpercentile(pooled[filled], percents, axis=1)
    return quantiles
