"""Learning the order in which metrics are asked, from labelled history. Pure.

As the paper has it (Minder, NSDI '25, prioritised metrics): in each window and metric every machine's
z-score over the task's machines is taken and the largest kept; a decision tree over these maxima tells
abnormal windows from ordinary ones; the metrics nearest its root are asked first.

A z-score cannot exceed (n - 1)/sqrt(n), so the maxima are divided by that bound: a task of 8 machines and one of
800 then speak the same language.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainminder.align import is_judged, panels, window_means
from trainminder.errors import MissingExtra, SettingsError, Unobservable
from trainminder.types import FloatArray, IntArray, Panel, RawTask, Truth

__all__ = ["LabelledWindows", "Priority", "hold_out", "label_windows", "learn_priority"]

#: Windows of the same label on each side that a tree can be grown from.
LEAST_WINDOWS = 20

MAX_DEPTH = 8
#: Windows in a leaf, at least, and as a share of all: a leaf of one task's windows tells that task, not a fault.
LEAST_LEAF, LEAF_SHARE = 5, 0.005


@dataclass(frozen=True, slots=True)
class LabelledWindows:
    """Consecutive, non-overlapping windows of one or more tasks.

    ``maxima``: (window, metric), the largest |z-score| over machines as a share of the largest possible,
    0..1; NaN where the metric has no data. ``abnormal``: (window,), whether a fault was on throughout.
    """

    metrics: tuple[str, ...]
    maxima: FloatArray
    abnormal: IntArray


@dataclass(frozen=True, slots=True)
class Priority:
    """The learned order, most fault-sensitive metric first, and the tree it comes from."""

    metrics: tuple[str, ...]
    depths: Mapping[str, int | None]
    """Least depth at which a metric splits (0 is the root); None: the tree does not need it."""
    helps: Mapping[str, float]
    """Share of what the tree gains (of entropy) by splitting on a metric; together 1."""
    tree: str
    windows: int
    abnormal: int


def label_windows(
    raw: RawTask, truths: Sequence[Truth], metrics: Sequence[str], window_samples: int
) -> LabelledWindows:
    """Cut a labelled task in windows and keep each metric's largest z-score.

    A window that a fault covers only in part is left out: it is neither.

    Args:
        metrics: the columns of the result; a metric the task lacks gives NaN.
        window_samples: samples per window, at the slowest metric's interval.
    """
    by_name = {metric.metric: metric for metric in raw.metrics}
    views: dict[str, tuple[Panel, ...]] = {}
    for name in metrics:
        if name in by_name:
            try:
                views[name] = panels(by_name[name], raw.machines, window_samples)
            except Unobservable:
                continue
    if not views:
        return LabelledWindows(tuple(metrics), np.empty((0, len(metrics))), np.empty(0, dtype=np.int64))
    length = window_samples * max(panel.step_seconds for each in views.values() for panel in each)
    edges = np.arange(raw.from_at, raw.to_at + 1e-9, length)
    starts, ends = edges[:-1], edges[1:]
    abnormal = np.zeros(len(starts), dtype=np.int64)
    partly = np.zeros(len(starts), dtype=np.bool_)
    for truth in truths:
        inside = (truth.start <= starts) & (truth.end >= ends)
        abnormal[inside] = 1
        partly |= (truth.start < ends) & (truth.end > starts) & ~inside
    maxima = np.full((len(starts), len(metrics)), np.nan)
    for column, name in enumerate(metrics):
        for panel in views.get(name, ()):
            maxima[:, column] = np.fmax(maxima[:, column], _largest(panel, edges))
    kept = ~(partly & (abnormal == 0))
    return LabelledWindows(tuple(metrics), maxima[kept], abnormal[kept])


def _largest(panel: Panel, edges: FloatArray) -> FloatArray:
    """(window,): the largest |z-score| of any machine among the panel's windows that end in each span."""
    width = panel.window_samples
    windows = np.arange(panel.rows.shape[1])
    rows = np.maximum(panel.rows, 0)
    judged = (panel.rows >= 0) & is_judged(panel.present, width)[rows, windows]
    values = np.where(judged, window_means(panel.values, width)[rows, windows], 0.0)
    n = np.maximum(judged.sum(axis=0), 1)
    mean = values.sum(axis=0) / n
    centred = np.where(judged, values - mean, 0.0)
    deviation = np.sqrt((centred**2).sum(axis=0) / np.maximum(n - 1, 1))
    # A spread of nothing but rounding makes no machine stand out.
    real = deviation > 1e-9 * np.maximum(np.abs(mean), 1e-300)
    z = np.where(real, np.abs(centred).max(axis=0) / np.where(real, deviation, 1.0), 0.0)
    share = np.where(n >= 3, z / (np.maximum(n - 1, 1) / np.sqrt(n)), np.nan)
    spans = np.searchsorted(edges, panel.times[width - 1 :], side="right") - 1
    largest = np.full(len(edges) - 1, np.nan)
    inside = (spans >= 0) & (spans < len(largest))
    np.fmax.at(largest, spans[inside], share[inside])
    return largest


