"""Methods for the bench's own tests, in a place that worker processes import."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from small_tasks import NOW, series_of, task_of, undenoised, wavy_machines
from trainminder.bench.types import BenchTask, LabelledTask, Method
from trainminder.errors import MissingExtra
from trainminder.types import Truth, Verdict

#: What ``run_methods`` is told.
REGISTRY = "bench_methods:METHODS"

#: A file that gets a line for every task judged, if the variable names one.
JUDGED = "BENCH_TEST_JUDGED"

MACHINES = 5
SECONDS = 60
ONSET = 20


@dataclass(frozen=True)
class Small:
    """Five machines for a minute; one falls to half its power after twenty seconds, or none does."""

    name: str
    seed: int
    odd_one: int | None

    def __call__(self) -> LabelledTask:
        if self.name == "unmade":
            raise ValueError("no such task")
        power = wavy_machines(MACHINES, SECONDS, seed=self.seed)
        truths: tuple[Truth, ...] = ()
        if self.odd_one is not None:
            power[f"gpu-{self.odd_one:02d}"][ONSET:] *= 0.5
            truths = (Truth(f"gpu-{self.odd_one:02d}", None, "power_loss", NOW + ONSET, NOW + SECONDS),)
        tags = {"fault": truths[0].fault_type if truths else "none", "size": str(MACHINES), "interval": "1"}
        return LabelledTask(self.name, task_of(series_of("power", power)), truths, tags)


def small_tasks(count: int, first_seed: int = 0) -> tuple[BenchTask, ...]:
    """Every second one is faulty."""
    seeds = range(first_seed, first_seed + count)
    return tuple(
        BenchTask(f"small-{seed}", Small(f"small-{seed}", seed, seed % MACHINES if seed % 2 else None), seed)
        for seed in seeds
    )


@dataclass(frozen=True)
class Passes:
    """The method paper, stricter the longer a machine must stand out."""

    name: str = "passes"
    thresholds: tuple[float, ...] = (300.0, 20.0, 10.0)

    def judge(self, task: LabelledTask, thresholds: Sequence[float]) -> list[tuple[Verdict, ...]]:
        # Where it is not asked, a worker starts the sooner for not loading it.
        from trainminder.settings import DetectSettings
        from trainminder.stream import run_pass

        note(f"{self.name} {task.name}")
        settings = [DetectSettings(method="paper", continuity_seconds=seconds) for seconds in thresholds]
        return [run_pass(task.raw, each, undenoised).verdicts for each in settings]


@dataclass(frozen=True)
class Blames:
    """Names the first machine, whatever the data are."""

    name: str = "blames"
    thresholds: tuple[float, ...] = (1.0,)

    def judge(self, task: LabelledTask, thresholds: Sequence[float]) -> list[tuple[Verdict, ...]]:
        note(f"{self.name} {task.name}")
        return [(Verdict(task.raw.machines[0], None, "power", NOW, NOW + 40, 1.0),) for _ in thresholds]


@dataclass(frozen=True)
class Fails:
    """Cannot cope with faulty tasks: raises, or takes its process down."""

    name: str = "fails"
    thresholds: tuple[float, ...] = (1.0,)
    dies: bool = False

    def judge(self, task: LabelledTask, thresholds: Sequence[float]) -> list[tuple[Verdict, ...]]:
        note(f"{self.name} {task.name}")
        if task.truths and self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        if task.truths:
            raise RuntimeError("too much\nfor me")
        return [() for _ in thresholds]


def unbuilt() -> Method:
    """Needs what is not installed, and knows at once."""
    raise MissingExtra("this method", "bench")


@dataclass(frozen=True)
class Lacks:
    """Needs what is not installed, and finds out when it judges."""

    name: str = "lacks"
    thresholds: tuple[float, ...] = (1.0,)

    def judge(self, task: LabelledTask, thresholds: Sequence[float]) -> list[tuple[Verdict, ...]]:
        del task, thresholds
        raise MissingExtra("this method", "bench")


def note(line: str) -> None:
    if path := os.environ.get(JUDGED):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(line + "\n")


METHODS: Mapping[str, Callable[[], Method]] = {
    "passes": Passes,
    "blames": Blames,
    "blames too": lambda: Blames("blames too"),
    "fails": Fails,
    "lacks": Lacks,
    "unbuilt": unbuilt,
    "dies": lambda: Fails("dies", dies=True),
}
