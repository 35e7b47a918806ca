"""``trainminder catalogue``: the metrics that are known, and the queries that give them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trainminder.cli.options import settings_from
from trainminder.cli.output import markdown_table, print_json, print_table
from trainminder.errors import SettingsError
from trainminder.wording import bounds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainminder.types import MetricSpec

__all__ = ["catalogue"]


def catalogue(
    ctx: typer.Context,
    exporter: Annotated[
        str | None, typer.Option("--exporter", metavar="NAME", help="Only metrics and queries of this exporter.")
    ] = None,
    form: Annotated[
        Literal["table", "json", "markdown"],
        typer.Option("--format", metavar="table|json|markdown", help="What to print."),
    ] = "table",
) -> None:
    """List the metrics: unit, bounds, queries.

    They come in the order they are asked, with the settings applied.

    Example: trainminder catalogue --exporter dcgm-exporter
    """
    from trainminder.catalogue import load_catalogue

    specs = list(load_catalogue(settings_from(ctx).metrics).values())
    if exporter is not None:
        specs = _of_exporter(specs, exporter)
    if form == "json":
        print_json([dataclasses.asdict(spec) for spec in specs])
        return
    headings = ("metric", "unit", "bounds", "level", "direction", "queries")
    if form == "table":
        print_table(headings, (_cells(spec) for spec in specs))
        return
    typer.echo(markdown_table((*headings, "meaning"), (_markdown_cells(spec) for spec in specs)))


def _of_exporter(specs: Iterable[MetricSpec], exporter: str) -> list[MetricSpec]:
    specs = list(specs)
    known = sorted({query.exporter for spec in specs for query in spec.queries})
    if exporter not in known:
        raise SettingsError(f"--exporter {exporter}: no metric has a query for it: known are {', '.join(known)}")
    chosen = (
        dataclasses.replace(spec, queries=tuple(query for query in spec.queries if query.exporter == exporter))
        for spec in specs
    )
    return [spec for spec in chosen if spec.queries]


def _cells(spec: MetricSpec) -> tuple[str, ...]:
    queries = "\n".join(f"{query.exporter}: {query.query}" for query in spec.queries)
    return spec.name, spec.unit, bounds(spec.lower, spec.upper), spec.level, spec.direction, queries


def _markdown_cells(spec: MetricSpec) -> tuple[str, ...]:
    queries = "<br>".join(f"{query.exporter}: `{query.query}`" for query in spec.queries)
    return f"`{spec.name}`", *_cells(spec)[1:-1], queries, spec.description
