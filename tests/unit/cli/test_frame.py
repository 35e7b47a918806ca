"""The exit codes and what is said on standard error: a contract that scripts rely on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import trainminder
from trainminder.cli.exits import ExitCode
from trainminder.errors import SettingsError, StoreError

SOURCE = str(Path(trainminder.__file__).parents[1])
ENVIRONMENT = {**{name: text for name, text in os.environ.items() if "TRAINMINDER" not in name}, "PYTHONPATH": SOURCE}
PROGRAM = [sys.executable, "-m", "trainminder"]


def raising(error: BaseException) -> Callable[[], Any]:
    def body() -> None:
        raise error

    return body


@pytest.mark.parametrize("code", [ExitCode.OK, ExitCode.FAULTY, ExitCode.UNKNOWN])
def test_what_a_command_returns_is_the_exit_code(run: Any, command: Any, code: ExitCode) -> None:
    command(lambda: code)
    ran = run("probe")
    assert (ran.code, ran.out, ran.err) == (code, "", "")


def test_a_command_that_returns_nothing_succeeded(run: Any, command: Any) -> None:
    command(lambda: None)
    assert run("probe").code == 0


def test_an_error_of_ours_is_its_text_on_one_line_and_no_traceback(run: Any, command: Any) -> None:
    command(raising(StoreError("http://prom:9090 refused: set store.url")))
    ran = run("probe")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "error: http://prom:9090 refused: set store.url\n"


def test_every_problem_of_the_settings_has_its_own_line(run: Any, command: Any) -> None:
    command(raising(SettingsError("a: wrong", "b: wrong too")))
    ran = run("probe")
    assert ran.code == 1
    assert ran.err == "error: a: wrong\nerror: b: wrong too\n"


def test_an_unexpected_error_is_one_line_that_says_how_to_get_the_traceback(run: Any, command: Any) -> None:
    command(raising(KeyError("row")))
    ran = run("probe")
    assert ran.code == 1
    assert re.fullmatch(r"error: unexpected KeyError: 'row': .*--log-level debug.*\n", ran.err)


def test_log_level_debug_shows_the_traceback_of_an_unexpected_error(run: Any, command: Any) -> None:
    command(raising(KeyError("row")))
    ran = run("probe", "--log-level", "debug")
    assert ran.code == 1
    assert "Traceback (most recent call last)" in ran.err
    assert ran.err.endswith("error: unexpected KeyError: 'row'\n")


def test_ctrl_c_exits_with_130_in_silence(run: Any, command: Any) -> None:
    command(raising(KeyboardInterrupt()))
    ran = run("probe")
    assert (ran.code, ran.err) == (130, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nope"], "No such option"),
        (["catalogue", "--nope"], "No such option"),
        (["catlogue"], "No such command 'catlogue'"),
        (["settings"], "Missing command"),
        (["catalogue", "--format", "xml"], "xml"),
        (["catalogue", "--format"], "--format"),
        (["catalogue", "surplus"], "surplus"),
        (["--log-level", "loud", "catalogue"], "loud"),
        (["--settings"], "--settings"),
        (["catalogue", "--set", "detect.minutes"], "write --set KEY=VALUE"),
    ],
)
def test_wrong_usage_exits_with_1_and_never_with_the_code_of_a_faulty_machine(
    run: Any, arguments: list[str], said: str
) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: ")
    assert said in ran.err


def test_no_arguments_show_the_help_and_are_no_success(run: Any) -> None:
    ran = run()
    assert (ran.code, ran.out) == (1, "")
    assert "catalogue" in ran.err


def test_help_and_version_go_to_standard_output_and_succeed(run: Any) -> None:
    assert run("--version").out == f"trainminder {trainminder.__version__}\n"
    ran = run("--help")
    assert (ran.code, ran.err) == (0, "")
    assert "Exit codes: 0 ran" in ran.out


def test_logs_go_to_standard_error_in_utc_at_the_level_asked_for(run: Any, command: Any) -> None:
    import logging

    def body() -> None:
        logging.getLogger("trainminder.pipeline").info("task llm-7: none faulty")

    command(body)
    assert run("probe").err == ""
    ran = run("--log-level", "info", "probe")
    assert ran.out == ""
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ INFO trainminder\.pipeline: task llm-7: none faulty\n", ran.err
    )


def test_options_of_the_program_may_stand_after_the_command(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("detect: {minutes: 30}\n")
    before = run("--settings", str(file), "--set", "train.seed=3", "settings", "show")
    after = run("settings", "show", f"--settings={file}", "--set", "train.seed=3")
    assert before.code == 0
    assert "minutes: 30.0" in before.out
    assert after == before


def test_after_two_dashes_nothing_is_an_option_of_the_program(run: Any) -> None:
    ran = run("settings", "explain", "--", "--settings")
    assert ran.code == 1
    assert "--settings: unknown setting" in ran.err


def test_the_settings_file_may_come_from_the_environment_and_the_option_wins(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, minutes in (("a", 30), ("b", 40)):
        (tmp_path / name).write_text(f"detect: {{minutes: {minutes}}}\n")
    monkeypatch.setenv("TRAINMINDER_SETTINGS", str(tmp_path / "a"))
    assert "minutes: 30.0" in run("settings", "show").out
    assert "minutes: 40.0" in run("settings", "show", "--settings", str(tmp_path / "b")).out


def test_the_shell_gets_its_completions_on_standard_output() -> None:
    asked = {"_TRAINMINDER_COMPLETE": "complete_bash", "COMP_WORDS": "trainminder cat", "COMP_CWORD": "1"}
    done = subprocess.run(PROGRAM, env=ENVIRONMENT | asked, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["catalogue"], "")


def test_help_starts_without_any_of_the_heavy_packages() -> None:
    script = (
        "import sys; from trainminder.cli import main; code = main(['--help'])\n"
        "heavy = {'numpy', 'polars', 'numba', 'httpx', 'torch', 'plotly', 'sklearn'} & set(sys.modules)\n"
        "sys.exit(f'imported: {sorted(heavy)}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", script], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Commands:" in done.stdout


@pytest.mark.parametrize("arguments", [["catalogue"], ["settings", "explain"], ["--help"]])
def test_a_reader_that_has_gone_is_no_traceback(arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [*PROGRAM, *arguments], env=ENVIRONMENT, stdout=write, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_python_m_trainminder_passes_the_exit_code_on() -> None:
    done = subprocess.run([*PROGRAM, "--nope"], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: No such option")
