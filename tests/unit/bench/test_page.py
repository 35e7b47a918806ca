"""The page of a tiny run: Markdown, and plots that are the same for the same figures."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from small_tasks import NOW
from trainminder.bench.calibrate import choose, trade_off
from trainminder.bench.compare import Comparison, Measured
from trainminder.bench.measure import tally
from trainminder.bench.outcomes import Outcome, Said, TaskFacts
from trainminder.bench.page import write_page
from trainminder.errors import SettingsError
from trainminder.types import Truth

THRESHOLDS = (3.0, 2.0, 1.0)


def facts(seed: int) -> TaskFacts:
    kind = ("ecc_error", "none", "nic_dropout", "none")[seed % 4]
    tags = {"fault": kind, "size": ("4", "16")[seed // 2 % 2], "difficulty": ("plain", "restart")[seed // 4 % 2]}
    truths = () if kind == "none" else (Truth("a", None, kind, NOW, NOW + 600),)
    return TaskFacts(f"task-{seed}", seed, 16, 4.0, truths, tags)


def said(task: TaskFacts, threshold: float, *, skill: int) -> tuple[Said, ...]:
    """A more skilful method finds more; a lower threshold blames somebody more often."""
    true = [Said("a", "cpu_usage", NOW, NOW + 240)] if task.truths and (task.seed or 0) % 10 < skill else []
    false = [Said("b", "cpu_usage", NOW, NOW + 300)] if (task.seed or 0) % 12 == 1 and threshold < 2 else []
    return (*true, *false)


def comparison(**skills: int) -> Comparison:
    methods, calibration = {}, []
    for name, skill in skills.items():
        tuned = [
            Outcome(task, name, THRESHOLDS, tuple(said(task, each, skill=skill) for each in THRESHOLDS), 1.0)
            for task in map(facts, range(100, 124))
        ]
        calibration += tuned
        curve = trade_off(tuned)
        chosen = choose(curve)
        outcomes = tuple(
            Outcome(task, name, (chosen.threshold,), (said(task, chosen.threshold, skill=skill),), 2.0, 30.0)
            for task in map(facts, range(24))
        )
        tallies = tuple(tally(each.task, each.verdicts[0]) for each in outcomes)
        methods[name] = Measured(outcomes, tallies, chosen, tuple(curve))
    return Comparison("standard", methods, tuple(calibration))


def test_the_page_names_data_seeds_and_command_and_its_pictures_are_there(tmp_path: Path) -> None:
    write_page(comparison(default=9, paper=5, silent=0).as_json(), tmp_path / "bench.md")
    page = (tmp_path / "bench.md").read_text()
    assert "24 tasks, 96 machine-hours, simulated from the seeds 0 to 23. `trainminder bench` of version" in page
    assert "simulated from the seeds 100 to 123" in page
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", page)
    assert set(pictures) == {f"bench/{file.name}" for file in (tmp_path / "bench").iterdir()}
    assert {"bench/comparison.svg", "bench/recall-by-fault.svg", "bench/delay.svg", "bench/trade-off.svg"} <= set(
        pictures
    )
    for picture in pictures:
        text = (tmp_path / picture).read_text()
        ElementTree.fromstring(text)  # noqa: S314 - our own
        if "delay" not in picture:
            assert "silent" in text, picture


def test_the_tables_show_what_was_measured_and_a_dash_for_what_is_undefined(tmp_path: Path) -> None:
    measured = comparison(default=9, silent=0).as_json()
    write_page(measured, tmp_path / "bench.md")
    lines = (tmp_path / "bench.md").read_text().splitlines()
    default, silent = (next(line for line in lines if line.startswith(f"| {name} |")) for name in ("default", "silent"))
    assert f"| {measured['methods']['default']['recall']:.3f} (" in default
    assert silent.startswith("| silent | - | 0.000 (0.000..0.000) | - | 0.00 ")
    assert "| ecc_error | 6 | 1.00 | 0.00 |" in lines
    assert "| 4 | 6 | 1.00 | 0.00 |" in lines


def test_the_same_figures_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_page(comparison(default=9, paper=5).as_json(), tmp_path / name / "bench.md")
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert len(files) > 5
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file


def test_notes_written_by_hand_stay_and_are_linked(tmp_path: Path) -> None:
    write_page(comparison(paper=5).as_json(), tmp_path / "bench.md")
    assert "bench-notes.md" not in (tmp_path / "bench.md").read_text()
    (tmp_path / "bench-notes.md").write_text("Why it differs.\n")
    write_page(comparison(paper=5).as_json(), tmp_path / "bench.md")
    assert "[Notes](bench-notes.md)" in (tmp_path / "bench.md").read_text()
    assert (tmp_path / "bench-notes.md").read_text() == "Why it differs.\n"


def test_a_page_that_cannot_be_written_is_said_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="name a file in a folder that can be written"):
        write_page(comparison(paper=5).as_json(), tmp_path / "file" / "bench.md")
