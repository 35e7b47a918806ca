"""What bad input gets from ``trainminder detect``: a specific line, never a traceback, never a silent guess."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainminder.cli import main

START = 1_760_000_000
Edit = Callable[[list[dict[str, Any]]], Sequence[dict[str, Any]]]


def rows_of(machines: int = 5, seconds: int = 400) -> list[dict[str, Any]]:
    """Healthy power draws, a row a machine and second."""
    rng = np.random.default_rng(0)
    wave = 600 + 60 * np.sin(np.arange(seconds) / 6)
    return [
        {
            "timestamp": str(START + second),
            "machine": f"gpu-{machine:02d}",
            "gpu_power_draw": f"{wave[second] * (1 + 0.01 * rng.standard_normal()):.3f}",
        }
        for second in range(seconds)
        for machine in range(machines)
    ]


def written(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    columns = list(rows[0])
    lines = [",".join(columns), *(",".join(str(row.get(column, "")) for column in columns) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def detected(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    code = main(["detect", *arguments, "--format", "json"])
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return code, json.loads(said.out) if said.out else {}, said.err


def without(name: str) -> Edit:
    return lambda rows: [{key: value for key, value in row.items() if key != name} for row in rows]


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (without("machine"), ['no column "machine"', "timestamp, gpu_power_draw", "--column NAME=machine"]),
        (without("timestamp"), ['no column "timestamp"']),
        (
            lambda rows: [{("gpu_power" if k == "gpu_power_draw" else k): v for k, v in row.items()} for row in rows],
            ["gpu_power", "gpu_power_draw", "--metric"],
        ),
        (lambda rows: [row | {"task": "ab"[i % 2]} for i, row in enumerate(rows)], ["2 tasks", "--task", "a, b"]),
        (lambda rows: [row | {"timestamp": "yesterday"} for row in rows], ["timestamp", "yesterday"]),
    ],
)
def test_what_cannot_be_read_is_an_error_that_names_it(
    edit: Edit, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found, said = detected(capsys, str(written(tmp_path / "run.csv", edit(rows_of()))))
    assert (code, found) == (1, {})
    assert len(said.strip().splitlines()) == 1
    assert [word for word in words if word not in said] == []


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (None, "does not exist"),
        (b"", "empty"),
        (b"timestamp,machine,gpu_power_draw\n", "no rows"),
        (b"\x00\x01\x02" * 99, ""),
    ],
)
def test_files_that_are_no_recordings_are_refused(
    content: bytes | None, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.csv"
    if content is not None:
        file.write_bytes(content)
    code, _, said = detected(capsys, str(file))
    assert code == 1
    assert word in said.lower()
    assert str(file) in said


def set_cells(value: str, who: str = "gpu-03", every: int = 7) -> Edit:
    return lambda rows: [
        row | {"gpu_power_draw": value} if row["machine"] == who and i % every == 0 else row
        for i, row in enumerate(rows)
    ]


@pytest.mark.parametrize("value", ["inf", "-inf", "9223372036854775794", "[N/A]", "-1"])
def test_values_that_are_no_measurements_are_missing_and_said(
    value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found, _ = detected(capsys, str(written(tmp_path / "run.csv", set_cells(value)(rows_of()))))
    assert (code, found["status"], found["verdicts"]) == (0, "none", [])
    assert found["coverage"]["samples_missing"] > 0.01
    assert any("gpu_power_draw" in warning and "count as missing" in warning for warning in found["warnings"])


def test_a_missing_value_needs_no_words_but_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, found, _ = detected(capsys, str(written(tmp_path / "run.csv", set_cells("nan")(rows_of()))))
    assert found["status"] == "none"
    assert found["coverage"]["samples_missing"] > 0.01


def test_rows_that_contradict_each_other_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of()
    doubled = [*rows, *(row | {"gpu_power_draw": "1.0"} for row in rows[100:103])]
    _, found, _ = detected(capsys, str(written(tmp_path / "run.csv", doubled)))
    assert any("different values: 3, first on gpu-00" in warning for warning in found["warnings"]), found["warnings"]


def test_the_order_of_rows_does_not_matter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of()
    shuffled = [rows[i] for i in np.random.default_rng(1).permutation(len(rows))]
    one = detected(capsys, str(written(tmp_path / "run.csv", rows)))[1]
    other = detected(capsys, str(written(tmp_path / "run.csv", shuffled)))[1]
    assert one == other


def test_mixed_zones_are_read_row_by_row_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def zoned(row: dict[str, Any], i: int) -> dict[str, Any]:
        minute, second = divmod(int(row["timestamp"]) - START, 60)
        return row | {"timestamp": f"2026-03-01T{12 + i % 2}:{minute:02d}:{second:02d}+0{i % 2}:00"}

    rows = [zoned(row, i) for i, row in enumerate(rows_of())]
    _, found, _ = detected(capsys, str(written(tmp_path / "run.csv", rows)))
    assert found["to"] - found["from"] == 399
    assert any("zone" in warning for warning in found["warnings"])


def test_one_machine_only_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found, _ = detected(capsys, str(written(tmp_path / "run.csv", rows_of(machines=1))))
    assert (code, found["status"]) == (3, "unknown")
    assert "1 machine" in found["reason"]


def test_constant_metrics_are_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row | {"gpu_power_draw": "300"} for row in rows_of()]
    code, found, _ = detected(capsys, str(written(tmp_path / "run.csv", rows)))
    assert (code, found["status"]) == (3, "unknown")
    assert "300 on every machine" in found["reason"]


def test_an_admitted_metric_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{("step_ms" if key == "gpu_power_draw" else key): value for key, value in row.items()} for row in rows_of()]
    for row in rows:
        if row["machine"] == "gpu-02" and int(row["timestamp"]) > START + 100:
            row["step_ms"] = str(2 * float(row["step_ms"]))
    code, found, _ = detected(
        capsys, str(written(tmp_path / "run.csv", rows)), "--metric", "step_ms=ms", "--fail-on-faulty"
    )
    assert (code, found["verdicts"][0]["machine"], found["verdicts"][0]["metric"]) == (2, "gpu-02", "step_ms")


def test_neither_recording_nor_store_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, said = detected(capsys)
    assert code == 1
    assert "RECORDING" in said
    assert "--prometheus" in said


def test_a_stray_instant_is_left_out_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of()
    stray = rows[-1] | {"timestamp": str(START + 365 * 86_400)}
    _, found, _ = detected(capsys, str(written(tmp_path / "run.csv", [*rows, stray])))
    _, without, _ = detected(capsys, str(written(tmp_path / "run.csv", rows)))
    assert found["coverage"] == without["coverage"]
    assert (found["status"], found["verdicts"]) == (without["status"], without["verdicts"])
    assert any("are some instants wrong?" in warning for warning in found["warnings"])


@pytest.mark.parametrize("name", ["machine", "timestamp", "device", "group", "task"])
def test_a_column_that_places_samples_is_no_metric(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, said = detected(capsys, str(written(tmp_path / "run.csv", rows_of())), "--metric", name)
    assert code == 1
    assert f'"{name}" says where a sample belongs' in said


def test_metrics_may_have_any_other_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["m", "d", "[red]", "<b>", "value", "len"]
    rows = [row | dict.fromkeys(names, row["gpu_power_draw"]) for row in rows_of()]
    options = [option for name in names for option in ("--metric", name)]
    _, found, _ = detected(capsys, str(written(tmp_path / "run.csv", rows)), *options)
    assert set(names) < set(found["coverage"]["metrics_used"])


def test_a_restarted_count_is_no_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sums: dict[str, float] = dict.fromkeys((f"gpu-{m:02d}" for m in range(5)), 8.1e12)
    rows = []
    for row in rows_of():
        at_restart = row["machine"] == "gpu-02" and int(row["timestamp"]) == START + 100
        sums[row["machine"]] = 0.0 if at_restart else sums[row["machine"]] + 1e6 * float(row["gpu_power_draw"])
        rows.append(
            {"timestamp": row["timestamp"], "machine": row["machine"], "received": f"{sums[row['machine']]:.0f}"}
        )
    _, found, _ = detected(capsys, str(written(tmp_path / "run.csv", rows)), "--metric", "received=bytes")
    assert (found["status"], found["verdicts"]) == ("none", [])
    assert any("received: it only rises" in warning for warning in found["warnings"])
    assert any("started again from zero on gpu-02" in warning for warning in found["warnings"])


def test_a_burst_that_is_over_does_not_convict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All save a checkpoint; the writer takes two minutes more and writes much, but not for as long as a fault must."""
    rng = np.random.default_rng(4)
    rows: list[dict[str, Any]] = [
        {
            "timestamp": START + 60 * minute,
            "machine": f"gpu-{m:02d}",
            "written": 1900.0 if m == 0 and 8 <= minute < 12 else 240.0 if 8 <= minute < 10 else 8 + 8 * rng.random(),
        }
        for minute in range(24)
        for m in range(4)
    ]
    asked = ("--metric", "written=MB/s", "--method", "paper")
    _, found, _ = detected(capsys, str(written(tmp_path / "run.csv", rows)), *asked)
    assert (found["status"], found["verdicts"]) == ("none", [])
    lasting = [row | {"written": 1900.0} if row["machine"] == "gpu-00" else row for row in rows]
    _, found, _ = detected(capsys, str(written(tmp_path / "run.csv", lasting)), *asked)
    assert found["verdicts"][0]["machine"] == "gpu-00"


