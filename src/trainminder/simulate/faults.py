"""What can go wrong: each fault as lost progress in the timeline and as effects on the culprit's metrics.

Victims are not listed here: they are affected through the timeline, where everyone waits for the slowest; congestion
alone spreads to them as an effect (scope *peers*).
Source: the fault mix and the metrics each fault shows in follow Minder (NSDI'25); the amounts are ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from trainminder.errors import SettingsError
from trainminder.simulate.cluster import MACHINES_PER_RACK, RACKS_PER_SWITCH, ClusterSpec, generator
from trainminder.types import BoolArray, FloatArray

__all__ = ["FAULT_MODELS", "ActiveFault", "Effect", "Fault", "FaultModel", "Stuck", "activate", "machines_of"]

Change = Literal["add", "scale", "toward"]
Scope = Literal["culprit", "machine", "peers"]
Stuck = Literal["busy", "idle", "wait"]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault to inject: where, what, when, how strong."""

    machine: int
    """Index of the culprit."""
    fault_type: str
    """A key of ``FAULT_MODELS``."""
    onset_seconds: float
    """Seconds after the start of the data."""
    duration_seconds: float | None = None
    """None: to the end of the data."""
    device: int | None = None
    """Index of the culprit device; None: drawn by the seed where the fault is one of a device."""
    strength: float = 1.0
    """In (0, 1]; 1 is the worst case, where most faults stop the whole task."""
    ramp_seconds: float = 0.0
    """Time in which the fault grows to its strength. A memory leak without one grows over its whole duration."""
    on_seconds: float | None = None
    off_seconds: float = 0.0
    """An intermittent fault is there for ``on_seconds`` and gone for ``off_seconds``, in turns; None: it stays."""
    halts_after_seconds: float | None = None
    """Seconds from onset until the task stops of it, as a collective times out; the fault ends there. None: never."""
    restarts_after_seconds: float | None = None
    """Seconds from that stop until the task is started again, without the fault. None: not within the data."""
    metric_share: float = 1.0
    """Chance of each effect on a metric to show; at least one always does."""


@dataclass(frozen=True, slots=True)
class Effect:
    """How one metric changes at full strength: by ``add``, by the factor ``scale``, or all the way ``toward``.

    ``scope``: *culprit* is the faulty device (every device of the machine when the fault is of no single
    one); *machine* is every device of the culprit machine; *peers* are all the other machines.
    Effects that share a ``group`` show together or not at all, with the model's chance for that group.
    ``tells``: whether the culprit can be told by it; False for what goes along and is within ordinary differences.
    """

    metric: str
    change: Change
    amount: float
    scope: Scope = "culprit"
    group: str = ""
    tells: bool = True


@dataclass(frozen=True, slots=True)
class FaultModel:
    """A kind of fault.

    ``of_device``: of one device, else of a whole machine. ``silences``: whose samples cease while it lasts.
    ``grows``: over its whole duration, where no ramp is given.
    ``compute``, ``communicate``, ``save``: share of the progress lost at full strength in each phase.
    ``group``: the fault is of all machines of the culprit's rack, or under its switch.
    ``stuck``: how the culprit spends the time it loses: still busy, idle, or spinning in a collective.
    ``chances``: group of effects -> probability that it shows; ``one_of``: groups of which one always does.
    """

    of_device: bool
    effects: tuple[Effect, ...]
    compute: float = 0.0
    communicate: float = 0.0
    save: float = 0.0
    stuck: Stuck = "wait"
    silences: Literal["device", "machine"] | None = None
    group: Literal["rack", "switch"] | None = None
    grows: bool = False
    chances: Mapping[str, float] = field(default_factory=dict)
    one_of: tuple[str, ...] = ()


def _idle(scope: Scope = "culprit", group: str = "") -> tuple[Effect, ...]:
    """A device whose process is gone, while those of its peers spin."""
    toward = {
        "gpu_duty_cycle": 0.0,
        "gpu_power_draw": 80.0,
        "gpu_graphics_activity": 0.0,
        "gpu_sm_activity": 0.0,
        "gpu_tensor_activity": 0.0,
        "gpu_fp_activity": 0.0,
        "gpu_memory_bandwidth": 0.0,
        "pcie_bandwidth": 1e8,
        "nvlink_bandwidth": 0.0,
    }
    return tuple(Effect(metric, "toward", amount, scope, group) for metric, amount in toward.items())


