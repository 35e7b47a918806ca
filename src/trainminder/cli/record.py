"""``trainminder record``: a snapshot of a live task as a recording."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainminder.cli.inputs import catalogue_of, fetch_live
from trainminder.cli.instants import parse_instant
from trainminder.cli.options import (
    BearerTokenFileOption,
    CaFileOption,
    HeaderOption,
    MachineLabelOption,
    MetricOption,
    PrometheusOption,
    TaskOption,
    settings_from,
    store_flags,
)

__all__ = ["record"]


def record(
    ctx: typer.Context,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File to write: .parquet or .csv.")],
    start: Annotated[str, typer.Option("--from", metavar="INSTANT", help="First instant of the snapshot.")],
    end: Annotated[str, typer.Option("--to", metavar="INSTANT", help="Last instant of the snapshot.")] = "now",
    prometheus: PrometheusOption = None,
    task: TaskOption = None,
    metric: MetricOption = None,
    bearer_token_file: BearerTokenFileOption = None,
    header: HeaderOption = None,
    ca_file: CaFileOption = None,
    machine_label: MachineLabelOption = None,
) -> None:
    """Write what a live store has of a task to a recording.

    Example: trainminder record --prometheus http://prometheus:9090 --task llm-7 --from -1h -o llm-7.parquet
    """
    settings = settings_from(ctx, store_flags(prometheus, bearer_token_file, header, ca_file, machine_label))
    catalogue = catalogue_of(settings, metric)
    from trainminder.source.recordings.tables import check_writable

    # Before hours of data are asked for.
    check_writable(output)
    raw = fetch_live(task, parse_instant(start), parse_instant(end), settings, catalogue)
    from trainminder.source.recordings import write_recording

    write_recording(raw, output)
    for warning in raw.warnings:
        typer.echo(f"warning: {warning}", err=True)
    samples = sum(len(series.times) for series in raw.metrics)
    typer.echo(f"{output}: {len(raw.machines)} machines, {len(raw.metrics)} metrics, {samples} samples")
