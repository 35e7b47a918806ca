"""Methods side by side: set each one's threshold by one rule, judge, measure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainminder.bench.calibrate import Chosen, check_disjoint, choose, trade_off
from trainminder.bench.ledger import Ledger
from trainminder.bench.measure import Tally, by_tag, cost, figures, intervals, tally
from trainminder.bench.outcomes import Outcome
from trainminder.bench.run import REGISTRY, Advance, find_methods, run_methods, say_nothing
from trainminder.bench.types import BenchTask
from trainminder.engine import EngineName

__all__ = ["Comparison", "Measured", "ThresholdSource", "calibrate", "choose_thresholds", "compare"]

ThresholdSource = Literal["calibrated", "stored", "given"]


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of one method."""

    outcomes: tuple[Outcome, ...]
    tallies: tuple[Tally, ...]
    chosen: Chosen
    curve: tuple[Mapping[str, Any], ...] = ()
    """Its figures at every threshold, on the calibration set; empty where the thresholds are stored ones."""

    @property
    def failures(self) -> tuple[Outcome, ...]:
        """Where it failed: it then counts as having said nothing."""
        return tuple(outcome for outcome in self.outcomes if outcome.error is not None)

    def as_json(self) -> dict[str, Any]:
        return {
            **figures(self.tallies),
            "intervals": intervals(self.tallies),
            "failed": len(self.failures),
            "threshold": self.chosen.as_json(),
            **cost(self.outcomes),
            "by": by_tag(self.outcomes, self.tallies),
            "calibration": [dict(point) for point in self.curve],
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the bench found out. ``as_json`` is the contract of ``bench --format json``.

    ``thresholds``: where they are from: *calibrated* in this run, *stored* in the package, or *given*.
    ``calibration``: outcomes of every method on the calibration set, where they are calibrated.
    """

    what: str
    methods: Mapping[str, Measured]
    thresholds: ThresholdSource
    calibration: tuple[Outcome, ...] = ()

    @property
    def failures(self) -> tuple[Outcome, ...]:
        """Every failure, those while calibrating first."""
        failed = tuple(outcome for outcome in self.calibration if outcome.error is not None)
        return failed + tuple(outcome for each in self.methods.values() for outcome in each.failures)

    def as_json(self) -> dict[str, Any]:
        tasks = [outcome.task for outcome in next(iter(self.methods.values())).outcomes]
        calibration = {outcome.task.seed for outcome in self.calibration if outcome.task.seed is not None}
        return {
            "methods": {name: each.as_json() for name, each in self.methods.items()},
            "tasks": len(tasks),
            "seeds": sorted(task.seed for task in tasks if task.seed is not None),
            "set": self.what,
            "machine_hours": sum(task.machine_hours for task in tasks),
            "thresholds": self.thresholds,
            "calibration_seeds": sorted(calibration),
            "failures": [
                {"method": outcome.method, "task": outcome.task.name, "error": outcome.error}
                for outcome in self.failures
            ],
        }


def calibrate(
    tasks: Sequence[BenchTask],
    methods: Sequence[str],
    ledger: Ledger,
    *,
    jobs: int,
    engine: EngineName = "local",
    advance: Advance = say_nothing,
    registry: str = REGISTRY,
) -> list[Outcome]:
    """What each method says about the calibration set at every one of its thresholds.

    Raises:
        BenchError: as ``run_methods``.
    """
    known = find_methods(registry)
    wanted = {name: known[name]().thresholds for name in methods}
    return run_methods(tasks, wanted, ledger, jobs=jobs, engine=engine, advance=advance, registry=registry)


def choose_thresholds(calibration: Sequence[Outcome], limit: float, registry: str = REGISTRY) -> dict[str, Chosen]:
    """The threshold of every method that judged the calibration set: its ``shipped`` one, where it has such."""
    known = find_methods(registry)
    return {
        name: choose(trade_off(some), limit, getattr(known[name](), "shipped", None))
        for name, some in _by_method(calibration).items()
    }


def compare(
    what: str,
    tasks: Sequence[BenchTask],
    chosen: Mapping[str, Chosen],
    ledger: Ledger,
    *,
    jobs: int,
    engine: EngineName = "local",
    thresholds: ThresholdSource = "calibrated",
    calibration: Sequence[Outcome] = (),
    advance: Advance = say_nothing,
    registry: str = REGISTRY,
) -> Comparison:
    """Let each method judge every task at its threshold, and measure.

    Args:
        what: names the set of tasks.
        chosen: method -> its threshold.
        thresholds: where those are from.
        calibration: what they were chosen on, if they were chosen now.
    Raises:
        BenchError: as ``run_methods``.
        ValueError: thresholds were chosen on tasks that are measured.
    """
    check_disjoint((outcome.task.seed for outcome in calibration), (task.seed for task in tasks))
    wanted = {name: (each.threshold,) for name, each in chosen.items()}
    outcomes = run_methods(tasks, wanted, ledger, jobs=jobs, engine=engine, advance=advance, registry=registry)
    curves = {name: tuple(trade_off(some)) for name, some in _by_method(calibration).items()}
    methods = {
        name: Measured(
            tuple(some),
            tuple(tally(outcome.task, outcome.verdicts[0]) for outcome in some),
            chosen[name],
            curves.get(name, ()),
        )
        for name, some in _by_method(outcomes).items()
    }
    return Comparison(what, methods, thresholds, tuple(calibration))


def _by_method(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    some: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        some[outcome.method].append(outcome)
    return some
