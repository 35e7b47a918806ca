"""Everything Trainminder raises on purpose, one branch per remedy.

    TrainminderError
    ├── SettingsError       change the settings or the command line
    ├── SourceError         the data could not be read
    │   ├── RecordingError      change or convert the file
    │   ├── StoreError          the metric store: address, credentials, limits, health
    │   └── MembershipError     which machines form the task could not be learned
    ├── ModelError          retrain, or set what the model was trained with
    ├── MissingExtra        install an optional part
    ├── MissingProgram      install what pip does not
    ├── StateError          begin anew, or restore a copy of what was saved
    ├── BenchError          a run of the bench could not go on; what is finished is kept
    └── Unobservable        the data were read, but no verdict can be given (verdict *unknown*)
        └── TooFewMachines      of two, neither stands out

A message says what is wrong, which value, and what to do. Adapters turn their client's exceptions into
these with ``raise ... from``.
"""

from __future__ import annotations

__all__ = [
    "BenchError",
    "MembershipError",
    "MissingExtra",
    "MissingProgram",
    "ModelError",
    "RecordingError",
    "SettingsError",
    "SourceError",
    "StateError",
    "StoreError",
    "TooFewMachines",
    "TrainminderError",
    "Unobservable",
]


class TrainminderError(Exception):
    """Root of the tree; the command line prints its text on one line and exits with 1."""


class SettingsError(TrainminderError):
    """One or more settings are wrong; ``problems`` holds each with its key path."""

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class SourceError(TrainminderError):
    """The data could not be read."""


class RecordingError(SourceError):
    """A recording is missing, damaged, or not in the format."""


class StoreError(SourceError):
    """A metric store refused, failed, timed out, or answered something else than asked."""


class MembershipError(SourceError):
    """Which machines form the task could not be learned."""


class ModelError(TrainminderError):
    """A denoising model is missing, damaged, or does not fit the settings."""


class MissingExtra(TrainminderError):
    """An optional part is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f'{what} needs the extra "{extra}": pip install "trainminder[{extra}]"')


class MissingProgram(TrainminderError):
    """A program, or a package of another language, is not installed."""


class StateError(TrainminderError):
    """What was saved of a stream is damaged, of another version, or does not fit the settings."""


class EngineError(TrainminderError):
    """The workers that work is spread over cannot be reached, or die again and again."""


class BenchError(TrainminderError):
    """A run of the bench could not go on."""


class Unobservable(TrainminderError):
    """No verdict can be given: the pipeline turns this into the verdict *unknown*, with this reason."""


class TooFewMachines(Unobservable):
    """Of two machines neither stands out; of fewer there is nothing to compare."""
