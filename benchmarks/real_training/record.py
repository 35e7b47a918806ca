"""What a rank's machine shows from outside, once a second: counters of cgroup, namespace and process, as rates."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import polars as pl

from isolation import Rank

__all__ = ["STEP_UNITS", "UNITS", "Recorder", "read_counters", "read_steps"]

#: Metrics beside those of the catalogue (cpu_usage, memory_usage, tcp_throughput), with their units.
UNITS = {
    "cpu_user": "percent",
    "cpu_system": "percent",
    "throttled_periods": "periods/s",
    "throttled_time": "s/s",
    "cpu_waiting": "ratio",
    "io_waiting": "ratio",
    "memory_waiting": "ratio",
    "memory_used": "MiB",
    "sent_bytes": "bytes/s",
    "received_bytes": "bytes/s",
    "sent_packets": "packets/s",
    "received_packets": "packets/s",
    "retransmits": "segments/s",
    "disk_written": "bytes/s",
    "disk_read": "bytes/s",
}
#: What the training code itself could tell, and need not.
STEP_UNITS = {f"{part}_ms": "ms" for part in ("data", "forward", "backward", "optimiser")}

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
HOST_BYTES = PAGE_BYTES * os.sysconf("SC_PHYS_PAGES")

Counters = dict[str, float]
Sample = tuple[float, float, dict[str, Counters]]
"""Unix second, monotonic instant, rank -> counters; a rank that could not be read is absent."""


def read_counters(rank: Rank) -> Counters:
    """Everything that is counted for a rank since its machine was made; seconds, bytes, packets.

    Raises:
        OSError: its process is gone.
    """
    cpuacct, process = rank.cgroups["cpuacct"], Path(f"/proc/{rank.pid}")
    stat = dict(line.split() for line in (rank.cgroups["cpu"] / "cpu.stat").read_text().splitlines())
    eth0 = next(line for line in (process / "net/dev").read_text().splitlines() if line.strip().startswith("eth0:"))
    network = [float(text) for text in eth0.split(":")[1].split()]
    heads, values = (
        line.split() for line in (process / "net/snmp").read_text().splitlines() if line.startswith("Tcp:")
    )
    disk = {"Read": 0.0, "Write": 0.0}
    for line in (rank.cgroups["blkio"] / "blkio.throttle.io_service_bytes").read_text().splitlines():
        words = line.split()
        if len(words) == 3 and words[1] in disk:
            disk[words[1]] += float(words[2])
    counters = {
        "cpu_user": float((cpuacct / "cpuacct.usage_user").read_text()) / 1e9,
        "cpu_system": float((cpuacct / "cpuacct.usage_sys").read_text()) / 1e9,
        "throttled_periods": float(stat["nr_throttled"]),
        "throttled_time": float(stat["throttled_time"]) / 1e9,
        "received_bytes": network[0],
        "received_packets": network[1],
        "sent_bytes": network[8],
        "sent_packets": network[9],
        "retransmits": float(values[heads.index("RetransSegs")]),
        "disk_read": disk["Read"],
        "disk_written": disk["Write"],
        "memory_bytes": _resident_bytes(rank.cgroups["cpu"]),
    }
    for kind in ("cpu", "io", "memory"):
        pressure = rank.cgroups.get("unified", Path()) / f"{kind}.pressure"
        if pressure.is_file():
            counters[f"{kind}_waiting"] = float(pressure.read_text().split("total=")[1].split()[0]) / 1e6
    return counters


def _resident_bytes(group: Path) -> float:
    """Memory of all processes of a group; pages that they share count for each."""
    pages = 0
    for pid in (group / "cgroup.procs").read_text().split():
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended between the two looks
    return float(pages * PAGE_BYTES)


class Recorder:
    """Samples all ranks each whole second, in a thread of its own, from ``start`` to ``stop``."""

    def __init__(self, ranks: Sequence[Rank]) -> None:
        self._ranks = ranks
        self._samples: list[Sample] = []
        self._idle = {rank.name: 0.0 for rank in ranks}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample_each_second, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def latest(self) -> tuple[dict[str, Counters], dict[str, float]]:
        """The newest counters, and seconds in which each machine's core was idle."""
        return (self._samples[-1][2] if self._samples else {}), dict(self._idle)

    def _sample_each_second(self) -> None:
        second = int(time.time()) + 1
        while not self._over.wait(max(0.0, second - time.time())):
            found: dict[str, Counters] = {}
            at = time.monotonic()
            for rank in self._ranks:
                try:
                    found[rank.name] = read_counters(rank)
                except (OSError, StopIteration):
                    continue
            self._count_idle(at, found)
            self._samples.append((float(second), at, found))
            # A host that was too busy leaves a gap, and nothing is made up for it.
            second = max(second + 1, int(time.time()) + 1)

    def _count_idle(self, at: float, found: Mapping[str, Counters]) -> None:
        if not self._samples:
            return
        _, earlier_at, earlier = self._samples[-1]
        for name in found.keys() & earlier.keys():
            busy = sum(found[name][part] - earlier[name][part] for part in ("cpu_user", "cpu_system"))
            self._idle[name] += max(0.0, at - earlier_at - busy)

    def rates(self, from_at: float, to_at: float) -> pl.DataFrame:
        """The metrics of all ranks between two instants (Unix seconds): timestamp, machine, and a column each.

        A rate stands at the later of two samples that are at most two seconds apart; longer gaps stay gaps.
        """
        rows = []
        samples = [sample for sample in self._samples if from_at - 1 <= sample[0] <= to_at]
        for (_, before_at, before), (second, at, now) in pairwise(samples):
            if at - before_at > 2.0 or second < from_at:
                continue
            for name in sorted(before.keys() & now.keys()):
                seconds = at - before_at
                rows.append({"timestamp": second, "machine": name} | _metrics(before[name], now[name], seconds))
        return pl.DataFrame(rows, infer_schema_length=None)


def _metrics(before: Counters, now: Counters, seconds: float) -> dict[str, float]:
    rate = {name: (now[name] - before[name]) / seconds for name in now.keys() & before.keys()}
    user, system = 100 * rate["cpu_user"], 100 * rate["cpu_system"]
    derived = {
        # Of the machine's one core; the last bit of a burst may be counted a second late.
        "cpu_usage": min(user + system, 100.0),
        "memory_usage": 100 * now["memory_bytes"] / HOST_BYTES,
        "tcp_throughput": rate["sent_bytes"] + rate["received_bytes"],
        "cpu_user": min(user, 100.0),
        "cpu_system": min(system, 100.0),
        "memory_used": now["memory_bytes"] / (1 << 20),
    }
    waiting = {name: min(value, 1.0) for name, value in rate.items() if name.endswith("_waiting")}
    plain = {name: rate[name] for name in UNITS if name in rate and name not in derived and name not in waiting}
    return derived | plain | waiting


def read_steps(log: Path) -> pl.DataFrame:
    """A rank's own log: step, at (Unix seconds), the milliseconds of ``STEP_UNITS``, loss; a row per step."""
    names = ["step", "at", *STEP_UNITS, "loss"]
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    rows = [[float(word) for word in line.split()] for line in lines]
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.Float64), orient="row")
