"""``trainminder train`` and ``trainminder prioritise``: what is learned from history."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainminder.cli.inputs import Wanted, catalogue_of, check_one_source, fetch
from trainminder.cli.options import (
    BearerTokenFileOption,
    CaFileOption,
    ColumnOption,
    EngineOption,
    FormatOption,
    HeaderOption,
    MachineLabelOption,
    MetricOption,
    MinutesOption,
    OptionalAtOption,
    PrometheusOption,
    RecordingsArgument,
    TaskOption,
    recording_flags,
    settings_from,
    store_flags,
)
from trainminder.cli.output import print_json, print_table
from trainminder.cli.progress import progress
from trainminder.engine import EngineName, engine_named
from trainminder.errors import MissingExtra, SettingsError

if TYPE_CHECKING:
    from trainminder.catalogue import Catalogue
    from trainminder.denoise import DenoisingModel
    from trainminder.settings import Settings
    from trainminder.types import Float32Array, RawTask, Truth

__all__ = ["prioritise", "train"]

#: Fewer windows than this teach a model nothing that lasts.
LEAST_WINDOWS = 1_000


def train(
    ctx: typer.Context,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder to write the models to.")],
    recordings: RecordingsArgument = None,
    prometheus: PrometheusOption = None,
    task: TaskOption = None,
    at: OptionalAtOption = None,
    minutes: MinutesOption = None,
    metric: MetricOption = None,
    column: ColumnOption = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of everything random. [0]")] = None,
    window_samples: Annotated[
        int | None, typer.Option("--window-samples", metavar="SAMPLES", help="Samples per window. [8]")
    ] = None,
    bearer_token_file: BearerTokenFileOption = None,
    header: HeaderOption = None,
    ca_file: CaFileOption = None,
    machine_label: MachineLabelOption = None,
    engine: EngineOption = "local",
) -> None:
    """Train a denoising model for each metric, from recordings or a live store.

    Intervals that a recording's labels (NAME.truth.json beside it) call faulty are left out. A model
    named general, trained on all metrics together, serves metrics without one of their own.

    Example: trainminder train week/*.parquet -o models
    """
    check_one_source(recordings, prometheus)
    if importlib.util.find_spec("torch") is None:
        # Said before any data are read.
        raise MissingExtra("training", "train")
    settings = settings_from(
        ctx,
        store_flags(prometheus, bearer_token_file, header, ca_file, machine_label)
        | recording_flags(column)
        | {"train.seed": seed, "detect.window_samples": window_samples},
    )
    catalogue = catalogue_of(settings, metric)
    if recordings:
        tasks = _labelled_tasks(recordings, settings, catalogue)
    else:
        fetched = fetch(Wanted(None, task, at, minutes), settings, catalogue)
        tasks = [(fetched.raw, ())]
    from trainminder.denoise.windows import training_windows

    wanted = [name for name in catalogue if any(name in raw.specs for raw, _ in tasks)]
    windows = {
        name: training_windows(
            tasks, catalogue[name], settings.detect.window_samples, settings.train.max_windows, settings.train.seed
        )
        for name in wanted
    }
    enough = {name: each for name, each in windows.items() if len(each) >= LEAST_WINDOWS}
    for name, each in windows.items():
        if name not in enough:
            typer.echo(f"warning: {name}: {len(each)} whole windows, too few to train on: left out", err=True)
    if not enough:
        raise SettingsError(f"no metric has {LEAST_WINDOWS} whole windows to train on: give longer or more recordings")
    _train_all(enough, settings, output, engine)


def _trained(settings: Settings, named: tuple[str, Float32Array]) -> DenoisingModel:
    from trainminder.denoise.training import train_model
    from trainminder.denoise.windows import NORMALISATION

    name, windows = named
    return train_model(
        windows,
        metric=name,
        window_samples=settings.detect.window_samples,
        normalisation=NORMALISATION,
        settings=settings.train,
    )


def _train_all(windows: dict[str, Float32Array], settings: Settings, output: Path, engine: EngineName) -> None:
    import numpy as np

    from trainminder.denoise import GENERAL_MODEL, save_model

    share = max(settings.train.max_windows // len(windows), 1)
    rng = np.random.default_rng(settings.train.seed)
    pooled = np.concatenate([rng.permutation(each)[:share] for each in windows.values()])
    rows = []
    everything = {**windows, GENERAL_MODEL: pooled}
    with engine_named(engine) as running, progress("training", total=len(everything)) as advance:
        models = running.map(partial(_trained, settings), list(everything.items()))
        for (name, each), model in zip(everything.items(), models, strict=True):
            save_model(model, output)
            last = model.card.history[-1]
            rows.append((name, str(len(each)), f"{last.validation_mse:.2e}", f"{last.validation_kl:.3g}"))
            advance(1, at=name)
    print_table(("metric", "windows", "validation MSE", "KL"), rows)
    typer.echo(f'written to {output}: use them with "detect --method paper --models-dir {output}" or detect.models_dir')


def prioritise(
    ctx: typer.Context,
    recordings: RecordingsArgument = None,
    metric: MetricOption = None,
    column: ColumnOption = None,
    seed: Annotated[int, typer.Option("--seed", help="Breaks ties between equally good splits.")] = 0,
    form: FormatOption = "table",
) -> None:
    """Learn the order in which metrics are asked, from labelled recordings; print it and the decision tree.

    Example: trainminder prioritise labelled/*.parquet
    """
    settings = settings_from(ctx, recording_flags(column))
    catalogue = catalogue_of(settings, metric)
    if not recordings:
        raise SettingsError("no RECORDING given: name labelled recordings (labels lie beside them as NAME.truth.json)")
    tasks = _labelled_tasks(recordings, settings, catalogue, needs_labels=True)
    from trainminder.prioritise import label_windows, learn_priority

    metrics = [name for name in catalogue if any(name in raw.specs for raw, _ in tasks)]
    priority = learn_priority(
        [label_windows(raw, truths, metrics, settings.detect.window_samples) for raw, truths in tasks], seed=seed
    )
    if form == "json":
        print_json(
            {
                "metrics": list(priority.metrics),
                "depths": dict(priority.depths),
                "tree": priority.tree,
                "windows": priority.windows,
                "abnormal": priority.abnormal,
            }
        )
        return
    typer.echo(f"learned from {priority.windows} windows of {len(tasks)} tasks, {priority.abnormal} of them abnormal\n")
    typer.echo(priority.tree)
    rows = [
        (str(place), name, "not used" if priority.depths[name] is None else str(priority.depths[name]))
        for place, name in enumerate(priority.metrics, start=1)
    ]
    print_table(("order", "metric", "depth in the tree"), rows)
    typer.echo(f"for the settings file:\ndetect:\n  metrics: [{', '.join(priority.metrics)}]")


def _labelled_tasks(
    paths: Sequence[Path], settings: Settings, catalogue: Catalogue, *, needs_labels: bool = False
) -> list[tuple[RawTask, tuple[Truth, ...]]]:
    """Every task of every recording with its known faults."""
    from trainminder.source.recordings import read_labelled

    return [
        (task.raw, task.truths)
        for path in paths
        for task in read_labelled(path, catalogue, settings.recording, needs_labels=needs_labels)
    ]
