"""Labelled recordings: written from a table, and judged by a method beside their truth. Shared by what makes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from trainminder.bench.recorded import tags_path
from trainminder.catalogue import load_catalogue
from trainminder.denoise import load_model
from trainminder.settings import DetectSettings, RecordingSettings
from trainminder.source.cleaning import build_metric
from trainminder.source.recordings import read_recording, read_truth, write_recording, write_truth
from trainminder.stream import run_pass
from trainminder.types import PassResult, RawTask, Truth

__all__ = ["Judged", "declared_flags", "judge", "read_tags", "write_labelled"]


@dataclass(frozen=True, slots=True)
class Judged:
    """What a method made of a labelled recording."""

    name: str
    truths: tuple[Truth, ...]
    tags: Mapping[str, str]
    result: PassResult

    @property
    def outcome(self) -> str:
        """*right*, *early* (the faulty machine, before its fault), *wrong*, *missed*, *quiet*, or *unknown*."""
        verdicts = self.result.verdicts
        if not verdicts:
            return "unknown" if self.result.status == "unknown" else "missed" if self.truths else "quiet"
        faulty = {truth.machine: truth.start for truth in self.truths}
        if any(verdict.machine not in faulty for verdict in verdicts):
            return "wrong"
        # A verdict that stood before the fault began is a false alarm, whomever it names, as in the bench.
        return "right" if all(v.confirmed > faulty[v.machine] for v in verdicts) else "early"


def write_labelled(
    folder: Path,
    name: str,
    table: pl.DataFrame,
    units: Mapping[str, str],
    truths: Sequence[Truth],
    tags: Mapping[str, str],
) -> Path:
    """Write ``name.parquet`` with its truth and tags beside it.

    Args:
        table: columns ``timestamp`` (Unix seconds), ``machine``, ``group`` if machines have one, and the metrics;
            null or NaN where nothing was measured.
        units: metric -> unit, for those the catalogue does not hold.
    """
    table = table.sort("machine", "timestamp")
    machines = table["machine"].unique().sort().to_list()
    catalogue = load_catalogue().with_declared(f"{metric}={unit}" for metric, unit in units.items())
    metrics = []
    for metric in table.columns:
        if metric in ("timestamp", "machine", "group"):
            continue
        rows = table.select("timestamp", "machine", metric).fill_nan(None).drop_nulls()
        if rows.is_empty():
            continue
        codes = np.searchsorted(np.array(machines), rows["machine"].to_numpy()).astype(np.int64)
        times, values = rows["timestamp"].to_numpy(), rows[metric].cast(pl.Float64).to_numpy()
        metrics.append(build_metric(metric, codes, np.full(len(rows), -1), times, values, machines, [])[0])
    groups = dict(table.select("machine", "group").unique().iter_rows()) if "group" in table.columns else {}
    raw = RawTask(
        task=name,
        from_at=float(table["timestamp"].to_numpy().min()),
        to_at=float(table["timestamp"].to_numpy().max()),
        machines=tuple(machines),
        metrics=tuple(metrics),
        specs={metric.metric: catalogue[metric.metric] for metric in metrics},
        groups=groups,
    )
    path = folder / f"{name}.parquet"
    write_recording(raw, path)
    write_truth(truths, path)
    tags_path(path).write_text(json.dumps(dict(tags), indent=2) + "\n")
    return path


def read_tags(recording: Path) -> dict[str, str]:
    """The tags beside a recording."""
    tags: dict[str, str] = json.loads(tags_path(recording).read_text())
    return tags


def declared_flags(units: Mapping[str, str]) -> str:
    """The ``--metric`` flags that admit these metrics."""
    return " ".join(f"--metric {metric}={unit}" for metric, unit in units.items())


def judge(recording: Path, units: Mapping[str, str], settings: DetectSettings) -> Judged:
    """One pass over the whole recording, as ``trainminder detect`` makes it.

    Args:
        units: the declared metrics; those that this recording lacks are passed over.
    """
    there = set(pl.read_parquet_schema(recording))
    catalogue = load_catalogue().with_declared(f"{metric}={unit}" for metric, unit in units.items() if metric in there)
    raw = read_recording(recording, catalogue, RecordingSettings(), metrics=settings.metrics)
    result = run_pass(raw, settings, lambda metric: load_model(settings.models_dir, metric, settings.window_samples))
    return Judged(recording.stem, read_truth(recording), read_tags(recording), result)
