"""Telemetry of real jobs, converted and judged. The data lie beside the repository."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from shared_data import shared_data
from trainminder.source.recordings import read_truth

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "real_data.py"
TIMINGS = ["data_ms", "compute_ms", "comm_ms", "wait_ms", "step_ms"]


@dataclass(frozen=True)
class Converted:
    folder: Path
    printed: str

    def outcome(self, name: str) -> str:
        """What the method made of the recording of this name."""
        return next(line.split()[1] for line in self.printed.splitlines() if line.startswith(f"{name} "))

    def tags(self) -> dict[str, dict[str, str]]:
        return {path.name[:-10]: json.loads(path.read_text()) for path in self.folder.glob("*.tags.json")}

    def run_of_source(self, name: str) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows of a recording of ascend_failslow, and those they were made of."""
        rows = pl.read_parquet(shared_data() / "ascend_failslow" / "telemetry.parquet")
        return pl.read_parquet(self.folder / f"{name}.parquet"), rows.filter(pl.col("run") == int(name.split("-")[1]))


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Converted:
    folder = tmp_path_factory.mktemp("real")
    judged = ["--detect", "--each", "--match", "gpu_bound-(none|inline_cube)-loud|whatif"]
    done = subprocess.run(
        [sys.executable, SCRIPT, shared_data(), "-o", folder, *judged], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return Converted(folder, done.stdout)


def test_every_run_becomes_a_recording_with_its_truth_by_the_scope_of_its_label(converted: Converted) -> None:
    faults = {name: len(read_truth(converted.folder / f"{name}.parquet")) for name in converted.tags()}
    scopes = {name: tags["scope"] for name, tags in converted.tags().items() if tags["set"] == "ascend_failslow"}
    assert [list(scopes.values()).count(scope) for scope in ("rank", "host", "none")] == [25, 6, 16]
    assert all(faults[name] == (scope == "rank") for name, scope in scopes.items())
    assert [faults[f"whatif-{trace}"] for trace in ("AR", "SE", "ST")] == [1, 0, 0]


def test_the_truth_is_the_source_s_faulty_rank_under_another_name_in_each_run(converted: Converted) -> None:
    names = [name for name, tags in converted.tags().items() if tags["scope"] == "rank"]
    culprits = {}
    for name in names:
        recorded, source = converted.run_of_source(name)
        (truth,) = read_truth(converted.folder / f"{name}.parquet")
        mine = recorded.filter(pl.col("machine") == truth.machine).sort("timestamp")
        theirs = source.filter(pl.col("rank") == 7).sort("step")
        assert mine["compute_ms"].cast(pl.Float32).equals(theirs["compute_ms"])
        during = mine.filter(pl.col("timestamp").is_between(truth.start, truth.end))
        assert during["compute_ms"].cast(pl.Float32).equals(theirs["compute_ms"][100:300])
        culprits[name] = truth.machine
    assert len(set(culprits.values())) > 8


def test_memory_which_betrays_the_rank_before_its_fault_is_left_out(converted: Converted) -> None:
    recorded, source = converted.run_of_source("ascend-004-gpu_bound-inline_cube-loud")
    assert {"mem_alloc_mb", "mem_reserved_mb"} <= set(source.columns)
    assert [name for name in recorded.columns if name.endswith(("_ms", "_mb"))] == TIMINGS


def test_workers_are_grouped_by_their_pipeline_stage(converted: Converted) -> None:
    machines = pl.read_parquet(converted.folder / "whatif-AR.parquet").select("machine", "group").unique()
    assert machines.group_by("group").len().sort("group").rows() == [(f"stage{stage}", 4) for stage in range(4)]
    assert ("rank000", "stage0") in machines.rows()


def test_a_rank_with_more_to_compute_is_named_although_its_peers_times_grow(converted: Converted) -> None:
    assert converted.outcome("ascend-004-gpu_bound-inline_cube-loud") == "right"
    assert converted.outcome("ascend-005-gpu_bound-inline_cube-loud") == "right"


def test_the_slowed_worker_of_a_pipeline_is_named_and_nobody_of_the_uneven_one(converted: Converted) -> None:
    assert converted.outcome("whatif-AR") == "right"
    assert converted.outcome("whatif-SE") == "quiet"


def test_stages_of_two_workers_cannot_be_judged(converted: Converted) -> None:
    assert converted.outcome("whatif-ST") == "unknown"


def test_nobody_is_named_in_steady_runs_without_a_fault(converted: Converted) -> None:
    quiet = [name for name in converted.tags() if name.endswith("gpu_bound-none-loud")]
    assert len(quiet) > 2
    assert {converted.outcome(name) for name in quiet} == {"quiet"}


def test_the_metrics_to_admit_are_printed(converted: Converted) -> None:
    assert " ".join(f"--metric {name}=ms" for name in TIMINGS) in converted.printed


def test_data_that_are_not_there_are_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path / "none", "-o", tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {tmp_path}/none/ascend_failslow/telemetry.parquet does not exist: give the")
