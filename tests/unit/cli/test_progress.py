"""Progress: on a terminal only, and never on standard output."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import trainminder
from trainminder.cli.progress import progress

WORK = """
from trainminder.cli.progress import progress
with progress("training", total=2) as advance:
    advance(1, "cpu_usage")
    advance(1)
print("done")
"""


def test_off_a_terminal_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("training", total=2) as advance:
        advance(1, "cpu_usage")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_on_a_terminal_the_bar_is_on_standard_error_and_the_result_alone_on_standard_output() -> None:
    outer, inner = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(Path(trainminder.__file__).parents[1]), "TERM": "xterm"}
    with os.fdopen(outer, "rb", buffering=0) as terminal:
        done = subprocess.run(
            [sys.executable, "-c", WORK], env=environment, stdout=subprocess.PIPE, stderr=inner, check=True
        )
        os.close(inner)
        shown = terminal.read(65_536).decode()
    assert done.stdout == b"done\n"
    assert "training" in shown
    assert "100%" in shown
