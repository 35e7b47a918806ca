"""Recordings: Parquet and CSV files, wide or long, one task per file. ``docs/recordings.md`` states the format.

Reading decides nothing silently: what was skipped, dropped, merged or converted is said in the task's warnings.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from trainminder.catalogue import Catalogue
from trainminder.errors import RecordingError, SettingsError
from trainminder.settings import RecordingSettings
from trainminder.source.cleaning import build_metric, classify_values, dropped_warnings, is_count, rates_of
from trainminder.source.recordings.cells import read_names
from trainminder.source.recordings.rows import KEYS, Header, Part, with_nearest
from trainminder.source.recordings.tables import list_files, open_table, stem_of, write_table
from trainminder.types import FoundAs, MetricSpec, RawMetric, RawTask
from trainminder.wording import some_names

__all__ = [
    "read_recording",
    "read_recordings",
    "write_recording",
]

NO_GROUP = "(none)"


def read_recording(
    path: Path,
    catalogue: Catalogue,
    settings: RecordingSettings,
    *,
    task: str | None = None,
    metrics: Sequence[str] | None = None,
) -> RawTask:
    """Read one task from a file, or from a folder.

    Args:
        path: Parquet or CSV; or a folder of such files, one per task.
        catalogue: what counts as a metric, declared ones included.
        task: which task, where there are several; None: the only one.
        metrics: read these alone; None: every metric of the catalogue that is there.
    Raises:
        RecordingError: missing, damaged, not in the format, nothing usable, or several tasks and none chosen.
        SettingsError: ``metrics`` names what the catalogue does not hold; recording.timezone is no zone.
    """
    return _read(path, catalogue, settings, task, metrics, only_one=True)[0]


def read_recordings(
    path: Path, catalogue: Catalogue, settings: RecordingSettings, *, metrics: Sequence[str] | None = None
) -> list[RawTask]:
    """Read every task of a file or folder, sorted by name.

    A file is one task, named as the file is; where a column ``task`` names tasks, rows of one name are one
    task, also from several files. Arguments and errors as in ``read_recording``.
    """
    return _read(path, catalogue, settings, None, metrics, only_one=False)


def _read(
    path: Path,
    catalogue: Catalogue,
    settings: RecordingSettings,
    task: str | None,
    metrics: Sequence[str] | None,
    only_one: bool,
) -> list[RawTask]:
    wanted = _wanted(catalogue, metrics)
    sources: dict[str, list[tuple[Header, pl.DataFrame | None]]] = {}
    for file in list_files(path):
        table = open_table(file)
        header = Header(table, settings, wanted, says_skipped=metrics is None)
        # Without a task column a file is one task, named as it is, and waits until it is chosen.
        tasks: Mapping[str, pl.DataFrame | None] = {task if task and file == path else stem_of(file): None}
        if header.has_tasks:
            tasks = header.read_tasks() or tasks
        for name, rows in tasks.items():
            earlier = sources.setdefault(name, [])
            if earlier and (rows is None or earlier[0][1] is None):
                raise RecordingError(f'{earlier[0][0].table.path} and {file} both hold a task "{name}": rename a file')
            earlier.append((header, rows))
    if task is not None and task not in sources:
        near = difflib.get_close_matches(task, sources, n=1)
        hint = f'did you mean "{near[0]}"? ' if near else ""
        raise RecordingError(f'{path} holds no task "{task}": {hint}it holds {some_names(sorted(sources), 12)}')
    if only_one and task is None and len(sources) > 1:
        raise RecordingError(
            f"{path} holds {len(sources)} tasks: choose one with --task NAME: {some_names(sorted(sources), 12)}"
        )
    chosen = sorted(sources) if task is None else [task]
    return [
        _assemble(
            name,
            [header.part(header.read() if rows is None else rows) for header, rows in sources[name]],
            wanted,
            settings,
        )
        for name in chosen
    ]


def _wanted(catalogue: Catalogue, metrics: Sequence[str] | None) -> dict[str, MetricSpec]:
    problems = []
    for name in metrics or ():
        if name not in catalogue:
            near = catalogue.nearest(name)
            hint = f'did you mean "{near}"?' if near else f"declare it with --metric {name}"
            problems.append(f'metrics: "{name}" is not in the catalogue: {hint}')
    problems += [
        f'metrics: "{name}" says where a sample belongs and cannot be a metric as well: rename the column with --column'
        for name in (catalogue if metrics is None else metrics)
        if name in KEYS
    ]
    if problems:
        raise SettingsError(*problems)
    return {name: catalogue[name] for name in (catalogue if metrics is None else dict.fromkeys(metrics))}


def _assemble(
    task: str, parts: Sequence[Part], wanted: Mapping[str, MetricSpec], settings: RecordingSettings
) -> RawTask:
    blocks = [block for part in parts for block in part.blocks]
    where = ", ".join(str(part.path) for part in parts)
    skipped = list(dict.fromkeys(name for part in parts for name in part.skipped))
    warnings = [line for part in parts for line in part.warnings]
    found = [name for name in wanted if any(name in block.columns for block in blocks)]
    _check_found(found, skipped, wanted, where)

    machines = _all_names(blocks, "machine")
    devices = _all_names(blocks, "device")
    blocks = [_coded(block, machines, devices) for block in blocks]
    metrics: list[RawMetric] = []
    conflicts: list[pl.DataFrame] = []
    for name in found:
        raw, doubles, said = _metric(
            wanted[name], [block for block in blocks if name in block.columns], machines, devices, settings
        )
        warnings += said
        if raw is None:
            warnings.append(f"{name}: every sample is missing: the metric is left out")
            continue
        metrics.append(raw)
        conflicts += doubles
    if not metrics:
        raise RecordingError(f"{where} holds no usable sample: {'; '.join(warnings)}")
    if conflicts:
        instants = pl.concat(conflicts).unique()
        warnings.append(
            f"instants with several rows of different values: {len(instants)}, first on "
            f"{machines[int(instants['m'].min())]}: "  # type: ignore[arg-type]
            + ("their mean is taken" if settings.duplicates == "mean" else "the last row counts")
            + " (recording.duplicates)"
        )
    groups, said = _groups(blocks, machines)
    columns = {name: column for part in parts for name, column in part.columns.items()}
    return RawTask(
        task=task,
        from_at=min(float(metric.times.min()) for metric in metrics),
        to_at=max(float(metric.times.max()) for metric in metrics),
        machines=tuple(machines),
        metrics=tuple(metrics),
        specs={metric.metric: wanted[metric.metric] for metric in metrics},
        groups=groups,
        metrics_absent=tuple(name for name in wanted if name not in {metric.metric for metric in metrics}),
        warnings=tuple(dict.fromkeys(warnings + said)),
        sources={metric.metric: FoundAs(columns.get(metric.metric, metric.metric)) for metric in metrics},
    )


def _check_found(found: Sequence[str], skipped: Sequence[str], wanted: Mapping[str, MetricSpec], where: str) -> None:
    for name, spec in wanted.items():
        if spec.declared and name not in found:
            near = difflib.get_close_matches(name, skipped, n=1, cutoff=0.5)
            hint = f'did you mean "{near[0]}"? ' if near else ""
            raise RecordingError(
                f'{where} has no column "{name}", which was declared as a metric: {hint}take the declaration out, '
                f"or rename a column in recording.columns; columns not known: {some_names(skipped, 12) or 'none'}"
            )
    if not found:
        raise RecordingError(
            f"{where} holds no known metric: declare a column with --metric NAME or rename it with --column; "
            f"columns seen: {some_names(with_nearest(skipped, wanted), 12) or 'none'}"
        )


def _all_names(blocks: Iterable[pl.DataFrame], key: str) -> list[str]:
    return sorted({name for block in blocks for name in block[key].unique().drop_nulls()})


def _coded(block: pl.DataFrame, machines: list[str], devices: list[str]) -> pl.DataFrame:
    """Names as codes, rows sorted once for all metrics; rows of one key stay in the file's order."""
    return block.with_columns(
        pl.col("machine").cast(pl.Enum(machines)).to_physical().cast(pl.Int64),
        pl.col("device").cast(pl.Enum(devices)).to_physical().cast(pl.Int64).fill_null(-1),
    ).sort("machine", "device", "timestamp", maintain_order=True)


