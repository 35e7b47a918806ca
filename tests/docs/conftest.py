"""The repository, and the program as a user of a shell finds it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import trainminder


@pytest.fixture
def repository() -> Path:
    return Path(__file__).resolve().parents[2]


@pytest.fixture
def shell_environment(tmp_path: Path) -> dict[str, str]:
    """The environment with ``trainminder`` on the path and none of its settings."""
    commands = tmp_path / "commands"
    commands.mkdir()
    program = commands / "trainminder"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m trainminder "$@"\n')
    program.chmod(0o755)
    kept = {name: text for name, text in os.environ.items() if not name.startswith("TRAINMINDER_")}
    source = str(Path(trainminder.__file__).parents[1])
    return {**kept, "PATH": f"{commands}:{os.environ['PATH']}", "PYTHONPATH": source}
