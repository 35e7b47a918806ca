"""``trainminder simulate``: labelled recordings that every other command reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainminder.bench.tasks import quick_set
from trainminder.catalogue import load_catalogue
from trainminder.cli.simulate import write_tasks
from trainminder.settings import RecordingSettings
from trainminder.simulate import FAULT_MODELS, ClusterSpec, Fault, simulate_task
from trainminder.simulate.mix import FAULT_MIX, OTHERS, draw_fault_type
from trainminder.simulate.signs import simulate_signs
from trainminder.source.recordings import read_recording, read_recordings, read_truth
from trainminder.types import RawTask

SMALL = ("--machines", "4", "--devices", "2", "--minutes", "3", "--interval", "5", "--onset", "60")


def spec_of(seed: int) -> ClusterSpec:
    return ClusterSpec(machines=4, devices_per_machine=2, seed=seed, duration_seconds=180, interval_seconds=5)


def read(path: Path) -> RawTask:
    return read_recording(path, load_catalogue(), RecordingSettings())


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_what_is_written_reads_back_as_what_was_simulated(run: Any, tmp_path: Path, ending: str) -> None:
    options = ("--fault", "thermal_throttling", "--strength", "0.6", "--seed", "5", "--format", ending)
    assert run("simulate", "-o", str(tmp_path), *SMALL, *options).code == 0
    recording = tmp_path / f"thermal_throttling-5.{ending}"
    (truth,) = read_truth(recording)
    fault = Fault(int(truth.machine[-1]), "thermal_throttling", 60.0, strength=0.6)
    raw, truths = simulate_task(spec_of(5), [fault], specs=load_catalogue())
    assert truths == (truth,)
    back = read(recording)
    assert back.warnings == ()
    for mine, theirs in zip(raw.metrics, back.metrics, strict=True):
        assert (mine.metric, mine.machines, mine.devices) == (theirs.metric, theirs.machines, theirs.devices)
        assert mine.times.tolist() == theirs.times.tolist()
        assert mine.values.tolist() == theirs.values.tolist()
    assert json.loads((tmp_path / "thermal_throttling-5.tags.json").read_text()) == {
        "fault": "thermal_throttling",
        "strength": "0.6",
        "size": "4",
        "interval": "5",
    }
    signs = simulate_signs(spec_of(5), [fault])
    log = (tmp_path / "signs" / "thermal_throttling-5.log").read_text()
    assert log == "".join(f"{line}\n" for line in signs.log)
    counters = read_recording(
        tmp_path / "signs" / f"thermal_throttling-5.counters.{ending}",
        load_catalogue().with_declared(["clock_throttle_reasons"]),
        RecordingSettings(),
    )
    simulated = next(counter for counter in signs.counters if counter.metric == "clock_throttle_reasons")
    assert counters.metrics[0].values.tolist() == simulated.values.tolist()


def test_the_folder_holds_recordings_and_nothing_else_that_is_taken_for_one(run: Any, tmp_path: Path) -> None:
    ran = run("simulate", "-o", str(tmp_path), *SMALL, "--tasks", "3")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"{tmp_path}: 3 recordings, 2 with a fault; labels and tags beside them")
    tasks = read_recordings(tmp_path, load_catalogue(), RecordingSettings())
    assert [task.task.rpartition("-")[2] for task in tasks].count("1") == 1
    healthy = next(task.task for task in tasks if task.task.startswith("healthy"))
    assert healthy == "healthy-1"
    assert read_truth(tmp_path / "healthy-1.parquet") == ()
    assert all(len(read_truth(tmp_path / f"{task.task}.parquet")) == 1 for task in tasks if task.task != healthy)


def test_the_same_seed_writes_the_same_bytes(run: Any, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        assert run("simulate", "-o", str(tmp_path / folder), *SMALL, "--fault", "nvlink_error").code == 0
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert len(files) == 5
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


def test_sets_of_the_bench_are_written_under_their_own_names_with_their_signs(tmp_path: Path) -> None:
    two = quick_set()[:2]
    write_tasks([task.make for task in two], tmp_path, "parquet")
    for task in two:
        labelled = task.make()
        assert read_truth(tmp_path / f"{task.name}.parquet") == labelled.truths
        assert json.loads((tmp_path / f"{task.name}.tags.json").read_text()) == labelled.tags
        assert (tmp_path / "signs" / f"{task.name}.log").exists()


def test_faults_are_mixed_as_in_production() -> None:
    known = list(FAULT_MODELS)
    drawn = [draw_fault_type(seed, known) for seed in range(2000)]
    named = {name: weight for name, weight in FAULT_MIX.items() if name in known}
    for name, weight in named.items():
        expected = weight / (sum(named.values()) + OTHERS)
        assert drawn.count(name) / 2000 == pytest.approx(expected, abs=0.03)
    assert set(drawn) == set(known)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("-o", "x", "--fault", "ecc_eror"), 'fault type "ecc_eror" is not known: did you mean "ecc_error"?'),
        (("-o", "x", "--fault", "ecc_error", "--strength", "2"), "strength is 2: it must be more than 0 and at most 1"),
        (("-o", "x", "--minutes", "2"), "onset 300 s is outside the 120 s that are simulated"),
        (("-o", "x", "--machines", "0"), "simulate.machines is 0: it must be at least 1"),
        (("-o", "x", "--interval", "0"), "simulate.interval_seconds is 0.0: it must be more than 0 seconds"),
        ((), "there is nothing to do: give a folder to write to with -o, or --serve"),
        (("-o", "x", "--serve"), "--output and --serve are both given: give a folder to write to with -o, or --serve"),
        (
            ("-o", "x", "--quick", "--tasks", "3", "--fault", "none"),
            "--quick is a set with sizes and faults of its own: leave --fault, --tasks out",
        ),
        (("--serve", "--tasks", "2"), "--serve shows one task: leave --tasks, --standard and --quick out"),
    ],
)
def test_what_cannot_be_simulated_is_one_line_and_writes_nothing(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run("simulate", *options)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.count("\n") == 1
    assert says in ran.err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(run: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = run("simulate", "-o", str(tmp_path / "file" / "x"), *SMALL)
    assert ran.code == 1
    assert ran.err == f"error: {tmp_path}/file/x cannot be made: Not a directory: choose another folder with -o\n"