def _metric(
    spec: MetricSpec,
    blocks: Sequence[pl.DataFrame],
    machines: list[str],
    devices: list[str],
    settings: RecordingSettings,
) -> tuple[RawMetric | None, list[pl.DataFrame], list[str]]:
    """The cleaned metric (None: no sample is left), its instants of conflicting rows, and warnings."""
    columns = [pl.concat([block[name] for block in blocks]) for name in ("machine", "device", "timestamp", spec.name)]
    m, d, times = (column.to_numpy() for column in columns[:3])
    values = columns[3].fill_null(np.nan).to_numpy()
    code = classify_values(values, spec, settings.sentinels)
    said = dropped_warnings(spec, code, m, machines)
    keep = code == 0
    if not keep.any():
        return None, [], said
    if not keep.all():
        m, d, times, values = m[keep], d[keep], times[keep], values[keep]
    raw, conflicts = build_metric(spec.name, m, d, times, values, machines, devices, settings.duplicates)
    if not spec.queries and is_count(raw):
        raw, restarted = rates_of(raw)
        said.append(f"{spec.name}: it only rises, so it is a count: judged by its rate per second")
        if restarted:
            said.append(f"{spec.name}: started again from zero on {some_names(restarted)}: a restart?")
    if not conflicts:
        return raw, [], said
    doubles = (
        pl.DataFrame({"m": m, "d": d, "t": times, "value": values})
        .group_by("m", "d", "t")
        .agg((pl.col("value").min() != pl.col("value").max()).alias("differs"))
        .filter("differs")
        .drop("differs")
    )
    return raw, [doubles], said


