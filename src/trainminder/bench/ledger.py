"""What is finished already: a file of outcomes, one line each, that an interrupted run goes on from."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import IO

from trainminder.bench.outcomes import Outcome
from trainminder.bench.types import BenchTask
from trainminder.errors import SettingsError

__all__ = ["Ledger", "code_version", "fingerprint", "open_ledger"]

NAME = "outcomes.jsonl"

#: What only shows or weighs outcomes: changing it makes none of them stale.
NO_PART_IN_OUTCOMES = (
    "cli/",
    "doctor/",
    "report/",
    *(f"bench/{name}" for name in ("calibrate.py", "compare.py", "measure.py", "page.py", "plots.py", "speed.py")),
    "bench/thresholds.py",
    "bench/thresholds.toml",
)


@cache
def code_version() -> str:
    """A digest of everything in the package that may change an outcome."""
    digest = hashlib.sha256()
    with as_file(files("trainminder")) as root:
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.is_file() and "__pycache__" not in path.parts and not name.startswith(NO_PART_IN_OUTCOMES):
                digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def fingerprint(task: BenchTask, method: str, thresholds: Sequence[float]) -> str:
    """What an outcome depends on: the task, the method, its thresholds, and the code."""
    # The text of a frozen value says all that is in it; a pickle may differ for equal values.
    made = repr(task.make).encode() if dataclasses.is_dataclass(task.make) else pickle.dumps(task.make)
    parts = (task.name, task.seed, hashlib.sha256(made).hexdigest(), method, list(thresholds), code_version())
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


class Ledger:
    """Outcomes by fingerprint; each is in the file when ``add`` returns, whatever then ends the process."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._kept: dict[str, Outcome] = {}
        whole = 0
        for line in file:
            # The last line of a run that was killed may be a part of one.
            if not line.endswith(b"\n"):
                break
            entry = json.loads(line)
            key = entry.pop("fingerprint")
            self._kept[key] = Outcome.from_json(entry)
            whole += len(line)
        file.seek(whole)
        file.truncate()

    def get(self, key: str) -> Outcome | None:
        """The outcome of an earlier run; None where there is none, or where it failed: a failure is tried again."""
        outcome = self._kept.get(key)
        return None if outcome is None or outcome.error is not None else outcome

    def add(self, key: str, outcome: Outcome) -> None:
        self._kept[key] = outcome
        line = json.dumps({"fingerprint": key} | outcome.as_json(), allow_nan=True)
        self._file.write(line.encode() + b"\n")
        self._file.flush()


@contextmanager
def open_ledger(folder: Path, *, fresh: bool = False) -> Iterator[Ledger]:
    """The ledger of an output folder, made where it is not there.

    Args:
        fresh: forget what is in it.
    Raises:
        SettingsError: the folder cannot be written, another run writes to it, or the file is damaged.
    """
    path = folder / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b")
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}: choose another folder with -o") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SettingsError(f"another run writes to {path}: let it end, or choose another folder") from error
        if fresh:
            file.truncate(0)
        file.seek(0)
        try:
            ledger = Ledger(file)
        except (ValueError, KeyError, TypeError) as error:
            raise SettingsError(f"{path} is damaged ({error}): start again with --fresh") from error
        yield ledger
