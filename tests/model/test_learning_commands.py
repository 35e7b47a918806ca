"""``trainminder train`` and ``prioritise`` end to end, on small recordings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainminder.catalogue import load_catalogue
from trainminder.cli import main
from trainminder.denoise import load_model
from trainminder.simulate import ClusterSpec, Fault, simulate_task
from trainminder.source.recordings import write_recording, write_truth

METRICS = ("pfc_tx_packet_rate", "cpu_usage", "gpu_power_draw")
QUICK = ("--set", "train.epochs=2", "--set", "train.max_windows=2000")


def recorded(folder: Path, seed: int, *, is_faulty: bool = True) -> Path:
    spec = ClusterSpec(9, devices_per_machine=2, seed=seed, duration_seconds=480, metrics=METRICS)
    faults = [Fault(seed % 9, "pcie_downgrading", 160.0)] if is_faulty else []
    raw, truths = simulate_task(spec, faults, specs=load_catalogue())
    path = folder / f"task-{seed}.parquet"
    write_recording(raw, path)
    write_truth(truths, path)
    return path


def test_trained_models_are_used_by_detect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    healthy, faulty = recorded(tmp_path, 1, is_faulty=False), recorded(tmp_path, 2)
    models = tmp_path / "models"
    assert main(["train", str(healthy), "-o", str(models), *QUICK]) == 0
    shown = capsys.readouterr().out
    for name in (*METRICS, "general"):
        assert name in shown
        assert load_model(models, name, 8).card.metric == name
    assert main(["detect", str(faulty), "--method", "paper", "--models-dir", str(models), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdicts"][0]["machine"] == "machine-0002"


def test_the_same_data_and_seed_give_the_same_files(tmp_path: Path) -> None:
    recording = recorded(tmp_path, 1)
    for folder in ("one", "two"):
        assert main(["train", str(recording), "-o", str(tmp_path / folder), *QUICK]) == 0
    names = sorted(file.name for file in (tmp_path / "one").iterdir())
    assert len(names) == 8
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_model_with_another_window_is_refused_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = recorded(tmp_path, 1)
    models = tmp_path / "models"
    assert main(["train", str(recording), "-o", str(models), "--window-samples", "12", *QUICK]) == 0
    assert main(["detect", str(recording), "--method", "paper", "--models-dir", str(models)]) == 1
    said = capsys.readouterr().err
    assert "detect.window_samples is 8" in said
    assert "set it to 12" in said


def test_labelled_faults_are_left_out_of_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = recorded(tmp_path, 1)
    main(["train", str(recording), "-o", str(tmp_path / "less"), *QUICK])
    less = load_model(tmp_path / "less", "cpu_usage", 8).card
    (tmp_path / "task-1.truth.json").write_text("[]")
    main(["train", str(recording), "-o", str(tmp_path / "all"), *QUICK])
    everything = load_model(tmp_path / "all", "cpu_usage", 8).card
    assert less.train_windows + less.validation_windows < everything.train_windows + everything.validation_windows
    capsys.readouterr()


def test_prioritise_prints_the_order_and_the_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recordings = [str(recorded(tmp_path, seed)) for seed in range(3)]
    assert main(["prioritise", *recordings]) == 0
    shown = capsys.readouterr().out
    assert "|--- pfc_tx_packet_rate <=" in shown
    assert "metrics: [pfc_tx_packet_rate" in shown
    assert main(["prioritise", *recordings, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"][0] == "pfc_tx_packet_rate"


def test_a_recording_without_labels_cannot_be_learned_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = recorded(tmp_path, 1)
    (tmp_path / "task-1.truth.json").unlink()
    assert main(["prioritise", str(recording)]) == 1
    assert "task-1.truth.json is missing" in capsys.readouterr().err
