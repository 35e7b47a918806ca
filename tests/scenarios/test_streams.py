"""A stream says at any time what one pass over the same samples says, however they came in."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrivals import arriving, only
from small_tasks import NOW, series_of, task_of, undenoised, wavy_machines
from trainminder.catalogue import load_catalogue
from trainminder.errors import StateError, Unobservable
from trainminder.pipeline import METHODS
from trainminder.settings import DetectSettings
from trainminder.simulate import ClusterSpec, Fault, simulate_task
from trainminder.stream import TaskStream, run_pass
from trainminder.types import FloatArray, PassResult, RawTask

CATALOGUE = load_catalogue()
LAG = 30.0
by_every_method = pytest.mark.parametrize("method", METHODS)


def by(method: str, lag_seconds: float = LAG) -> DetectSettings:
    return DetectSettings.model_validate({"method": method, "lag_seconds": lag_seconds})


def simulated(seed: int, interval: float = 1.0, seconds: float = 900.0) -> RawTask:
    metrics = ("gpu_duty_cycle", "gpu_power_draw", "pcie_bandwidth", "cpu_usage")
    spec = ClusterSpec(
        6, devices_per_machine=2, seed=seed, interval_seconds=interval, duration_seconds=seconds, metrics=metrics
    )
    return simulate_task(spec, [Fault(3, "pcie_downgrading", onset_seconds=0.45 * seconds)], specs=CATALOGUE)[0]


def as_text(result: PassResult) -> str:
    return json.dumps(result.as_json(), allow_nan=False)


def fed(
    stream: TaskStream, pieces: Iterator[RawTask], also: Callable[[TaskStream], TaskStream] = lambda s: s
) -> TaskStream:
    for piece in pieces:
        stream.take(piece)
        stream = also(stream)
    return stream


def at_once(raw: RawTask) -> list[FloatArray]:
    return [np.zeros(len(metric.times)) for metric in raw.metrics]


@by_every_method
@settings(deadline=None, max_examples=5)
@given(
    seed=st.integers(0, 50),
    pauses=st.lists(st.floats(1.0, 300.0), min_size=1, max_size=6),
    interval=st.sampled_from([1.0, 5.0, 15.0]),
    lateness=st.sampled_from([0.0, 4.0, LAG]),
    joins=st.floats(0.0, 600.0),
    leaves=st.floats(300.0, 2000.0),
)
def test_samples_late_and_out_of_order_and_machines_that_come_and_go_change_nothing(
    method: str, seed: int, pauses: list[float], interval: float, lateness: float, joins: float, leaves: float
) -> None:
    raw = simulated(seed, interval, 900.0 if interval == 1.0 else 2400.0)
    first, second = raw.machines[:2]
    there = []
    for metric in raw.metrics:
        of = np.repeat(metric.machines, np.diff(metric.offsets))
        since = metric.times - raw.from_at
        there.append(~((of == first) & (since < joins)) & ~((of == second) & (since > leaves)))
    raw = only(raw, there)
    raw = dataclasses.replace(raw, to_at=max(float(metric.times.max()) for metric in raw.metrics))
    rng = np.random.default_rng(seed)
    delays = [lateness * rng.random(len(metric.times)) ** 4 for metric in raw.metrics]
    stream = fed(TaskStream(by(method), undenoised), arriving(raw, delays, itertools.cycle(pauses)))
    assert as_text(stream.result()) == as_text(run_pass(raw, by(method), undenoised))


@by_every_method
@pytest.mark.parametrize("until", [90.0, 250.0, 432.0, 700.0])
def test_the_verdict_at_any_time_is_that_of_a_pass_over_what_came_by_then(method: str, until: float) -> None:
    raw = simulated(7)
    some = only(raw, [metric.times <= raw.from_at + until for metric in raw.metrics], raw.from_at + until)
    stream = fed(TaskStream(by(method), undenoised), arriving(some, at_once(some), itertools.cycle([7.0])))
    assert as_text(stream.result()) == as_text(run_pass(some, by(method), undenoised))


@by_every_method
def test_a_stream_saved_and_restored_after_every_piece_goes_on_to_the_same_verdict(method: str) -> None:
    raw = simulated(7)
    pieces = list(arriving(raw, at_once(raw), itertools.cycle([45.0])))

    def again(stream: TaskStream) -> TaskStream:
        return TaskStream.restored(stream.saved(), by(method), undenoised)

    stream = fed(TaskStream(by(method), undenoised), iter(pieces), again)
    whole = run_pass(raw, by(method), undenoised)
    assert whole.status == "faulty"
    assert as_text(stream.result()) == as_text(whole)


def test_what_is_interrupted_can_be_given_again() -> None:
    raw = simulated(7)
    calls = itertools.count()

    def sometimes(metric: str) -> object:
        if next(calls) % 9 == 3:
            raise KeyboardInterrupt
        return undenoised(metric)

    stream = TaskStream(by("paper"), sometimes)  # type: ignore[arg-type]
    interrupted = 0
    for piece in arriving(raw, at_once(raw), itertools.cycle([60.0])):
        for _ in range(20):
            try:
                stream.take(piece)
                break
            except KeyboardInterrupt:
                interrupted += 1
    assert interrupted > 3
    stream = TaskStream.restored(stream.saved(), by("paper"), undenoised)
    assert as_text(stream.result()) == as_text(run_pass(raw, by("paper"), undenoised))


def test_samples_given_again_are_passed_over() -> None:
    raw = simulated(7)
    pieces = list(arriving(raw, at_once(raw), itertools.cycle([20.0])))
    stream = TaskStream(by("default"), undenoised)
    for piece in pieces:
        stream.take(piece)
        stream.take(piece)
    result = stream.result()
    assert result.verdicts == run_pass(raw, by("default"), undenoised).verdicts
    assert not any("late" in warning for warning in result.warnings)


def test_what_comes_later_than_the_lag_is_left_out_and_counted() -> None:
    machines = wavy_machines(6, 1200)
    raw = task_of(series_of("power", machines))
    late = np.repeat(raw.metrics[0].machines, np.diff(raw.metrics[0].offsets)) == "gpu-02"
    late &= (raw.metrics[0].times > NOW + 700) & (raw.metrics[0].times <= NOW + 710)
    delays = [np.where(late, 60.0, 0.0)]
    stream = fed(TaskStream(by("default", 10.0), undenoised), arriving(raw, delays, itertools.cycle([10.0])))
    result = stream.result()
    assert (result.status, result.verdicts) == ("none", ())
    (said,) = [warning for warning in result.warnings if "late" in warning]
    assert said.startswith("at least 8 samples came more than 10 s late and were left out: raise detect.lag_seconds")


def test_machines_that_membership_no_longer_states_are_none_of_the_task() -> None:
    machines = wavy_machines(6, 1200)
    machines["gpu-02"][600:] = np.nan
    raw = task_of(series_of("power", machines))
    pieces = list(arriving(raw, at_once(raw), itertools.cycle([60.0])))
    stated = tuple(name for name in machines if name != "gpu-02")
    stream = TaskStream(by("default"), undenoised)
    for number, piece in enumerate(pieces):
        members = tuple(machines) if number < 10 else stated
        stream.take(dataclasses.replace(piece, machines=members, is_stated=True))
    assert stream.result().machines == stated
    assert stream.result().status == "none"
    # Stated throughout, it is unknown, however long ago it fell silent.
    stream = TaskStream(by("default"), undenoised)
    for piece in pieces:
        stream.take(dataclasses.replace(piece, machines=tuple(machines), is_stated=True))
    assert stream.result().status == "unknown"
    assert "gpu-02 stopped reporting" in (stream.result().reason or "")


def test_who_was_away_for_long_is_new_when_it_comes_back() -> None:
    machines = wavy_machines(6, 4000)
    machines["gpu-02"][600:2400] = np.nan
    # What comes back under that name is another machine, 25 % slower by nature.
    machines["gpu-02"][2400:] *= 0.75
    raw = task_of(series_of("power", machines))
    stream = fed(TaskStream(by("default"), undenoised), arriving(raw, at_once(raw), itertools.cycle([30.0])))
    assert as_text(stream.result()) == as_text(run_pass(raw, by("default"), undenoised))
    assert stream.result().machines == tuple(machines)


def test_what_is_remembered_does_not_grow_with_the_time() -> None:
    machines = wavy_machines(16, 7200)
    raw = task_of(series_of("power", machines))
    sizes = []
    stream = TaskStream(by("default"), undenoised)
    for piece in arriving(raw, at_once(raw), itertools.cycle([300.0])):
        stream.take(piece)
        sizes.append(len(stream.saved()))
    assert sizes[-1] < 1.1 * sizes[8]


@by_every_method
def test_a_stream_of_nothing_has_no_verdict(method: str) -> None:
    with pytest.raises(Unobservable, match="has taken in nothing yet"):
        TaskStream(by(method), undenoised).result()


def test_a_stream_goes_on_only_by_the_method_it_was_judged_by() -> None:
    stream = fed(TaskStream(by("default"), undenoised), iter([simulated(1, seconds=400.0)]))
    with pytest.raises(StateError, match=r"was saved with detect\.method default"):
        TaskStream.restored(stream.saved(), by("paper"), undenoised)
