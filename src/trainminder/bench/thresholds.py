"""The calibrated thresholds as data: ``thresholds.toml``, written by the standard run, read where none can be set."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path

from trainminder.bench.calibrate import Chosen
from trainminder.errors import SettingsError

__all__ = ["read_thresholds", "write_thresholds"]

NOTICE = """\
# Each method's threshold, chosen by one rule on the calibration set: best F1 at no more than `limit` false alarms per
# 1,000 machine-hours. `trainminder bench --quick` and `--recordings` use them. Written by `make bench-page`.
"""


def read_thresholds(methods: Iterable[str], path: Path | None = None) -> dict[str, Chosen]:
    """The thresholds that a file holds; None: those that the package does.

    Raises:
        SettingsError: the file cannot be read, or a method has none in it; all at once.
    """
    stored = files("trainminder.bench").joinpath("thresholds.toml") if path is None else path
    try:
        entries = tomllib.loads(stored.read_text(encoding="utf-8")) if path or stored.is_file() else {}
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"--thresholds {path}: {error}: name a file that --write-thresholds wrote") from error
    wanted = list(methods)
    if missing := [name for name in wanted if name not in entries]:
        raise SettingsError(
            *(
                f"method {name} has no threshold in {path or 'the package'}: leave it out, or choose one with "
                f'"trainminder bench --methods {name} --write-thresholds FILE" and give it with --thresholds FILE'
                for name in missing
            )
        )
    try:
        return {name: Chosen(**({"f1": None} | entries[name])) for name in wanted}
    except TypeError as error:
        raise SettingsError(f"--thresholds {path}: {error}: name a file that --write-thresholds wrote") from error


def write_thresholds(chosen: Mapping[str, Chosen], path: Path) -> None:
    """Write the thresholds of these methods to a file, and keep those of others that it holds.

    Raises:
        SettingsError: the file cannot be read or written.
    """
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        entries |= {name: each.as_json() for name, each in chosen.items()}
        # JSON's numbers, booleans and quoted text are TOML's too; TOML has no null.
        blocks = [
            f"\n[{json.dumps(name)}]\n"
            + "".join(f"{key} = {json.dumps(value)}\n" for key, value in entries[name].items() if value is not None)
            for name in sorted(entries)
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(NOTICE + "".join(blocks), encoding="utf-8")
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"--write-thresholds {path}: {error}: name a file that can be written") from error
