"""The calibrated thresholds as data: ``thresholds.toml``, written by the standard run, read where none can be set."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path

from trainminder.bench.calibrate import Chosen
from trainminder.errors import SettingsError

__all__ = ["stored_thresholds", "write_thresholds"]

NOTICE = """\
# Each method's threshold, chosen by one rule on the calibration set: best F1 at no more than `limit` false alarms per
# 1,000 machine-hours. `trainminder bench --quick` and `--recordings` use them. Written by `make bench-page`.
"""


def stored_thresholds(methods: Iterable[str]) -> dict[str, Chosen]:
    """The thresholds that the package holds.

    Raises:
        SettingsError: a method has none; all at once.
    """
    path = files("trainminder.bench").joinpath("thresholds.toml")
    entries = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    wanted = list(methods)
    if missing := [name for name in wanted if name not in entries]:
        raise SettingsError(
            *(
                f"method {name} has no calibrated threshold: leave it out, or calibrate it with "
                f'"trainminder bench --methods {name}", without --quick and --recordings'
                for name in missing
            )
        )
    return {name: _chosen(entries[name]) for name in wanted}


def _chosen(entry: Mapping[str, float | bool | None]) -> Chosen:
    return Chosen(**({"f1": None} | dict(entry)))  # type: ignore[arg-type]


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
        path.write_text(NOTICE + "".join(blocks), encoding="utf-8")
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"--write-thresholds {path}: {error}: name a file in a folder that exists") from error
