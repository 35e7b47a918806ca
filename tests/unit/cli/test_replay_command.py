"""Replaying recordings from the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainminder.catalogue import load_catalogue
from trainminder.simulate import ClusterSpec, Fault, simulate_task
from trainminder.source.recordings import write_recording

Run = Callable[..., Any]
METRICS = ("gpu_duty_cycle", "pcie_bandwidth", "pfc_tx_packet_rate")


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("replayed")
    paths = []
    for name, faults in (("faulty", [Fault(3, "pcie_downgrading", onset_seconds=300.0)]), ("healthy", [])):
        spec = ClusterSpec(8, seed=2, duration_seconds=600, metrics=METRICS, task=name)
        raw, _ = simulate_task(spec, faults, specs=load_catalogue())
        path = folder / f"{name}.parquet"
        write_recording(raw, path)
        paths.append(path)
    return paths[0], paths[1]


def test_it_says_what_would_have_been_raised_and_when(run: Run, recordings: tuple[Path, Path]) -> None:
    faulty, _ = recordings
    ran = run("replay", str(faulty), "--every", "15")
    raised, coverage = ran.out.splitlines()
    whole = json.loads(run("detect", str(faulty), "--format", "json").out)
    (verdict,) = whole["verdicts"]
    assert "machine-0003 is faulty" in raised
    assert coverage.startswith("8 of 8 machines seen")
    # Looked at every 15 s, it is raised at the first look after it stood.
    at = raised.split()[0]
    assert at[:10] == "2025-10-09"
    assert ran.code == 0
    assert verdict["machine"] == "machine-0003"


def test_the_json_is_that_of_a_pass_over_all_of_it(run: Run, recordings: tuple[Path, Path]) -> None:
    for path in recordings:
        assert json.loads(run("replay", str(path), "--format", "json").out) == json.loads(
            run("detect", str(path), "--format", "json").out
        )


def test_several_recordings_are_replayed_one_after_the_other(run: Run, recordings: tuple[Path, Path]) -> None:
    ran = run("replay", *map(str, recordings), "--format", "json", "--fail-on-faulty")
    assert [task["status"] for task in json.loads(ran.out)["tasks"]] == ["faulty", "none"]
    assert ran.code == 2


def test_a_replay_goes_on_from_its_state(run: Run, recordings: tuple[Path, Path], tmp_path: Path) -> None:
    faulty, healthy = recordings
    state = tmp_path / "stream"
    first = run("replay", str(faulty), "--state", str(state), "--at", "2025-10-09T08:59:00Z")
    assert "is faulty" in first.out
    again = run("replay", str(faulty), "--state", str(state), "--format", "json")
    assert json.loads(again.out) == json.loads(run("detect", str(faulty), "--format", "json").out)
    other = run("replay", str(healthy), "--state", str(state))
    assert (other.code, other.out) == (1, "")
    assert f'{state} holds the stream of task "faulty", not of "healthy"' in other.err
    changed = run("replay", str(faulty), "--state", str(state), "--method", "paper")
    assert "was saved with detect.method default" in changed.err
    state.write_bytes(state.read_bytes()[:-1])
    damaged = run("replay", str(faulty), "--state", str(state))
    assert "the saved stream is damaged" in damaged.err


def test_one_state_cannot_hold_several_streams(run: Run, recordings: tuple[Path, Path], tmp_path: Path) -> None:
    ran = run("replay", *map(str, recordings), "--state", str(tmp_path / "stream"))
    assert (ran.code, ran.out) == (1, "")
    assert "--state holds one stream" in ran.err


def test_a_state_that_cannot_be_written_is_an_error(run: Run, recordings: tuple[Path, Path], tmp_path: Path) -> None:
    ran = run("replay", str(recordings[1]), "--state", str(tmp_path / "nowhere" / "stream"))
    assert ran.code == 1
    assert "give a file that can be written" in ran.err


def test_without_ray_its_engine_says_what_to_install(
    run: Run, recordings: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    ran = run("replay", str(recordings[0]), "--engine", "ray")
    assert ran.code == 1
    assert ran.err == 'error: --engine ray needs the extra "scale": pip install "trainminder[scale]"\n'
