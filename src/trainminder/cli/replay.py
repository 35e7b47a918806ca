"""``trainminder replay``: the stream over recordings, as if their samples came in now."""

from __future__ import annotations

import dataclasses
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainminder.cli.detect import denoiser_for
from trainminder.cli.exits import ExitCode
from trainminder.cli.inputs import Wanted, catalogue_of, fetch
from trainminder.cli.options import (
    ColumnOption,
    ContinuityOption,
    FailOnFaultyOption,
    FormatOption,
    MethodOption,
    MetricOption,
    MinutesOption,
    ModelsDirOption,
    OptionalAtOption,
    detect_flags,
    recording_flags,
    say_unused,
    settings_from,
)
from trainminder.cli.output import print_json
from trainminder.cli.progress import progress

if TYPE_CHECKING:
    from trainminder.replay import Moment
    from trainminder.settings import DetectSettings
    from trainminder.stream import TaskStream
    from trainminder.types import PassResult, RawTask

__all__ = ["replay"]

#: A stream is saved at most this often, in seconds.
SAVE_SECONDS = 10.0

RecordingsArgument = Annotated[
    list[Path], typer.Argument(metavar="RECORDING...", help="Recordings: Parquet or CSV files, or folders of them.")
]
EveryOption = Annotated[
    float, typer.Option("--every", metavar="SECONDS", min=0.1, help="How much comes in before the next look.")
]
StateOption = Annotated[
    Path | None,
    typer.Option("--state", metavar="FILE", help="Keep the stream there, and go on from it if it is there already."),
]


def replay(
    ctx: typer.Context,
    recordings: RecordingsArgument,
    every: EveryOption = 10.0,
    state: StateOption = None,
    at: OptionalAtOption = None,
    minutes: MinutesOption = None,
    metric: MetricOption = None,
    column: ColumnOption = None,
    method: MethodOption = None,
    continuity_seconds: ContinuityOption = None,
    models_dir: ModelsDirOption = None,
    form: FormatOption = "table",
    fail_on_faulty: FailOnFaultyOption = False,
) -> int:
    """Replay recordings: what would have been raised, and when.

    Samples come in piece by piece, as from a live task, and the verdict is looked at after each. With --state a replay
    that was interrupted goes on where it was. The JSON is that of detect, at the end; of several recordings a list of
    them under "tasks".

    Example: trainminder replay run.parquet --every 15
    """
    from trainminder.errors import SettingsError

    if state is not None and len(recordings) > 1:
        raise SettingsError("--state holds one stream, and several recordings are given: replay them one by one")
    settings = settings_from(
        ctx, recording_flags(column) | detect_flags(method, minutes, continuity_seconds, models_dir)
    )
    catalogue = catalogue_of(settings, metric)
    say_unused(settings.detect, continuity_seconds, models_dir)
    results: list[PassResult] = []
    for recording in recordings:
        raw = fetch(Wanted(recording, None, at, minutes), settings, catalogue).raw
        stream = _stream(settings.detect, state)
        results.append(_replayed(raw, stream, every, state, is_told=form == "table"))
    if form == "json":
        print_json(results[0].as_json() if len(results) == 1 else {"tasks": [each.as_json() for each in results]})
    statuses = {result.status for result in results}
    if "faulty" in statuses:
        return ExitCode.FAULTY if fail_on_faulty else ExitCode.OK
    return ExitCode.UNKNOWN if "unknown" in statuses else ExitCode.OK


def _stream(settings: DetectSettings, state: Path | None) -> TaskStream:
    """A new stream, or the one that was kept.

    Raises:
        StateError: what was kept cannot be read, or does not fit the settings.
    """
    from trainminder.errors import StateError
    from trainminder.stream import TaskStream

    of_metric = partial(denoiser_for, settings)
    if state is None or not state.exists():
        return TaskStream(settings, of_metric)
    try:
        return TaskStream.restored(state.read_bytes(), settings, of_metric)
    except OSError as error:
        raise StateError(f"{state}: {error.strerror}: give a file that can be read") from error
    except StateError as error:
        raise StateError(f"{state}: {error}") from error


def _replayed(raw: RawTask, stream: TaskStream, every: float, state: Path | None, *, is_told: bool) -> PassResult:
    """The result at the end; what is raised on the way is told as it is."""
    from trainminder.errors import StateError
    from trainminder.replay import replayed

    if stream.has_begun and (known := stream.result().task) != raw.task:
        raise StateError(f'{state} holds the stream of task "{known}", not of "{raw.task}": give another file')
    saved, is_new = time.monotonic(), False
    try:
        with progress(f"replaying {raw.task}", raw.to_at - max(raw.from_at, stream.taken_until)) as advance:
            for moment in replayed(raw, stream, every):
                is_new |= bool(moment.raised)
                if is_told:
                    _tell(moment)
                advance(every)
                if state is not None and time.monotonic() - saved > SAVE_SECONDS:
                    _save(stream, state)
                    saved = time.monotonic()
    finally:
        # Whatever ends it, what was replayed is kept.
        if state is not None and stream.has_begun:
            _save(stream, state)
    result = stream.result()
    if is_told:
        _tell_end(result, is_known=not is_new)
    return result


def _save(stream: TaskStream, state: Path) -> None:
    from trainminder.errors import StateError
    from trainminder.files import replace_file

    try:
        replace_file(state, stream.saved())
    except OSError as error:
        raise StateError(f"{state}: {error.strerror}: give a file that can be written") from error


def _tell(moment: Moment) -> None:
    """One line for each verdict that is new."""
    from trainminder.report.text import verdict_sentence
    from trainminder.wording import iso_time

    for verdict in moment.raised:
        alone = dataclasses.replace(moment.result, verdicts=(verdict,))
        typer.echo(f"{iso_time(moment.at)}  {verdict_sentence(alone)}")


def _tell_end(result: PassResult, *, is_known: bool) -> None:
    """How it ended.

    Args:
        is_known: nothing was raised on the way; what stands was known before.
    """
    from trainminder.report.text import coverage_sentence, verdict_sentence
    from trainminder.wording import iso_time

    if is_known:
        typer.echo(f"{iso_time(result.to_at)}  {verdict_sentence(result)}")
    typer.echo(coverage_sentence(result))
    for warning in result.warnings:
        typer.echo(f"warning: {warning}", err=True)
