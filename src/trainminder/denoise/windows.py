"""Training windows: what a task's ordinary run gives the denoiser to learn from. Pure.

Windows are normalised as in detection, so that the model sees in training what it will see at work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from trainminder.align import normalisation, panels
from trainminder.errors import Unobservable
from trainminder.types import BoolArray, Float32Array, MetricSpec, Panel, RawMetric, RawTask, Truth

__all__ = ["NORMALISATION", "training_windows"]

#: How the windows are normalised, for a model's card.
NORMALISATION = "min-max; physical bounds of the catalogue, else the extremes seen up to the window's end"


def training_windows(
    tasks: Iterable[tuple[RawTask, Sequence[Truth]]], spec: MetricSpec, window_samples: int, most: int, seed: int
) -> Float32Array:
    """Windows of one metric from ordinary running.

    A window is taken if every sample of it is there; those that overlap a known fault of the task are
    left out, on all machines, for a fault changes its victims too.

    Args:
        tasks: raw tasks with the faults known of each (empty: none, or not labelled).
        most: most windows given; more are drawn at random by ``seed``, as many from each task as it has.
    Returns:
        (window, step), normalised; empty where the metric has no data.
    """
    rng = np.random.default_rng(seed)
    found: list[Float32Array] = []
    for raw, truths in tasks:
        for metric in raw.metrics:
            if metric.metric == spec.name:
                found += _of_metric(metric, raw, spec, truths, window_samples)
    if not found:
        return np.empty((0, window_samples), dtype=np.float32)
    windows = np.concatenate(found)
    if len(windows) > most:
        windows = windows[np.sort(rng.choice(len(windows), most, replace=False))]
    return windows


def _of_metric(
    metric: RawMetric, raw: RawTask, spec: MetricSpec, truths: Sequence[Truth], window_samples: int
) -> list[Float32Array]:
    try:
        return [_of_panel(panel, spec, truths) for panel in panels(metric, raw.machines, window_samples)]
    except Unobservable:
        return []


def _of_panel(panel: Panel, spec: MetricSpec, truths: Sequence[Truth]) -> Float32Array:
    width = panel.window_samples
    scale = normalisation(panel, spec)
    windows = np.lib.stride_tricks.sliding_window_view(panel.values, width, axis=1)
    whole = _is_whole(panel.present, width)
    ordinary = np.ones(windows.shape[1], dtype=np.bool_)
    starts, ends = panel.times[: windows.shape[1]], panel.times[width - 1 :]
    for truth in truths:
        ordinary &= (ends < truth.start) | (starts > truth.end)
    rows, at = np.nonzero(whole & ordinary)
    low, high = scale.low[at][:, None], scale.high[at][:, None]
    taken: Float32Array = ((windows[rows, at] - low) / (high - low)).astype(np.float32)
    return taken


def _is_whole(present: BoolArray, width: int) -> BoolArray:
    return np.asarray(np.lib.stride_tricks.sliding_window_view(present, width, axis=1).all(axis=2))
