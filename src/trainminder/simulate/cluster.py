"""The layout of a simulated cluster and what makes its machines permanently different."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from trainminder.errors import SettingsError
from trainminder.simulate.conditions import CALM, Conditions
from trainminder.types import FloatArray, IntArray

__all__ = ["Cluster", "ClusterSpec", "Pace", "draw_cluster", "generator", "swapped_machines"]

MACHINES_PER_RACK = 4
RACKS_PER_SWITCH = 2

#: What an older generation's level is beside the newer one's; others are alike.
OLDER: Mapping[str, float] = {
    "gpu_power_draw": 0.82,
    "gpu_sm_clock": 0.9,
    "gpu_tensor_activity": 1.12,
    "gpu_sm_activity": 1.04,
    "gpu_memory_bandwidth": 1.15,
    "pcie_bandwidth": 0.9,
    "cpu_usage": 1.15,
}
#: What a machine that has always been different may be different in: the factor on its level, drawn between the two.
ODDITIES: Mapping[str, tuple[float, float]] = {
    "gpu_power_draw": (0.90, 0.96),
    "gpu_sm_clock": (0.94, 0.98),
    "cpu_usage": (1.25, 1.7),
    "memory_usage": (1.1, 1.3),
    "tcp_throughput": (1.3, 2.0),
    "pcie_bandwidth": (0.8, 0.92),
    "disk_io": (1.5, 3.0),
    "pfc_tx_packet_rate": (3.0, 8.0),
    "gpu_memory_used": (1.02, 1.06),
}


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """What to simulate. The same values give the same bytes.

    Raises:
        SettingsError: values that cannot be simulated; all problems at once.
    """

    machines: int = 16
    devices_per_machine: int = 8
    seed: int = 0
    """Draws everything random: pace, permanent differences, noise, bursts, losses."""
    interval_seconds: float = 1.0
    """Sampling interval of the exporters."""
    duration_seconds: float = 900.0
    start_at: float = 1_760_000_000.0
    """Instant of the first second, Unix seconds."""
    task: str = "simulated"
    machine_pattern: str = "machine-{index:04d}"
    """Format of a machine's name; ``index`` counts from 0."""
    metrics: tuple[str, ...] | None = None
    """Metrics to give; None: every one that the catalogue and the simulator share."""
    missing_ratio: float = 0.002
    """Share of samples lost one by one: half as whole scrapes, half as single series."""
    gaps_per_hour: float = 0.1
    """Longer holes (5-40 s) per exporter and hour."""
    bursts_per_hour: float = 0.25
    """Jitter that is no fault: bursts of 1-90 s per machine, metric and hour."""
    phase_ratio: float = 0.3
    """Share of the interval over which the exporters' instants are spread. Agents that collect on the
    round second stay near 0; a store that spreads its scrapes evenly has 1."""
    jitter_ratio: float = 0.02
    """Mean lateness of one sample, as a share of the interval."""
    period_seconds: float | None = None
    """Length of one undisturbed training iteration; None: drawn between 2 and 20 s."""
    pipeline_stages: int = 1
    """Stages of the pipeline; machines of one stage are consecutive. Tensor parallelism stays within a machine."""
    expert_machines: int = 1
    """Consecutive machines that exchange tokens in every layer (expert parallelism) and so run in lock step."""
    conditions: Conditions = CALM
    """Ordinary difficulty."""

    def __post_init__(self) -> None:
        at_least = {"machines": 1, "devices_per_machine": 1, "seed": 0, "gaps_per_hour": 0, "bursts_per_hour": 0}
        at_least |= {"pipeline_stages": 1, "expert_machines": 1}
        problems = [
            f"simulate.{key} is {getattr(self, key)}: it must be at least {least}"
            for key, least in at_least.items()
            if not getattr(self, key) >= least
        ]
        for key in ("interval_seconds", "duration_seconds", "period_seconds"):
            value = getattr(self, key)
            if value is not None and not (np.isfinite(value) and value > 0):
                problems.append(f"simulate.{key} is {value}: it must be more than 0 seconds")
        for key, upper in (("missing_ratio", 1.0), ("phase_ratio", 1.0), ("jitter_ratio", 0.5)):
            if not 0 <= getattr(self, key) <= upper:
                problems.append(f"simulate.{key} is {getattr(self, key)}: it must lie between 0 and {upper:g}")
        problems += self.conditions.problems()
        if not problems and self.machines % self.pipeline_stages:
            problems.append(
                f"simulate.pipeline_stages is {self.pipeline_stages}: it must divide the {self.machines} machines"
            )
        if not problems and self.duration_seconds < self.interval_seconds:
            problems.append(
                f"simulate.duration_seconds is {self.duration_seconds:g}: it must hold at least one interval "
                f"of {self.interval_seconds:g} s"
            )
        try:
            if self.machine_pattern.format(index=0) == self.machine_pattern.format(index=1):
                raise KeyError
        except (KeyError, IndexError, ValueError):
            problems.append(
                f'simulate.machine_pattern is "{self.machine_pattern}": write {{index}} where the number goes'
            )
        if problems:
            raise SettingsError(*problems)

    @property
    def samples(self) -> int:
        """Samples per series when none is lost."""
        return int(self.duration_seconds / self.interval_seconds + 1e-9)

    def machine_name(self, index: int) -> str:
        return self.machine_pattern.format(index=index)


