"""``trainminder bench``: methods side by side on labelled tasks, and how fast a pass is."""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainminder.cli.exits import ExitCode
from trainminder.cli.inputs import catalogue_of
from trainminder.cli.options import (
    ColumnOption,
    EngineOption,
    FormatOption,
    MetricOption,
    recording_flags,
    settings_from,
)
from trainminder.cli.output import print_json, print_table
from trainminder.cli.progress import progress
from trainminder.errors import MissingExtra, SettingsError
from trainminder.wording import counted, some_names

if TYPE_CHECKING:
    from trainminder.bench.compare import Comparison, ThresholdSource
    from trainminder.bench.types import BenchTask

__all__ = ["bench"]

OUTPUT = Path("bench-results")


def bench(
    ctx: typer.Context,
    quick: Annotated[bool, typer.Option("--quick", help="A few small tasks, at the stored thresholds.")] = False,
    recordings: Annotated[
        Path | None,
        typer.Option("--recordings", metavar="DIR", help="Judge labelled recordings instead of simulated tasks."),
    ] = None,
    speed: Annotated[
        bool, typer.Option("--speed", help="Time passes and streams instead, beside the straightforward way.")
    ] = False,
    methods: Annotated[
        str | None, typer.Option("--methods", metavar="A,B", help="Methods to compare; the standard ones otherwise.")
    ] = None,
    false_alarm_rate: Annotated[
        float | None,
        typer.Option(
            "--false-alarm-rate",
            metavar="RATE",
            min=0.0,
            help="Most false alarms per 1,000 machine-hours when thresholds are chosen. [2]",
        ),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            "--sizes",
            metavar="SIZES",
            help="What --speed times: MACHINES or MACHINESxMETRICSxSECONDS. [64,512,1500,4000,10000]",
        ),
    ] = None,
    metric: MetricOption = None,
    column: ColumnOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Folder that keeps what is finished. [bench-results]"),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what the folder holds, and run everything.")] = False,
    jobs: Annotated[
        int | None, typer.Option("--jobs", metavar="N", min=1, help="Worker processes; one per processor otherwise.")
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option("--page", metavar="FILE", help="Also write a Markdown page, with its plots beside it."),
    ] = None,
    thresholds_file: Annotated[
        Path | None,
        typer.Option("--thresholds", metavar="FILE", help="Use these thresholds; choose none, and use no stored ones."),
    ] = None,
    write_thresholds: Annotated[
        Path | None, typer.Option("--write-thresholds", metavar="FILE", help="Also write the chosen thresholds (TOML).")
    ] = None,
    engine: EngineOption = "local",
    form: FormatOption = "table",
) -> int:
    """Compare methods on labelled tasks: what they find, what they blame wrongly, how late, at what cost.

    Each method's threshold is chosen by one rule on simulated tasks of other seeds; default is measured as shipped.
    With --quick and --recordings the thresholds are those that the last standard run stored in the package. A run that
    was interrupted goes on where it was.

    With --recordings, --set detect.continuity_seconds=S says how long what is wrong must last, to every method.
    Labels of a recording lie beside it as NAME.truth.json; results are broken down by what NAME.tags.json says.

    Example: trainminder bench --recordings incidents --methods default,paper
    """
    calibrates = not (quick or recordings or speed or thresholds_file)
    _refuse(
        {
            "--quick and --recordings": quick and recordings is not None,
            "--speed and --quick": speed and quick,
            "--speed and --recordings": speed and recordings is not None,
        },
        "are both given: give one of them",
    )
    _refuse({"--sizes": sizes is not None and not speed}, "is for --speed alone: leave it out")
    _refuse(
        {
            "--metric": bool(metric) and recordings is None,
            "--column": bool(column) and recordings is None,
        },
        "is for --recordings alone: leave it out",
    )
    _refuse(
        {
            "--false-alarm-rate": false_alarm_rate is not None and not calibrates,
            "--write-thresholds": write_thresholds is not None and not calibrates,
        },
        "is for a run that chooses thresholds, without --quick, --recordings, --speed and --thresholds: leave it out",
    )
    _refuse(
        {
            "--methods": speed and methods is not None,
            "--output": speed and output is not None,
            "--fresh": speed and fresh,
            "--jobs": speed and jobs is not None,
            "--engine": speed and engine != "local",
            "--page": speed and page is not None,
            "--thresholds": speed and thresholds_file is not None,
        },
        "does not go with --speed: leave it out",
    )
    _refuse({"--jobs": jobs is not None and engine == "ray"}, "is for --engine local alone: leave it out")
    if speed:
        return _time(sizes, form)
    if page is not None and importlib.util.find_spec("matplotlib") is None:
        # Said before anything is run.
        raise MissingExtra("the page of the bench", "bench")
    settings = settings_from(ctx, recording_flags(column))
    names = _chosen_methods(methods)

    from trainminder.bench import calibrate, compare, ledger, run, tasks, thresholds

    jobs = jobs or run.default_jobs()
    what, measured = "standard", tasks.standard_set
    if quick:
        what, measured = "quick", tasks.quick_set
    chosen = {} if calibrates else thresholds.read_thresholds(names, thresholds_file)
    source: ThresholdSource = "calibrated" if calibrates else "stored" if thresholds_file is None else "given"
    some: Sequence[BenchTask]
    if recordings is not None:
        from trainminder.bench.recorded import recorded_tasks

        what = str(recordings)
        some = recorded_tasks(recordings, catalogue_of(settings, metric), settings)
    else:
        some = measured()
    with ledger.open_ledger(output or OUTPUT, fresh=fresh) as kept:
        outcomes = []
        if calibrates:
            known = tasks.calibration_set()
            with progress("calibrating", total=len(known) * len(names)) as advance:
                outcomes = compare.calibrate(known, names, kept, jobs=jobs, engine=engine, advance=advance)
            limit = calibrate.FALSE_ALARM_RATE if false_alarm_rate is None else false_alarm_rate
            chosen = compare.choose_thresholds(outcomes, limit)
        with progress("judging", total=len(some) * len(names)) as advance:
            comparison = compare.compare(
                what,
                some,
                chosen,
                kept,
                jobs=jobs,
                engine=engine,
                thresholds=source,
                calibration=outcomes,
                advance=advance,
            )
    _say_thresholds(comparison, thresholds_file)
    shown = comparison.as_json()
    if write_thresholds is not None:
        thresholds.write_thresholds(chosen, write_thresholds)
    if page is not None:
        from trainminder.bench.page import write_page

        write_page(shown, page, _command(quick, recordings, methods, false_alarm_rate))
    if form == "json":
        print_json(shown)
    else:
        _print(shown)
    for failure in shown["failures"]:
        typer.echo(f"error: {failure['method']} failed on {failure['task']}: {failure['error']}", err=True)
    return ExitCode.ERROR if shown["failures"] else ExitCode.OK


