"""The standard set: simulated tasks, half of them faulty, half healthy but hard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainminder.bench.types import BenchTask, LabelledTask
from trainminder.catalogue import load_catalogue
from trainminder.simulate import ClusterSpec, Fault, simulate_task

__all__ = ["Simulated", "calibration_set", "quick_set", "standard_set"]


@dataclass(frozen=True, slots=True)
class Simulated:
    """A simulated task, made when called."""

    name: str
    spec: ClusterSpec
    faults: tuple[Fault, ...]
    tags: Mapping[str, str]

    def __call__(self) -> LabelledTask:
        raw, truths = simulate_task(self.spec, self.faults, specs=load_catalogue())
        return LabelledTask(self.name, raw, truths, self.tags)


def standard_set() -> tuple[BenchTask, ...]:
    """The tasks that methods are measured on."""
    return _draw(first_seed=10_000, count=320)


def calibration_set() -> tuple[BenchTask, ...]:
    """Tasks of other seeds, on which each method's threshold is chosen."""
    return _draw(first_seed=50_000, count=120)


def quick_set() -> tuple[BenchTask, ...]:
    """A few small tasks of the standard set."""
    return tuple(task for task in standard_set() if task.cost <= 1)[:24]


def _draw(first_seed: int, count: int) -> tuple[BenchTask, ...]:
    tasks = []
    for seed in range(first_seed, first_seed + count):
        machines = (4, 8, 16, 32)[seed % 4]
        kind = ("none", "ecc_error", "none", "pcie_downgrading")[seed // 4 % 4]
        spec = ClusterSpec(machines=machines, devices_per_machine=8, seed=seed)
        faults = () if kind == "none" else (Fault(seed % machines, kind, 300.0, strength=0.6),)
        tags = {"fault": kind, "strength": "-" if kind == "none" else "clear", "size": str(machines), "interval": "1"}
        name = f"{kind}-{seed}"
        tasks.append(BenchTask(name, Simulated(name, spec, faults, tags), seed, machines / 32))
    return tuple(tasks)
