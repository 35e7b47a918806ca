"""Hardware counters and log lines of a simulated task, beside its metrics: what a fault leaves, and what it does not.

How often, all of it ours, no measurement:

- 15 % of faults log nothing, and 10 % move no counter, whatever their kind; what each kind leaves otherwise, and with
  which chance, is in ``sign_table``.
- On 4 % of the machines the device counters are not exported, on 8 % the port counters.
- 2 % of the devices still show an Xid from before the data. A healthy device corrects 0.05 memory errors an hour and
  replays 0.3 times on PCIe; a port has 0.3 symbol errors an hour. Somebody clears the port counters 0.01 times an hour.
- A healthy machine logs an application's Xid (31 or 13) 0.02 times an hour, and a corrected PCIe error 0.05 times.
- Devices run into their power cap 4 times an hour, for 5 s on average.
- A fault that stops the task lets the collective time out on every rank of the job, after 1 to 10 minutes: an echo that
  blames nobody. Half the launchers then kill what is left, and every device of the job shows Xid 45.

Signs draw from streams of their own: adding them changes no metric, and a fault changes no sign of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from trainminder.simulate.cluster import ClusterSpec, generator
from trainminder.simulate.faults import ActiveFault, Fault, activate
from trainminder.simulate.sign_counters import Move, ShownXid, innocent, sample_counters
from trainminder.simulate.sign_table import (
    AER_CORRECTED,
    APPLICATION_XIDS,
    CHATTER,
    CLEANUP_XID,
    SIGNS,
    WATCHDOG,
    Line,
)
from trainminder.types import RawMetric

__all__ = ["LOGS_NOTHING", "MOVES_NO_COUNTER", "LogLine", "Signs", "simulate_signs"]

LOGS_NOTHING = 0.15
MOVES_NO_COUNTER = 0.1
APPLICATION_XIDS_PER_HOUR = 0.02
AER_PER_HOUR = 0.05
COLLECTIVE_TIMEOUTS = (60, 120, 180, 300, 600)
KILLS_THE_REST = 0.5
#: A task that makes less than this share of its progress stands still.
STANDS_STILL = 0.05

#: Bus numbers of the eight devices of a usual board.
_BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)
_EPISODE_STEP_SECONDS = 0.5
_MOST_EPISODES = 40


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a machine's log; ``at`` in Unix seconds, ``source`` such as kernel, dcgm, training or cron."""

    at: float
    machine: str
    source: str
    text: str

    def __str__(self) -> str:
        """As a collector writes it: instant, machine, source, text."""
        moment = datetime.fromtimestamp(self.at, UTC).isoformat(timespec="microseconds")
        return f"{moment} {self.machine} {self.source}: {self.text}"


@dataclass(frozen=True, slots=True)
class Signs:
    """``counters``: every hardware counter, sampled as the metrics are, without those of machines that export none.
    ``log``: in order of time.
    """

    counters: tuple[RawMetric, ...]
    log: tuple[LogLine, ...]


def simulate_signs(spec: ClusterSpec, faults: Sequence[Fault] = ()) -> Signs:
    """Simulate what ``simulate_task`` with the same values leaves in hardware counters and logs.

    Raises:
        SettingsError: a fault that does not fit the cluster.
    """
    active = activate(spec, faults)
    drawn = _Drawn(spec, active)
    for index, (asked, fault) in enumerate(zip(faults, active, strict=True)):
        drawn.add_fault(index, asked.fault_type, fault)
    drawn.add_echo()
    drawn.add_innocent_lines()
    drawn.silence()
    return Signs(
        counters=sample_counters(spec, active, drawn.moves, drawn.xids),
        log=tuple(sorted(drawn.lines, key=lambda line: (line.at, line.machine, line.source, line.text))),
    )