@dataclass(frozen=True, slots=True)
class Pace:
    """How the task's iterations go when nothing disturbs them; all in seconds."""

    compute: float
    communicate: float
    optimise: float
    save: float
    save_every: float
    evaluate: float
    evaluate_every: float
    load: float

    @property
    def period(self) -> float:
        return self.compute + self.communicate + self.optimise


@dataclass(frozen=True, slots=True)
class Cluster:
    """What stays the same for the whole task.

    ``rack``, ``switch``, ``stage``, ``replica``, ``expert_group``: (machine,) where each stands. The machines of one
    replica pass the work of an iteration from stage to stage. ``speed``: (machine,) share of the nominal compute time
    that a machine takes. ``rack_celsius``: (machine,) and ``slot_celsius``: (device,), added to every temperature.
    ``factors``: metric -> (machine,), on its level, for what has always been different.
    """

    names: tuple[str, ...]
    devices: tuple[str, ...]
    pace: Pace
    rack: IntArray
    switch: IntArray
    stage: IntArray
    replica: IntArray
    expert_group: IntArray
    speed: FloatArray
    rack_celsius: FloatArray
    slot_celsius: FloatArray
    factors: Mapping[str, FloatArray]


def generator(seed: int, purpose: str) -> np.random.Generator:
    """An independent stream for each purpose: asking for fewer metrics, or adding a fault, moves no other draw."""
    return np.random.default_rng([seed, crc32(purpose.encode())])


def draw_cluster(spec: ClusterSpec) -> Cluster:
    """Draw the pace of the task and the machines' permanent differences."""
    rng = generator(spec.seed, "cluster")
    drawn = float(np.exp(rng.uniform(np.log(2.0), np.log(20.0))))
    period = spec.period_seconds or drawn
    communicate, optimise = rng.uniform(0.14, 0.30), rng.uniform(0.04, 0.09)
    pace = Pace(
        compute=period * (1 - communicate - optimise),
        communicate=period * communicate,
        optimise=period * optimise,
        save=rng.uniform(4.0, 12.0),
        save_every=rng.uniform(150.0, 330.0),
        evaluate=rng.uniform(8.0, 20.0),
        evaluate_every=rng.uniform(700.0, 1500.0),
        load=generator(spec.seed, "load").uniform(20.0, 70.0),
    )
    machine = np.arange(spec.machines)
    rack = machine // MACHINES_PER_RACK
    stage = machine * spec.pipeline_stages // spec.machines
    speed = 1 + 0.004 * np.clip(rng.standard_normal(spec.machines), -2.5, 2.5)
    rack_celsius = rng.uniform(-2.0, 2.0, int(rack[-1]) + 1)[rack]
    # devices at the back of the chassis breathe what those in front have warmed
    slot_celsius = 3.0 * (np.arange(spec.devices_per_machine) % 2) + rng.uniform(-1.0, 1.0, spec.devices_per_machine)
    own = generator(spec.seed, "conditions")
    hot = int(own.integers(int(rack[-1]) + 1))
    factors, slower = _always_different(spec, own)
    # the ends of the pipeline embed tokens and compute the loss
    uneven = spec.conditions.stage_unevenness * own.uniform(0.0, 0.5, spec.pipeline_stages)
    return Cluster(
        names=tuple(spec.machine_name(index) for index in range(spec.machines)),
        devices=tuple(f"gpu{index}" for index in range(spec.devices_per_machine)),
        pace=pace,
        rack=rack,
        switch=rack // RACKS_PER_SWITCH,
        stage=stage,
        replica=machine % max(spec.machines // spec.pipeline_stages, 1),
        expert_group=machine // spec.expert_machines,
        speed=speed * slower * (1 - uneven[stage]),
        rack_celsius=rack_celsius + spec.conditions.hot_rack_celsius * (rack == hot),
        slot_celsius=slot_celsius,
        factors=factors,
    )


def swapped_machines(spec: ClusterSpec) -> tuple[int, ...]:
    """The machine that is exchanged and the one that takes its place; empty if there is no exchange."""
    if spec.conditions.swap_at_seconds is None or spec.machines < 2:
        return ()
    return tuple(generator(spec.seed, "swap").choice(spec.machines, 2, replace=False).tolist())


def _always_different(spec: ClusterSpec, rng: np.random.Generator) -> tuple[dict[str, FloatArray], FloatArray]:
    """Metric -> (machine,) factors on its level; and (machine,) on the compute time."""
    older = (np.arange(spec.machines) % 3 == 1) & (spec.conditions.generations == 2)
    factors = {name: np.where(older, factor, 1.0) for name, factor in OLDER.items()} if older.any() else {}
    for machine in rng.permutation(spec.machines)[: spec.conditions.odd_machines].tolist():
        for name in rng.choice(list(ODDITIES), 2, replace=False).tolist():
            mine = factors.setdefault(name, np.ones(spec.machines))
            mine[machine] *= rng.uniform(*ODDITIES[name])
    return factors, np.where(older, 1.06, 1.0)
