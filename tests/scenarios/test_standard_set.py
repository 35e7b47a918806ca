"""The standard set: every fault can be seen in the raw data, subtle ones barely, and healthy tasks hold none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest

from trainminder.bench.tasks import CALIBRATION_TASKS, STANDARD_TASKS, Simulated, calibration_set, standard_set
from trainminder.bench.types import BenchTask, LabelledTask
from trainminder.simulate import FAULT_MODELS
from trainminder.types import BoolArray, FloatArray, RawMetric, Truth

BEFORE_SECONDS = 300.0


def simulated(task: BenchTask) -> Simulated:
    assert isinstance(task.make, Simulated)
    return task.make


def is_faulty(task: BenchTask) -> bool:
    return bool(simulated(task).faults)


STANDARD, CALIBRATION = standard_set(), calibration_set()
FAULTY = [task for task in (*STANDARD, *CALIBRATION) if is_faulty(task)]


def means(metric: RawMetric, start: float, end: float) -> FloatArray:
    """(series,): mean between two instants; NaN without a sample."""
    inside = (metric.times >= start) & (metric.times < end)
    rows = np.repeat(np.arange(len(metric.machines)), np.diff(metric.offsets))[inside]
    count = np.bincount(rows, minlength=len(metric.machines))
    sums = np.bincount(rows, metric.values[inside], len(metric.machines))
    found: FloatArray = np.divide(sums, count, out=np.full(len(count), np.nan), where=count > 0)
    return found


def departure(metric: RawMetric, truth: Truth, at_fault: Iterable[str]) -> float:
    """How the culprit changed at the onset beside how its peers did, in their own ordinary spread."""
    before = means(metric, truth.start - BEFORE_SECONDS, truth.start)
    change = means(metric, truth.start, truth.end) - before
    machines = np.array(metric.machines)
    mine = (machines == truth.machine) & is_of(metric, truth.device)
    peers = change[~np.isin(machines, list(at_fault))]
    middle = np.nanmedian(peers)
    spread = 1.4826 * np.nanmedian(np.abs(peers - middle))
    own = change[mine]
    if not np.isfinite(own).any():
        return np.nan
    return float(np.nanmax(np.abs(own - middle)) / max(spread, 1e-9 * abs(middle), 1e-12))


def is_of(metric: RawMetric, device: str | None) -> BoolArray:
    return np.array([device is None or each in (None, device) for each in metric.devices])


def visibility(task: LabelledTask, truth: Truth) -> float:
    """The largest departure in a metric that its type of fault shows in; inf for a machine that falls silent."""
    model = FAULT_MODELS[truth.fault_type]
    if model.silences == "machine":
        metric = task.raw.metrics[0]
        during = means(metric, truth.start, truth.end)[[each == truth.machine for each in metric.machines]]
        return np.inf if np.isnan(during).all() else 0.0
    shows = {effect.metric for effect in model.effects if effect.scope != "peers"}
    at_fault = {each.machine for each in task.truths}
    return float(np.nanmax([departure(each, truth, at_fault) for each in task.raw.metrics if each.metric in shows]))


@pytest.fixture(scope="module")
def seen() -> dict[str, list[float]]:
    """Strength -> how visible each fault of that strength is."""
    found: dict[str, list[float]] = {}
    hidden = []
    for task in FAULTY:
        made = task.make()
        for truth in made.truths:
            shown = visibility(made, truth)
            found.setdefault(made.tags["strength"], []).append(shown)
            if not shown > 3:
                hidden.append(f"{task.name}: {truth.machine} departs by {shown:.1f}")
    assert hidden == []
    return found


def test_every_fault_is_visible_in_the_raw_data_and_the_subtle_ones_are_the_least_so(
    seen: dict[str, list[float]],
) -> None:
    middle = {strength: float(np.median(departures)) for strength, departures in seen.items()}
    assert 2 * middle["subtle"] < middle["clear"]
    assert 2 * middle["clear"] < middle["total"]


def test_the_set_is_large_enough_and_half_of_it_is_healthy_but_hard() -> None:
    assert len(STANDARD) == STANDARD_TASKS >= 300
    assert len(CALIBRATION) == CALIBRATION_TASKS
    for tasks in (STANDARD, CALIBRATION):
        healthy = [task for task in tasks if not is_faulty(task)]
        assert len(healthy) == len(tasks) / 2
        difficulties = Counter(simulated(task).tags["difficulty"] for task in healthy)
        assert "plain" not in difficulties
        assert len(difficulties) == 15


def test_every_type_of_fault_size_and_interval_is_in_the_set() -> None:
    tags = [simulated(task).tags for task in STANDARD]
    types = Counter(each["fault"] for each in tags)
    assert types.keys() == {*FAULT_MODELS, "two at once", "none"}
    for kind, model in FAULT_MODELS.items():
        assert types[kind] >= (5 if model.group is None else 3), kind
    sizes = {int(each["size"]) for each in tags}
    assert (min(sizes), max(sizes)) == (4, 1024)
    assert {each["interval"] for each in tags} == {"1 s", "5 s", "10 s", "15 s", "30 s"}


def test_calibration_never_sees_a_seed_of_the_standard_set() -> None:
    assert not {task.seed for task in STANDARD} & {task.seed for task in CALIBRATION}
    assert len({task.seed for task in STANDARD}) == STANDARD_TASKS


def test_healthy_tasks_hold_no_labelled_fault_and_a_task_is_the_same_every_time() -> None:
    task = next(task for task in STANDARD if not is_faulty(task) and task.cost < 2e5)
    first, second = task.make(), task.make()
    assert first.truths == ()
    for left, right in zip(first.raw.metrics, second.raw.metrics, strict=True):
        assert left.values.tobytes() == right.values.tobytes()
        assert left.times.tobytes() == right.times.tobytes()
