"""Alignment: one grid per metric, the nearest sample where one is missing, and the bounds of normalisation.

Pure. Takes the raw series of a task, gives panels (values and their presence mask) and, window by
window, the min-max bounds. Nothing here compares machines; that is scoring.

Where this departs from the paper (Minder, NSDI '25), and why:

* The grid's step is the metric's real sampling interval, not always one second: at 30 s sampling, a grid
  of one second would be 97 % padding.
* Each series' constant phase (the scrape offset of its machine, at most half a step) is taken out first,
  so that two machines scraped at different moments of the same interval share a grid.
* Physical bounds stand in for the observed minimum and maximum where the catalogue has them; others
  use the extremes seen up to the window's end, so that no window depends on what came after it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainminder.errors import Unobservable
from trainminder.types import BoolArray, FloatArray, IntArray, MetricSpec, Panel, RawMetric, Scale, View

__all__ = [
    "LEAST_RANGE",
    "Sampling",
    "align",
    "column_medians",
    "compared_samples",
    "is_judged",
    "normalisation",
    "panels",
    "sampling_of",
    "window_means",
]

#: A spread below this share of the full scale is below what the denoiser resolves.
LEAST_SPREAD = 1e-3
#: Share of irregular steps, or of cells without any machine's sample, above which sampling is event-driven.
MOST_IRREGULAR = 0.25
#: Samples of a series that tell its scrape offset, about.
PHASE_SAMPLES = 100
#: Sampling faster than this is a wrong unit of time.
SHORTEST_STEP_SECONDS = 5e-4
#: A grid of more cells than the first of which less than the second is filled would be padding without end.
MANY_CELLS, LEAST_FILLED = 1_000_000, 0.01
#: Values closer together than this cannot be told apart in normalised units.
LEAST_RANGE = 1e-100
#: What is compared of a window spans at most this much.
COMPARED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a metric is sampled: every ``step_seconds``; or, where ``hold_seconds`` is not 0, when something happens.

    Event-driven series (one sample per training step, say) have gaps that are no losses: a value holds
    until the next, for at most ``hold_seconds``.
    """

    step_seconds: float
    hold_seconds: float = 0.0


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


