"""A task that is judged as its samples come in gets the verdict of one pass over all of them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from small_tasks import NOW, POWER, pieces_of, series_of, task_of, undenoised, wavy_machines
from trainminder.errors import Unobservable
from trainminder.pipeline import METHODS
from trainminder.settings import DetectSettings
from trainminder.stream import TaskStream, run_pass
from trainminder.types import FloatArray, MetricSpec, PassResult, RawMetric, RawTask

SECONDS = 900
LINK = MetricSpec("pcie_bandwidth", "bytes/s", lower=0.0, spread_ratio=0.05)

by_every_method = pytest.mark.parametrize("method", METHODS)


def by(method: str, **changes: Any) -> DetectSettings:
    return DetectSettings.model_validate({"method": method, "lag_seconds": 0.0, **changes})


def streamed(pieces: Iterable[RawTask], detect: DetectSettings, *, is_saved: bool = False) -> PassResult:
    """The verdict after all pieces; between two of them the stream is saved and restored."""
    stream = TaskStream(detect, undenoised)
    for piece in pieces:
        stream.take(piece)
        if is_saved:
            stream = TaskStream.restored(stream.saved(), detect, undenoised)
    return stream.result()


def whole(raw: RawTask, detect: DetectSettings) -> PassResult:
    return run_pass(raw, detect, undenoised)


def power_halves(*, missing: float = 0.0, seed: int = 0) -> RawTask:
    """Eight machines, of which one falls to half its power at 340 s, and a link that is sampled more slowly."""
    machines, links = wavy_machines(8, SECONDS, seed=seed), wavy_machines(8, SECONDS // 5, seed=seed + 1, level=1e10)
    machines["gpu-03"][340:] *= 0.5
    rng = np.random.default_rng(seed)
    for values in (*machines.values(), *links.values()):
        values[rng.random(len(values)) < missing] = np.nan
    return task_of(
        series_of("power", machines), series_of(LINK.name, links, step=5.0, start=NOW + 1.7), specs=(POWER, LINK)
    )


@by_every_method
@pytest.mark.parametrize("cut", [120, 350, 430, 600])
@pytest.mark.parametrize("is_saved", [False, True])
def test_cutting_a_recording_and_resuming_gives_the_same_verdict(cut: int, is_saved: bool, method: str) -> None:
    raw = power_halves()
    given = whole(raw, by(method))
    assert [verdict.machine for verdict in given.verdicts] == ["gpu-03"]
    assert streamed(pieces_of(raw, [cut]), by(method), is_saved=is_saved).as_json() == given.as_json()


@by_every_method
@settings(deadline=None, max_examples=25)
@given(
    cuts=st.lists(st.floats(0.0, SECONDS), max_size=12),
    latest=st.sampled_from([0.0, 0.0, 4.0, 10.0]),
    missing=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 3),
)
def test_in_whatever_pieces_and_order_samples_come_the_verdict_is_that_of_one_pass(
    cuts: list[float], latest: float, missing: float, seed: int, method: str
) -> None:
    raw = power_halves(missing=missing, seed=seed)
    detect = by(method, lag_seconds=latest)
    result = streamed(pieces_of(raw, cuts, latest=latest, seed=seed), detect)
    assert result.as_json() == whole(raw, detect).as_json()


@by_every_method
@pytest.mark.parametrize("every", [1.0, 20.0])
def test_what_is_said_so_far_is_at_any_time_what_one_pass_says(every: float, method: str) -> None:
    raw = power_halves(missing=0.1)
    detect = by(method)
    stream = TaskStream(detect, undenoised)
    for piece in pieces_of(raw, np.arange(0.0, SECONDS, every).tolist()):
        stream.take(piece)
        if piece.to_at - raw.from_at in {20.0, 80.0, 140.0, 300.0, 320.0, 420.0, 540.0, 620.0, 880.0}:
            (so_far,) = pieces_of(dataclasses.replace(raw, to_at=piece.to_at), [])
            assert stream.result().as_json() == whole(so_far, detect).as_json()
    assert stream.result().as_json() == whole(raw, detect).as_json()


@by_every_method
def test_asking_for_the_verdict_changes_nothing(method: str) -> None:
    raw = power_halves()
    stream = TaskStream(by(method), undenoised)
    for piece in pieces_of(raw, np.arange(60.0, SECONDS, 60.0).tolist()):
        stream.take(piece)
        assert stream.result().as_json() == stream.result().as_json()
    assert stream.result().as_json() == whole(raw, by(method)).as_json()


@by_every_method
def test_what_was_taken_in_before_is_passed_over(method: str) -> None:
    raw = power_halves()
    again = streamed(pieces_of(raw, np.arange(100.0, SECONDS, 100.0).tolist(), overlap=60.0), by(method))
    # nor is a word said of it: it is not late
    assert again.as_json() == whole(raw, by(method)).as_json()


@by_every_method
def test_what_comes_later_than_the_lag_is_left_out_and_counted(method: str) -> None:
    machines = wavy_machines(8, SECONDS)
    held_back = machines["gpu-05"][600:660].copy()
    machines["gpu-05"][600:660] = np.nan
    raw = task_of(series_of("power", machines))
    stream = TaskStream(by(method, lag_seconds=10.0), undenoised)
    stream.take(raw)
    before = stream.result()
    late = series_of("power", {"gpu-05": held_back}, start=NOW + 600.0)
    stream.take(dataclasses.replace(raw, metrics=(late,)))
    after = stream.result()
    assert after.as_json() | {"warnings": None} == before.as_json() | {"warnings": None}
    (said,) = set(after.warnings) - set(before.warnings)
    assert said == "at least 60 samples came more than 10 s late and were left out: raise detect.lag_seconds"


def test_a_stream_that_took_in_nothing_has_no_verdict() -> None:
    with pytest.raises(Unobservable, match="taken in nothing"):
        TaskStream(by("default"), undenoised).result()


@by_every_method
def test_a_metric_that_begins_or_ends_in_between_is_judged_as_in_one_pass(method: str) -> None:
    machines, links = wavy_machines(8, SECONDS), wavy_machines(8, SECONDS, seed=1, level=1e10)
    temporary = wavy_machines(8, SECONDS, seed=2)
    for values in links.values():
        values[:450] = np.nan
    links["gpu-03"][600:] *= 0.4
    for values in temporary.values():
        values[300:] = np.nan
    other = dataclasses.replace(POWER, name="other")
    raw = task_of(
        series_of("power", machines),
        series_of(LINK.name, links),
        series_of("other", temporary),
        specs=(POWER, LINK, other),
    )
    given = whole(raw, by(method))
    assert [verdict.machine for verdict in given.verdicts] == ["gpu-03"]
    for every in (7.0, 100.0):
        result = streamed(pieces_of(raw, np.arange(every, SECONDS, every).tolist()), by(method))
        assert result.as_json() == given.as_json()


@by_every_method
def test_machines_that_come_and_go_are_judged_as_in_one_pass(method: str) -> None:
    machines = wavy_machines(9, 2400)
    machines["gpu-07"][500:] = np.nan
    machines["gpu-08"][:620] = np.nan
    machines["gpu-03"][1900:] *= 0.5
    raw = task_of(series_of("power", machines))
    given = whole(raw, by(method))
    assert [verdict.machine for verdict in given.verdicts] == ["gpu-03"]
    for every in (37.0, 600.0):
        pieces = (
            # who is not heard of is not known of
            dataclasses.replace(piece, machines=tuple(sorted({m for each in piece.metrics for m in each.machines})))
            for piece in pieces_of(raw, np.arange(every, 2400.0, every).tolist())
        )
        assert streamed(pieces, by(method)).as_json() == given.as_json()


@by_every_method
def test_a_series_that_is_sampled_when_something_happens_is_judged_as_in_one_pass(method: str) -> None:
    rng = np.random.default_rng(5)
    ends = np.cumsum(rng.choice([0.4, 1.1, 1.7], 800))
    machines = wavy_machines(6, len(ends))
    machines["gpu-03"][400:] *= 0.5
    raw = task_of(series_of("power", machines))
    raw = dataclasses.replace(
        raw,
        metrics=(dataclasses.replace(raw.metrics[0], times=NOW + np.tile(ends, 6)),),
        to_at=NOW + float(ends[-1]),
        from_at=NOW + float(ends[0]),
    )
    given = whole(raw, by(method))
    assert [verdict.machine for verdict in given.verdicts] == ["gpu-03"]
    for every in (3.3, 50.0):
        result = streamed(pieces_of(raw, np.arange(every, ends[-1], every).tolist()), by(method))
        assert result.as_json() == given.as_json()


DUTY = MetricSpec("gpu_duty_cycle", "percent", lower=0.0, upper=100.0, spread=3.0)
GRAPHICS = MetricSpec("gpu_graphics_activity", "ratio", lower=0.0, upper=1.0, spread=0.02)


def activity(level: float, count: int, *, seed: int = 0) -> dict[str, FloatArray]:
    """Eight machines at work, in some unit."""
    rng = np.random.default_rng(seed)
    return {f"gpu-{number:02d}": level * (1 - 0.02 * rng.random(count)) for number in range(8)}


def assert_pieces_give_what_the_whole_gives(
    raw: RawTask, method: str, every: Sequence[float] = (7.0, 100.0), **changes: Any
) -> PassResult:
    detect = by(method, **changes)
    given = whole(raw, detect)
    for seconds in every:
        cuts = np.arange(seconds, raw.to_at - raw.from_at, seconds).tolist()
        assert streamed(pieces_of(raw, cuts), detect).as_json() == given.as_json()
    return given


@by_every_method
def test_a_piece_without_a_sample_of_any_member_settles_nothing(method: str) -> None:
    raw = power_halves()
    raw = dataclasses.replace(raw, is_stated=True)
    strangers = dataclasses.replace(
        raw, to_at=NOW, metrics=(series_of("power", {"a-stranger": np.ones(1)}),), machines=raw.machines
    )
    stream = TaskStream(by(method), undenoised)
    for piece in (strangers, *pieces_of(raw, [400.0])):
        stream.take(piece)
    assert stream.result().as_json() == whole(raw, by(method)).as_json()


@by_every_method
def test_machines_that_come_later_do_not_move_the_grid_of_those_there(method: str) -> None:
    early, late = wavy_machines(4, SECONDS // 5), wavy_machines(60, SECONDS // 5, seed=1)
    rng = np.random.default_rng(2)
    early["gpu-03"][120:] *= 0.5
    metrics = [series_of("power", {name: values}, step=5.0, start=NOW + 2.0) for name, values in early.items()]
    for number, values in enumerate(late.values()):
        # scraped at any moment of the interval
        offset = 5.0 * rng.random()
        metrics.append(series_of("power", {f"late-{number:02d}": values[70:]}, step=5.0, start=NOW + 350 + offset))
    raw = task_of(one_metric(metrics))
    assert_pieces_give_what_the_whole_gives(raw, method, every=(25.0, 400.0))


def one_metric(parts: Sequence[RawMetric]) -> RawMetric:
    """The series of several as one metric."""
    return RawMetric(
        parts[0].metric,
        tuple(machine for part in parts for machine in part.machines),
        tuple(device for part in parts for device in part.devices),
        np.concatenate(([0], np.cumsum([count for part in parts for count in np.diff(part.offsets)]))),
        np.concatenate([part.times for part in parts]),
        np.concatenate([part.values for part in parts]),
    )


def test_how_far_back_an_onset_is_seen_does_not_depend_on_the_pieces() -> None:
    machines = wavy_machines(8, 3600)
    # never right, and from 2400 s on now and then a little worse
    machines["gpu-03"] *= 0.5
    machines["gpu-03"][:2400] *= 2.0 / (1 + (np.arange(2400) % 2))
    assert_pieces_give_what_the_whole_gives(task_of(series_of("power", machines)), "default", every=(7.0, 1000.0))


@pytest.mark.parametrize("step", [1.0, 15.0])
@pytest.mark.parametrize("latest_onset", range(700, 712, 3))
def test_what_comes_after_the_confirmation_is_no_part_of_its_evidence(step: float, latest_onset: int) -> None:
    machines = wavy_machines(8, SECONDS)
    machines["gpu-03"][latest_onset:] = np.arange(SECONDS - latest_onset)
    slow = {name: values[:: int(step)] for name, values in machines.items()}
    links = wavy_machines(8, SECONDS, seed=1, level=1e10)
    links["gpu-03"][latest_onset:] *= 0.1
    raw = task_of(
        series_of("power", slow, step=step, start=NOW + 0.4 * step), series_of(LINK.name, links), specs=(POWER, LINK)
    )
    given = assert_pieces_give_what_the_whole_gives(raw, "default", every=(1.0, 7.0))
    assert [verdict.machine for verdict in given.verdicts] == ["gpu-03"]


def test_a_finer_activity_metric_that_begins_later_does_not_tell_of_the_time_before_it() -> None:
    machines, duty, graphics = wavy_machines(8, 1800), activity(95.0, 1800), activity(0.9, 360)
    for values in duty.values():
        values[:1200] = np.nan
    for values in graphics.values():
        # a pause of five minutes, after which one machine does not come back as the others do
        values[100:160] = 0.0
    machines["gpu-03"][600:] *= 0.5
    raw = task_of(
        series_of("power", machines),
        series_of(DUTY.name, duty),
        series_of(GRAPHICS.name, graphics, step=5.0),
        specs=(POWER, DUTY, GRAPHICS),
    )
    given = assert_pieces_give_what_the_whole_gives(raw, "default")
    assert [verdict.machine for verdict in given.verdicts] == ["gpu-03"]


def test_a_slow_activity_metric_tells_between_its_samples_as_well() -> None:
    machines, duty, graphics = wavy_machines(8, 3000), activity(95.0, 3000), activity(0.9, 50)
    for values in duty.values():
        values[2000:2120] = 1.0
    machines["gpu-03"][2060:] *= 0.5
    raw = task_of(
        series_of("power", machines),
        series_of(DUTY.name, duty),
        series_of(GRAPHICS.name, graphics, step=60.0),
        specs=(POWER, DUTY, GRAPHICS),
    )
    given = assert_pieces_give_what_the_whole_gives(raw, "default", every=(7.0, 30.0))
    assert [verdict.machine for verdict in given.verdicts] == ["gpu-03"]


@by_every_method
@pytest.mark.parametrize("seconds", [290, 310, 355])
def test_what_there_is_decides_whatever_may_still_come_late(seconds: int, method: str) -> None:
    machines = {name: values[:seconds] for name, values in wavy_machines(8, SECONDS).items()}
    machines["gpu-03"][70:] *= 0.5
    # a little more would be another tenth of a second, to which grids are rounded
    raw = task_of(series_of("power", machines, start=NOW + 0.035))
    # what comes after five minutes would move the grid, were it to count
    (metric,) = raw.metrics
    shifted = dataclasses.replace(metric, times=metric.times + np.where(metric.times > NOW + 300, 0.25, 0.0))
    raw = dataclasses.replace(raw, metrics=(shifted,), to_at=float(shifted.times.max()))
    detect = by(method, lag_seconds=60.0)
    assert streamed(pieces_of(raw, [100.0]), detect).as_json() == whole(raw, detect).as_json()


def test_a_metric_says_nothing_of_the_time_before_it_began() -> None:
    duty, graphics = activity(95.0, 1200), activity(0.9, 240)
    # what comes and goes counts for less the longer nothing departs in its cause
    on = np.arange(1200)
    duty["gpu-03"][(on > 100) & (on % 40 < 22)] *= 0.7
    for values in graphics.values():
        values[:160] = np.nan
    raw = task_of(series_of(DUTY.name, duty), series_of(GRAPHICS.name, graphics, step=5.0), specs=(DUTY, GRAPHICS))
    given = assert_pieces_give_what_the_whole_gives(raw, "default")
    assert [verdict.machine for verdict in given.verdicts] == ["gpu-03"]
    alone = whole(task_of(series_of(DUTY.name, duty), specs=(DUTY,)), by("default"))
    assert given.verdicts[0].confirmed == alone.verdicts[0].confirmed < NOW + 800


@by_every_method
@pytest.mark.parametrize("pause", [(600, 2400), (600, 2100)])
def test_a_metric_that_nobody_reports_for_longer_than_is_remembered_may_come_again(
    pause: tuple[int, int], method: str
) -> None:
    machines, other = wavy_machines(8, 2400), wavy_machines(8, 2400, seed=1)
    for values in machines.values():
        values[slice(*pause)] = np.nan
    raw = task_of(
        series_of("power", machines),
        series_of("other", other),
        specs=(POWER, dataclasses.replace(POWER, name="other")),
    )
    assert_pieces_give_what_the_whole_gives(raw, method, every=(20.0, 300.0))


@by_every_method
@pytest.mark.parametrize("is_stated", [False, True])
@pytest.mark.parametrize("silent_seconds", [500, 1100, 2000])
def test_who_is_forgotten_and_when_does_not_depend_on_the_pieces(
    silent_seconds: int, is_stated: bool, method: str
) -> None:
    seconds = 3000
    machines, slow = wavy_machines(8, seconds), wavy_machines(8, seconds // 60, seed=1, level=1e10)
    machines["gpu-02"][seconds - silent_seconds :] = np.nan
    del slow["gpu-02"]
    raw = task_of(series_of("power", machines), series_of(LINK.name, slow, step=60.0), specs=(POWER, LINK))
    raw = dataclasses.replace(raw, is_stated=is_stated)
    assert_pieces_give_what_the_whole_gives(raw, method, every=(20.0, 700.0))


@by_every_method
def test_machines_that_come_later_do_not_change_which_samples_tell_the_grid(method: str) -> None:
    early, late = wavy_machines(4, SECONDS), wavy_machines(8, SECONDS, seed=1)
    early["gpu-03"][550:] *= 0.5
    # every third sample is a little late, so that those that are looked at must be the same
    late_by = np.tile(np.where(np.arange(SECONDS) % 3 == 0, 0.3, 0.0), 4)
    there = series_of("power", early)
    there = dataclasses.replace(there, times=there.times + late_by)
    coming = series_of("power", {f"late-{name}": values[400:] for name, values in late.items()}, start=NOW + 400)
    assert_pieces_give_what_the_whole_gives(task_of(one_metric([there, coming])), method, every=(25.0, 400.0))


def test_a_verdict_within_seconds_has_numbers_of_slow_metrics_too() -> None:
    fine, slow = wavy_machines(8, 9000), wavy_machines(8, 60, seed=1, level=1e10)
    fine["gpu-03"][6001:] = 0.0
    # its second sample of the fault lies just before the other metric begins to show it, the third after the verdict
    slow["gpu-03"][39:] *= 0.5
    raw = task_of(
        series_of("step_ms", fine, step=0.1),
        series_of(LINK.name, slow, step=15.0),
        specs=(dataclasses.replace(POWER, name="step_ms", declared=True), LINK),
    )
    given = assert_pieces_give_what_the_whole_gives(raw, "default", every=(7.0,))
    (verdict,) = given.verdicts
    assert verdict.confirmed < NOW + 615
    (item,) = [item for item in verdict.evidence if item.metric == LINK.name]
    assert item.value == pytest.approx(5e9, rel=0.15)
    assert item.peers == pytest.approx(1e10, rel=0.15)
    assert json.dumps(given.as_json(), allow_nan=False)