FAULT_MODELS: Mapping[str, FaultModel] = {
    "ecc_error": FaultModel(
        of_device=True,
        compute=1.0,
        effects=(
            Effect("cpu_usage", "toward", 4.0, group="cpu"),
            *_idle(group="gpu"),
            Effect("memory_usage", "scale", 0.6, group="memory"),
            Effect("gpu_memory_used", "toward", 600.0, group="memory"),
            Effect("rdma_throughput", "scale", 0.1, group="throughput"),
            Effect("tcp_throughput", "scale", 0.2, group="throughput"),
            Effect("disk_io", "add", 0.5, group="disk"),
            Effect("pfc_tx_packet_rate", "add", 1500.0, group="pfc"),
        ),
        chances={"cpu": 0.8, "gpu": 0.66, "memory": 0.57, "throughput": 0.46, "disk": 0.17, "pfc": 0.09},
        one_of=("cpu", "gpu"),
    ),
    "pcie_downgrading": FaultModel(
        of_device=True,
        communicate=0.75,
        effects=(
            Effect("pfc_tx_packet_rate", "add", 7000.0),
            # the full buffer pauses its senders, and congestion spreads thinly over the fabric
            Effect("pfc_tx_packet_rate", "add", 120.0, "peers"),
            Effect("cnp_packet_rate", "add", 1500.0),
            Effect("cnp_packet_rate", "add", 120.0, "peers"),
            Effect("pcie_bandwidth", "scale", 0.45),
        ),
    ),
    "nic_dropout": FaultModel(
        of_device=False,
        communicate=1.0,
        effects=(
            Effect("rdma_throughput", "toward", 0.0),
            Effect("tcp_throughput", "scale", 0.3),
            Effect("cpu_usage", "toward", 6.0),
            Effect("memory_usage", "scale", 0.8),
            *_idle(),
        ),
    ),
    "gpu_card_drop": FaultModel(
        of_device=True,
        compute=1.0,
        silences="device",
        # the launcher ends all ranks of a machine that lost one
        effects=(*_idle("machine"), Effect("cpu_usage", "toward", 5.0), Effect("memory_usage", "scale", 0.6)),
    ),
    "nvlink_error": FaultModel(
        of_device=True,
        communicate=0.6,
        effects=(
            Effect("nvlink_bandwidth", "scale", 0.15),
            # what the link no longer carries goes through the host
            Effect("pcie_bandwidth", "add", 1.2e10),
        ),
    ),
    "cuda_execution_error": FaultModel(
        of_device=True,
        compute=1.0,
        effects=(
            *_idle(),
            Effect("cpu_usage", "toward", 7.0),
            Effect("gpu_memory_used", "toward", 600.0, group="memory"),
            Effect("memory_usage", "scale", 0.8, group="memory"),
        ),
        chances={"memory": 0.6},
    ),
    "gpu_execution_error": FaultModel(
        of_device=True,
        compute=1.0,
        effects=(
            Effect("gpu_graphics_activity", "toward", 0.45),
            Effect("gpu_sm_activity", "toward", 0.02),
            Effect("gpu_power_draw", "scale", 0.72),
            Effect("cpu_usage", "scale", 0.7, group="cpu"),
        ),
        chances={"cpu": 0.5},
    ),
    "hdfs_error": FaultModel(
        of_device=False,
        compute=1.0,
        save=1.0,
        stuck="idle",
        effects=(
            Effect("cpu_usage", "toward", 5.0),
            Effect("tcp_throughput", "scale", 0.05),
            Effect("disk_io", "toward", 0.0),
            Effect("memory_usage", "scale", 0.92),
        ),
    ),
    "machine_unreachable": FaultModel(of_device=False, compute=1.0, communicate=1.0, silences="machine", effects=()),
    "thermal_throttling": FaultModel(
        of_device=True,
        compute=0.4,
        stuck="busy",
        effects=(
            Effect("gpu_temperature", "add", 22.0),
            Effect("gpu_sm_clock", "scale", 0.6),
            Effect("gpu_power_draw", "scale", 0.75),
        ),
    ),
    "clock_drop": FaultModel(
        of_device=True,
        compute=0.5,
        stuck="busy",
        effects=(Effect("gpu_sm_clock", "scale", 0.5), Effect("gpu_power_draw", "scale", 0.65)),
    ),
    "cpu_contention": FaultModel(
        of_device=False,
        compute=0.3,
        stuck="idle",
        effects=(Effect("cpu_usage", "toward", 96.0), Effect("tcp_throughput", "scale", 0.55)),
    ),
    "memory_leak": FaultModel(
        of_device=False,
        compute=0.05,
        stuck="idle",
        grows=True,
        effects=(Effect("memory_usage", "toward", 98.0), Effect("cpu_usage", "add", 3.0, tells=False)),
    ),
    "aoc_error": FaultModel(
        of_device=False,
        communicate=0.85,
        effects=(
            # lost frames are sent again, and the switch is told to slow down
            Effect("cnp_packet_rate", "add", 2500.0),
            Effect("cnp_packet_rate", "add", 60.0, "peers"),
            Effect("pfc_tx_packet_rate", "add", 300.0),
        ),
    ),
    "switch_fault": FaultModel(
        of_device=False,
        group="switch",
        communicate=0.8,
        effects=(
            Effect("pfc_tx_packet_rate", "add", 4000.0),
            Effect("pfc_tx_packet_rate", "add", 150.0, "peers"),
            Effect("cnp_packet_rate", "add", 1200.0),
        ),
    ),
    "rack_fault": FaultModel(
        of_device=False,
        group="rack",
        compute=0.35,
        stuck="busy",
        # a fan wall or a power shelf: the whole rack runs hot and slows down
        effects=(
            Effect("gpu_temperature", "add", 16.0),
            Effect("gpu_sm_clock", "scale", 0.65),
            Effect("gpu_power_draw", "scale", 0.8),
        ),
    ),
    "nvlink_domain_fault": FaultModel(
        of_device=False,
        group="rack",
        communicate=0.5,
        effects=(Effect("nvlink_bandwidth", "scale", 0.35), Effect("pcie_bandwidth", "add", 9e9)),
    ),
    "slow_disk": FaultModel(
        of_device=False,
        compute=0.05,
        save=0.8,
        stuck="idle",
        effects=(Effect("disk_io", "toward", 0.99), Effect("cpu_usage", "add", 6.0)),
    ),
}


