"""Cutting a task: in time, and to its members."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

import numpy as np

from trainminder.errors import RecordingError
from trainminder.types import RawMetric, RawTask
from trainminder.wording import some_names

__all__ = ["cut_raw", "with_members"]


def cut_raw(raw: RawTask, from_at: float, to_at: float) -> RawTask:
    """The part of a task between two instants, both included (Unix seconds).

    Members stay members, whether they have samples there or not; a metric without samples there is dropped.

    Raises:
        RecordingError: nothing is left.
    """
    cut = [_cut_metric(metric, from_at, to_at) for metric in raw.metrics]
    metrics = tuple(metric for metric in cut if len(metric.times))
    if not metrics:
        raise RecordingError(
            f"{raw.task} has no sample between {from_at:.0f} and {to_at:.0f}: its samples lie between "
            f"{raw.from_at:.0f} and {raw.to_at:.0f} (Unix seconds)"
        )
    return dataclasses.replace(raw, from_at=max(from_at, raw.from_at), to_at=min(to_at, raw.to_at), metrics=metrics)


def with_members(
    raw: RawTask,
    machines: Collection[str] | None,
    groups: Mapping[str, str],
    domains: Mapping[str, tuple[str, ...]],
) -> RawTask:
    """The task with the members, groups and domains that the settings state; who is no member is left out.

    Args:
        machines: the members; None: whoever is in the data.
        groups: machine -> group; empty: the data's own.
        domains: what machines share -> its machines; data have none of their own.
    """
    members = raw.machines if machines is None else tuple(sorted(machines))
    known = set(members)
    left_out = [machine for machine in raw.machines if machine not in known]
    warnings = raw.warnings
    if left_out:
        warnings = (*warnings, f"no members of {raw.task} by the settings, left out: {some_names(left_out)}")
    metrics = tuple(_of_members(metric, known) for metric in raw.metrics)
    kept = groups or {machine: group for machine, group in raw.groups.items() if machine in known}
    return dataclasses.replace(
        raw,
        machines=members,
        groups=kept,
        domains=domains,
        warnings=warnings,
        metrics=tuple(metric for metric in metrics if len(metric.times)),
    )


def _of_members(metric: RawMetric, members: Collection[str]) -> RawMetric:
    rows = [row for row, machine in enumerate(metric.machines) if machine in members]
    if len(rows) == len(metric.machines):
        return metric
    counts = np.diff(metric.offsets)
    kept = np.repeat(np.isin(np.arange(len(counts)), rows), counts)
    return dataclasses.replace(
        metric,
        machines=tuple(metric.machines[row] for row in rows),
        devices=tuple(metric.devices[row] for row in rows),
        offsets=np.concatenate(([0], np.cumsum(counts[rows]))).astype(np.int64),
        times=metric.times[kept],
        values=metric.values[kept],
    )


def _cut_metric(metric: RawMetric, from_at: float, to_at: float) -> RawMetric:
    kept = (metric.times >= from_at) & (metric.times <= to_at)
    counts = np.concatenate(([0], np.cumsum(kept)))
    return dataclasses.replace(
        metric, offsets=counts[metric.offsets], times=metric.times[kept], values=metric.values[kept]
    )
