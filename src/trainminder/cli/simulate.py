"""``trainminder simulate``: labelled recordings of simulated tasks, or one that a Prometheus can scrape."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trainminder.cli.options import settings_from
from trainminder.cli.progress import progress
from trainminder.errors import RecordingError, SettingsError
from trainminder.wording import counted, machine_and_device

if TYPE_CHECKING:
    from trainminder.bench.types import LabelledTask
    from trainminder.settings import Settings
    from trainminder.simulate import ClusterSpec, Fault

__all__ = ["simulate", "write_tasks"]

HEALTHY, MIXED = "none", "mixed"
#: Not beside the recordings, where counters would be taken for one.
SIGNS_FOLDER = "signs"
Ending = Literal["parquet", "csv"]


def simulate(
    ctx: typer.Context,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Folder to write recordings, labels and signs to."),
    ] = None,
    fault: Annotated[
        str,
        typer.Option(
            "--fault",
            metavar="TYPE|none|mixed",
            help="What goes wrong on one machine; mixed: in every second task, as often as in production.",
        ),
    ] = MIXED,
    strength: Annotated[
        float, typer.Option("--strength", metavar="0..1", help="How strong the fault is; 1 is the worst case.")
    ] = 1.0,
    onset: Annotated[
        float, typer.Option("--onset", metavar="SECONDS", help="When the fault begins, from the start of the data.")
    ] = 300.0,
    tasks: Annotated[int, typer.Option("--tasks", min=1, help="How many tasks, each of the next seed.")] = 1,
    machines: Annotated[int, typer.Option("--machines", help="Machines of a task.")] = 16,
    devices: Annotated[int, typer.Option("--devices", help="Devices of a machine.")] = 8,
    minutes: Annotated[float, typer.Option("--minutes", metavar="MINUTES", help="Length of a task.")] = 15.0,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", help="Sampling interval of the exporters.")
    ] = 1.0,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Seed of the first task: the same one gives the same bytes.")
    ] = 0,
    form: Annotated[
        Ending, typer.Option("--format", metavar="parquet|csv", help="Format of the recordings.")
    ] = "parquet",
    standard: Annotated[bool, typer.Option("--standard", help="Write the bench's standard set instead.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Write the bench's quick set instead.")] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Show one task live, as exporters do, until Ctrl-C; nothing is written.")
    ] = False,
    host: Annotated[str, typer.Option("--host", help="Address to serve on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to serve on; 0 takes a free one.")] = 9400,
) -> None:
    """Simulate training tasks, with or without a faulty machine, and keep them as labelled recordings.

    Each task is written as NAME.parquet, with its labels (NAME.truth.json) and what results are broken down by
    (NAME.tags.json) beside it; hardware counters and logs go to the folder signs. With --serve, one task is shown
    live under the names of dcgm-exporter and node_exporter instead.

    Example: trainminder simulate -o faults --tasks 20
    """
    settings = settings_from(ctx)
    if serve == (output is not None):
        wrong = "--output and --serve are both given" if serve else "there is nothing to do"
        raise SettingsError(f"{wrong}: give a folder to write to with -o, or --serve")
    if serve and (tasks > 1 or standard or quick):
        raise SettingsError("--serve shows one task: leave --tasks, --standard and --quick out")
    if standard or quick:
        _check_alone("--standard" if standard else "--quick", ctx)
    from trainminder.simulate import ClusterSpec

    asked = []
    for place in range(tasks):
        spec = ClusterSpec(
            machines=machines,
            devices_per_machine=devices,
            seed=seed + place,
            duration_seconds=minutes * 60.0,
            interval_seconds=interval,
        )
        # Mixed tasks take turns: one with a fault, one without.
        wanted = HEALTHY if fault == MIXED and place % 2 else fault
        asked.append((spec, _fault(spec, wanted, onset, strength)))
    if output is None:
        _serve(*asked[0], settings, host, port)
        return
    if standard or quick:
        from trainminder.bench.tasks import quick_set, standard_set

        makes = [task.make for task in (quick_set() if quick else standard_set())]
    else:
        makes = [_simulated(spec, one) for spec, one in asked]
    write_tasks(makes, output, form)


def _check_alone(chosen: str, ctx: typer.Context) -> None:
    """A set has sizes, faults and seeds of its own: what is asked of them would be passed over."""
    own = ("fault", "strength", "onset", "tasks", "machines", "devices", "minutes", "interval", "seed")
    stated = [name for name in own if getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"]
    if stated:
        options = ", ".join(f"--{name}" for name in stated)
        raise SettingsError(f"{chosen} is a set with sizes and faults of its own: leave {options} out")


def _fault(spec: ClusterSpec, wanted: str, onset: float, strength: float) -> Fault | None:
    """The fault of a task, on a machine drawn by its seed."""
    from trainminder.simulate import FAULT_MODELS, Fault
    from trainminder.simulate.cluster import generator
    from trainminder.simulate.faults import activate
    from trainminder.simulate.mix import draw_fault_type

    if wanted == HEALTHY:
        return None
    kind = draw_fault_type(spec.seed, FAULT_MODELS) if wanted == MIXED else wanted
    fault = Fault(int(generator(spec.seed, "culprit").integers(spec.machines)), kind, onset, strength=strength)
    # Said before anything is written.
    activate(spec, [fault])
    return fault


def _simulated(spec: ClusterSpec, fault: Fault | None) -> Callable[[], LabelledTask]:
    from trainminder.bench.tasks import Simulated

    tags = {
        "fault": fault.fault_type if fault else HEALTHY,
        "strength": f"{fault.strength:g}" if fault else "-",
        "size": str(spec.machines),
        "interval": f"{spec.interval_seconds:g}",
    }
    name = f"{fault.fault_type if fault else 'healthy'}-{spec.seed}"
    return Simulated(name, spec, (fault,) if fault else (), tags)


def write_tasks(makes: Sequence[Callable[[], LabelledTask]], folder: Path, ending: Ending) -> None:
    """Write labelled tasks, one after the other, each with its labels, tags and (where it is simulated) signs.

    Raises:
        RecordingError: the folder cannot be made, or a file cannot be written.
    """
    from trainminder.bench.recorded import tags_path
    from trainminder.bench.tasks import Simulated
    from trainminder.simulate.signs import simulate_signs
    from trainminder.source.recordings import write_recording, write_truth

    signs_folder = folder / SIGNS_FOLDER
    try:
        signs_folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordingError(f"{folder} cannot be made: {error.strerror}: choose another folder with -o") from error
    faulty = 0
    with progress("simulating", total=len(makes)) as advance:
        for make in makes:
            task = make()
            recording = folder / f"{task.name}.{ending}"
            write_recording(task.raw, recording)
            write_truth(task.truths, recording)
            _write_text(tags_path(recording), json.dumps(dict(task.tags), indent=2) + "\n")
            if isinstance(make, Simulated):
                signs = simulate_signs(make.spec, make.faults)
                counters = tuple(counter for counter in signs.counters if counter.machines)
                if counters:
                    raw = dataclasses.replace(task.raw, metrics=counters, groups={})
                    write_recording(raw, signs_folder / f"{task.name}.counters.{ending}")
                _write_text(signs_folder / f"{task.name}.log", "".join(f"{line}\n" for line in signs.log))
            faulty += bool(task.truths)
            advance(1, at=task.name)
    typer.echo(
        f"{folder}: {counted(len(makes), 'recording')}, {faulty} with a fault; labels and tags beside them, "
        f"hardware counters and logs in {signs_folder}"
    )


def _write_text(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RecordingError(f"{path} cannot be written: {error.strerror}: choose another folder with -o") from error


def _serve(spec: ClusterSpec, fault: Fault | None, settings: Settings, host: str, port: int) -> None:
    from trainminder.catalogue import load_catalogue
    from trainminder.clock import SystemClock
    from trainminder.exporter.live import LiveTask
    from trainminder.exporter.server import ExporterServer

    live = LiveTask(spec, fault, load_catalogue(settings.metrics))
    with ExporterServer(live, host, port, SystemClock()) as server:
        # A service manager ends it the same way as Ctrl-C.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        typer.echo(
            f"{counted(spec.machines, 'machine')} at http://{server.authority}, "
            f"for http_sd_configs at http://{server.authority}/targets; Ctrl-C ends it"
        )
        for truth in live.truths:
            where = machine_and_device(truth.machine, truth.device)
            typer.echo(f"fault: {truth.fault_type} on {where} from second {truth.start - spec.start_at:g}")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    live.close()
