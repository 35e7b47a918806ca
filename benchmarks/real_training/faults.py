"""Real faults of a rank's machine. Each begins with ``inject`` and ends with what that returned.

What a fault takes is measured against what the rank used before: a limit above that would do nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from isolation import NO_LIMIT, Rank

__all__ = ["FAULTS", "PROGRAMS", "Fault", "Usual"]

Undo = Callable[[], None]

#: What the faults start beside what the machines need.
PROGRAMS = ("iptables", "stress-ng")


@dataclass(frozen=True, slots=True)
class Usual:
    """What one rank used before the fault, per second, and where it may keep files."""

    cores: float
    sent_bytes: float
    folder: Path


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault; ``everywhere``: on all ranks at once, so that nobody is the culprit."""

    name: str
    strength: str
    inject: Callable[[Rank, Usual], Undo]
    everywhere: bool = False


def _cpu_quota(rank: Rank, usual: Usual) -> Undo:
    rank.set_cores(0.4 * usual.cores)
    return lambda: rank.set_cores(1.0)


def _link_rate(rank: Rank, usual: Usual) -> Undo:
    rate = f"{max(round(0.3 * usual.sent_bytes), 50_000)}bps"  # tc's bps are bytes a second
    device = ("dev", "eth0", "root")
    rank.run(["tc", "qdisc", "add", *device, "tbf", "rate", rate, "burst", "64kb", "latency", "100ms"])
    return lambda: rank.run(["tc", "qdisc", "del", *device])


def _packet_loss(rank: Rank, usual: Usual) -> Undo:
    del usual
    rule = ["INPUT", "-i", "eth0", "-m", "statistic", "--mode", "random", "--probability", "0.05", "-j", "DROP"]
    rank.run(["iptables", "-A", *rule])
    return lambda: rank.run(["iptables", "-D", *rule])


def _freeze(rank: Rank, usual: Usual) -> Undo:
    del usual
    _send(rank, signal.SIGSTOP)
    return lambda: _send(rank, signal.SIGCONT)


def _send(rank: Rank, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(rank.pid, number)


def _stutter(rank: Rank, usual: Usual) -> Undo:
    del usual
    over = threading.Event()

    def freeze_shortly() -> None:
        while not over.is_set():
            _send(rank, signal.SIGSTOP)
            over.wait(0.4)
            _send(rank, signal.SIGCONT)
            over.wait(0.6)

    thread = threading.Thread(target=freeze_shortly, daemon=True)
    thread.start()

    def undo() -> None:
        over.set()
        thread.join()
        _send(rank, signal.SIGCONT)

    return undo


def _beside(rank: Rank, usual: Usual, command: Sequence[str]) -> Undo:
    """A program on the rank's machine, ended by its process id."""
    process = rank.start(command, usual.folder / f"{rank.name}.beside.log")

    def undo() -> None:
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    return undo


def _competing_process(rank: Rank, usual: Usual) -> Undo:
    return _beside(rank, usual, ["stress-ng", "--cpu", "2", "--quiet"])


def _memory_growth(rank: Rank, usual: Usual) -> Undo:
    # Written bytes: memory that is only asked for is not used.
    grow = "import time\nheld = []\nwhile len(held) < 150:\n    held.append(b'x' * (8 << 20))\n    time.sleep(0.5)\n"
    return _beside(rank, usual, [sys.executable, "-c", grow + "time.sleep(1e6)"])


def _slow_disk(rank: Rank, usual: Usual) -> Undo:
    del usual
    rank.limit_writes(1_000_000)
    return lambda: rank.limit_writes(NO_LIMIT)


def _by_name(*faults: Fault) -> Mapping[str, Fault]:
    return {fault.name: fault for fault in faults}


FAULTS = _by_name(
    Fault("cpu_quota", "0.4 of the CPU it used", _cpu_quota),
    Fault("link_rate", "0.3 of the bytes it sent", _link_rate),
    Fault("packet_loss", "5 % of arriving packets", _packet_loss),
    Fault("freeze", "throughout", _freeze),
    Fault("stutter", "0.4 s of each second", _stutter),
    Fault("competing_process", "two busy loops on its one core", _competing_process),
    Fault("memory_growth", "16 MiB/s up to 1,200 MiB", _memory_growth),
    Fault("slow_disk", "1 MB/s of writes", _slow_disk),
    Fault("cpu_quota_all", "0.4 of the CPU each used", _cpu_quota, everywhere=True),
    Fault("link_rate_all", "0.3 of the bytes each sent", _link_rate, everywhere=True),
    Fault("stutter_all", "0.4 s of each second", _stutter, everywhere=True),
)