def _refuse(wrong: dict[str, bool], why: str) -> None:
    """Refuse options that would be passed over in silence.

    Raises:
        SettingsError: one of them is there; all at once.
    """
    if problems := [f"{options} {why}" for options, is_wrong in wrong.items() if is_wrong]:
        raise SettingsError(*problems)


def _chosen_methods(text: str | None) -> list[str]:
    """The methods to compare, in the order given.

    Raises:
        SettingsError: a name that is none, or no name at all.
    """
    from trainminder.bench.run import find_methods, standard_methods

    if text is None:
        return list(standard_methods())
    known = find_methods()
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    problems = []
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f'did you mean "{near[0]}"?' if near else f"there are {some_names(sorted(known), 30)}"
            problems.append(f'--methods: there is no method "{name}": {hint}')
    if problems or not names:
        raise SettingsError(*problems or ["--methods names no method: write --methods default,paper"])
    return names


def _command(quick: bool, recordings: Path | None, methods: str | None, false_alarm_rate: float | None) -> str:
    """What prints the same figures again; of a folder its name alone, which says what it is anywhere."""
    words = ["trainminder bench"]
    words += ["--quick"] if quick else []
    words += [f"--recordings {recordings.name}"] if recordings is not None else []
    words += [f"--methods {methods}"] if methods is not None else []
    words += [f"--false-alarm-rate {false_alarm_rate:g}"] if false_alarm_rate is not None else []
    return " ".join(words)