def align(raw: RawMetric, sampling: Sampling) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Put every series of a metric on one grid.

    Args:
        raw: the metric's series.
        sampling: how it is sampled; the grid's step is its interval.
    Returns:
        times: (second,) grid instants, Unix seconds.
        values: (row, second), row = series; a cell without a sample of its own takes the sample nearest
            in time (of two equally near, the earlier), or the value that still holds if the metric is
            event-driven. NaN throughout for an empty series.
        present: likewise, False where padded; a value that still holds is present.
    Raises:
        Unobservable: a few samples lie so far from the rest that the grid would hold little else than padding.
    Source: Minder, NSDI '25, data preprocessing.
    """
    step_seconds = sampling.step_seconds
    rows = np.repeat(np.arange(len(raw.machines)), np.diff(raw.offsets))
    phase, shared = _phases(raw, rows, step_seconds)
    cells = np.rint((raw.times - shared) / step_seconds - phase[rows]).astype(np.int64)
    first = int(cells.min())
    count = int(cells.max()) - first + 1
    size = len(raw.machines) * count
    if size > MANY_CELLS and len(cells) < LEAST_FILLED * size:
        raise Unobservable(
            f"{raw.metric}: its samples span {count * step_seconds:.0f} s at one each {step_seconds:g} s, of which "
            f"{len(cells) / size:.2%} are there: are some instants wrong? If not, cut a part with --at and --minutes"
        )
    cells -= first
    flat = rows * count + cells
    kept = raw.values
    if np.any(flat[1:] == flat[:-1]):
        # Two samples in one cell: the one nearer to the cell's instant stays.
        distance = np.abs((raw.times - shared) / step_seconds - phase[rows] - (cells + first))
        order = np.lexsort((distance, flat))
        flat, leaders = np.unique(flat[order], return_index=True)
        kept = kept[order][leaders]
    values = np.full((len(raw.machines), count), np.nan)
    present = np.zeros((len(raw.machines), count), dtype=np.bool_)
    values.reshape(-1)[flat] = kept
    present.reshape(-1)[flat] = True
    times: FloatArray = shared + step_seconds * (first + np.arange(count, dtype=np.float64))
    if sampling.hold_seconds:
        values, present = _held(values, present, int(sampling.hold_seconds / step_seconds + 0.5))
    return times, _padded(values, present), present


def _held(values: FloatArray, present: BoolArray, cells: int) -> tuple[FloatArray, BoolArray]:
    """Carry each sample on for at most so many cells."""
    index = np.arange(values.shape[1])
    before = np.maximum.accumulate(np.where(present, index, -1), axis=1)
    holds = (before >= 0) & (index - before <= cells)
    return np.where(holds, np.take_along_axis(values, np.maximum(before, 0), axis=1), np.nan), holds


def _phases(raw: RawMetric, rows: IntArray, step_seconds: float) -> tuple[FloatArray, float]:
    """Each series' scrape offset in steps (-0.5..0.5), and the offset of the task as a whole in seconds."""
    series = len(raw.machines)
    # A constant offset shows in some of the samples as well as in all.
    some = slice(None, None, max(len(raw.times) // max(series, 1) // PHASE_SAMPLES, 1))
    angles = 2 * np.pi * np.mod(raw.times[some] / step_seconds, 1.0)
    rows = rows[some]
    sums = np.bincount(rows, np.cos(angles), series) + 1j * np.bincount(rows, np.sin(angles), series)
    # Series weigh alike, whatever their number of samples.
    each = np.where(np.abs(sums) > 0, sums / np.maximum(np.abs(sums), 1e-300), 0)
    total = each.sum()
    # Offsets spread evenly over the interval have no common direction: then the epoch's grid serves.
    shared = np.angle(total) / (2 * np.pi) if np.abs(total) > 0.1 * len(each) else 0.0
    # Rounded, so that metrics sampled together get one grid and equal instants.
    quantum = 0.1 * min(step_seconds, 1.0)
    shared_seconds = round(float(shared) * step_seconds / quantum) * quantum
    own = np.angle(each * np.exp(-2j * np.pi * shared_seconds / step_seconds)) / (2 * np.pi)
    return np.where(np.abs(sums) > 0, own, 0.0), shared_seconds


def _padded(values: FloatArray, present: BoolArray) -> FloatArray:
    """Fill each missing cell with the row's nearest sample; a row without any stays NaN."""
    known = np.flatnonzero(present)
    missing = np.flatnonzero(~present)
    if not len(missing) or not len(known):
        return values
    count = values.shape[1]
    place = np.searchsorted(known, missing)
    before, after = known[np.maximum(place - 1, 0)], known[np.minimum(place, len(known) - 1)]
    row = missing // count
    far = 2 * values.size
    to_before = np.where((place > 0) & (before // count == row), missing - before, far)
    to_after = np.where((place < len(known)) & (after // count == row), after - missing, far)
    # Nearest sample, as in the paper: interpolating would blur a one-second drop.
    nearest = np.where(to_before <= to_after, before, after)
    filled = values.copy()
    flat = filled.reshape(-1)
    flat[missing] = np.where(np.minimum(to_before, to_after) < far, flat[nearest], np.nan)
    return filled


def panels(raw: RawMetric, machines: tuple[str, ...], window_samples: int) -> tuple[Panel, ...]:
    """The views of one metric: machines alone, or the mean and the most deviating of their devices.

    A machine-level metric gives one panel. A device-level one gives *mean* (so that what moves the
    whole machine is seen) and *device* (so that one bad device of eight is not averaged away). A
    machine that has device series and a machine-level series is judged by its devices.

    Args:
        machines: the members, in the order of the result's machine axis.
    Raises:
        Unobservable: the metric spans less than one window.
    """
    sampling = sampling_of(raw)
    step = sampling.step_seconds
    times, values, present = align(raw, sampling)
    windows = len(times) - window_samples + 1
    if windows < 1:
        raise Unobservable(
            f"{raw.metric}: {len(times)} samples at {step:g} s are fewer than the window's {window_samples}"
        )
    index = {machine: number for number, machine in enumerate(machines)}
    row_machine = np.array([index.get(machine, -1) for machine in raw.machines], dtype=np.int64)
    with_devices = {m for m, device in zip(raw.machines, raw.devices, strict=True) if device is not None}
    # By machine and device: of devices that deviate alike the first counts, wherever its series stood.
    kept = sorted(
        (
            series
            for series, (machine, device) in enumerate(zip(raw.machines, raw.devices, strict=True))
            if machine in index and (device is not None or machine not in with_devices)
        ),
        key=lambda series: (index[raw.machines[series]], raw.devices[series] or ""),
    )
    values, present, row_machine = values[kept], present[kept], row_machine[kept]
    devices = tuple(raw.devices[series] for series in kept)
    rows = np.full((len(machines), windows), -1, dtype=np.int64)

    def panel(view: View, values: FloatArray, present: BoolArray, of: IntArray, names: tuple[str | None, ...]) -> Panel:
        return Panel(raw.metric, view, machines, step, times, values, present, of, names, rows.copy(), window_samples)

    if len(set(row_machine.tolist())) == len(row_machine):
        rows[row_machine] = np.arange(len(row_machine))[:, None]
        view: View = "device" if any(device is not None for device in devices) else "machine"
        return (panel(view, values, present, row_machine, devices),)

    having = np.unique(row_machine)
    mean_values, mean_present = _device_mean(values, present, row_machine, having)
    rows[having] = np.arange(len(having))[:, None]
    mean = panel("mean", mean_values, mean_present, having, (None,) * len(having))
    rows = _most_deviating(values, present, row_machine, len(machines), window_samples)
    return mean, panel("device", values, present, row_machine, devices)


def _device_mean(
    values: FloatArray, present: BoolArray, row_machine: IntArray, having: IntArray
) -> tuple[FloatArray, BoolArray]:
    """The mean over each machine's devices that have a sample at that instant; rows follow ``having``."""
    order = np.argsort(row_machine, kind="stable")
    starts = np.searchsorted(row_machine[order], having)
    counts = np.add.reduceat(present[order].astype(np.float64), starts, axis=0)
    sums = np.add.reduceat(np.where(present, values, 0.0)[order], starts, axis=0)
    some = counts > 0
    means = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=some)
    return _padded(means, some), some


def _most_deviating(
    values: FloatArray, present: BoolArray, row_machine: IntArray, machines: int, window_samples: int
) -> IntArray:
    """(machine, window): the row of the device whose window mean lies furthest from the task's median device.

    One device per window, not per second: a choice that jumped between devices within a window would
    stitch together a series that no device has.
    """
    means = window_means(values, window_samples)
    judged = is_judged(present, window_samples)
    centre = column_medians(means, judged)
    deviation = np.where(judged, np.abs(means - centre), -1.0)
    best = np.full((machines, means.shape[1]), -np.inf)
    chosen = np.full((machines, means.shape[1]), -1, dtype=np.int64)
    for row, machine in enumerate(row_machine):
        better = deviation[row] > best[machine]
        best[machine][better] = deviation[row][better]
        chosen[machine][better] = row
    return chosen


def compared_samples(step_seconds: float, window_samples: int) -> int:
    """How many of a window's newest samples are compared: those of the last minute, at least two.

    The denoiser always sees the whole window. At slow sampling a window spans minutes, and a burst would stay in
    it for that long and look lasting; at up to 8 s sampling the whole of the paper's window is compared.
    """
    return int(min(max(COMPARED_SECONDS / step_seconds, 2.0), window_samples))


def window_means(values: FloatArray, window_samples: int) -> FloatArray:
    """(row, window): the mean of each window of ``values`` (row, second)."""
    centre = np.nan_to_num(values[:, :1])
    sums = np.cumsum(values - centre, axis=1)
    totals = sums[:, window_samples - 1 :].copy()
    totals[:, 1:] -= sums[:, :-window_samples]
    means: FloatArray = totals / window_samples + centre
    return means


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


def normalisation(panel: Panel, spec: MetricSpec, seen: tuple[float, float] | None = None) -> Scale:
    """Min-max bounds and ordinary spread of a metric, window by window.

    A physical bound of the catalogue stands; otherwise the least and the greatest value seen so far do.

    Args:
        seen: least and greatest value of earlier passes, where this one resumes.
    Raises:
        Unobservable: the metric has no sample at all.
    """
    if not panel.present.any():
        raise Unobservable(f"{panel.metric}: no sample")
    width = panel.window_samples
    observed = np.where(panel.present, panel.values, np.nan)
    least, greatest = seen or (np.inf, -np.inf)
    low = np.fmin(np.fmin.accumulate(np.fmin.reduce(observed, axis=0)), least)
    high = np.fmax(np.fmax.accumulate(np.fmax.reduce(observed, axis=0)), greatest)
    # Before the first sample of all there is nothing to judge: any bounds serve.
    low, high = np.where(np.isfinite(low), low, 0.0)[width - 1 :], np.where(np.isfinite(high), high, 1.0)[width - 1 :]
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
