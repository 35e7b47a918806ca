"""Labels beside a recording."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from trainminder.errors import RecordingError
from trainminder.source.recordings.truth import read_truth, truth_path, write_truth
from trainminder.types import Truth

FAULTS = (Truth("a", None, "nic_dropout", 10.0, 20.5), Truth("b", "gpu3", "ecc_error", 15.0, 15.0))
LABEL = {"machine": "a", "device": None, "fault_type": "ecc_error", "start": 1, "end": 2}


@pytest.mark.parametrize("faults", [(), FAULTS])
def test_labels_read_back_from_beside_the_recording(tmp_path: Path, faults: tuple[Truth, ...]) -> None:
    for recording in ("r.parquet", "r.csv.gz"):
        write_truth(faults, tmp_path / recording)
        assert read_truth(tmp_path / recording) == read_truth(tmp_path / "r.truth.json") == faults


def test_the_labels_of_a_dotted_name_keep_it() -> None:
    assert truth_path(Path("x/llm.7.csv.gz")) == Path("x/llm.7.truth.json")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("machine", None, "machine is None: it must be text"),
        ("machine", 7, "machine is 7"),
        ("device", 0, "device is 0"),
        ("fault_type", "", "fault_type is ''"),
        ("start", "now", "start is 'now'"),
        ("end", True, "end is True"),
        ("end", 0, "end 0 lies before start 1"),
    ],
)
def test_an_incomplete_label_is_refused_with_its_place(tmp_path: Path, key: str, value: object, words: str) -> None:
    path = tmp_path / "r.truth.json"
    path.write_bytes(orjson.dumps([LABEL, LABEL | {key: value}]))
    with pytest.raises(RecordingError) as caught:
        read_truth(path)
    assert "entry 2" in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize(("content", "words"), [("{}", "holds no list"), ("[1]", "is no object"), ("[", "is not JSON")])
def test_a_file_that_holds_no_labels_is_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "r.truth.json").write_text(content)
    with pytest.raises(RecordingError, match=words):
        read_truth(tmp_path / "r.truth.json")


def test_a_recording_without_labels_is_no_recording_without_faults(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="No such file"):
        read_truth(tmp_path / "r.parquet")