def _say_thresholds(comparison: Comparison, file: Path | None) -> None:
    """Where the thresholds are from, and whose kept to no limit; on standard error."""
    if not comparison.calibration:
        source = "as stored, chosen on simulated tasks by the last standard run" if file is None else f"those of {file}"
        typer.echo(f"thresholds: {source}", err=True)
    for name, each in comparison.methods.items():
        if not each.chosen.is_within_limit:
            typer.echo(
                f"warning: {name}: no threshold kept to {each.chosen.limit:g} false alarms per 1,000 machine-hours "
                f"on the calibration set: taken is {each.chosen.threshold:g}, with "
                f"{each.chosen.false_alarms_per_1000_machine_hours:.2g}",
                err=True,
            )


def _print(shown: dict[str, Any]) -> None:
    typer.echo(f"{counted(shown['tasks'], 'task')}, {shown['machine_hours']:.0f} machine-hours\n")
    rows = []
    for name, each in shown["methods"].items():
        low_high = each["intervals"]["f1"]
        rows.append(
            (
                name,
                *(_figure(each[key], 3) for key in ("precision", "recall", "f1")),
                "-" if low_high is None else f"{low_high[0]:.2f}..{low_high[1]:.2f}",
                _figure(each["false_alarms_per_1000_machine_hours"], 2),
                _figure(each["top1"], 3),
                _figure(each["delay_median_s"], 0),
                _figure(each["delay_p90_s"], 0),
                _figure(each["seconds_median"], 2),
                _figure(each["peak_mib"], 0),
                str(each["failed"]),
            )
        )
    print_table(
        (
            "method",
            "precision",
            "recall",
            "F1",
            "F1, 95 %",
            "false alarms per 1,000 machine-hours",
            "top-1",
            "delay, s",
            "delay p90, s",
            "s per task",
            "MiB",
            "failed",
        ),
        rows,
    )


def _figure(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _time(sizes: str | None, form: str) -> int:
    from dataclasses import asdict

    from trainminder.bench.speed import SIZES, growth_of, measure_speed, parse_sizes

    wanted = SIZES if sizes is None else parse_sizes(sizes)
    with progress("timing", total=len(wanted)) as advance:
        measured = measure_speed(wanted, advance)
    if all(speed.naive_s is None for speed in measured):
        typer.echo('the straightforward way is not timed: it needs the extra "train" (torch)', err=True)
    growths = growth_of(measured)
    if form == "json":
        print_json({"sizes": [speed.as_json() for speed in measured], "growth": [asdict(each) for each in growths]})
        return ExitCode.OK
    rows = []
    for speed in measured:
        for method, cost in (("default", speed.default), ("paper", speed.paper)):
            naive_s = speed.naive_s if method == "paper" else None
            rows.append(
                (
                    *(str(each) for each in (speed.size.machines, speed.size.metrics, speed.size.seconds)),
                    method,
                    _figure(cost.pass_s, 2),
                    _figure(naive_s, 1),
                    "-" if naive_s is None else _figure(naive_s / cost.pass_s, 1),
                    _figure(cost.stream_cpu_s_per_s, 4),
                    _figure(cost.peak_mib, 0),
                    _figure(cost.stream_peak_mib, 0),
                    ", ".join(f"{name} {seconds:.2f}" for name, seconds in sorted(cost.phases.items())),
                )
            )
    print_table(
        (
            "machines",
            "metrics",
            "seconds",
            "method",
            "pass, s",
            "straightforward, s",
            "ratio",
            "stream, CPU s per s",
            "peak of a pass, MiB",
            "of a stream, MiB",
            "phases of a pass, s",
        ),
        rows,
    )
    for each in growths:
        typer.echo(
            f"{each.method}, {each.machines[0]} to {each.machines[1]} machines: a pass takes {each.passes:.1f} times "
            f"as long, a stream {each.streams:.1f} times; n log n grows {each.allowed:.1f} times"
        )
    return ExitCode.OK
