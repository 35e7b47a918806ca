"""The standard set: simulated tasks, half of them faulty, half healthy but hard.

Everything about a task is drawn from its seed. The shares are stated here as data; they follow what the publication
reports of production where it does (the fault mix, how long faults last), and are ours otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from trainminder.bench.types import BenchTask, LabelledTask
from trainminder.catalogue import load_catalogue
from trainminder.simulate import FAULT_MODELS, ClusterSpec, Conditions, Fault, simulate_task, swapped_machines
from trainminder.simulate.mix import FAULT_MIX

__all__ = [
    "CALIBRATION_SEED", "PLAIN", "PROFILED", "TEST_SEED", "Simulated", "calibration_set", "draw_set", "quick_set",
    "shows_in", "standard_set",
]  # fmt: skip

#: Seeds of the standard set begin here; those of the calibration set elsewhere, so that they never meet.
TEST_SEED, CALIBRATION_SEED = 10_000, 50_000
STANDARD_TASKS, CALIBRATION_TASKS = 320, 256
#: The quick set has so many faulty and healthy tasks, none of which is larger (samples).
QUICK_TASKS, QUICK_COST = 20, 8e5

#: Machines -> share of the tasks.
SIZES = {4: 0.08, 8: 0.15, 16: 0.25, 32: 0.22, 64: 0.16, 128: 0.07, 256: 0.04, 512: 0.02, 1024: 0.01}
#: Sampling interval in seconds -> (share of the tasks, most machines, length of the data in seconds).
SAMPLING = {
    1: (0.5, 64, 1200),
    5: (0.15, 128, 1800),
    10: (0.1, 256, 2400),
    15: (0.15, 1024, 2700),
    30: (0.1, 1024, 3600),
}
PROFILED = (
    "pfc_tx_packet_rate", "cpu_usage", "gpu_duty_cycle", "gpu_power_draw", "gpu_graphics_activity",
    "gpu_tensor_activity", "nvlink_bandwidth", "gpu_sm_activity", "gpu_sm_clock", "gpu_temperature",
    "gpu_memory_used", "pcie_bandwidth", "rdma_throughput", "cnp_packet_rate", "memory_usage", "tcp_throughput",
    "disk_io",
)  # fmt: skip
#: As clusters have it where profiling fields and the NIC's counters are not exported.
PLAIN = (
    "cpu_usage", "gpu_duty_cycle", "gpu_power_draw", "gpu_sm_clock", "gpu_temperature", "gpu_memory_used",
    "rdma_throughput", "memory_usage", "tcp_throughput", "disk_io",
)  # fmt: skip

#: Every type gets at least so many tasks, and two at once eight; the others follow the production mix.
LEAST_PER_TYPE = 5
#: 99 % of faults are of one machine.
LEAST_PER_GROUP_TYPE = 3
#: Pairs for two faults at once on two machines.
TWO_AT_ONCE = (
    ("nic_dropout", "nic_dropout"),
    ("thermal_throttling", "clock_drop"),
    ("pcie_downgrading", "thermal_throttling"),
    ("cpu_contention", "nvlink_error"),
    ("aoc_error", "aoc_error"),
    ("slow_disk", "clock_drop"),
)
#: Types after which the task cannot go on.
ENDS_THE_TASK = frozenset(
    {"ecc_error", "nic_dropout", "gpu_card_drop", "cuda_execution_error", "gpu_execution_error", "machine_unreachable"}
)
#: What people label as a fault is mostly one that broke the task.
STRENGTHS = {"subtle": ((0.2, 0.35), 0.15), "clear": ((0.4, 0.75), 0.35), "total": ((1.0, 1.0), 0.5)}

#: Ordinary difficulties: name -> how a task gets it.
DIFFICULTIES = (
    "plain", "uneven stages", "experts", "odd machines", "two generations", "hot rack", "loader hiccups", "cron jobs",
    "bursts", "warm-up", "restart", "swapped machine", "skewed clocks", "gaps", "absent metrics", "constants",
)  # fmt: skip


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
    return draw_set(TEST_SEED, STANDARD_TASKS)


def calibration_set() -> tuple[BenchTask, ...]:
    """Tasks of other seeds, on which each method's threshold is chosen."""
    return draw_set(CALIBRATION_SEED, CALIBRATION_TASKS)


