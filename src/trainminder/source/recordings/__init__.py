"""Recordings: Parquet and CSV files, wide or long, one task per file, with labels beside them.

``tables`` opens files, ``rows``, ``cells`` and ``timestamps`` read what is in them, ``read`` makes tasks of them and
writes them, ``truth`` reads and writes labels, ``labelled`` brings both together.
"""

from __future__ import annotations

from trainminder.source.recordings.labelled import Labelled, read_labelled
from trainminder.source.recordings.read import read_recording, read_recordings, write_recording
from trainminder.source.recordings.truth import read_truth, truth_path, write_truth

__all__ = [
    "Labelled",
    "read_labelled",
    "read_recording",
    "read_recordings",
    "read_truth",
    "truth_path",
    "write_recording",
    "write_truth",
]
