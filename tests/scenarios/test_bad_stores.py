"""What a store that refuses, redirects, breaks off or answers in part gets from ``detect --prometheus``.

One line that names the store and the remedy; or, where something was seen, a result that says what is missing.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainminder.cli import main

AT = 1_760_000_600
MACHINES = [f"10.0.0.{i}:9400" for i in range(1, 5)]
Said = tuple[int, dict[str, Any], list[str]]


@pytest.fixture
def detected(stand_in: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Exit code, JSON and lines on standard error of one pass over the stand-in, which is asked once and not long."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("store: {retries: 0, timeout_seconds: 0.5}\ntasks: [{name: llm-7, matcher: 'job=\"gpu\"'}]\n")

    def run(*more: str, task: str = "llm-7", command: str = "detect", url: str = stand_in.url) -> Said:
        options = ["--settings", str(settings), "--task", task, "--at", str(AT), "--minutes", "10", "--format", "json"]
        code = main([command, "--prometheus", url, *options, *more])
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        assert "defect" not in said.err
        return code, json.loads(said.out) if said.out else {}, said.err.strip().splitlines()

    return run


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"status": 401, "body": b"no entry"}, ["status 401", "token"]),
        ({"status": 403, "body": {"status": "error", "error": "tenant unknown"}}, ["status 403", "tenant unknown"]),
        ({"status": 302, "headers": {"Location": "https://login.example/?next=secret"}}, ["redirect", "sign-in page?"]),
        (
            {"body": b"<!doctype html><title>Sign in</title>", "headers": {"Content-Type": "text/html"}},
            ["status 200", "text/html", "sign-in page?", "token"],
        ),
        ({"status": 500, "body": {"status": "error", "errorType": "internal", "error": "broken"}}, ["500", "broken"]),
        ({"status": 503, "body": b"<html>down</html>", "headers": {"Content-Type": "text/html"}}, ["503"]),
        (
            {"body": b'{"status":"success","data":{"resu', "headers": {"Content-Type": "application/json"}},
            ["breaks off"],
        ),
        ({"body": b"\x00\xff\x13garbage"}, ["answer", "Prometheus API?"]),
        ({"body": b""}, []),
        ({"body": []}, []),
        ({"body": {"status": "success"}}, []),
        ({"body": {"status": "success", "data": {"resultType": "matrix", "result": 7}}}, []),
        ({"body": {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}}]}}}, []),
        ({"body": {"status": "success", "data": {"resultType": "string", "result": [1, "x"]}}}, []),
        ({"status": 404, "body": b"404 page not found"}, ["status 404"]),
        ({"status": 429, "body": b"slow down"}, ["status 429"]),
        ({"body": b"{}", "cut": 50}, ["connection broke"]),
        ({"body": b"not gzip", "headers": {"Content-Encoding": "gzip"}}, ["damaged compressed answer"]),
    ],
)
def test_a_store_that_gives_no_answer_is_one_line_with_its_address(
    answer: dict[str, Any], words: list[str], stand_in: Any, reply: Any, detected: Callable[..., Said]
) -> None:
    stand_in.play(reply(**answer))
    for command in ("detect", "doctor"):
        code, found, lines = detected(command=command)
        assert (code, found, len(lines)) == (1, {}, 1), lines
        assert lines[0].startswith("error: ")
        assert [word for word in [stand_in.url, *words] if word not in lines[0]] == []
        assert "secret" not in lines[0]


def test_a_store_that_does_not_answer_in_time_is_given_up(
    stand_in: Any, reply: Any, detected: Callable[..., Said]
) -> None:
    never = threading.Event()
    stand_in.play(reply(wait=never))
    try:
        code, _, lines = detected()
    finally:
        never.set()
    assert (code, len(lines)) == (1, 1)
    assert "did not answer within 0.5 s: raise store.timeout_seconds" in lines[0]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:1", "refused the connection"),
        ("http://no-such-host.invalid", "host name is not known"),
        ("https://user:hidden@127.0.0.1:1", "127.0.0.1:1"),
        ("prometheus:9090", "http://"),
        ("ftp://store", "http://"),
        ("http://", "http://"),
        ("http://[::1", "store.url is not an address"),
        ("", "store.url is not set"),
    ],
)
def test_an_address_that_leads_nowhere_is_one_line(url: str, words: str, detected: Callable[..., Said]) -> None:
    code, found, lines = detected(url=url)
    assert (code, found, len(lines)) == (1, {}, 1)
    assert words in lines[0]
    assert "hidden" not in lines[0]


def test_a_task_that_the_store_does_not_know_is_named_with_those_it_knows(
    stand_in: Any, reply: Any, matrix: Any, detected: Callable[..., Said]
) -> None:
    def script(asked: Any) -> Any:
        if asked.path.endswith("/values"):
            return reply(body={"status": "success", "data": ["llm-6", "llm-70"] if "/job/" in asked.path else []})
        return reply(body=matrix())

    stand_in.script = script
    code, _, lines = detected(task="llm-60")
    assert (code, len(lines)) == (1, 1)
    assert 'no task "llm-60"' in lines[0]
    assert 'did you mean "llm-6"?' in lines[0]
    assert "membership.task_labels" in lines[0]


def test_a_named_task_without_a_series_is_an_error_never_healthy(
    stand_in: Any, reply: Any, matrix: Any, detected: Callable[..., Said]
) -> None:
    stand_in.play(reply(body=matrix()))
    code, found, lines = detected()
    assert (code, found, len(lines)) == (1, {}, 1)
    assert 'no such task "llm-7"' in lines[0]


def power_of(machines: list[str], matrix: Any, reply: Any, **more: Any) -> Callable[[Any], Any]:
    """A store that holds the power draw of some machines, sampled each 10 s."""

    def script(asked: Any) -> Any:
        query = asked.form.get("query", "")
        if "DCGM_FI_DEV_POWER_USAGE" not in query:
            return reply(body=matrix(**more))
        series = []
        for number, machine in enumerate(machines):
            labels = {"__name__": "DCGM_FI_DEV_POWER_USAGE", "instance": machine, "gpu": "0", "job": "gpu"}
            series += [labels, [(AT - 600 + 10 * i, 600.0 + (7 * i + 3 * number) % 11) for i in range(61)]]
        return reply(body=matrix(*series, **more))

    return script


def test_a_partial_answer_is_said_in_the_stores_words(
    stand_in: Any, reply: Any, matrix: Any, detected: Callable[..., Said]
) -> None:
    stand_in.script = power_of(MACHINES[:3], matrix, reply, warnings=["one store did not answer: deadline passed"])
    _, found, _ = detected()
    assert found["verdicts"] == []
    assert any("one store did not answer: deadline passed" in warning for warning in found["warnings"])
    _, diagnosis, _ = detected(command="doctor")
    assert diagnosis["is_partial"] is True


def test_a_harmless_note_makes_no_answer_partial(
    stand_in: Any, reply: Any, matrix: Any, detected: Callable[..., Said]
) -> None:
    stand_in.script = power_of(MACHINES, matrix, reply, infos=["metric might not be a counter"])
    code, found, _ = detected()
    assert (code, found["status"]) == (0, "none")
    _, diagnosis, _ = detected(command="doctor")
    assert diagnosis["is_partial"] is False


def test_two_machines_of_a_partial_answer_are_unknown_and_nobody_is_blamed(
    stand_in: Any, reply: Any, matrix: Any, detected: Callable[..., Said]
) -> None:
    stand_in.script = power_of(MACHINES[:2], matrix, reply, warnings=["one store did not answer"])
    code, found, _ = detected()
    assert (code, found["status"], found["verdicts"]) == (3, "unknown", [])


def test_a_range_that_ends_before_it_begins_asks_nothing(
    stand_in: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--task", "llm-7", "--from", "2030-01-01T00:00Z", "--to", "2020-01-01T00:00Z"]
    assert main(["record", "--prometheus", stand_in.url, *options, "-o", str(tmp_path / "run.csv")]) == 1
    assert "is empty: give a later end" in capsys.readouterr().err
    assert stand_in.asked == []


@pytest.mark.parametrize(("name", "words"), [("run.doc", "no known format"), ("none/run.csv", "is no folder")])
def test_a_recording_that_cannot_be_written_asks_nothing(
    name: str, words: str, stand_in: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--prometheus", stand_in.url, "--task", "llm-7", "--from", "-1h", "-o", str(tmp_path / name)]
    assert main(["record", *options]) == 1
    assert words in capsys.readouterr().err
    assert stand_in.asked == []
