"""Running the command line inside the test's process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from trainminder.cli import main
from trainminder.cli.app import app


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``trainminder`` with the given arguments."""

    def ran(*arguments: str) -> Ran:
        code = main(list(arguments))
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return ran


@pytest.fixture
def command() -> Iterator[Callable[[Callable[[], Any]], None]]:
    """Adds a command named ``probe`` that does what the test wants."""
    before = list(app.registered_commands)

    def add(body: Callable[[], Any]) -> None:
        app.command("probe")(body)

    yield add
    app.registered_commands[:] = before
