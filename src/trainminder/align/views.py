"""Views: the cells of a metric as panels of machines, or of the mean and the most deviating of their devices. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainminder.align.placing import Cells, Row, cells_of
from trainminder.align.windows import column_medians, is_judged, window_means
from trainminder.carrying import of_same
from trainminder.errors import Unobservable
from trainminder.types import BoolArray, FloatArray, IntArray, Panel, RawMetric, View

__all__ = ["Layout", "layout_of", "panels", "views_of"]


@dataclass(frozen=True, slots=True)
class Layout:
    """Which rows of some cells are compared, by machine and device.

    ``kept``: the rows that are; ``row_machine``, ``devices``: as in ``Panel``; ``having``: (machine,) those that have
    a row; ``no_devices``: None for each of them; ``both``: machines that have rows of devices and one without.
    """

    kept: IntArray
    row_machine: IntArray
    devices: tuple[str | None, ...]
    having: IntArray
    no_devices: tuple[None, ...]
    both: tuple[str, ...]


@of_same(128)
def layout_of(rows: tuple[Row, ...], machines: tuple[str, ...]) -> Layout:
    """Which rows are compared.

    Args:
        machines: the members, in the order of the result's machine axis.
    """
    index = {machine: number for number, machine in enumerate(machines)}
    with_devices = {machine for machine, device in rows if device is not None}
    # Rows come by machine and device: of devices that deviate alike the first counts.
    kept = [
        row
        for row, (machine, device) in enumerate(rows)
        if machine in index and (device is not None or machine not in with_devices)
    ]
    row_machine = np.array([index[rows[row][0]] for row in kept], dtype=np.int64)
    having = np.unique(row_machine)
    both = with_devices.intersection(machine for machine, device in rows if device is None)
    return Layout(
        np.array(kept, dtype=np.int64),
        row_machine,
        tuple(rows[row][1] for row in kept),
        having,
        (None,) * len(having),
        tuple(sorted(both)),
    )


def panels(raw: RawMetric, machines: tuple[str, ...], window_samples: int) -> tuple[Panel, ...]:
    """The views of one metric of which everything is there.

    Args:
        machines: the members, in the order of the result's machine axis.
    Raises:
        Unobservable: the metric spans less than one window, or its sampling cannot be told.
    """
    cells = cells_of(raw)
    if len(cells.times) < window_samples:
        raise Unobservable(
            f"{raw.metric}: {len(cells.times)} samples at {cells.step_seconds:g} s are fewer than the window's "
            f"{window_samples}"
        )
    return views_of(cells, machines, window_samples)


def views_of(cells: Cells, machines: tuple[str, ...], window_samples: int) -> tuple[Panel, ...]:
    """The views of some cells of one metric: machines alone, or the mean and the most deviating of their devices.

    A machine-level metric gives one panel. A device-level one gives *mean* (so that what moves the
    whole machine is seen) and *device* (so that one bad device of eight is not averaged away). A
    machine that has device series and a machine-level series is judged by its devices.

    A missing cell takes the row's nearest sample, as in the paper: interpolating would blur a one-second drop.

    Args:
        machines: the members, in the order of the result's machine axis.
    """
    layout = layout_of(cells.rows, machines)
    values, present = cells.values, cells.present
    if len(layout.kept) < len(cells.rows):
        values, present = values[layout.kept], present[layout.kept]
    row_machine, devices = layout.row_machine, layout.devices
    values = _padded(values, present)
    windows = max(len(cells.times) - window_samples + 1, 0)
    rows = np.full((len(machines), windows), -1, dtype=np.int64)

    def panel(
        view: View, values: FloatArray, present: BoolArray, of: IntArray, names: tuple[str | None, ...], rows: IntArray
    ) -> Panel:
        return Panel(
            cells.metric, view, machines, cells.step_seconds, cells.times, values, present, of, names, rows,
            window_samples, cells.first,
        )  # fmt: skip

    having = layout.having
    if len(having) == len(row_machine):
        rows[row_machine] = np.arange(len(row_machine))[:, None]
        view: View = "device" if any(device is not None for device in devices) else "machine"
        return (panel(view, values, present, row_machine, devices, rows),)

    mean_values, mean_present = _device_mean(values, present, row_machine, having)
    rows[having] = np.arange(len(having))[:, None]
    mean = panel("mean", mean_values, mean_present, having, layout.no_devices, rows)
    chosen = _most_deviating(values, present, row_machine, len(machines), window_samples)
    return mean, panel("device", values, present, row_machine, devices, chosen)


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
