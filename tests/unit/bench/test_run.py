"""Methods x tasks in worker processes: nothing is lost, nothing is dropped, nothing is run twice."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from bench_methods import JUDGED, REGISTRY, Small, small_tasks
from trainminder.bench.calibrate import Chosen
from trainminder.bench.compare import Comparison, calibrate, choose_thresholds, compare
from trainminder.bench.ledger import fingerprint, open_ledger
from trainminder.bench.outcomes import Outcome
from trainminder.bench.run import run_methods
from trainminder.bench.types import BenchTask
from trainminder.errors import BenchError, MissingExtra, SettingsError

METHODS = {"passes": (20.0,), "blames": (1.0,)}


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that gets a line for every task that a method judges, whichever process it is in."""
    path = tmp_path / "judged"
    path.touch()
    monkeypatch.setenv(JUDGED, str(path))
    return path


def ran(
    folder: Path,
    tasks: Sequence[BenchTask],
    methods: Mapping[str, tuple[float, ...]] = METHODS,
    *,
    jobs: int = 1,
    fresh: bool = False,
) -> list[Outcome]:
    with open_ledger(folder, fresh=fresh) as ledger:
        return run_methods(tasks, methods, ledger, jobs=jobs, registry=REGISTRY)


def without_cost(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [dataclasses.replace(outcome, seconds=0.0, peak_mib=None) for outcome in outcomes]


def chosen(threshold: float) -> Chosen:
    return Chosen(threshold, True, 2.0, None, 0.0)


def test_every_method_judges_every_task_and_outcomes_keep_the_order_given(tmp_path: Path) -> None:
    outcomes = ran(tmp_path, small_tasks(4), jobs=2)
    assert [(each.task.name, each.method) for each in outcomes] == [
        (f"small-{seed}", method) for seed in range(4) for method in METHODS
    ]
    assert [[said.machine for said in each.verdicts[0]] for each in outcomes if each.method == "passes"] == [
        [],
        ["gpu-01"],
        [],
        ["gpu-03"],
    ]
    assert all(each.seconds > 0 and each.error is None for each in outcomes)


def test_what_is_finished_is_not_run_again(tmp_path: Path, judged: Path) -> None:
    methods = {"blames": (1.0,), "blames too": (1.0,)}
    first = ran(tmp_path, small_tasks(2), methods)
    assert ran(tmp_path, small_tasks(3), methods)[: len(first)] == first
    lines = judged.read_text().splitlines()
    assert sorted(lines) == sorted(f"{method} small-{seed}" for method in methods for seed in range(3))


def test_another_threshold_or_another_task_of_the_same_name_is_run(tmp_path: Path, judged: Path) -> None:
    task = BenchTask("small", Small("small", 1, 1), 1)
    ran(tmp_path, [task], {"blames": (2.0,)})
    ran(tmp_path, [task], {"blames": (1.0,)})
    ran(tmp_path, [BenchTask("small", Small("small", 1, 2), 1)], {"blames": (2.0,)})
    assert len(judged.read_text().splitlines()) == 3
    keys = {fingerprint(task, "passes", [2.0]), fingerprint(task, "blames", [2.0]), fingerprint(task, "passes", [1])}
    assert len(keys) == 3


def test_fresh_forgets_what_was_finished(tmp_path: Path, judged: Path) -> None:
    for fresh in (False, True):
        ran(tmp_path, small_tasks(1), {"blames": (1.0,)}, fresh=fresh)
    assert len(judged.read_text().splitlines()) == 2


def test_a_run_that_is_killed_goes_on_and_ends_like_one_that_was_not(tmp_path: Path, judged: Path) -> None:
    script = (
        "from pathlib import Path\n"
        "from bench_methods import REGISTRY, small_tasks\n"
        "from trainminder.bench.ledger import open_ledger\n"
        "from trainminder.bench.run import run_methods\n"
        f"with open_ledger(Path({str(tmp_path / 'killed')!r})) as ledger:\n"
        f"    run_methods(small_tasks(60), {METHODS!r}, ledger, jobs=2, registry=REGISTRY)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen([sys.executable, "-c", script], env=environment)
    lines = tmp_path / "killed" / "outcomes.jsonl"
    deadline = time.monotonic() + 60
    while not (lines.exists() and lines.read_bytes().count(b"\n") >= 10):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = lines.read_bytes()
    # As if it had been killed while it wrote a line.
    lines.write_bytes(kept + kept[: len(kept) // 15])
    finished = kept.count(b"\n")
    assert finished < 120
    judged.write_text("")

    resumed = ran(tmp_path / "killed", small_tasks(60), jobs=2)
    # A worker whose master is gone may have ended the method it was at.
    assert 120 - finished <= len(judged.read_text().splitlines()) <= 122 - finished
    assert without_cost(resumed) == without_cost(ran(tmp_path / "whole", small_tasks(60), jobs=2))


def test_a_method_that_fails_is_named_with_its_error_and_counts_as_having_said_nothing(tmp_path: Path) -> None:
    tasks = small_tasks(4)
    with open_ledger(tmp_path) as ledger:
        comparison = compare(
            "small", tasks, {"fails": chosen(1.0), "blames": chosen(1.0)}, ledger, jobs=1, registry=REGISTRY
        )
    assert [(each.task.name, each.method, each.error) for each in comparison.failures] == [
        ("small-1", "fails", "RuntimeError: too much for me"),
        ("small-3", "fails", "RuntimeError: too much for me"),
    ]
    shown = comparison.as_json()["methods"]
    assert (shown["fails"]["failed"], shown["fails"]["tasks"], shown["fails"]["recall"]) == (2, 4, 0.0)
    assert shown["blames"]["failed"] == 0


def test_a_failure_is_tried_again_when_the_run_is_repeated(tmp_path: Path, judged: Path) -> None:
    for _ in range(2):
        ran(tmp_path, small_tasks(2), {"fails": (1.0,)})
    assert sorted(judged.read_text().splitlines()) == ["fails small-0", "fails small-1", "fails small-1"]


def test_a_method_that_takes_its_process_down_is_named_and_the_others_still_judge(tmp_path: Path) -> None:
    outcomes = ran(tmp_path, small_tasks(2), {"dies": (1.0,), "blames": (1.0,)})
    assert [each.error for each in outcomes if each.method == "blames"] == [None, None]
    healthy, faulty = [each for each in outcomes if each.method == "dies"]
    assert healthy.error is None
    assert faulty.error is not None
    assert "its process died (killed by signal SIGKILL)" in faulty.error
    assert faulty.verdicts == ((),)


def test_a_task_that_cannot_be_made_stops_the_run_and_is_named(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="task unmade cannot be made: ValueError: no such task"):
        ran(tmp_path, [*small_tasks(1), BenchTask("unmade", Small("unmade", 1, None), 1)])


def test_a_method_that_lacks_an_extra_stops_the_run_and_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r'method lacks: this method needs the extra "bench": pip install'):
        ran(tmp_path, small_tasks(2), {"blames": (1.0,), "lacks": (1.0,)})


def test_a_method_that_cannot_be_built_is_said_before_anything_is_run(tmp_path: Path, judged: Path) -> None:
    with pytest.raises(MissingExtra, match=r'this method needs the extra "bench": pip install'):
        ran(tmp_path, small_tasks(2), {"blames": (1.0,), "unbuilt": (1.0,)})
    assert judged.read_text() == ""


def test_two_tasks_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="two tasks have one name"):
        ran(tmp_path, [*small_tasks(1), *small_tasks(1)])


def test_two_runs_do_not_write_to_one_folder(tmp_path: Path) -> None:
    with open_ledger(tmp_path), pytest.raises(SettingsError, match="another run writes to"), open_ledger(tmp_path):
        pass


def test_a_folder_that_cannot_be_made_and_a_damaged_file_are_said_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="choose another folder with -o"), open_ledger(tmp_path / "file" / "in"):
        pass
    (tmp_path / "outcomes.jsonl").write_text("no JSON\n")
    with pytest.raises(SettingsError, match=r"is damaged .* start again with --fresh"), open_ledger(tmp_path):
        pass
    with open_ledger(tmp_path, fresh=True) as ledger:
        assert ledger.get("no JSON") is None


def standard_run(folder: Path) -> Comparison:
    with open_ledger(folder) as ledger:
        outcomes = calibrate(small_tasks(6, 100), ["passes", "blames"], ledger, jobs=1, registry=REGISTRY)
        thresholds = choose_thresholds(outcomes, 2.0, REGISTRY)
        return compare("small", small_tasks(4), thresholds, ledger, jobs=1, calibration=outcomes, registry=REGISTRY)


def test_thresholds_are_chosen_on_other_tasks_than_those_measured(tmp_path: Path) -> None:
    comparison = standard_run(tmp_path)
    # At 300 s nothing lasts long enough in a minute; at 20 s and at 10 s all are found: the stricter is taken.
    assert comparison.methods["passes"].chosen == Chosen(20.0, True, 2.0, 1.0, 0.0)
    assert comparison.methods["blames"].chosen.is_within_limit is False
    shown = comparison.as_json()
    assert set(shown) >= {"methods", "tasks", "seeds"}
    assert (shown["tasks"], shown["seeds"], shown["calibration_seeds"]) == (4, [0, 1, 2, 3], [*range(100, 106)])
    assert shown["thresholds"] == "calibrated"
    assert shown["methods"]["passes"]["f1"] == 1.0
    assert shown["methods"]["passes"]["by"]["size"]["5"]["recall"] == 1.0
    # gpu-00 is faulty in none of them.
    assert (shown["methods"]["blames"]["precision"], shown["methods"]["blames"]["recall"]) == (0.0, 0.0)
    assert [point["threshold"] for point in shown["methods"]["passes"]["calibration"]] == [300.0, 20.0, 10.0]


def test_measuring_what_thresholds_were_chosen_on_is_refused(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        outcomes = calibrate(small_tasks(2), ["blames"], ledger, jobs=1, registry=REGISTRY)
        with pytest.raises(ValueError, match=r"seeds \[1\] are in the calibration set"):
            compare(
                "small",
                small_tasks(2, 1),
                choose_thresholds(outcomes, 2.0, REGISTRY),
                ledger,
                jobs=1,
                calibration=outcomes,
                registry=REGISTRY,
            )
