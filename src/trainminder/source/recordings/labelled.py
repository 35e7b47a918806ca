"""Recordings together with the labels beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainminder.catalogue import Catalogue
from trainminder.errors import RecordingError
from trainminder.settings import RecordingSettings
from trainminder.source.recordings.read import read_recordings
from trainminder.source.recordings.tables import list_files
from trainminder.source.recordings.truth import read_truth, truth_path
from trainminder.types import RawTask, Truth

__all__ = ["Labelled", "read_labelled"]


@dataclass(frozen=True, slots=True)
class Labelled:
    """A task of a recording and the known faults of its machines."""

    file: Path
    raw: RawTask
    truths: tuple[Truth, ...]


def read_labelled(
    path: Path, catalogue: Catalogue, settings: RecordingSettings, *, needs_labels: bool = False
) -> Iterator[Labelled]:
    """Every task of a file, or of every file of a folder, with its known faults.

    Args:
        path: as for ``read_recordings``.
        needs_labels: a file without labels is an error; otherwise nothing is known to be faulty in it.
    Raises:
        RecordingError: a recording or its labels cannot be read, or it lacks labels where they are needed.
    """
    for file in list_files(path):
        labels = truth_path(file)
        if needs_labels and not labels.exists():
            raise RecordingError(f"{file} has no labels: {labels} is missing (write [] in it if nothing was faulty)")
        truths = read_truth(labels) if labels.exists() else ()
        for raw in read_recordings(file, catalogue, settings):
            yield Labelled(file, raw, tuple(truth for truth in truths if truth.machine in raw.machines))
