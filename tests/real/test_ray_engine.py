"""Work over a real Ray: what a killed worker had under way goes on elsewhere, and nothing is told twice."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import spread_work
from spread_work import METRICS, SECONDS, SlowReplay, deadly, fails, replay_of, square_or_die_once
from trainminder.bench.ledger import open_ledger
from trainminder.bench.run import run_methods
from trainminder.bench.tasks import quick_set
from trainminder.catalogue import load_catalogue
from trainminder.cli import main
from trainminder.engine import ENGINES
from trainminder.engine.local import Local
from trainminder.engine.on_ray import OnRay
from trainminder.errors import EngineError, RecordingError
from trainminder.replay import Moment
from trainminder.simulate import ClusterSpec, Fault, simulate_task
from trainminder.source.recordings import write_recording

SUPPORT = Path(spread_work.__file__).parent


@pytest.fixture(scope="module")
def ray_engine() -> Iterator[OnRay]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SUPPORT), prepend=os.pathsep)
        # Saved so seldom that a worker that dies has told what it has not saved.
        with OnRay(save_seconds=0.4) as engine:
            yield engine


def facts(moments: list[tuple[str, Moment]]) -> dict[str, list[Any]]:
    """What each task told, in its order."""
    told: dict[str, list[Any]] = {}
    for name, moment in moments:
        told.setdefault(name, []).append((moment.at, moment.raised, moment.result.as_json()))
    return told


def test_tasks_of_a_worker_that_is_killed_go_on_elsewhere(ray_engine: OnRay, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    makes: dict[str, Callable[[bytes | None], SlowReplay]] = {
        f"task-{seed}": partial(replay_of, seed, there) for seed in range(4)
    }
    moments: list[tuple[str, Moment]] = []
    killed = 0
    for name, moment in ray_engine.watch(makes):
        moments.append((name, moment))
        # Once early, before anything is raised, and once when a verdict stands.
        if (killed == 0 and moment.share > 0.2) or (killed == 1 and moment.raised):
            killed += 1
            os.kill(_process_of(there, name), signal.SIGKILL)
    assert killed == 2
    by_hand = {name: partial(replay_of, seed, here) for seed, name in enumerate(makes)}
    expected = facts(list(Local().watch(by_hand)))
    assert facts(moments) == expected
    raised = [verdict.machine for _, moment in moments for verdict in moment.raised]
    assert raised == ["machine-0003"] * 2
    assert sum(1 for _ in there.iterdir()) > len(makes)
    assert ray_engine.saved("task-1")


def _process_of(folder: Path, name: str) -> int:
    """The process that the task is in now."""
    newest = max(folder.glob(f"{name}.*"), key=lambda path: path.stat().st_mtime_ns)
    return int(newest.suffix[1:])


def test_a_task_that_kills_every_worker_is_named(ray_engine: OnRay) -> None:
    with pytest.raises(EngineError, match="task bad: its worker died 4 times without getting any further"):
        list(ray_engine.watch({"bad": deadly}))


def test_an_error_of_a_watch_is_raised_as_it_is(ray_engine: OnRay) -> None:
    with pytest.raises(RecordingError, match=r"^run.parquet: no such file$"):
        list(ray_engine.watch({"gone": fails}))


def test_a_job_whose_worker_dies_is_done_again(ray_engine: OnRay, tmp_path: Path) -> None:
    assert list(ray_engine.map(partial(square_or_die_once, tmp_path), range(8))) == [n * n for n in range(8)]
    assert (tmp_path / "died").exists()


@pytest.mark.usefixtures("ray_engine")
def test_the_bench_says_the_same_on_ray(tmp_path: Path) -> None:
    tasks = list(quick_set())[:2]
    said = []
    for engine in ENGINES:
        with open_ledger(tmp_path / engine, fresh=True) as ledger:
            outcomes = run_methods(tasks, {"default": (0.0,)}, ledger, jobs=1, engine=engine)
        said.append([(outcome.task, outcome.method, outcome.verdicts, outcome.error) for outcome in outcomes])
    assert said[0] == said[1]


@pytest.mark.usefixtures("ray_engine")
def test_recordings_are_replayed_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for name, faults in (("faulty", [Fault(3, "pcie_downgrading", onset_seconds=300.0)]), ("healthy", [])):
        spec = ClusterSpec(8, seed=2, duration_seconds=SECONDS, metrics=METRICS, task=name)
        paths.append(str(tmp_path / f"{name}.parquet"))
        write_recording(simulate_task(spec, faults, specs=load_catalogue())[0], Path(paths[-1]))
    state = ["--state", str(tmp_path / "state")]
    told = {}
    for engine in ENGINES:
        assert main(["replay", *paths, "--engine", engine, "--format", "json"]) == 0
        told[engine] = json.loads(capsys.readouterr().out)
    assert told["ray"] == told["local"]
    assert [task["status"] for task in told["ray"]["tasks"]] == ["faulty", "none"]
    assert main(["replay", paths[0], *state, "--engine", "ray"]) == 0
    assert "machine-0003 is faulty" in capsys.readouterr().out
    # Nothing is left to replay, and what stands is known.
    assert main(["replay", paths[0], *state, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == told["local"]["tasks"][0]


@pytest.mark.usefixtures("ray_engine")
def test_models_are_trained_to_the_same_files(tmp_path: Path) -> None:
    spec = ClusterSpec(9, seed=1, duration_seconds=480, metrics=METRICS)
    recording = tmp_path / "healthy.parquet"
    write_recording(simulate_task(spec, [], specs=load_catalogue())[0], recording)
    quick = ("--set", "train.epochs=1", "--set", "train.max_windows=1000")
    for engine in ENGINES:
        assert main(["train", str(recording), "-o", str(tmp_path / engine), "--engine", engine, *quick]) == 0
    names = sorted(file.name for file in (tmp_path / "local").iterdir())
    assert len(names) == 2 * (len(METRICS) + 1)
    for name in names:
        assert (tmp_path / "local" / name).read_bytes() == (tmp_path / "ray" / name).read_bytes()