def test_a_column_to_rename_that_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, found, _ = detected(capsys, str(written(tmp_path / "run.csv", rows_of())), "--column", "powr=cpu_usage")
    assert any("columns to rename that are not there: powr" in warning for warning in found["warnings"])


def test_rows_without_a_device_beside_devices_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row | {"device": "gpu0" if i % 4 else ""} for i, row in enumerate(rows_of())]
    _, found, _ = detected(capsys, str(written(tmp_path / "run.csv", rows)))
    assert any("have series of devices and one without a device" in warning for warning in found["warnings"])


def test_a_recording_and_a_store_at_once_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path / "run.csv", rows_of())
    code, _, said = detected(capsys, str(file), "--prometheus", "http://user:hidden@127.0.0.1:9")
    assert code == 1
    assert "both given" in said
    assert "hidden" not in said


def test_a_header_of_many_columns_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = [f"column_{i}" for i in range(15_000)]
    file = tmp_path / "run.csv"
    rows = [f"{row['timestamp']},{row['machine']},{row['gpu_power_draw']}{',' * len(more)}" for row in rows_of(3, 9)]
    file.write_text("\n".join([",".join(["timestamp", "machine", "gpu_power_draw", *more]), *rows]))
    _, found, _ = detected(capsys, str(file))
    assert found["coverage"]["metrics_used"] == ["gpu_power_draw"]
    assert any("column_0, column_1" in warning and "14988 more" in warning for warning in found["warnings"])


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "run.csv"
    os.mkfifo(pipe)
    code, _, said = detected(capsys, str(pipe))
    assert code == 1
    assert "no regular file" in said