@dataclass(slots=True)
class _Drawn:
    """Everything drawn so far; seconds count from the start of the data."""

    spec: ClusterSpec
    active: tuple[ActiveFault, ...]
    lines: list[LogLine] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    xids: list[ShownXid] = field(default_factory=list)

    # ------------------------------------------------------------ faults

    def add_fault(self, index: int, fault_type: str, fault: ActiveFault) -> None:
        purpose = f"signs {index} {fault_type}"
        rng = generator(self.spec.seed, purpose)
        logs, moves = rng.random() >= LOGS_NOTHING, rng.random() >= MOVES_NO_COUNTER
        sets = SIGNS[fault_type]
        weights = np.array([one.weight for one in sets])
        chosen = sets[int(rng.choice(len(sets), p=weights / weights.sum()))]
        episodes = _episodes(fault)
        shown = [line for line in chosen.lines if rng.random() < line.chance]
        changed = [change for change in chosen.changes if rng.random() < change.chance]
        for machine in fault.machines:
            device = int(rng.integers(self.spec.devices_per_machine)) if fault.device is None else fault.device
            for line in shown:
                for second in _instants(line, episodes, rng):
                    self._add_line(line, second, machine, device, rng, is_logged=bool(logs), is_counted=bool(moves))
            if moves:
                self.moves += [Move(change, machine, device, fault, f"{purpose} {machine}") for change in changed]

    def _add_line(
        self,
        line: Line,
        second: float,
        machine: int,
        device: int,
        rng: np.random.Generator,
        *,
        is_logged: bool = True,
        is_counted: bool = True,
    ) -> None:
        text = line.text.format(**self._words(machine, device, rng))
        if second >= self.spec.duration_seconds:
            return
        if is_logged:
            for place, part in enumerate(text.split("\n")):
                self._write(second + place * 1e-5, machine, line.source, part)
        if is_counted and line.xid is not None:
            self.xids.append(ShownXid(second, machine, device, line.xid))

    def _write(self, second: float, machine: int, source: str, text: str) -> None:
        if second < self.spec.duration_seconds:
            at = round(self.spec.start_at + second, 6)
            self.lines.append(LogLine(at, self.spec.machine_name(machine), source, text))

    def _words(self, machine: int, device: int, rng: np.random.Generator) -> dict[str, int | float | str]:
        """What the templates' fields stand for."""
        bus, domain = _BUSES[device % len(_BUSES)], device // len(_BUSES)
        low, high = rng.integers(0, 1 << 30), rng.integers(0, 1 << 16)
        return {
            "gpu": device,
            "rank": machine * self.spec.devices_per_machine + device,
            "host": self.spec.machine_name(machine),
            "pci": f"{domain:04x}:{bus:02x}:00",
            "port": f"{domain:04x}:{bus - 1:02x}:01.0",
            "slot": 20 + device,
            "nic": f"{domain:04x}:{bus + 2:02x}:00.0",
            "interface": f"ibp{bus + 2}s0",
            "hca": f"mlx5_{device}",
            "pid": 20_000 + machine % 1000 * 16 + device,
            "pid2": 60_000 + int(high) % 5000,
            "task": ("dataloader", "jbd2/nvme1n1-8", "pt_main_thread", "backup")[int(high) % 4],
            "channel": int(low) % 64,
            "unit": int(high) % 7,
            "small": 1 + int(low) % 9,
            "link": int(high) % 18,
            "core": int(low) % 128,
            "octet": int(high) % 200,
            "number": 2501 + int(low) % 90_000,
            "slow": 30_001 + int(low) % 50_000,
            "tenths": (10 + int(low) % 300) / 10,
            "address": 0x7000_0000_0000 + int(low) * 4096,
            "row": int(low),
        }

    # ------------------------------------------------------------ the job's echo

    def add_echo(self) -> None:
        """Time-outs on every rank once the task has stood still for long enough."""
        rng = generator(self.spec.seed, "signs echo")
        timeout, kills = int(rng.choice(COLLECTIVE_TIMEOUTS)), rng.random() < KILLS_THE_REST
        stops = [stop for fault in self.active if (stop := _stop(fault, timeout)) is not None]
        if not stops:
            return
        at, waited = min(stops)
        sequence, numel = int(rng.integers(1000, 900_000)), int(rng.integers(1, 4000)) * 1024
        for rank in range(self.spec.machines * self.spec.devices_per_machine):
            machine, device = divmod(rank, self.spec.devices_per_machine)
            late = float(rng.uniform(0.0, 3.0))
            moment = datetime.fromtimestamp(self.spec.start_at + at + late, UTC)
            text = WATCHDOG.format(
                rank=rank,
                stamp=f"{moment:%m%d %H:%M:%S.%f}000",
                sequence=sequence,
                numel=numel,
                timeout_ms=round(waited * 1000),
                ran_ms=round((waited + late / 30) * 1000),
            )
            self._write(at + late, machine, "training", text)
            if kills:
                self._add_line(CLEANUP_XID, at + 5.0 + late, machine, device, rng)

    # ------------------------------------------------------------ healthy machines

    def add_innocent_lines(self) -> None:
        for source, text, per_hour in CHATTER:
            rng = generator(self.spec.seed, f"signs chatter {text}")
            for second, machine, device in innocent(self.spec, rng, per_hour):
                self._write(second, machine, source, text.format(**self._words(machine, device, rng)))
        rng = generator(self.spec.seed, "signs application")
        for second, machine, device in innocent(self.spec, rng, APPLICATION_XIDS_PER_HOUR):
            line = APPLICATION_XIDS[int(rng.integers(len(APPLICATION_XIDS)))]
            self._add_line(line, second, machine, device, rng)
        rng = generator(self.spec.seed, "signs corrected")
        for second, machine, device in innocent(self.spec, rng, AER_PER_HOUR):
            self._add_line(Line("kernel", AER_CORRECTED), second, machine, device, rng)

    def silence(self) -> None:
        """A machine that cannot be reached hands over no line."""
        for fault in self.active:
            if fault.model.silences == "machine":
                names = {self.spec.machine_name(machine) for machine in fault.machines}
                start, end = self.spec.start_at + fault.start, self.spec.start_at + fault.end
                self.lines = [line for line in self.lines if not (line.machine in names and start <= line.at < end)]