def learn_priority(windows: Sequence[LabelledWindows], *, seed: int = 0, max_depth: int = MAX_DEPTH) -> Priority:
    """Grow the decision tree and read the order from it.

    Metrics come by the least depth at which they split, then by how much they help (impurity), then in the order
    given; those the tree does not use come last, in the order given.

    Args:
        windows: one per task, all with the same metrics.
        seed: breaks ties between equally good splits.
    Raises:
        SettingsError: too few windows of either kind to learn from.
        MissingExtra: scikit-learn is not installed.
    """
    metrics = windows[0].metrics
    maxima, labels = _pooled(windows)
    abnormal = int(labels.sum())
    for kind, count in (("abnormal", abnormal), ("ordinary", len(labels) - abnormal)):
        if count < LEAST_WINDOWS:
            raise SettingsError(
                f"prioritise: {count} {kind} windows, and at least {LEAST_WINDOWS} are needed: "
                "give more labelled recordings (a recording's labels lie beside it as NAME.truth.json)"
            )
    tree = _grow(maxima, labels, seed, max_depth)
    depths = _least_depths(tree.tree_, metrics)
    helps = tree.feature_importances_
    order = sorted(
        range(len(metrics)),
        key=lambda column: (
            np.inf if (depth := depths[metrics[column]]) is None else depth,
            -helps[column],
            column,
        ),
    )
    from sklearn.tree import export_text

    text = export_text(tree, feature_names=list(metrics), class_names=["ordinary", "abnormal"], decimals=3)
    names = tuple(metrics[column] for column in order)
    return Priority(names, depths, dict(zip(metrics, helps.tolist(), strict=True)), text, len(labels), abnormal)


def hold_out(
    known: Sequence[LabelledWindows], asked: Sequence[LabelledWindows], metrics: Sequence[str], *, seed: int = 0
) -> float:
    """How well a tree over these metrics, grown on ``known``, tells the windows of ``asked``: balanced accuracy, 0..1.

    Raises:
        MissingExtra: scikit-learn is not installed.
    """
    columns = [known[0].metrics.index(name) for name in metrics]
    maxima, labels = _pooled(known)
    tree = _grow(maxima[:, columns], labels, seed)
    maxima, labels = _pooled(asked)
    said = tree.predict(maxima[:, columns])
    return float(np.mean([(said[labels == label] == label).mean() for label in np.unique(labels)]))


def _pooled(windows: Sequence[LabelledWindows]) -> tuple[FloatArray, IntArray]:
    return np.concatenate([each.maxima for each in windows]), np.concatenate([each.abnormal for each in windows])


def _grow(maxima: FloatArray, labels: IntArray, seed: int, max_depth: int = MAX_DEPTH) -> Any:
    """The fitted ``DecisionTreeClassifier``."""
    try:
        from sklearn.tree import DecisionTreeClassifier
    except ImportError as error:
        raise MissingExtra("learning the order of metrics", "train") from error
    tree = DecisionTreeClassifier(
        max_depth=max_depth,
        min_samples_leaf=max(LEAST_LEAF, round(LEAF_SHARE * len(labels))),
        class_weight="balanced",
        criterion="entropy",
        random_state=seed,
    )
    return tree.fit(maxima, labels)


def _least_depths(tree: object, metrics: Sequence[str]) -> dict[str, int | None]:
    left, right, feature = (getattr(tree, name) for name in ("children_left", "children_right", "feature"))
    depths: dict[str, int | None] = dict.fromkeys(metrics)
    level = [0]
    depth = 0
    while level:
        splits = [node for node in level if left[node] >= 0]
        for node in splits:
            name = metrics[feature[node]]
            if depths[name] is None:
                depths[name] = depth
        level = [child for node in splits for child in (int(left[node]), int(right[node]))]
        depth += 1
    return depths
