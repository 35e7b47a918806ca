"""``trainminder detect``: one pass over a recording or a live store."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from trainminder.cli.exits import ExitCode
from trainminder.cli.inputs import Wanted, catalogue_of, check_one_source, fetch
from trainminder.cli.options import (
    BearerTokenFileOption,
    CaFileOption,
    ColumnOption,
    ContinuityOption,
    FailOnFaultyOption,
    FormatOption,
    HeaderOption,
    MachineLabelOption,
    MethodOption,
    MetricOption,
    MinutesOption,
    ModelsDirOption,
    OptionalAtOption,
    PrometheusOption,
    RecordingArgument,
    ReportOption,
    TaskOption,
    detect_flags,
    recording_flags,
    say_unused,
    settings_from,
    store_flags,
)
from trainminder.cli.output import PIPE_WIDTH, print_json

if TYPE_CHECKING:
    from trainminder.denoise import DenoisingModel
    from trainminder.settings import DetectSettings
    from trainminder.types import PassResult, RawTask

__all__ = ["denoiser_for", "detect", "exit_code", "judge", "show"]


def detect(
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
    models_dir: ModelsDirOption = None,
    bearer_token_file: BearerTokenFileOption = None,
    header: HeaderOption = None,
    ca_file: CaFileOption = None,
    machine_label: MachineLabelOption = None,
    form: FormatOption = "table",
    report: ReportOption = None,
    fail_on_faulty: FailOnFaultyOption = False,
) -> int:
    """Find the faulty machine of a task, from a recording or a live store.

    A recording is judged as a whole unless --at or --minutes cut it; of a store, the last 15 minutes are.

    Example: trainminder detect run.parquet --report run.html
    """
    check_one_source(recording, prometheus)
    settings = settings_from(
        ctx,
        store_flags(prometheus, bearer_token_file, header, ca_file, machine_label)
        | recording_flags(column)
        | detect_flags(method, minutes, continuity_seconds, models_dir),
    )
    catalogue = catalogue_of(settings, metric)
    fetched = fetch(Wanted(recording, task, at, minutes), settings, catalogue)
    began = time.perf_counter()
    result = judge(fetched.raw, settings.detect, keep_traces=report is not None)
    judged = time.perf_counter() - began
    if fetched.raw.note is not None:
        typer.echo(f"note: {fetched.raw.note}", err=True)
    say_unused(settings.detect, continuity_seconds, models_dir)
    if fetched.is_live:
        typer.echo(f"fetched in {fetched.seconds:.2f} s, judged in {judged:.2f} s", err=True)
    show(result, form, report)
    return exit_code(result, fail_on_faulty)


def judge(raw: RawTask, settings: DetectSettings, *, keep_traces: bool) -> PassResult:
    """One pass with the denoising models that the settings name.

    Raises:
        ModelError: a model is missing or does not fit the settings.
    """
    from trainminder.stream import run_pass

    return run_pass(raw, settings, partial(denoiser_for, settings), keep_traces=keep_traces)


def denoiser_for(settings: DetectSettings, metric: str) -> DenoisingModel:
    """The denoising model of a metric that the settings name.

    Raises:
        ModelError: it is missing or does not fit the settings.
    """
    from trainminder.denoise import load_model

    return load_model(settings.models_dir, metric, settings.window_samples)


def show(result: PassResult, form: str, report: Path | None) -> None:
    """Print the result, and write the report if one is wanted."""
    if report is not None:
        from trainminder.report.html import write_report

        write_report(result, report)
    if form == "json":
        print_json(result.as_json())
        return
    from rich.console import Console

    from trainminder.report.text import print_result

    # Wide enough that no cell folds where a program reads it.
    print_result(result, Console(width=None if sys.stdout.isatty() else PIPE_WIDTH))


def exit_code(result: PassResult, fail_on_faulty: bool) -> ExitCode:
    """The exit code of a pass (contract)."""
    if result.status == "unknown":
        return ExitCode.UNKNOWN
    return ExitCode.FAULTY if result.status == "faulty" and fail_on_faulty else ExitCode.OK
