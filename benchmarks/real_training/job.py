"""The training job: its ranks started on their machines, watched until they train, and started again if one dies."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import Popen

from isolation import NotPossible, Rank
from record import read_steps

__all__ = ["Job"]

#: Importing torch and meeting the others takes 5 to 20 s on two busy cores.
LONGEST_START_SECONDS = 180.0
PORT = 29_511


class Job:
    """The processes of all ranks, whose logs and checkpoints lie in ``folder``."""

    def __init__(self, ranks: Sequence[Rank], folder: Path, seed: int, options: Sequence[str] = ()) -> None:
        self._ranks, self._folder, self._seed, self._options = ranks, folder, seed, options
        self._processes: list[Popen[bytes]] = []

    def log(self, rank: Rank) -> Path:
        """Where a rank writes a line per step."""
        return self._folder / f"{rank.name}.steps"

    def start(self) -> None:
        """Start all ranks and wait until each has trained ten steps.

        Raises:
            NotPossible: a rank ended, or does not train; the message holds the end of its log.
        """
        self.stop()
        environment = {
            "WORLD_SIZE": str(len(self._ranks)),
            "MASTER_ADDR": self._ranks[0].address,
            "MASTER_PORT": str(PORT),
            "GLOO_SOCKET_IFNAME": "eth0",
            "OMP_NUM_THREADS": "1",
        }
        for rank in self._ranks:
            self.log(rank).unlink(missing_ok=True)
            rank.set_cores(2.0)  # starting is not what is recorded
            files = ["--log", str(self.log(rank)), "--checkpoint", str(self._folder / f"{rank.name}.pt")]
            program = str(Path(__file__).parent / "ranks.py")
            process = rank.start(
                [sys.executable, program, *files, "--seed", str(self._seed), *self._options],
                self._folder / f"{rank.name}.log",
                {**environment, "RANK": str(rank.index)},
            )
            self._processes.append(process)
            rank.pid = process.pid
        self.wait_for_steps(10)
        for rank in self._ranks:
            rank.set_cores(1.0)

    def stop(self) -> None:
        """End the ranks."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        self._processes = []

    def is_alive(self) -> bool:
        """Whether every rank still runs."""
        return all(process.poll() is None for process in self._processes)

    def steps(self) -> Mapping[str, int]:
        """How many steps each rank has done since the start."""
        return {rank.name: len(read_steps(self.log(rank))) for rank in self._ranks}

    def wait_for_steps(self, more: int) -> None:
        """Wait until every rank has done this many more steps.

        Raises:
            NotPossible: a rank ended, or it takes too long; the message holds the end of its log.
        """
        wanted = {name: done + more for name, done in self.steps().items()}
        deadline = time.monotonic() + LONGEST_START_SECONDS
        while any(done < wanted[name] for name, done in self.steps().items()):
            for rank, process in zip(self._ranks, self._processes, strict=True):
                if process.poll() is not None:
                    raise NotPossible(f"{rank.name} ended with {process.returncode}: {self._end_of_log(rank)}")
            if time.monotonic() > deadline:
                slowest = min(self._ranks, key=lambda rank: self.steps()[rank.name])
                raise NotPossible(
                    f"{slowest.name} does not train: no {more} steps in {LONGEST_START_SECONDS:g} s: "
                    f"{self._end_of_log(slowest)}"
                )
            time.sleep(0.2)

    def _end_of_log(self, rank: Rank) -> str:
        return " / ".join((self._folder / f"{rank.name}.log").read_text().splitlines()[-5:]) or "its log is empty"
