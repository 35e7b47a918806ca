"""The examples of docs/recordings.md are recordings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from trainminder.catalogue import load_catalogue
from trainminder.settings import RecordingSettings, Settings
from trainminder.source.recordings import read_recording, read_truth

TEXT = (Path(__file__).parents[2] / "docs" / "recordings.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return [re.sub(r"(?m)^  ", "", block) for block in re.findall(rf"(?s)```{language}\n(.*?)\s*```", TEXT)]


@pytest.mark.parametrize("text", blocks("csv"), ids=["wide", "long"])
def test_every_csv_example_reads_without_a_warning(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.csv").write_text(text)
    raw = read_recording(tmp_path / "r.csv", load_catalogue(), RecordingSettings())
    assert {metric.metric for metric in raw.metrics} == {"cpu_usage", "gpu_power_draw"}
    assert raw.warnings == ()


def test_the_examples_of_settings_and_labels_are_valid(tmp_path: Path) -> None:
    (settings,) = blocks("yaml")
    assert Settings.model_validate(yaml.safe_load(settings)).recording.columns["power_w"] in load_catalogue()
    (labels,) = blocks("json")
    (tmp_path / "r.truth.json").write_text(labels)
    assert read_truth(tmp_path / "r.truth.json")[0].machine == "node-b"


def test_every_setting_of_recordings_is_documented() -> None:
    # columns is shown as a YAML example, under its section.
    assert [key for key in RecordingSettings.model_fields if f"recording.{key}" not in TEXT] == ["columns"]
