"""Departure: when a row of a metric leaves its peers, unlike it did before.

A machine that has always been different is not faulty: each row has an ordinary relation to the median of its group,
learned from its first minute on and slowly thereafter, which may be a difference in the metric's unit or a share of
what all do. What lies beyond is held against how far rows of the task, and this one, ordinarily stray. Two means of
it, of the last seconds and of the last minute, must pass both a fixed size and several times what those of ordinary
rows reach; while one does, each instant counts as departing by as much as the row departs in it.

Rows are compared within groups only, and in groups of three at least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainminder.align import Row
from trainminder.carrying import carried
from trainminder.coverage import forgotten_seconds
from trainminder.evidence.departure_kernel import GROUP, KEPT, ROW, follow
from trainminder.past import rows_of
from trainminder.types import BoolArray, Float32Array, FloatArray, IntArray, MetricSpec, Panel

__all__ = ["Departures", "Followed", "follow_panel"]


@dataclass(frozen=True, slots=True)
class Followed:
    """What is remembered of one view of one metric.

    ``rows``: by (machine, device); ``groups``: by name. Arrays of ``departure_kernel.ROW`` and ``GROUP``.
    ``firsts``: (row, sample) as of ``departure_kernel.follow``; None where no first relation is under way.
    """

    names: tuple[Row, ...]
    rows: np.ndarray
    firsts: FloatArray | None
    group_names: tuple[str, ...]
    groups: np.ndarray


@dataclass(frozen=True, slots=True)
class Departures:
    """How rows of one view depart at the new instants of its panel.

    ``weight``: (instant, row), the share of each instant that counts as departing, negative where it counts against,
    0 where nothing can be said. ``size``: likewise, the departure in bare noise, with its sign. ``reached``: likewise,
    1 where a departure begins, NaN where nothing can be said; empty where it was not asked for.
    """

    panel: Panel
    weight: Float32Array
    size: Float32Array
    reached: Float32Array


def follow_panel(
    panel: Panel,
    spec: MetricSpec,
    live: BoolArray,
    group_names: Sequence[str],
    group_of: IntArray,
    known: Followed | None = None,
    *,
    keep_reached: bool = False,
) -> tuple[Departures, Followed]:
    """Follow one view of one metric from where it was left.

    Args:
        live: (new instant,) whether the task works.
        group_of: (machine,) index into ``group_names``; -1: compared with nobody.
        known: what the last pass left.
    """
    names = rows_of(panel)
    rows = carried(names, known.names if known else (), known.rows if known else None, np.zeros((), dtype=ROW))
    if known is None or known.firsts is None:
        firsts = np.zeros((len(rows), KEPT))
    else:
        firsts = carried(names, known.names, known.firsts, 0.0)
    fresh = np.zeros((), dtype=GROUP)
    fresh["short"] = fresh["long"] = 1.0
    groups = carried(tuple(group_names), known.group_names if known else (), known.groups if known else None, fresh)
    values = np.ascontiguousarray(panel.values[:, panel.first :].T)
    present = np.ascontiguousarray(panel.present[:, panel.first :].T)
    weight, size = np.zeros(values.shape, dtype=np.float32), np.zeros(values.shape, dtype=np.float32)
    reached = np.full(values.shape if keep_reached else (0, len(rows)), np.nan, dtype=np.float32)
    is_first = follow(
        values,
        present,
        group_of[panel.row_machine],
        live,
        panel.step_seconds,
        min(panel.step_seconds, 1.0),
        spec.spread,
        spec.spread_ratio,
        forgotten_seconds(panel.step_seconds),
        rows,
        firsts,
        groups,
        weight,
        size,
        reached,
    )
    return Departures(panel, weight, size, reached), Followed(
        names, rows, firsts if is_first else None, tuple(group_names), groups
    )
