"""Labels of a labelled recording: which machine was faulty, how, and when."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from trainminder.errors import RecordingError
from trainminder.source.recordings.tables import stem_of
from trainminder.types import Truth

__all__ = ["read_truth", "truth_path", "write_truth"]

ENDING = ".truth.json"


def truth_path(recording: Path) -> Path:
    """Where the labels of a recording lie: ``<name>.truth.json`` beside it."""
    return recording.with_name(stem_of(recording) + ENDING)


def read_truth(path: Path) -> tuple[Truth, ...]:
    """The faults of a labelled recording; empty: it is known that there was none.

    Args:
        path: the ``.truth.json`` file, or the recording it lies beside.
    Raises:
        RecordingError: no such file, or a label that is not complete; the message names the entry and the key.
    """
    if not path.name.endswith(ENDING):
        path = truth_path(path)
    try:
        entries = orjson.loads(path.read_bytes())
    except OSError as error:
        raise RecordingError(
            f"{path} cannot be read: {error.strerror}: a labelled recording has it beside it"
        ) from error
    except orjson.JSONDecodeError as error:
        raise RecordingError(f"{path} is not JSON: {error}") from error
    if not isinstance(entries, list):
        raise RecordingError(f"{path} holds no list: write [] for no fault, or one object per fault")
    return tuple(_entry(entry, f"{path}, entry {place + 1}") for place, entry in enumerate(entries))


def _entry(entry: Any, where: str) -> Truth:
    if not isinstance(entry, dict):
        raise RecordingError(f"{where} is no object: it needs machine, device, fault_type, start and end")
    for key in ("machine", "fault_type"):
        if not isinstance(entry.get(key), str) or not entry[key]:
            raise RecordingError(f"{where}: {key} is {entry.get(key)!r}: it must be text")
    device = entry.get("device")
    if device is not None and not isinstance(device, str):
        raise RecordingError(f"{where}: device is {device!r}: it must be text, or null for the whole machine")
    for key in ("start", "end"):
        value = entry.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            raise RecordingError(f"{where}: {key} is {value!r}: it must be a number of seconds")
    start, end = float(entry["start"]), float(entry["end"])
    if end < start:
        raise RecordingError(f"{where}: end {end:.15g} lies before start {start:.15g}: exchange them")
    return Truth(entry["machine"], device, entry["fault_type"], start, end)


def write_truth(truths: Sequence[Truth], path: Path) -> None:
    """Write the labels beside a recording, or to a ``.truth.json`` file.

    Raises:
        RecordingError: the file cannot be written.
    """
    if not path.name.endswith(ENDING):
        path = truth_path(path)
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(orjson.dumps([truth.as_json() for truth in truths], option=orjson.OPT_INDENT_2))
        part.replace(path)
    except OSError as error:
        raise RecordingError(f"{path} cannot be written: {error.strerror}: choose a folder that exists") from error
