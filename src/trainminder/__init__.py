"""Trainminder finds the faulty machine of a distributed training task while the task runs.

    from pathlib import Path
    import trainminder as tm

    settings = tm.load_settings()
    raw = tm.read_recording(Path("run.parquet"), tm.load_catalogue(), settings.recording)
    result = tm.run_pass(raw, settings.detect, lambda metric: tm.load_model(None, metric, 8))

Names are loaded when they are first used, so that the command line starts at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trainminder.version import __version__

if TYPE_CHECKING:
    from trainminder.catalogue import load_catalogue
    from trainminder.denoise import load_model
    from trainminder.errors import TrainminderError
    from trainminder.report import verdict_sentence, write_report
    from trainminder.settings import DetectSettings, Settings, load_settings
    from trainminder.source.recordings import read_recording, write_recording
    from trainminder.stream import TaskStream, run_pass
    from trainminder.types import PassResult, RawTask, Verdict

__all__ = [
    "DetectSettings",
    "PassResult",
    "RawTask",
    "Settings",
    "TaskStream",
    "TrainminderError",
    "Verdict",
    "__version__",
    "load_catalogue",
    "load_model",
    "load_settings",
    "read_recording",
    "run_pass",
    "verdict_sentence",
    "write_recording",
    "write_report",
]

_HOMES = {
    "DetectSettings": "settings",
    "PassResult": "types",
    "RawTask": "types",
    "Settings": "settings",
    "TaskStream": "stream",
    "TrainminderError": "errors",
    "Verdict": "types",
    "load_catalogue": "catalogue",
    "load_model": "denoise",
    "load_settings": "settings",
    "read_recording": "source.recordings",
    "run_pass": "stream",
    "verdict_sentence": "report",
    "write_recording": "source.recordings",
    "write_report": "report",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'trainminder' has no attribute {name!r}")
    return getattr(import_module(f"trainminder.{home}"), name)