def _episodes(fault: ActiveFault) -> list[tuple[float, float]]:
    """When the fault is on: once for most, again and again for one that comes and goes."""
    grid = np.arange(fault.start, fault.end, _EPISODE_STEP_SECONDS)
    is_on = np.concatenate(([False], fault.envelope(grid) > 0, [False]))
    # a fault that grows is on from its first second
    is_on[1:2] = True
    edges = np.flatnonzero(np.diff(is_on.astype(np.int8)))
    bounds = np.append(grid, fault.end)[edges].reshape(-1, 2)
    return [(start, end) for start, end in bounds.tolist()][:_MOST_EPISODES]


def _instants(line: Line, episodes: list[tuple[float, float]], rng: np.random.Generator) -> list[float]:
    """When a line is written. An Xid is logged once: the device does not come back from it."""
    if line.when == "late":
        start, end = episodes[0][0], episodes[-1][1]
        return [start + (end - start) * float(rng.uniform(0.9, 1.0))]
    instants = []
    for start, end in episodes if line.xid is None else episodes[:1]:
        second = (start if line.when == "begin" else end) + float(rng.uniform(*line.delay))
        if line.when == "end" or line.xid is not None or second < end:
            instants.append(second)
        while line.every is not None and (second := second + line.every * float(rng.uniform(0.5, 1.5))) < end:
            instants.append(second)
    return instants


def _stop(fault: ActiveFault, timeout: float) -> tuple[float, float] | None:
    """When the collective times out because of a fault, and after how many seconds; None: it never does."""
    if fault.halt is not None:
        return fault.halt, fault.halt - fault.start
    loss = max(fault.model.compute, fault.model.communicate) * fault.strength
    if 1 - loss > STANDS_STILL:
        return None
    stands_still = ((start + fault.ramp_seconds, end) for start, end in _episodes(fault))
    return next(((start + timeout, timeout) for start, end in stands_still if start + timeout < end), None)
