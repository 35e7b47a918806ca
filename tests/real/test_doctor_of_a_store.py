"""``trainminder doctor`` over a real Prometheus."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from trainminder.cli import main

NOW = 1_764_580_000.0
SAMPLES, STEP = 61, 15.0
MACHINES = [f"gpu-{i:02d}" for i in range(4)]
Build = Callable[..., Any]


def stored(make_series: Build) -> list[Any]:
    """Four machines, two devices each; the engine activity of gpu-02 is 0 throughout, its utilisation is not."""
    rng = np.random.default_rng(7)
    times = NOW + STEP * np.arange(SAMPLES)
    series = []
    for machine in MACHINES:
        dcgm = {"instance": f"{machine}:9400", "job": "dcgm", "task": "llm-7"}
        for gpu in "01":
            engine = np.zeros(SAMPLES) if machine == "gpu-02" else 0.9 + 0.02 * rng.standard_normal(SAMPLES)
            labels = dcgm | {"gpu": gpu}
            series.append(make_series("DCGM_FI_PROF_GR_ENGINE_ACTIVE", labels, times, np.clip(engine, 0, 1)))
            duty = np.round(96 + rng.standard_normal(SAMPLES))
            series.append(make_series("DCGM_FI_DEV_GPU_UTIL", labels, times, duty))
        node = {"instance": f"{machine}:9100", "job": "node", "task": "llm-7"}
        free = 4e11 + 1e9 * rng.standard_normal(SAMPLES)
        series.append(make_series("node_memory_MemAvailable_bytes", node, times, free))
        series.append(make_series("node_memory_MemTotal_bytes", node, times, np.full(SAMPLES, 1e12)))
    return series


def test_the_doctor_names_queries_machines_interval_and_what_is_absent(
    prometheus_with: Build, make_series: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    url = prometheus_with(stored(make_series)).url
    at = str(NOW + STEP * (SAMPLES - 1))
    arguments = ["doctor", "--prometheus", url, "--task", "llm-7", "--at", at]
    assert main([*arguments, "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["found"] == 'task llm-7 was found by the label task="llm-7"'
    assert (said["machines"], said["machines_seen"]) == (MACHINES, 4)
    assert said["store"]["address"] == url
    metrics = {metric["metric"]: metric for metric in said["metrics"]}
    shown = {
        name: (one["found_as"], one["exporter"], one["machines"], one["devices"], one["interval_seconds"])
        for name, one in metrics.items()
        if not one["is_absent"]
    }
    assert shown == {
        "gpu_duty_cycle": ("DCGM_FI_DEV_GPU_UTIL", "dcgm-exporter", 4, 8, 15.0),
        "gpu_graphics_activity": ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "dcgm-exporter", 4, 8, 15.0),
        "memory_usage": ("node_memory_MemAvailable_bytes", "node_exporter", 4, 0, 15.0),
    }
    assert metrics["gpu_temperature"]["is_absent"]
    problems = [finding for finding in said["findings"] if finding["severity"] == "problem"]
    assert [(one["kind"], one["machines"]) for one in problems] == [("dead_field", ["gpu-02"])]
    assert problems[0]["remedy"].startswith("restart dcgm-exporter on gpu-02")

    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert out.startswith(
        "doctor: llm-7 can be judged: 3 of 20 metrics on 4 of 4 machines every 15 s; a fault is confirmed"
    )
    assert f"store: {url} answered in " in out
    assert "DCGM_FI_DEV_GPU_UTIL (dcgm-exporter)" in out


def test_series_that_name_no_machine_are_a_problem_of_the_settings(
    prometheus_with: Build, make_series: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    times = NOW + STEP * np.arange(SAMPLES)
    nameless = make_series("DCGM_FI_DEV_GPU_TEMP", {"task": "llm-7", "gpu": "0", "node": "a"}, times, times % 7)
    url = prometheus_with([*stored(make_series), nameless]).url
    at = str(NOW + STEP * (SAMPLES - 1))
    assert main(["doctor", "--prometheus", url, "--task", "llm-7", "--at", at, "--format", "json"]) == 0
    findings = {finding["kind"]: finding for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert findings["no_machine_label"]["severity"] == "problem"
    assert "they carry gpu, node, task" in findings["no_machine_label"]["text"]


def test_a_task_with_too_few_machines_exits_with_3(
    prometheus_with: Build, make_series: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    few = [item for item in stored(make_series) if item.labels["instance"].startswith(("gpu-00", "gpu-01"))]
    url = prometheus_with(few).url
    assert main(["doctor", "--prometheus", url, "--task", "llm-7", "--at", str(NOW + STEP * (SAMPLES - 1))]) == 3
    assert capsys.readouterr().out.startswith("doctor: llm-7 cannot be judged: it has 2 machines")
