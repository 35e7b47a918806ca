"""A simulated task, scraped by a real Prometheus, is seen whole and judged like any other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import trainminder
from servers import until
from trainminder.catalogue import load_catalogue
from trainminder.cli import main

SERVE = [sys.executable, "-m", "trainminder", "simulate", "--serve"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(trainminder.__file__).parents[1])}
#: What a verdict takes with these settings, and the rate windows before it.
SCRAPED_SECONDS = 34.0
#: By the method paper: default sees a machine for a minute before it can tell that it changed.
SHORT = ("--minutes", "0.5", "--method", "paper", "--set", "detect.continuity_seconds=15")


@contextmanager
def simulating(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of ``trainminder simulate --serve`` with these arguments, and its process."""
    with subprocess.Popen(
        [*SERVE, "--port", "0", *arguments], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            said = process.stdout.readline()
            yield said.split("http://")[1].split(",")[0], process
        finally:
            process.terminate()


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as response:  # noqa: S310 - always http to this host
        return str(response.read().decode())


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    main([*arguments, "--format", "json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_catalogue_finds_every_metric_and_a_fault_from_the_start_is_found(
    prometheus_discovering: Callable[[str], Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What has been wrong from the first sample on, in half a minute, only a comparison without a past finds.
    monkeypatch.setenv("TRAINMINDER_DETECT__METHOD", "paper")
    task = ("--machines", "5", "--devices", "2", "--seed", "3", "--fault", "clock_drop", "--onset", "0")
    with simulating(*task) as (address, _):
        store = prometheus_discovering(f"http://{address}/targets").url
        until(lambda: "machine-0004" in fetch(f"{store}/api/v1/query?query=up"), "the first scrape")
        time.sleep(SCRAPED_SECONDS)
        asked = ("--prometheus", store, "--task", "simulated", *SHORT)
        doctor = answer(capsys, "doctor", *asked)
        verdict = answer(capsys, "detect", *asked)
    assert doctor["found"] == 'task simulated was found by the label task="simulated"'
    absent = [one["metric"] for one in doctor["metrics"] if one["is_absent"]]
    assert (absent, len(doctor["metrics"])) == ([], len(load_catalogue()))
    assert {(one["machines"], one["interval_seconds"]) for one in doctor["metrics"]} == {(5, 1.0)}
    assert {one["devices"] for one in doctor["metrics"]} == {0, 10}
    assert [finding for finding in doctor["findings"] if finding["severity"] == "problem"] == []
    assert verdict["status"] == "faulty"
    culprits = [(one["machine"], one["device"]) for one in verdict["verdicts"]]
    assert culprits == [("machine-0002", "gpu1")]


def test_a_machine_that_a_fault_silences_does_not_answer_and_the_others_do(
    prometheus_discovering: Callable[[str], Any],
) -> None:
    task = ("--machines", "3", "--devices", "1", "--seed", "3", "--fault", "machine_unreachable", "--onset", "0")
    with simulating(*task) as (address, process):
        assert process.stdout
        silent = process.stdout.readline().split()[3]
        up: dict[str, str] = {}

        def all_are_scraped() -> bool:
            asked = json.loads(fetch(f"{store}/api/v1/query?query=up"))
            up.update({one["metric"]["instance"]: one["value"][1] for one in asked["data"]["result"]})
            return sorted(up.values()) == ["0", "1", "1"]

        store = prometheus_discovering(f"http://{address}/targets").url
        until(all_are_scraped, "the first scrapes")
        names = {f"machine-000{index}" for index in range(3)}
        assert up == {name: "0" if name == silent else "1" for name in names}


def test_a_task_that_ended_within_the_range_is_still_found(
    prometheus_discovering: Callable[[str], Any], tmp_path: Path
) -> None:
    with simulating("--machines", "3", "--devices", "1", "--fault", "none") as (address, process):
        store = prometheus_discovering(f"http://{address}/targets").url
        running = f"{store}/api/v1/query?query=DCGM_FI_DEV_POWER_USAGE"
        until(lambda: fetch(running).count('"instance":') == 3, "the first scrapes")
        time.sleep(5.0)
        process.terminate()
        # Prometheus marks what it cannot scrape as ended: an instant from now on sees nothing.
        until(lambda: fetch(running).count('"instance":') == 0, "the end of the series")
        asked = ("--prometheus", store, "--task", "simulated", "--from", "-60s", "--to", "now")
        assert main(["record", *asked, "-o", str(tmp_path / "ended.parquet")]) == 0


def test_what_is_not_there_is_said_and_ctrl_c_is_a_good_end() -> None:
    with simulating("--machines", "3", "--devices", "1", "--fault", "none", "--minutes", "1") as (address, process):
        with pytest.raises(urllib.error.HTTPError) as caught:
            fetch(f"http://{address}/machine-0007/metrics")
        assert (caught.value.code, caught.value.read().decode()) == (
            404,
            "/machine-0007/metrics is not here: the machines are listed at /targets\n",
        )
        caught.value.close()
        assert f"http://{address}/targets" in fetch(f"http://{address}/")
        port = address.rpartition(":")[2]
        taken = [*SERVE, "--port", port, "--minutes", "1", "--fault", "none"]
        second = subprocess.run(taken, env=ENVIRONMENT, capture_output=True, text=True, check=False)
        assert second.returncode == 1
        assert second.stderr == (
            f"error: --host 127.0.0.1 --port {port}: cannot listen there: Address already in use: "
            f"choose another with --port\n"
        )
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == 0
