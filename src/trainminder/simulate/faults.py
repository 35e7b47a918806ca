"""What can go wrong: each fault as lost progress in the timeline and as effects on the culprit's metrics.

Victims are not listed here: they are affected through the timeline, where everyone waits for the slowest.
Source: the fault mix and the metrics each fault shows in follow Minder (NSDI'25); the amounts are ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from trainminder.errors import SettingsError
from trainminder.simulate.cluster import ClusterSpec, generator
from trainminder.types import FloatArray

__all__ = ["FAULT_MODELS", "ActiveFault", "Effect", "Fault", "FaultModel", "Stuck", "activate"]

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


@dataclass(frozen=True, slots=True)
class Effect:
    """How one metric changes at full strength: by ``add``, by the factor ``scale``, or all the way ``toward``.

    ``scope``: *culprit* is the faulty device (every device of the machine when the fault is of no single
    one); *machine* is every device of the culprit machine; *peers* are all the other machines.
    Effects that share a ``group`` show together or not at all, with the model's chance for that group.
    """

    metric: str
    change: Change
    amount: float
    scope: Scope = "culprit"
    group: str = ""


@dataclass(frozen=True, slots=True)
class FaultModel:
    """A kind of fault.

    ``compute``, ``communicate``, ``save``: share of the progress lost at full strength in each phase.
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
        effects=(Effect("cpu_usage", "toward", 96.0), Effect("tcp_throughput", "scale", 0.8)),
    ),
    "memory_leak": FaultModel(
        of_device=False,
        compute=0.05,
        stuck="idle",
        grows=True,
        effects=(Effect("memory_usage", "toward", 98.0), Effect("cpu_usage", "add", 3.0)),
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

    model: FaultModel
    machine: int
    device: int | None
    start: float
    end: float
    strength: float
    ramp_seconds: float
    effects: tuple[Effect, ...]

    def envelope(self, seconds: FloatArray) -> FloatArray:
        """How strong the fault is at each instant, between 0 and its strength; any shape."""
        grown = np.clip((seconds - self.start) / self.ramp_seconds, 0, 1) if self.ramp_seconds else 1.0
        return np.where((seconds >= self.start) & (seconds < self.end), self.strength * grown, 0.0)


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
    end = spec.duration_seconds if fault.duration_seconds is None else fault.onset_seconds + fault.duration_seconds
    return ActiveFault(
        model=model,
        machine=fault.machine,
        device=(drawn if fault.device is None else fault.device) if model.of_device else None,
        start=fault.onset_seconds,
        end=min(end, spec.duration_seconds),
        strength=fault.strength,
        ramp_seconds=fault.ramp_seconds or (end - fault.onset_seconds if model.grows else 0.0),
        effects=tuple(effect for effect in model.effects if not effect.group or effect.group in shown),
    )


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
    if not fault.ramp_seconds >= 0:
        problems.append(f"{where}: ramp is {fault.ramp_seconds:g} s: it must not be negative")
    return problems
