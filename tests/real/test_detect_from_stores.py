"""A task judged from a real store gets the verdict that its recording gets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainminder.catalogue import load_catalogue
from trainminder.cli import main
from trainminder.denoise import load_model
from trainminder.settings import RecordingSettings
from trainminder.simulate import ClusterSpec, Fault, simulate_task
from trainminder.source.recordings import read_recording, write_recording
from trainminder.types import RawTask

NAMES = {
    "gpu_duty_cycle": "DCGM_FI_DEV_GPU_UTIL",
    "gpu_power_draw": "DCGM_FI_DEV_POWER_USAGE",
    "gpu_tensor_activity": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "gpu_sm_clock": "DCGM_FI_DEV_SM_CLOCK",
    "gpu_temperature": "DCGM_FI_DEV_GPU_TEMP",
}
Build = Callable[..., Any]
START = 1_764_580_000.0


@pytest.fixture(params=["prometheus_with", "victoria_metrics_with"])
def store_with(request: pytest.FixtureRequest) -> Build:
    start: Build = request.getfixturevalue(request.param)
    return start


def simulated() -> RawTask:
    """Samples on the second and none lost: then the file and the store hold the same instants."""
    spec = ClusterSpec(
        machines=8,
        devices_per_machine=2,
        seed=11,
        duration_seconds=540,
        start_at=START,
        task="llm-7",
        metrics=tuple(NAMES),
        missing_ratio=0.0,
        gaps_per_hour=0.0,
        phase_ratio=0.0,
        jitter_ratio=0.0,
    )
    raw, _ = simulate_task(spec, [Fault(5, "thermal_throttling", onset_seconds=150.0)], specs=load_catalogue())
    return raw


def verdict_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["detect", *arguments, "--format", "json", "--fail-on-faulty"]) == 2
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_store_and_the_recording_of_the_same_task_are_judged_equal(
    store_with: Build, series_of: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = simulated()
    file = tmp_path / "llm-7.parquet"
    write_recording(raw, file)
    url = store_with(series_of(raw, NAMES)).url
    from_file = verdict_of(capsys, str(file))
    from_store = verdict_of(
        capsys, "--prometheus", url, "--task", "llm-7", "--at", str(START + 539), "--minutes", str(539 / 60)
    )
    assert from_file["verdicts"][0]["machine"] == "machine-0005"
    for mine, theirs in zip(from_file["verdicts"], from_store["verdicts"], strict=True):
        assert mine["score"] == pytest.approx(theirs["score"], rel=1e-3)
        for evidence, other in zip(mine.pop("evidence"), theirs.pop("evidence"), strict=True):
            assert (evidence["metric"], evidence["since"], evidence["until"]) == (
                other["metric"], other["since"], other["until"],
            )  # fmt: skip
        assert mine | {"score": 0} == theirs | {"score": 0}
    assert from_file["coverage"]["samples_missing"] == from_store["coverage"]["samples_missing"] == 0
    assert from_file["coverage"]["metrics_used"] == from_store["coverage"]["metrics_used"]


def test_record_writes_what_the_store_has(
    store_with: Build, series_of: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = simulated()
    url = store_with(series_of(raw, NAMES)).url
    file = tmp_path / "snapshot.parquet"
    code = main(
        [
            "record",
            "--prometheus",
            url,
            "--task",
            "llm-7",
            "--from",
            str(START),
            "--to",
            str(START + 539),
            "-o",
            str(file),
        ]
    )
    assert code == 0
    assert "8 machines, 5 metrics" in capsys.readouterr().out
    read = read_recording(file, load_catalogue(), RecordingSettings())
    for mine, theirs in zip(raw.metrics, read.metrics, strict=True):
        assert mine.machines == theirs.machines
        assert mine.times.tolist() == theirs.times.tolist()
        assert mine.values.tolist() == pytest.approx(theirs.values.tolist(), rel=1e-11)


def test_fetching_and_judging_are_timed_apart(
    prometheus_with: Build, series_of: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    url = prometheus_with(series_of(simulated(), NAMES)).url
    code = main(["detect", "--prometheus", url, "--task", "llm-7", "--at", str(START + 539), "--minutes", "9"])
    said = capsys.readouterr()
    assert code == 0
    assert said.out.startswith("task llm-7: machine machine-0005")
    assert "fetched in " in said.err
    assert "judged in " in said.err


def test_models_are_trained_from_a_live_store(
    prometheus_with: Build, series_of: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = prometheus_with(series_of(simulated(), NAMES)).url
    models = tmp_path / "models"
    source = ["--prometheus", url, "--task", "llm-7", "--at", str(START + 539), "--minutes", "9"]
    quick = ["--set", "train.epochs=1", "--set", "train.max_windows=2000"]
    assert main(["train", *source, "-o", str(models), *quick]) == 0
    assert load_model(models, "gpu_sm_clock", 8).card.metric == "gpu_sm_clock"
    capsys.readouterr()


def test_any_series_of_a_store_can_be_admitted_as_a_metric(
    prometheus_with: Build, series_of: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    url = prometheus_with(series_of(simulated(), {"gpu_sm_clock": "my_own_clock"})).url
    found = verdict_of(
        capsys,
        *("--prometheus", url, "--task", "llm-7", "--at", str(START + 539), "--minutes", "9"),
        *("--metric", "my_own_clock=MHz"),
    )
    assert (found["verdicts"][0]["machine"], found["verdicts"][0]["metric"]) == ("machine-0005", "my_own_clock")


def test_data_that_end_before_the_range_are_said(
    prometheus_with: Build, series_of: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    url = prometheus_with(series_of(simulated(), NAMES)).url
    found = verdict_of(capsys, "--prometheus", url, "--task", "llm-7", "--at", str(START + 720), "--minutes", "12")
    assert any("no sample of any machine in the last 1" in warning for warning in found["warnings"])


def test_an_admitted_metric_that_the_store_lacks_is_an_error(
    prometheus_with: Build, series_of: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    url = prometheus_with(series_of(simulated(), NAMES)).url
    source = ["--prometheus", url, "--task", "llm-7", "--at", str(START + 539), "--minutes", "9"]
    assert main(["detect", *source, "--metric", "step_time=s"]) == 1
    assert "no series of task llm-7 for the metric step_time" in capsys.readouterr().err
