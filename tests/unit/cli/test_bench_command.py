"""``trainminder bench``: recordings from anywhere, the shape of its JSON, its page, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from trainminder.bench.calibrate import Chosen
from trainminder.bench.run import find_methods
from trainminder.bench.thresholds import write_thresholds
from trainminder.catalogue import load_catalogue
from trainminder.simulate import ClusterSpec, Fault, simulate_task
from trainminder.source.recordings import write_recording, write_truth

METRICS = ("pfc_tx_packet_rate", "cpu_usage")
FIGURES = {
    "precision",
    "recall",
    "f1",
    "false_alarms_per_1000_machine_hours",
    "top1",
    "delay_median_s",
    "delay_p90_s",
    "by",
}


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Labelled recordings: two faulty tasks and a healthy one."""
    folder = tmp_path / "incidents"
    folder.mkdir()
    for seed, faults in enumerate(((Fault(2, "pcie_downgrading", 120.0),), (), (Fault(5, "pcie_downgrading", 120.0),))):
        spec = ClusterSpec(8, devices_per_machine=1, seed=seed, duration_seconds=600, metrics=METRICS)
        raw, truths = simulate_task(spec, faults, specs=load_catalogue())
        write_recording(raw, folder / f"task-{seed}.parquet")
        write_truth(truths, folder / f"task-{seed}.parquet")
    (folder / "task-2.tags.json").write_text('{"strength": "clear", "fabric": 400}')
    return folder


@pytest.fixture
def thresholds(tmp_path: Path) -> Path:
    """The most lenient threshold of the method named paper."""
    path = tmp_path / "thresholds.toml"
    write_thresholds({"paper": Chosen(find_methods()["paper"]().thresholds[-1], True, 2.0, 0.8, 1.0)}, path)
    return path


@pytest.fixture
def judge(run: Run, folder: Path, thresholds: Path, tmp_path: Path) -> Run:
    """Runs the method named paper over the labelled recordings."""

    def judged(*more: str) -> Ran:
        return run(
            *("bench", "--recordings", str(folder), "--methods", "paper", "--thresholds", str(thresholds)),
            *("--jobs", "1", "-o", str(tmp_path / "out"), *more),
        )

    return judged


def test_labelled_recordings_are_judged_and_broken_down_by_their_tags(judge: Run, tmp_path: Path) -> None:
    ran = judge("--format", "json", "--page", str(tmp_path / "page.md"))
    assert ran.code == 0
    assert f"thresholds: those of {tmp_path}" in ran.err
    shown = json.loads(ran.out)
    assert (shown["tasks"], shown["seeds"], shown["thresholds"]) == (3, [], "given")
    assert set(shown["methods"]) == {"paper"}
    paper = shown["methods"]["paper"]
    assert set(paper) >= FIGURES
    assert (paper["recall"], paper["faults"], paper["failed"]) == (1.0, 2, 0)
    assert 0 < paper["delay_median_s"] <= paper["delay_p90_s"]
    assert list(paper["by"]["fault"]) == ["none", "pcie_downgrading"]
    assert paper["by"]["strength"]["clear"]["faults"] == 1
    assert list(paper["by"]["fabric"]) == ["400"]
    assert list(paper["by"]["size"]) == ["8"]

    page = (tmp_path / "page.md").read_text()
    assert page.startswith("# Bench: incidents\n")
    assert "`trainminder bench --recordings incidents --methods paper` of version" in page
    for heading in ("## Methods side by side", "## Delay", "## Thresholds", "## Cost"):
        assert heading in page
    again = judge()
    assert "paper" in again.out
    assert "1.000" in again.out


def test_a_result_is_kept_in_the_folder_and_a_changed_label_is_judged_anew(
    judge: Run, folder: Path, tmp_path: Path
) -> None:
    judge()
    kept = tmp_path / "out" / "outcomes.jsonl"
    assert kept.read_text().count("\n") == 3
    judge()
    assert kept.read_text().count("\n") == 3
    (folder / "task-0.truth.json").write_text("[]")
    shown = json.loads(judge("--format", "json").out)
    assert kept.read_text().count("\n") == 4
    assert shown["methods"]["paper"]["faults"] == 1
    assert shown["methods"]["paper"]["false_alarms"] >= 1