def _groups(blocks: Iterable[pl.DataFrame], machines: list[str]) -> tuple[dict[str, str], list[str]]:
    """machine -> the group of most of its rows (of equals the first by name); empty where none is named."""
    counts = (
        pl.concat([block.select("machine", "group") for block in blocks])
        .drop_nulls()
        .group_by("machine", "group")
        .len()
        .sort("machine", pl.col("len"), "group", descending=[False, True, False])
    )
    if counts.is_empty():
        return {}, []
    said = []
    several = counts.group_by("machine").len().filter(pl.col("len") > 1)["machine"].sort()
    if len(several):
        named = some_names([machines[m] for m in several])
        said.append(f"machines named in several groups count in the one of most of their rows: {named}")
    chosen = dict(counts.group_by("machine", maintain_order=True).first().select("machine", "group").iter_rows())
    alone = [machine for m, machine in enumerate(machines) if m not in chosen]
    if alone:
        said.append(
            f'machines without a group are compared among themselves, as group "{NO_GROUP}": {some_names(alone)}'
        )
    return {machine: chosen.get(m, NO_GROUP) for m, machine in enumerate(machines)}, said


def write_recording(raw: RawTask, path: Path) -> None:
    """Write a task as a wide recording, Parquet or CSV by the ending, which reads back as the same series.

    Raises:
        RecordingError: nothing to write, a name that would not read back, another ending, or no such folder.
    """
    if not raw.metrics:
        raise RecordingError(f'task "{raw.task}" has no metric: there is nothing to write to {path}')
    seen = {machine for metric in raw.metrics for machine in metric.machines}
    machines = sorted(seen | set(raw.machines))
    devices = [None, *sorted({name for metric in raw.metrics for name in metric.devices if name is not None})]
    series = {pair: i for i, pair in enumerate(product(machines, devices))}
    times = _distinct([np.array([raw.from_at]), *(metric.times for metric in raw.metrics)])
    # One integer stands for instant, machine and device, in the order of the file's rows.
    keys = [
        np.searchsorted(times, metric.times) * len(series)
        + np.repeat(
            [series[pair] for pair in zip(metric.machines, metric.devices, strict=True)], np.diff(metric.offsets)
        )
        for metric in raw.metrics
    ]
    # A machine that gave no sample is a member all the same: one empty row keeps it.
    silent = [series[machine, None] for machine in raw.machines if machine not in seen]
    at_start = np.searchsorted(times, raw.from_at) * len(series)
    rows = _distinct([*keys, at_start + np.array(silent, dtype=np.int64)])
    pairs = pl.DataFrame(list(series), {"machine": pl.String, "device": pl.String}, orient="row")
    if raw.groups:
        pairs = pairs.with_columns(pl.Series("group", [raw.groups.get(name) for name in pairs["machine"]], pl.String))
    _check_names(pairs, path)
    columns = [pl.Series("timestamp", times[rows // len(series)]), *pairs[rows % len(series)]]
    for metric, key in zip(raw.metrics, keys, strict=True):
        values = np.full(len(rows), np.nan)
        values[np.searchsorted(rows, key)] = metric.values
        columns.append(pl.Series(metric.metric, values).fill_nan(None))
    write_table(pl.DataFrame(columns), path)


def _distinct(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Sorted distinct values; polars is several times quicker here than numpy's unique."""
    return pl.Series(np.concatenate(arrays)).unique().sort().to_numpy()


def _check_names(pairs: pl.DataFrame, path: Path) -> None:
    for column in pairs:
        names = column.unique().drop_nulls().sort()
        changed = names.filter(names.ne_missing(read_names(names)))
        if len(changed):
            raise RecordingError(
                f'{column.name} "{changed[0]}" would not read back as it is: rename it before writing {path}'
            )
