"""``trainminder demo``: the main job on a simulated task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainminder.cli.detect import exit_code, judge, show
from trainminder.cli.options import FailOnFaultyOption, FormatOption, settings_from
from trainminder.wording import machine_and_device

__all__ = ["demo"]


def demo(
    ctx: typer.Context,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the recording, its labels and the report.")
    ] = Path("demo"),
    machines: Annotated[int, typer.Option("--machines", min=3, max=2000, help="Machines of the task.")] = 16,
    fault: Annotated[
        str, typer.Option("--fault", metavar="TYPE", help='Fault to inject, or "none".')
    ] = "pcie_downgrading",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the simulation.")] = 7,
    form: FormatOption = "table",
    fail_on_faulty: FailOnFaultyOption = False,
) -> int:
    """Simulate a task with one faulty machine, find it, and write the HTML report.

    Example: trainminder demo --fault thermal_throttling
    """
    from trainminder.catalogue import load_catalogue
    from trainminder.errors import RecordingError
    from trainminder.simulate import ClusterSpec, Fault, simulate_task
    from trainminder.source.recordings import write_recording
    from trainminder.source.recordings.truth import write_truth

    settings = settings_from(ctx)
    faults = [] if fault == "none" else [Fault(seed % machines, fault, onset_seconds=300.0)]
    raw, truths = simulate_task(
        ClusterSpec(machines=machines, seed=seed, task="demo"), faults, specs=load_catalogue(settings.metrics)
    )
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordingError(f"{output} cannot be made: {error.strerror}: choose another folder with -o") from error
    recording, report = output / "demo.parquet", output / "demo.html"
    write_recording(raw, recording)
    write_truth(truths, recording)

    def says(text: str) -> None:
        typer.echo(text, err=form == "json")

    for truth in truths:
        where = machine_and_device(truth.machine, truth.device)
        says(f"simulated: {machines} machines for 15 minutes; {truth.fault_type} on {where} from second 300")
    result = judge(raw, settings.detect, keep_traces=True)
    show(result, form, report)
    says(f"\nreport:    {report}\nrecording: {recording} (try: trainminder detect {recording})")
    return exit_code(result, fail_on_faulty)
