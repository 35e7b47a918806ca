"""Which commands there are, and the options that stand before all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainminder import __version__
from trainminder.allocator import keep_freed_memory
from trainminder.cli import bench, catalogue, demo, detect, doctor, learn, record, replay, settings, simulate
from trainminder.cli.logs import LogLevel, log_to_stderr
from trainminder.cli.options import Invocation, parse_overrides

__all__ = ["app"]

# Plain help: drawing boxes would double the time until help appears.
app = typer.Typer(name="trainminder", rich_markup_mode=None, pretty_exceptions_enable=False)
app.command("demo")(demo.demo)
app.command("detect")(detect.detect)
app.command("doctor")(doctor.doctor)
app.command("record")(record.record)
app.command("replay")(replay.replay)
app.command("train")(learn.train)
app.command("prioritise")(learn.prioritise)
app.command("simulate")(simulate.simulate)
app.command("bench")(bench.bench)
app.command("catalogue")(catalogue.catalogue)
app.add_typer(settings.app, name="settings")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"trainminder {__version__}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    settings_file: Annotated[
        Path | None,
        typer.Option("--settings", metavar="FILE", envvar="TRAINMINDER_SETTINGS", help="Settings file (YAML)."),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set one setting, such as detect.minutes=30. Repeatable."),
    ] = None,
    log_level: Annotated[
        LogLevel,
        typer.Option("--log-level", metavar="debug|info|warning|error", help="How much to log on standard error."),
    ] = "warning",
    version: Annotated[  # noqa: ARG001 - its callback does the work
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Find the faulty machine of a distributed training task while the task runs, and say why.

    --settings, --set and --log-level may also stand after the command.

    Exit codes: 0 ran (and nothing is faulty), 1 error, 2 something is faulty (only with --fail-on-faulty),
    3 the task could not be observed.
    """
    keep_freed_memory()
    log_to_stderr(log_level)
    ctx.obj = Invocation(settings_file, parse_overrides(overrides))