def test_a_recording_without_labels_is_an_error_that_names_the_missing_file(judge: Run, folder: Path) -> None:
    (folder / "task-1.truth.json").unlink()
    ran = judge()
    assert (ran.code, ran.out) == (1, "")
    assert "task-1.truth.json is missing (write [] in it if nothing was faulty)" in ran.err


def test_labels_that_name_a_machine_that_is_not_there_are_an_error(judge: Run, folder: Path) -> None:
    labels = json.loads((folder / "task-0.truth.json").read_text())
    labels[0]["machine"] = "gpu-99"
    (folder / "task-0.truth.json").write_text(json.dumps(labels))
    ran = judge()
    assert ran.code == 1
    assert "task-0.truth.json names gpu-99, which the recording does not hold" in ran.err


@pytest.mark.parametrize(("text", "said"), [("[1]", "holds no tags"), ("{", "is not JSON"), ('{"a": []}', "no tags")])
def test_tags_that_are_none_are_an_error(judge: Run, folder: Path, text: str, said: str) -> None:
    (folder / "task-1.tags.json").write_text(text)
    ran = judge()
    assert ran.code == 1
    assert "task-1.tags.json" in ran.err
    assert said in ran.err


def test_an_unknown_method_is_refused_with_the_nearest(run: Run) -> None:
    ran = run("bench", "--methods", "papr,paper")
    assert (ran.code, ran.err) == (1, 'error: --methods: there is no method "papr": did you mean "paper"?\n')
    assert "--methods names no method" in run("bench", "--methods", ",").err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--quick", "--recordings", "x"), "--quick and --recordings are both given"),
        (("--speed", "--quick"), "--speed and --quick are both given"),
        (("--speed", "--page", "p.md"), "--page does not go with --speed"),
        (("--speed", "--methods", "paper", "--fresh"), "--fresh does not go with --speed"),
        (("--sizes", "64"), "--sizes is for --speed alone"),
        (("--metric", "loss"), "--metric is for --recordings alone"),
        (("--quick", "--false-alarm-rate", "1"), "--false-alarm-rate is for a run that chooses thresholds"),
        (("--recordings", "x", "--write-thresholds", "y"), "--write-thresholds is for a run that chooses thresholds"),
        (("--speed", "--sizes", "64x7x900x2"), 'error: --sizes "64x7x900x2": write MACHINES'),
        (("--speed", "--sizes", "64x99"), "1 to 8 metrics"),
        (("--speed", "--sizes", "2"), "at least 3 machines"),
        (("--recordings", "no/such/folder", "--methods", "paper", "--thresholds", "t.toml"), "--thresholds t.toml"),
    ],
)
def test_options_that_would_be_passed_over_are_refused(run: Run, options: tuple[str, ...], said: str) -> None:
    ran = run("bench", *options)
    assert (ran.code, ran.out) == (1, "")
    assert said in ran.err


def test_speed_is_timed_beside_the_straightforward_way(run: Run) -> None:
    ran = run("bench", "--speed", "--sizes", "8x1x60", "--format", "json")
    assert ran.code == 0
    (size,) = json.loads(ran.out)["sizes"]
    assert {key: size[key] for key in ("machines", "metrics", "seconds")} == {
        "machines": 8,
        "metrics": 1,
        "seconds": 60,
    }
    assert size["ratio"] == pytest.approx(size["naive_s"] / size["pass_s"])
    assert size["peak_mib"] > 0
    assert size["stream_cpu_s_per_s"] > 0
    assert size["default"]["pass_s"] > 0
    assert {"align", "denoise", "compare", "decide"} <= size["phases"].keys()


def test_growth_is_told_from_size_to_size(run: Run) -> None:
    ran = run("bench", "--speed", "--sizes", "8x1x60,16x1x60,16x2x60", "--format", "json")
    growths = json.loads(ran.out)["growth"]
    assert [(each["method"], each["machines"]) for each in growths] == [("default", [8, 16]), ("paper", [8, 16])]
    assert {round(each["allowed"], 3) for each in growths} == {2.667}
