"""``trainminder doctor`` over recordings: what it prints, and its exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainminder.catalogue import load_catalogue
from trainminder.simulate import ClusterSpec, simulate_task
from trainminder.source.recordings import write_recording

Record = Callable[..., Path]


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Simulates a task and writes it to a file."""

    def recorded(**spec: Any) -> Path:
        wanted: dict[str, Any] = {"machines": 6, "devices_per_machine": 2, "metrics": ("cpu_usage", "gpu_power_draw")}
        raw, _ = simulate_task(ClusterSpec(**(wanted | spec)), specs=load_catalogue())
        path = tmp_path / "run.parquet"
        write_recording(raw, path)
        return path

    return recorded


def test_a_recording_that_can_be_judged_exits_with_0_and_says_so_first(run: Any, record: Record) -> None:
    path = record()
    ran = run("doctor", str(path))
    lines = ran.out.splitlines()
    assert (ran.code, ran.err) == (0, "")
    assert lines[0].startswith("doctor: run can be judged: 2 of 20 metrics on 6 of 6 machines every 1 s;")
    assert lines[1] == f"found: read from {path}; 6 of 6 machines seen"
    rows = {line.split()[0]: line.split() for line in lines[4:] if line.strip()}
    assert rows["gpu_power_draw"][1:8] == ["same", "name", "6", "of", "6", "12", "1"]
    assert rows["gpu_temperature"][1] == "absent"


def test_every_finding_is_followed_by_what_to_do(run: Any, record: Record) -> None:
    lines = run("doctor", str(record(interval_seconds=15.0))).out.splitlines()
    found = [number for number, line in enumerate(lines) if line.startswith(("note: ", "problem: "))]
    assert any("one sample every 15 s" in lines[number] for number in found)
    assert all(lines[number + 1].startswith("  -> ") for number in found)


def test_a_recording_that_cannot_be_judged_exits_with_3_and_the_reason(run: Any, record: Record) -> None:
    ran = run("doctor", str(record(machines=2)))
    assert ran.code == 3
    assert ran.out.startswith("doctor: run cannot be judged: it has 2 machines and not the 3 needed to compare")


def test_a_range_too_short_for_a_verdict_cannot_be_judged(run: Any, record: Record) -> None:
    path = record()
    assert run("doctor", str(path), "--minutes", "1").code == 3
    assert run("doctor", str(path), "--minutes", "3").code == 0


def test_a_range_too_short_for_the_continuity_cannot_be_judged_by_the_method_paper(run: Any, record: Record) -> None:
    by_paper = ("doctor", str(record()), "--minutes", "3", "--method", "paper")
    assert run(*by_paper).code == 3
    assert run(*by_paper, "--continuity-seconds", "60").code == 0


def test_json_is_one_object_with_metrics_and_findings(run: Any, record: Record) -> None:
    ran = run("doctor", str(record(machines=2)), "--format", "json")
    said = json.loads(ran.out)
    assert ran.code == 3
    assert (said["can_be_judged"], said["store"], said["machines_seen"]) == (False, None, 2)
    assert said["findings"][0]["kind"] == "too_few_machines"
    assert set(said["findings"][0]) == {"kind", "severity", "text", "remedy", "metrics", "machines"}
    power = next(metric for metric in said["metrics"] if metric["metric"] == "gpu_power_draw")
    assert (power["found_as"], power["machines"], power["devices"]) == ("gpu_power_draw", 2, 4)
    assert {metric["metric"] for metric in said["metrics"] if metric["is_absent"]} >= {"gpu_temperature"}


def test_names_from_outside_cannot_steer_the_terminal(run: Any, record: Record) -> None:
    ran = run("doctor", str(record(machine_pattern="\x1b[31m{index}", gaps_per_hour=30.0)))
    assert "\x1b" not in ran.out
    assert "\\x1b[31m" in ran.out


@pytest.mark.parametrize("arguments", [(), ("--prometheus", "http://127.0.0.1:1"), ("missing.parquet",)])
def test_what_cannot_be_read_is_an_error_not_a_diagnosis(run: Any, arguments: tuple[str, ...]) -> None:
    ran = run("doctor", *arguments, "--set", "store.retries=0")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: ")
