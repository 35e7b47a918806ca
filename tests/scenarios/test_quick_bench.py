"""The quick bench, whole, as users run it: every standard method on small tasks of the standard set."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trainminder.bench.methods import standard_methods
from trainminder.bench.tasks import quick_set


@dataclass(frozen=True)
class Bench:
    shown: dict[str, Any]

    def f1(self, method: str) -> float:
        return self.shown["methods"][method]["f1"] or 0.0


def ran(folder: Path) -> Bench:
    command = [sys.executable, "-m", "trainminder", "bench", "--quick", "--format", "json", "-o", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Bench(json.loads(done.stdout))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench")


@pytest.fixture(scope="module")
def bench(folder: Path) -> Bench:
    return ran(folder)


def test_every_standard_method_judges_every_task_and_none_fails(bench: Bench) -> None:
    assert list(bench.shown["methods"]) == list(standard_methods())
    assert bench.shown["tasks"] == len(quick_set())
    assert bench.shown["failures"] == []


def test_half_of_the_tasks_are_healthy(bench: Bench) -> None:
    faults = bench.shown["methods"]["paper"]["by"]["fault"]
    assert faults["none"]["tasks"] * 2 == len(quick_set())


def test_the_faults_are_there_to_be_found_and_a_window_at_a_time_is_not_enough(bench: Bench) -> None:
    assert bench.shown["methods"]["oracle"]["recall"] > 0.9
    assert bench.f1("oracle") > bench.f1("paper") > bench.f1("paper-no-continuity")
    assert bench.f1("oracle") > bench.f1("default") > bench.f1("paper")


def test_a_second_run_judges_nothing_anew_and_says_the_same(bench: Bench, folder: Path) -> None:
    kept = (folder / "outcomes.jsonl").read_bytes()
    again = ran(folder)
    assert again.shown == bench.shown
    assert (folder / "outcomes.jsonl").read_bytes() == kept
