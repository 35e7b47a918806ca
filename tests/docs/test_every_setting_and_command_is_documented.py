"""The reference pages hold everything there is, and are what the program writes today."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from typer.main import get_command

from trainminder.catalogue import load_catalogue
from trainminder.cli.app import app
from trainminder.doctor import Kind
from trainminder.settings import iter_settings


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{path} {name}")


EVERY_COMMAND = dict(commands(get_command(app), "trainminder"))


def test_the_reference_pages_are_what_the_program_writes_today(
    repository: Path, shell_environment: dict[str, str]
) -> None:
    done = subprocess.run(
        [sys.executable, repository / "tools" / "build_docs.py", "--check"],
        env=shell_environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_setting_is_documented_with_a_meaning(repository: Path) -> None:
    page = (repository / "docs" / "settings.md").read_text()
    for key, _, _, meaning in iter_settings():
        assert meaning, f"{key} says nothing about itself"
        assert f"| `{key}` |" in page


def test_every_metric_is_documented(repository: Path) -> None:
    page = (repository / "docs" / "metrics.md").read_text()
    for name, spec in load_catalogue().items():
        assert spec.description, f"{name} says nothing about itself"
        assert f"| `{name}` |" in page


def test_every_finding_of_the_doctor_is_documented(repository: Path) -> None:
    page = (repository / "docs" / "doctor.md").read_text()
    for kind in get_args(Kind):
        assert f"`{kind}`" in page


def test_every_command_and_option_is_documented(repository: Path) -> None:
    sections = re.split(r"^## ", (repository / "docs" / "commands.md").read_text(), flags=re.MULTILINE)
    by_command = {section.split("\n", 1)[0]: section for section in sections[1:]}
    assert set(by_command) == set(EVERY_COMMAND)
    for path, command in EVERY_COMMAND.items():
        for param in command.params:
            if param.param_type_name == "option" and param.name != "help" and "completion" not in param.name:
                assert f"`{param.opts[0]}" in by_command[path], f"{path} {param.opts[0]}"


def test_every_command_explains_itself_with_an_example_and_its_options_with_a_text() -> None:
    for path, command in EVERY_COMMAND.items():
        assert command.help, path
        if not hasattr(command, "commands"):
            assert f"Example: {path.split()[0]} " in command.help, f"{path} has no example"
        for param in command.params:
            assert getattr(param, "help", None), f"{path} {param.name} has no help"