@dataclass(frozen=True, slots=True)
class ActiveFault:
    """A fault with everything drawn: what the timeline and the metrics apply. Seconds count from the start."""

    fault_type: str
    model: FaultModel
    machines: tuple[int, ...]
    """Those at fault; a group's has several."""
    device: int | None
    start: float
    end: float
    strength: float
    ramp_seconds: float
    effects: tuple[Effect, ...]
    on_seconds: float | None = None
    off_seconds: float = 0.0
    halt: float | None = None
    """When the task stops of it."""
    restart_after: float = np.inf

    @property
    def machine(self) -> int:
        """The culprit, of a group the one that was asked for."""
        return self.machines[0]

    def is_on(self, seconds: FloatArray) -> BoolArray:
        """Whether the fault is there at each instant; any shape."""
        on: BoolArray = (seconds >= self.start) & (seconds < self.end)
        if self.on_seconds is not None:
            on &= (seconds - self.start) % (self.on_seconds + self.off_seconds) < self.on_seconds
        return on

    def envelope(self, seconds: FloatArray) -> FloatArray:
        """How strong the fault is at each instant, between 0 and its strength; any shape."""
        grown = np.clip((seconds - self.start) / self.ramp_seconds, 0, 1) if self.ramp_seconds else 1.0
        return np.where(self.is_on(seconds), self.strength * grown, 0.0)

    def turns(self) -> FloatArray:
        """Instants at which its pace changes."""
        turns = [np.linspace(self.start, min(self.start + self.ramp_seconds, self.end), 5), np.array([self.end])]
        if self.on_seconds is not None:
            begins = np.arange(self.start, self.end, self.on_seconds + self.off_seconds)
            turns += [begins, np.minimum(begins + self.on_seconds, self.end)]
        return np.unique(np.concatenate(turns))


def activate(spec: ClusterSpec, faults: Sequence[Fault]) -> tuple[ActiveFault, ...]:
    """Check the faults against the cluster and draw what they leave open.

    Raises:
        SettingsError: faults that cannot be injected; all problems at once.
    """
    problems = [problem for index, fault in enumerate(faults) for problem in _problems(spec, index, fault)]
    if problems:
        raise SettingsError(*problems)
    return tuple(_activate(spec, index, fault) for index, fault in enumerate(faults))


def _activate(spec: ClusterSpec, index: int, fault: Fault) -> ActiveFault:
    model = FAULT_MODELS[fault.fault_type]
    rng = generator(spec.seed, f"fault {index} {fault.fault_type}")
    drawn = int(rng.integers(spec.devices_per_machine))
    shown = {group for group, chance in model.chances.items() if rng.random() < chance}
    if model.one_of and not shown & set(model.one_of):
        shown.add(model.one_of[0])
    effects = tuple(effect for effect in model.effects if not effect.group or effect.group in shown)
    end = spec.duration_seconds if fault.duration_seconds is None else fault.onset_seconds + fault.duration_seconds
    halt = None if fault.halts_after_seconds is None else fault.onset_seconds + fault.halts_after_seconds
    restart_after = np.inf if fault.restarts_after_seconds is None else fault.restarts_after_seconds
    return ActiveFault(
        fault_type=fault.fault_type,
        model=model,
        machines=machines_of(spec, fault),
        device=(drawn if fault.device is None else fault.device) if model.of_device else None,
        start=fault.onset_seconds,
        end=min(end, spec.duration_seconds, np.inf if halt is None else halt),
        strength=fault.strength,
        ramp_seconds=fault.ramp_seconds or (end - fault.onset_seconds if model.grows else 0.0),
        effects=_shown(effects, fault.metric_share, spec.metrics, rng),
        on_seconds=fault.on_seconds,
        off_seconds=fault.off_seconds,
        halt=halt,
        restart_after=restart_after,
    )


