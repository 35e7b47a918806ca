"""``trainminder doctor``: can it see what it needs?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from trainminder.cli.exits import ExitCode
from trainminder.cli.inputs import Wanted, catalogue_of, check_one_source, fetch
from trainminder.cli.options import (
    BearerTokenFileOption,
    CaFileOption,
    ColumnOption,
    ContinuityOption,
    FormatOption,
    HeaderOption,
    MachineLabelOption,
    MethodOption,
    MetricOption,
    MinutesOption,
    OptionalAtOption,
    PrometheusOption,
    RecordingArgument,
    TaskOption,
    detect_flags,
    recording_flags,
    say_unused,
    settings_from,
    store_flags,
)
from trainminder.cli.output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainminder.doctor import Diagnosis, MetricDiagnosis

__all__ = ["doctor"]


def doctor(
    ctx: typer.Context,
    recording: RecordingArgument = None,
    prometheus: PrometheusOption = None,
    task: TaskOption = None,
    at: OptionalAtOption = None,
    minutes: MinutesOption = None,
    metric: MetricOption = None,
    column: ColumnOption = None,
    method: MethodOption = None,
    continuity_seconds: ContinuityOption = None,
    bearer_token_file: BearerTokenFileOption = None,
    header: HeaderOption = None,
    ca_file: CaFileOption = None,
    machine_label: MachineLabelOption = None,
    form: FormatOption = "table",
) -> int:
    """Say whether a task can be judged, what stands in the way, and what to do about it.

    Looks at the metrics found, the machines that have them, sampling, gaps, clocks, and values that cannot be true.
    The exit code is 0 if the task can be judged, 3 if not.

    Example: trainminder doctor --prometheus http://prometheus:9090 --task llm-7
    """
    check_one_source(recording, prometheus)
    settings = settings_from(
        ctx,
        store_flags(prometheus, bearer_token_file, header, ca_file, machine_label)
        | recording_flags(column)
        | detect_flags(method, minutes, continuity_seconds),
    )
    catalogue = catalogue_of(settings, metric)
    fetched = fetch(Wanted(recording, task, at, minutes), settings, catalogue)
    say_unused(settings.detect, continuity_seconds)
    from trainminder.clock import SystemClock
    from trainminder.doctor import diagnose

    address = None
    if fetched.is_live:
        from trainminder.source.prometheus.http import StoreClient

        with StoreClient(settings.store) as client:
            address = client.address
    raw = fetched.raw
    found = f"read from {recording}" if recording else raw.note or f"task {raw.task} is named in the settings"
    diagnosis = diagnose(raw, settings.detect, now=SystemClock().now(), catalogue=catalogue, found=found)
    if form == "json":
        store = {"address": address, "seconds": round(fetched.seconds, 3)} if fetched.is_live else None
        print_json(diagnosis.as_json() | {"store": store})
    else:
        said = f"store: {address} answered in {fetched.seconds:.2f} s" if fetched.is_live else None
        _show(diagnosis, said)
    return ExitCode.OK if diagnosis.can_be_judged else ExitCode.UNKNOWN


def _show(diagnosis: Diagnosis, store: str | None) -> None:
    from trainminder.wording import date_time, plain

    typer.echo(plain(diagnosis.sentence))
    typer.echo(f"found: {plain(diagnosis.found)}; {diagnosis.machines_seen} of {len(diagnosis.machines)} machines seen")
    typer.echo(f"range: {date_time(diagnosis.from_at)} to {date_time(diagnosis.to_at)} UTC")
    if store is not None:
        typer.echo(plain(store) + (", but says that its answer is incomplete" if diagnosis.is_partial else ""))
    typer.echo()
    headings = ("metric", "found as", "machines", "devices", "interval", "missing", "remarks")
    members = len(diagnosis.machines)
    print_table(headings, ([plain(cell) for cell in _cells(one, members)] for one in diagnosis.metrics))
    for finding in diagnosis.findings:
        typer.echo(plain(f"{finding.severity}: {finding.text}"))
        if finding.remedy:
            typer.echo(plain(f"  -> {finding.remedy}"))


def _cells(metric: MetricDiagnosis, members: int) -> Iterator[str]:
    from trainminder.wording import ratio_as_percent

    yield metric.metric
    if metric.is_absent:
        yield from ("absent", "-", "-", "-", "-", "")
        return
    found_as = metric.found_as or "-"
    if found_as == metric.metric:
        found_as = "same name"
    yield f"{found_as} ({metric.exporter})" if metric.exporter else found_as
    yield f"{metric.machines} of {members}"
    yield str(metric.devices) if metric.devices else "-"
    yield "-" if metric.interval_seconds is None else f"{metric.interval_seconds:g} s"
    yield "-" if metric.samples_missing is None else ratio_as_percent(metric.samples_missing)
    yield "; ".join(_remarks(metric))


def _remarks(metric: MetricDiagnosis) -> Iterator[str]:
    if metric.reason is not None:
        # The reason begins with the metric's name, which the row has already.
        yield metric.reason.removeprefix(f"{metric.metric} is ").removeprefix(f"{metric.metric}: ")
    if metric.is_event_driven:
        yield "event-driven: a value holds until the next"
    if metric.longest_gap_machine is not None and metric.interval_seconds is not None:
        yield f"gap {metric.longest_gap_seconds:g} s on {metric.longest_gap_machine}"
    yield from metric.remarks