@pytest.mark.parametrize("redirection", [">&-", "> /dev/full"])
def test_output_that_cannot_be_written_is_one_line(redirection: str, tmp_path: Path) -> None:
    file = written(tmp_path / "run.csv", rows_of(3, 9))
    command = f'"{sys.executable}" -m trainminder detect "{file}" --format json {redirection}'
    # A shell is what closes standard output.
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert ran.returncode in (1, 3)
    assert "Traceback" not in ran.stderr
    assert len(ran.stderr.splitlines()) <= 1
    assert "defect" not in ran.stderr


def test_the_members_that_the_settings_state_hold_for_a_recording_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late = slice(5 * 100, None)
    rows = rows_of()
    rows[late] = set_cells("20", every=1)(rows[late])
    file = written(tmp_path / "run.csv", rows)
    settings = tmp_path / "settings.yaml"
    settings.write_text("tasks: [{name: run, machines: [gpu-00, gpu-01, gpu-02, gpu-99]}]")
    code, found, _ = detected(capsys, str(file), "--method", "paper")
    assert found["verdicts"][0]["machine"] == "gpu-03"
    code, found, _ = detected(capsys, str(file), "--settings", str(settings), "--method", "paper")
    assert (code, found["status"], found["machines"]) == (0, "none", 4)
    assert any("left out: gpu-03" in warning for warning in found["warnings"])
    assert any("no data at all from gpu-99" in warning for warning in found["warnings"])


def test_the_domain_that_the_settings_state_is_named_by_a_verdict_from_a_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rack = ("gpu-02", "gpu-05", "gpu-07")
    rows = [
        row | {"gpu_power_draw": "400"} if row["machine"] in rack and place >= 12 * 300 else row
        for place, row in enumerate(rows_of(12, 900))
    ]
    file = written(tmp_path / "run.csv", rows)
    settings = tmp_path / "settings.yaml"
    settings.write_text("tasks: [{name: run, domains: {rack 7: [gpu-02, gpu-05, gpu-07]}}]")
    _, found, _ = detected(capsys, str(file), "--settings", str(settings))
    assert {verdict["machine"] for verdict in found["verdicts"]} == set(rack)
    for verdict in found["verdicts"]:
        assert [item["text"] for item in verdict["evidence"] if item["kind"] == "group" and "rack 7" in item["text"]]


def test_options_that_the_method_does_not_use_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path / "run.csv", rows_of(4, 60))
    _, _, said = detected(capsys, str(file), "--continuity-seconds", "30")
    assert "--continuity-seconds and --models-dir are for --method paper" in said
    _, _, said = detected(capsys, str(file), "--continuity-seconds", "30", "--method", "paper")
    assert "default uses neither" not in said