def machines_of(spec: ClusterSpec, fault: Fault) -> tuple[int, ...]:
    """The machines at fault, the one asked for first: of a group fault all of its rack, or under its switch."""
    group = FAULT_MODELS[fault.fault_type].group
    if group is None:
        return (fault.machine,)
    size = MACHINES_PER_RACK * (RACKS_PER_SWITCH if group == "switch" else 1)
    first = fault.machine // size * size
    others = [machine for machine in range(first, min(first + size, spec.machines)) if machine != fault.machine]
    return (fault.machine, *others)


def _shown(
    effects: tuple[Effect, ...], share: float, given: tuple[str, ...] | None, rng: np.random.Generator
) -> tuple[Effect, ...]:
    """The effects that show if each metric's do so with this chance; at least one that tells, of ``given``, does."""
    metrics = list(dict.fromkeys(effect.metric for effect in effects if effect.scope != "peers"))
    drawn = {metric for metric in metrics if rng.random() < share}
    telling = {effect.metric for effect in effects if effect.tells}
    able = [metric for metric in metrics if metric in telling and (given is None or metric in given)]
    place = int(rng.integers(len(able))) if able else 0
    if share >= 1 or not able:
        return effects
    kept = drawn if drawn & set(able) else drawn | {able[place]}
    return tuple(effect for effect in effects if effect.metric in kept)


def _problems(spec: ClusterSpec, index: int, fault: Fault) -> list[str]:
    where = f"fault {index}"
    problems = []
    model = FAULT_MODELS.get(fault.fault_type)
    if model is None:
        close = difflib.get_close_matches(fault.fault_type, FAULT_MODELS, n=1, cutoff=0.5)
        hint = f'did you mean "{close[0]}"?' if close else f"known are {', '.join(FAULT_MODELS)}"
        problems.append(f'{where}: fault type "{fault.fault_type}" is not known: {hint}')
    elif fault.device is not None and not model.of_device:
        problems.append(f"{where}: {fault.fault_type} is of a whole machine: leave the device out")
    if not 0 <= fault.machine < spec.machines:
        problems.append(f"{where}: machine {fault.machine} is not one of 0..{spec.machines - 1}")
    if fault.device is not None and not 0 <= fault.device < spec.devices_per_machine:
        problems.append(f"{where}: device {fault.device} is not one of 0..{spec.devices_per_machine - 1}")
    if not 0 <= fault.onset_seconds < spec.duration_seconds:
        problems.append(
            f"{where}: onset {fault.onset_seconds:g} s is outside the {spec.duration_seconds:g} s that are simulated"
        )
    if fault.duration_seconds is not None and not fault.duration_seconds > 0:
        problems.append(f"{where}: duration is {fault.duration_seconds:g} s: it must be more than 0")
    if not 0 < fault.strength <= 1:
        problems.append(f"{where}: strength is {fault.strength:g}: it must be more than 0 and at most 1")
    for name in ("on_seconds", "halts_after_seconds", "restarts_after_seconds"):
        value = getattr(fault, name)
        if value is not None and not value > 0:
            problems.append(f"{where}: {name} is {value:g}: it must be more than 0")
    if fault.restarts_after_seconds is not None and fault.halts_after_seconds is None:
        problems.append(f"{where}: restarts_after_seconds is given and halts_after_seconds is not: give both")
    if not fault.off_seconds >= 0:
        problems.append(f"{where}: off_seconds is {fault.off_seconds:g}: it must not be negative")
    if not 0 < fault.metric_share <= 1:
        problems.append(f"{where}: metric_share is {fault.metric_share:g}: it must be more than 0 and at most 1")
    if model is not None and not problems and 2 * len(machines_of(spec, fault)) > spec.machines > 0 and model.group:
        problems.append(
            f"{where}: {fault.fault_type} would strike {len(machines_of(spec, fault))} of {spec.machines} machines: "
            "simulate at least twice as many"
        )
    if not fault.ramp_seconds >= 0:
        problems.append(f"{where}: ramp is {fault.ramp_seconds:g} s: it must not be negative")
    return problems
