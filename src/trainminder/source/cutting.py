"""Cutting a task: in time, and to its members."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np

from trainminder.errors import RecordingError
from trainminder.types import FloatArray, RawMetric, RawTask
from trainminder.wording import some_names

__all__ = ["cut_raw", "in_pieces", "with_members"]


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


def in_pieces(raw: RawTask, from_at: float, every_seconds: float) -> Iterator[RawTask]:
    """A task as it would have come in: what was sampled up to one instant, then up to the next, and so on.

    Args:
        from_at: samples up to this instant are left out; Unix seconds.
        every_seconds: between two instants.
    """
    ends = np.arange(from_at + every_seconds, raw.to_at, every_seconds)
    ends = np.append(ends, raw.to_at) if raw.to_at > from_at else ends
    pieces = [_pieces(metric, from_at, ends) for metric in raw.metrics]
    for number, end in enumerate(ends.tolist()):
        metrics = tuple(metric for piece in pieces if len((metric := piece(number)).times))
        yield dataclasses.replace(raw, from_at=max(from_at, raw.from_at), to_at=end, metrics=metrics)


def _pieces(metric: RawMetric, from_at: float, ends: FloatArray) -> Callable[[int], RawMetric]:
    """The part of a metric by its number; sorted once, so that no part looks through all samples."""
    rows = np.repeat(np.arange(len(metric.machines)), np.diff(metric.offsets))
    number = np.where(metric.times > from_at, np.searchsorted(ends, metric.times), len(ends))
    order = np.argsort(number, kind="stable")
    edges = np.searchsorted(number[order], np.arange(len(ends) + 1))

    def piece(which: int) -> RawMetric:
        some = order[edges[which] : edges[which + 1]]
        counts = np.bincount(rows[some], minlength=len(metric.machines))
        offsets = np.concatenate(([0], np.cumsum(counts)))
        return dataclasses.replace(metric, offsets=offsets, times=metric.times[some], values=metric.values[some])

    return piece


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
        is_stated=machines is not None,
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
