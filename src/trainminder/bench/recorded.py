"""Labelled recordings from anywhere as tasks of the bench."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from trainminder.bench.types import BenchTask, LabelledTask
from trainminder.catalogue import Catalogue
from trainminder.errors import RecordingError
from trainminder.settings import RecordingSettings, Settings
from trainminder.source.recordings import Labelled, read_labelled, read_truth, truth_path
from trainminder.source.recordings.tables import stem_of
from trainminder.types import MetricSpec
from trainminder.wording import some_names

__all__ = ["Recorded", "recorded_tasks", "tags_path"]

ENDING = ".tags.json"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A task of a labelled recording, read when called. ``digest`` is that of the file and what lies beside it."""

    name: str
    file: Path
    task: str
    digest: str
    specs: tuple[MetricSpec, ...]
    settings: RecordingSettings
    continuity_seconds: float

    def __call__(self) -> LabelledTask:
        found = read_labelled(self.file, Catalogue(self.specs), self.settings, needs_labels=True)
        labelled = next(each for each in found if each.raw.task == self.task)
        return LabelledTask(self.name, labelled.raw, labelled.truths, _tags(labelled), self.continuity_seconds)


def recorded_tasks(folder: Path, catalogue: Catalogue, settings: Settings) -> tuple[BenchTask, ...]:
    """The labelled recordings of a file or folder; each is read once here, so that what is wrong is said at once.

    Args:
        settings: ``recording`` says how to read them, ``detect.continuity_seconds`` how long what is wrong must last.

    Raises:
        RecordingError: a recording or what lies beside it cannot be read, it has no labels, or they name a machine
            that it does not hold.
    """
    specs = tuple(catalogue.values())
    found = list(_checked(folder, catalogue, settings.recording))
    tasks_in = Counter(file for file, *_ in found)
    tasks = []
    for file, task, samples in found:
        stem = stem_of(file)
        name = stem if tasks_in[file] == 1 else f"{stem}: {task}"
        lasting = settings.detect.continuity_seconds
        made = Recorded(name, file, task, _digest(file), specs, settings.recording, lasting)
        tasks.append(BenchTask(name, made, cost=samples / 1e6))
    doubled = [name for name, times in Counter(task.name for task in tasks).items() if times > 1]
    if doubled:
        raise RecordingError(f"{folder} holds two recordings named {some_names(doubled)}: rename one")
    return tuple(tasks)


def tags_path(recording: Path) -> Path:
    """Where the tags of a recording lie: ``<name>.tags.json`` beside it."""
    return recording.with_name(stem_of(recording) + ENDING)


def _checked(folder: Path, catalogue: Catalogue, settings: RecordingSettings) -> list[tuple[Path, str, int]]:
    """File, task and number of samples of every labelled task."""
    found = []
    members: dict[Path, set[str]] = {}
    for labelled in read_labelled(folder, catalogue, settings, needs_labels=True):
        _tags(labelled)
        members.setdefault(labelled.file, set()).update(labelled.raw.machines)
        samples = sum(len(metric.values) for metric in labelled.raw.metrics)
        found.append((labelled.file, labelled.raw.task, samples))
    for file, machines in members.items():
        strangers = sorted({truth.machine for truth in read_truth(file)} - machines)
        if strangers:
            raise RecordingError(
                f"{truth_path(file)} names {some_names(strangers)}, which the recording does not hold: "
                "correct the name, or take the entry out"
            )
    return found


def _tags(labelled: Labelled) -> Mapping[str, str]:
    """What the recording itself says, and what its tags add or correct."""
    faults = sorted({truth.fault_type for truth in labelled.truths})
    own = {"fault": " + ".join(faults) or "none", "size": str(len(labelled.raw.machines))}
    path = tags_path(labelled.file)
    if not path.exists():
        return own
    try:
        stated = orjson.loads(path.read_bytes())
    except OSError as error:
        raise RecordingError(f"{path} cannot be read: {error.strerror}") from error
    except orjson.JSONDecodeError as error:
        raise RecordingError(f"{path} is not JSON: {error}") from error
    if not isinstance(stated, dict) or not all(isinstance(value, str | int | float) for value in stated.values()):
        raise RecordingError(f'{path} holds no tags: write an object of texts, such as {{"strength": "subtle"}}')
    return own | {tag: str(value) for tag, value in stated.items()}


def _digest(file: Path) -> str:
    digest = hashlib.sha256()
    for path in (file, truth_path(file), tags_path(file)):
        if path.exists():
            with path.open("rb") as opened:
                digest.update(hashlib.file_digest(opened, "sha256").digest())
        digest.update(b"\0")
    return digest.hexdigest()
