"""Work for the workers of a cluster: they import it by name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from trainminder.catalogue import load_catalogue
from trainminder.errors import RecordingError
from trainminder.replay import Moment, Replay
from trainminder.settings import DetectSettings
from trainminder.simulate import ClusterSpec, Fault, simulate_task
from trainminder.stream import TaskStream

METRICS = ("gpu_duty_cycle", "pcie_bandwidth", "pfc_tx_packet_rate")
SECONDS = 600


def no_model(name: str) -> Any:
    raise AssertionError(name)


class SlowReplay:
    """A replay that takes as long as is needed to be killed in the middle of it; it says in which process it is."""

    def __init__(self, replay: Replay, folder: Path, name: str) -> None:
        self._replay, self._file = replay, folder / f"{name}.{os.getpid()}"
        self._file.touch()

    def step(self) -> Moment | None:
        time.sleep(0.05)
        return self._replay.step()

    def saved(self) -> bytes:
        return self._replay.saved()


def replay_of(seed: int, folder: Path, saved: bytes | None) -> SlowReplay:
    faults = [Fault(3, "pcie_downgrading", onset_seconds=250.0)] if seed % 2 else []
    spec = ClusterSpec(8, seed=seed, duration_seconds=SECONDS, metrics=METRICS, task=f"task-{seed}")
    raw, _ = simulate_task(spec, faults, specs=load_catalogue())
    settings = DetectSettings()
    stream = TaskStream(settings, no_model) if saved is None else TaskStream.restored(saved, settings, no_model)
    return SlowReplay(Replay(raw, stream, 10.0), folder, f"task-{seed}")


class Deadly:
    def step(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def saved(self) -> bytes:
        return b""


def deadly(_saved: bytes | None) -> Deadly:
    return Deadly()


def fails(_saved: bytes | None) -> Deadly:
    raise RecordingError("run.parquet: no such file")


def square_or_die_once(folder: Path, number: int) -> int:
    if number == 3 and not (folder / "died").exists():
        (folder / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number
