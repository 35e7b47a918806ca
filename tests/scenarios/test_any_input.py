"""Whatever a file holds, a pass over it ends in a result or in an error of ours, and in nothing else."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from small_tasks import undenoised
from trainminder.catalogue import load_catalogue
from trainminder.errors import TrainminderError
from trainminder.pipeline import METHODS
from trainminder.report.html import write_report
from trainminder.settings import DetectSettings, MetricSettings, RecordingSettings
from trainminder.source.recordings import read_recording
from trainminder.stream import run_pass
from trainminder.types import PassResult

CATALOGUE = load_catalogue({"x": MetricSettings(), "m": MetricSettings(unit="ms")})
COLUMNS = [
    "timestamp",
    "machine",
    "device",
    "group",
    "task",
    "metric",
    "value",
    "gpu_power_draw",
    "gpu_duty_cycle",
    "x",
]
ODD = [
    *("", "nan", "inf", "-inf", "-0", "0", "1e308", "-1e308", "5e-324", "1e400", "9223372036854775807", "2147483647"),
    *("[N/A]", "null", "true", "0x1F", "1,5", '"', "'", "\u202e", "\x00", "<b>", "[red]", "=1+1", "é" * 300, " 7 "),
    *("1760000000", "1760000000000", "1e18", "-5", "2025-10-09T08:53:20Z", "2025-10-09", "9999-12-31T23:59:59-12:00"),
]
cells = st.one_of(st.sampled_from(ODD), st.integers(-3, 10**12).map(str), st.floats().map(repr), st.text(max_size=6))
tables = st.lists(st.sampled_from(COLUMNS) | st.text(max_size=5), min_size=1, max_size=7).flatmap(
    lambda names: st.lists(st.lists(cells, min_size=1, max_size=8), max_size=8).map(lambda rows: [names, *rows])
)


@st.composite
def near_tasks(draw: st.DrawFn) -> list[list[str]]:
    """What nearly is a recording: regular rows of a few machines, of which some cells were changed."""
    seconds, count = draw(st.integers(1, 24)), draw(st.integers(1, 5))
    step = draw(st.sampled_from([1e-9, 0.1, 1.0, 15.0, 3600.0, 86_400.0, 1e7]))
    start = draw(st.sampled_from([0.0, 1_760_000_000.0]))
    level = draw(st.sampled_from([0.0, 1e-320, 1.0, 600.0, 1e18, 1e99, -1e90]))
    names = ["timestamp", "machine", "device", "gpu_power_draw", "gpu_duty_cycle", "x"]
    rows = [
        [repr(start + step * second), f"n{m}", "gpu0", repr(level * (1 + 0.01 * (second * m % 3))), "95", repr(level)]
        for second in range(seconds)
        for m in range(count)
    ]
    changes = st.tuples(st.integers(0, len(rows) - 1), st.integers(0, len(names) - 1), cells)
    for row, column, cell in draw(st.lists(changes, max_size=12)):
        rows[row][column] = cell
    return [names, *rows]


def judged(path: Path, method: str) -> PassResult | None:
    """The result of a pass with little to wait for, None where an error of ours came instead."""
    # By either method as much as can be is judged, and named.
    eager = {"continuity_seconds": 0.0, "window_samples": 4, "false_alarms_per_machine_day": 1.0}
    try:
        raw = read_recording(path, CATALOGUE, RecordingSettings())
        detect = DetectSettings.model_validate({"method": method, "max_missing_ratio": 0.95} | eager)
        return run_pass(raw, detect, lambda name: undenoised_of(name, detect.window_samples), keep_traces=True)
    except TrainminderError:
        return None


def undenoised_of(name: str, window_samples: int) -> Any:
    denoiser = undenoised(name)
    denoiser.window_samples = window_samples
    return denoiser


def check(path: Path) -> None:
    for method in METHODS:
        result = judged(path, method)
        if result is not None:
            check_result(result)


def check_result(result: PassResult) -> None:
    plain = json.loads(json.dumps(result.as_json(), allow_nan=False))
    assert plain["status"] in ("faulty", "none", "unknown")
    assert (plain["reason"] is not None) == (plain["status"] == "unknown")
    assert 0.0 <= plain["coverage"]["samples_missing"] <= 1.0
    assert plain["coverage"]["machines_seen"] <= plain["machines"]
    for trace in result.traces:
        scores = trace.scores.normal_score
        assert not any(math.isinf(score) for score in scores.ravel().tolist())


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200) | st.text(max_size=200).map(str.encode) | tables.map(lambda t: as_csv(t)))
def test_any_file_gives_a_result_or_an_error_of_ours(content: bytes, tmp_path: Path) -> None:
    for name in ("run.csv", "run.parquet", "run.csv.gz"):
        path = tmp_path / name
        path.write_bytes(content)
        check(path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=near_tasks())
def test_what_is_nearly_a_recording_gives_a_finite_result_or_an_error_of_ours(
    table: list[list[str]], tmp_path: Path
) -> None:
    path = tmp_path / "run.csv"
    path.write_bytes(as_csv(table))
    check(path)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "[red]x[/red]", "a\x1b[31m", "\u202eabc", "é" * 3000, "'\"&"]
)
def test_odd_names_reach_the_report_as_text(name: str, method: str, tmp_path: Path) -> None:
    rows = [
        [str(1_760_000_000 + second), machine, str((300.0 if machine == name and second > 100 else 600.0) + noise)]
        for second in range(400)
        for k, machine in enumerate([name, "b", "c", "d"])
        for noise in [second * (k + 1) % 5]
    ]
    path = tmp_path / "run.csv"
    path.write_bytes(as_csv([["timestamp", "machine", "gpu_power_draw"], *rows]))
    result = judged(path, method)
    assert result is not None
    assert result.verdicts[0].machine == name
    write_report(result, tmp_path / "run.html")
    page = (tmp_path / "run.html").read_text()
    assert "<script>alert" not in page
    assert "\x1b" not in page


def as_csv(table: list[list[str]]) -> bytes:
    quoted = (",".join(f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in row) for row in table)
    return "\n".join(quoted).encode("utf-8", "replace")
