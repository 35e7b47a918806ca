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
    EngineOption,
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
from trainminder.engine import EngineName, engine_named

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainminder.catalogue import Catalogue
    from trainminder.replay import Moment, Replay
    from trainminder.settings import Settings
    from trainminder.types import PassResult

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
    engine: EngineOption = "local",
    form: FormatOption = "table",
    fail_on_faulty: FailOnFaultyOption = False,
) -> int:
    """Replay recordings: what would have been raised, and when.

    Samples come in piece by piece, as from a live task, and the verdict is looked at after each. With --state a replay
    that was interrupted goes on where it was. The JSON is that of detect, at the end; of several recordings a list of
    them under "tasks". With --engine ray, recordings are replayed side by side by the workers of a Ray cluster, which
    must be able to read them under the same names.

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
    kept = None if state is None else _kept(state)
    makes = {
        str(number): partial(_replay_of, Wanted(recording, None, at, minutes), settings, catalogue, every, state, kept)
        for number, recording in enumerate(recordings)
    }
    results = _replayed(makes, state, engine, is_told=form == "table")
    if form == "json":
        print_json(results[0].as_json() if len(results) == 1 else {"tasks": [each.as_json() for each in results]})
    statuses = {result.status for result in results}
    if "faulty" in statuses:
        return ExitCode.FAULTY if fail_on_faulty else ExitCode.OK
    return ExitCode.UNKNOWN if "unknown" in statuses else ExitCode.OK


def _kept(state: Path) -> bytes | None:
    """What a replay before this one kept.

    Raises:
        StateError: it cannot be read.
    """
    from trainminder.errors import StateError

    try:
        return state.read_bytes() if state.exists() else None
    except OSError as error:
        raise StateError(f"{state}: {error.strerror}: give a file that can be read") from error


def _replay_of(
    wanted: Wanted,
    settings: Settings,
    catalogue: Catalogue,
    every: float,
    state: Path | None,
    kept: bytes | None,
    saved: bytes | None,
) -> Replay:
    """The watch over one recording.

    Args:
        kept: what file ``state`` holds. saved: where this replay was when its worker died; it counts before ``kept``.
    Raises:
        StateError: what was kept does not fit the recording or the settings.
        RecordingError: the recording cannot be read.
    """
    from trainminder.errors import StateError
    from trainminder.replay import Replay
    from trainminder.stream import TaskStream

    detect, of_metric = settings.detect, partial(denoiser_for, settings.detect)
    raw = fetch(wanted, settings, catalogue).raw
    begin = kept if saved is None else saved
    try:
        stream = TaskStream(detect, of_metric) if begin is None else TaskStream.restored(begin, detect, of_metric)
    except StateError as error:
        raise StateError(f"{state}: {error}") from error
    if stream.has_begun and (known := stream.result().task) != raw.task:
        raise StateError(f'{state} holds the stream of task "{known}", not of "{raw.task}": give another file')
    return Replay(raw, stream, every)


def _replayed(
    makes: Mapping[str, Callable[[bytes | None], Replay]], state: Path | None, engine: EngineName, *, is_told: bool
) -> list[PassResult]:
    """The results at the end, in the order given; what is raised on the way is told as it is."""
    last: dict[str, Moment] = {}
    raised: set[str] = set()
    saved = time.monotonic()
    with engine_named(engine) as running, progress("replaying", len(makes)) as advance:
        try:
            for name, moment in running.watch(makes):
                advance(moment.share - (last[name].share if name in last else 0.0), at=moment.result.task)
                last[name] = moment
                if moment.raised:
                    raised.add(name)
                if is_told:
                    _tell(moment)
                    if moment.share >= 1.0:
                        _tell_end(moment.result, is_known=name not in raised)
                if state is not None and time.monotonic() - saved > SAVE_SECONDS:
                    _save(running.saved(name), state)
                    saved = time.monotonic()
        finally:
            # Whatever ends it, what was replayed is kept.
            if state is not None:
                _save(running.saved(next(iter(makes))), state)
    return [last[name].result for name in makes]


def _save(saved: bytes | None, state: Path) -> None:
    from trainminder.errors import StateError
    from trainminder.files import replace_file

    if saved is None:
        return
    try:
        replace_file(state, saved)
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