def quick_set() -> tuple[BenchTask, ...]:
    """Some of the smaller tasks of the standard set, spread over it, half of them faulty."""
    small = [task for task in standard_set() if task.cost < QUICK_COST]
    faulty = [task for task in small if not task.name.startswith("none")]
    healthy = [task for task in small if task.name.startswith("none")]
    every = [kind[:: len(kind) // QUICK_TASKS][:QUICK_TASKS] for kind in (faulty, healthy)]
    return (*every[0], *every[1])


def draw_set(first_seed: int, count: int) -> tuple[BenchTask, ...]:
    """So many tasks of seeds from ``first_seed`` on, every second one healthy."""
    types = _fault_types(first_seed, count // 2)
    kinds = [kind for pair in zip(types, ["none"] * len(types), strict=True) for kind in pair]
    return tuple(_draw_task(seed, kind) for seed, kind in enumerate(kinds, start=first_seed))


def _fault_types(seed: int, count: int) -> list[str]:
    """The fault of each faulty task: every type often enough, the rest by the production mix."""
    least = {
        kind: LEAST_PER_TYPE if model.group is None else LEAST_PER_GROUP_TYPE for kind, model in FAULT_MODELS.items()
    }
    fewer = min(count / (STANDARD_TASKS // 2), 1.0)
    types = [kind for kind, times in {**least, "two at once": 8}.items() for _ in range(max(round(times * fewer), 1))]
    rng = np.random.default_rng([seed, 1])
    shares = np.array(list(FAULT_MIX.values()))
    types += rng.choice(list(FAULT_MIX), max(count - len(types), 0), p=shares / shares.sum()).tolist()
    return [str(kind) for kind in rng.permutation(types[:count])]


def _draw_task(seed: int, kind: str) -> BenchTask:
    rng = np.random.default_rng([seed, 2])
    is_group = kind in FAULT_MODELS and FAULT_MODELS[kind].group is not None
    machines = _one_of(rng, {size: share for size, share in SIZES.items() if not is_group or size >= 16})
    interval = _one_of(rng, {each: share for each, (share, most, _) in SAMPLING.items() if machines <= most})
    is_profiled = interval <= 5 or rng.random() < 0.4 or not shows_in(kind, PLAIN)
    difficulty = "plain" if kind != "none" and rng.random() < 0.4 else str(rng.choice(DIFFICULTIES[1:]))
    if difficulty == "swapped machine" and machines < 8:
        difficulty = "restart"  # of four machines, one that left and one that came leave too few to compare
    duration = float(SAMPLING[interval][2])
    spec = ClusterSpec(
        machines=machines,
        seed=seed,
        interval_seconds=float(interval),
        duration_seconds=duration,
        task=f"task-{seed}",
        metrics=PROFILED if is_profiled else PLAIN,
        # fast agents collect on the round second; a store spreads its scrapes
        phase_ratio=0.3 if interval == 1 else 1.0,
        pipeline_stages=int(rng.choice([stages for stages in (1, 1, 2, 4, 8) if machines >= 4 * stages])),
        conditions=Conditions(stage_unevenness=0.05, hiccups_per_hour=2.0),
    )
    spec = _made_hard(spec, difficulty, rng)
    faults, strength, course = _draw_faults(kind, spec, rng)
    tags = {
        "fault": kind,
        "strength": strength,
        "course": course,
        "size": str(machines),
        "interval": f"{interval} s",
        "metrics": "profiled" if is_profiled else "plain",
        "difficulty": difficulty,
    }
    name = f"{kind.replace(' ', '-')}-{seed}"
    cells = machines * duration / interval * len(spec.metrics or ())
    return BenchTask(name, Simulated(name, spec, faults, tags), seed, cells)


def _one_of(rng: np.random.Generator, shares: Mapping[int, float]) -> int:
    weights = np.array(list(shares.values()))
    return int(rng.choice(list(shares), p=weights / weights.sum()))


def shows_in(kind: str, metrics: Sequence[str]) -> bool:
    """Whether culprits of that kind can be told by these metrics."""
    types = {"none": (), "two at once": {each for pair in TWO_AT_ONCE for each in pair}}.get(kind, (kind,))
    if kind == "gpu_execution_error" and "gpu_sm_activity" not in metrics:
        return False  # a subtle one moves power by less than iterations do
    return all(
        FAULT_MODELS[each].silences == "machine"
        or any(
            effect.metric in metrics and effect.scope != "peers" and effect.tells
            for effect in FAULT_MODELS[each].effects
        )
        for each in types
    )


def _made_hard(spec: ClusterSpec, difficulty: str, rng: np.random.Generator) -> ClusterSpec:
    """The task with one ordinary difficulty."""
    middle = float(rng.uniform(0.25, 0.7) * spec.duration_seconds)
    with_conditions = partial(replace, spec.conditions)
    if difficulty == "bursts":
        return replace(spec, bursts_per_hour=float(rng.uniform(1.5, 6.0)))
    if difficulty == "gaps":
        return replace(spec, missing_ratio=float(rng.uniform(0.02, 0.15)), gaps_per_hour=float(rng.uniform(1.0, 6.0)))
    if difficulty == "uneven stages":
        stages = max(stages for stages in (1, 2, 4) if spec.machines >= 2 * stages)
        changed = with_conditions(stage_unevenness=float(rng.uniform(0.3, 1.0)), rank0_duties=float(rng.uniform(3, 10)))
        return replace(spec, pipeline_stages=stages, conditions=changed)
    if difficulty == "experts":
        experts = max(each for each in (1, 2, 4, 8) if spec.machines >= 2 * each)
        changed = with_conditions(moe_imbalance=float(rng.uniform(0.02, 0.12)))
        return replace(spec, expert_machines=experts, conditions=changed)
    conditions = {
        "plain": spec.conditions,
        "odd machines": with_conditions(odd_machines=1 + spec.machines // 24),
        "two generations": with_conditions(generations=2),
        "hot rack": with_conditions(hot_rack_celsius=float(rng.uniform(4, 12))),
        "loader hiccups": with_conditions(hiccups_per_hour=float(rng.uniform(10, 60))),
        "cron jobs": with_conditions(cron_per_hour=float(rng.uniform(1.5, 4))),
        "warm-up": with_conditions(warm_up_at_seconds=float(rng.uniform(0.05, 0.25)) * spec.duration_seconds),
        "restart": with_conditions(restart_at_seconds=middle),
        "swapped machine": with_conditions(swap_at_seconds=middle),
        "skewed clocks": with_conditions(clock_skew_seconds=float(rng.uniform(0.5, 4.0))),
        "absent metrics": with_conditions(absent_ratio=float(rng.uniform(0.05, 0.3))),
        "constants": with_conditions(constant_metrics=("gpu_memory_used", "gpu_sm_clock")),
    }
    return replace(spec, conditions=conditions[difficulty])


def _draw_faults(kind: str, spec: ClusterSpec, rng: np.random.Generator) -> tuple[tuple[Fault, ...], str, str]:
    """The faults of a task, and in one word each how strong they are and how they go."""
    if kind == "none":
        return (), "-", "-"
    strength = str(rng.choice(list(STRENGTHS), p=[share for _, share in STRENGTHS.values()]))
    onset = float(rng.uniform(0.3, 0.5) * spec.duration_seconds)
    if spec.conditions.warm_up_at_seconds is not None:
        onset = max(onset, spec.conditions.warm_up_at_seconds + 400.0)
    # a machine that is there for half of the data could not be told from one that broke
    swapped = swapped_machines(spec)
    machines = [int(machine) for machine in rng.permutation(spec.machines) if machine not in swapped]
    types: Sequence[str] = TWO_AT_ONCE[int(rng.integers(len(TWO_AT_ONCE)))] if kind == "two at once" else (kind,)
    course = _course(kind, strength, rng)
    faults = []
    for place, fault_type in enumerate(types):
        low, high = STRENGTHS[strength][0]
        # the worst case of most types stops everyone at once: of two, neither would be seen then
        amount = float(rng.uniform(low, high)) if kind != "two at once" else min(float(rng.uniform(low, high)), 0.8)
        fault = Fault(
            machine=machines[place],
            fault_type=fault_type,
            onset_seconds=onset + place * float(rng.uniform(0, 30)),
            strength=amount,
            metric_share={"subtle": 0.6, "clear": 0.85, "total": 1.0}[strength],
        )
        faults.append(_with_course(fault, course, rng))
    return tuple(faults), strength, course


def _course(kind: str, strength: str, rng: np.random.Generator) -> str:
    if kind in ENDS_THE_TASK:
        return "halts" if strength == "total" or rng.random() < 0.3 else "lasts"
    if kind == "memory_leak":
        return "lasts"
    return str(rng.choice(["lasts", "grows", "comes and goes"], p=[0.65, 0.2, 0.15]))


def _with_course(fault: Fault, course: str, rng: np.random.Generator) -> Fault:
    if course == "halts":
        # the publication: most abnormal patterns last over five minutes before the task stops
        after = float(np.clip(600.0 * rng.lognormal(0, 0.7), 30.0, 1800.0))
        restarts = float(rng.uniform(60, 300)) if rng.random() < 0.5 else None
        return replace(fault, halts_after_seconds=after, restarts_after_seconds=restarts)
    if course == "grows":
        return replace(fault, ramp_seconds=float(rng.uniform(60, 240)))
    if course == "comes and goes":
        return replace(fault, on_seconds=float(rng.uniform(20, 60)), off_seconds=float(rng.uniform(10, 40)))
    return fault
