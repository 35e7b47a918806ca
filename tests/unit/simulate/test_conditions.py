"""Ordinary difficulty: each kind does what it says, to the machines it says, and labels nobody."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from trainminder.catalogue import load_catalogue
from trainminder.errors import SettingsError
from trainminder.simulate import ClusterSpec, Conditions, Fault, Timeline, simulate_task, simulate_timeline
from trainminder.simulate.timeline import STATES
from trainminder.types import FloatArray, RawMetric

CATALOGUE = load_catalogue()
SPEC = ClusterSpec(
    machines=16, devices_per_machine=2, seed=5, duration_seconds=900, period_seconds=4.0,
    missing_ratio=0, gaps_per_hour=0, bursts_per_hour=0,
)  # fmt: skip


def under(metric: str, spec: ClusterSpec = SPEC, **conditions: Any) -> RawMetric:
    changed = dataclasses.replace(spec, metrics=(metric,), conditions=Conditions(**conditions))
    raw, truths = simulate_task(changed, specs=CATALOGUE)
    assert truths == ()
    return raw.metrics[0]


def levels(metric: RawMetric, start: float = 0, end: float = 900) -> FloatArray:
    """(machine,): mean between two seconds."""
    seconds = metric.times - SPEC.start_at
    inside = (seconds >= start) & (seconds < end)
    rows = np.repeat(np.arange(len(metric.machines)), np.diff(metric.offsets))
    names = sorted(set(metric.machines))
    owner = np.array([names.index(machine) for machine in metric.machines])[rows]
    return np.array([metric.values[inside & (owner == machine)].mean() for machine in range(len(names))])


def segments(timeline: Timeline, state: str) -> list[tuple[float, float]]:
    chosen = timeline.kind == STATES.index(state)
    return list(zip(timeline.start[chosen].tolist(), timeline.close[chosen].tolist(), strict=True))


def test_machines_of_an_uneven_stage_differ_together_from_those_of_others() -> None:
    spec = dataclasses.replace(SPEC, pipeline_stages=4)
    memory = levels(under("gpu_memory_used", spec, stage_unevenness=1.0)).reshape(4, 4)
    assert memory.mean(axis=1).std() > 5 * memory.std(axis=1).max()
    even = levels(under("gpu_memory_used", spec)).reshape(4, 4)
    assert even.mean(axis=1).std() < 0.2 * memory.mean(axis=1).std()


def test_a_stage_with_less_to_do_waits_within_the_computing_and_not_after_it() -> None:
    spec = dataclasses.replace(SPEC, pipeline_stages=4, conditions=Conditions(stage_unevenness=1.0))
    timeline = simulate_timeline(spec)
    training = timeline.kind == STATES.index("compute")
    own, taken = timeline.own[training], timeline.done[training] - timeline.start[training][:, None]
    busy = (own / taken).mean(axis=0).reshape(4, 4).mean(axis=1)
    assert busy.max() > 0.95
    assert busy.min() < 0.9
    # all machines of a replica are done at once
    replicas = timeline.done[training].reshape(-1, 4, 4)
    np.testing.assert_allclose(np.ptp(replicas, axis=1), 0)


def test_experts_share_out_the_work_unevenly_and_run_in_lock_step() -> None:
    spec = dataclasses.replace(SPEC, expert_machines=4, conditions=Conditions(moe_imbalance=0.1))
    timeline = simulate_timeline(spec)
    training = timeline.kind == STATES.index("compute")
    own = timeline.own[training]
    assert 0.05 < (own / own.mean(axis=1, keepdims=True)).std() < 0.2
    groups = timeline.done[training].reshape(-1, 4, 4)
    np.testing.assert_allclose(np.ptp(groups, axis=2), 0)
    # who has more to do changes within minutes
    assert len(set(own[:: len(own) // 5].argmax(axis=1).tolist())) > 1


def test_odd_machines_have_always_been_odd() -> None:
    odd = {}
    for metric in ("gpu_power_draw", "cpu_usage", "memory_usage", "gpu_sm_clock"):
        for part in ((0, 300), (600, 900)):
            factor = levels(under(metric, odd_machines=2), *part) / levels(under(metric), *part)
            odd[metric, part] = set(np.flatnonzero(np.abs(factor - 1) > 0.01).tolist())
        assert odd[metric, (0, 300)] == odd[metric, (600, 900)]
    different = set().union(*odd.values())
    assert 1 <= len(different) <= 2


def test_an_older_generation_is_a_third_of_the_machines() -> None:
    clock = levels(under("gpu_sm_clock", generations=2)) / levels(under("gpu_sm_clock"))
    assert (clock < 0.95).sum() == 5


def test_one_rack_breathes_warmer_air() -> None:
    warmer = levels(under("gpu_temperature", hot_rack_celsius=8.0)) - levels(under("gpu_temperature"))
    assert sorted(np.round(warmer.reshape(4, 4).mean(axis=1), 1).tolist()) == [0.0, 0.0, 0.0, 8.0]


def test_everyone_waits_for_a_hiccup() -> None:
    spec = dataclasses.replace(SPEC, conditions=Conditions(hiccups_per_hour=40))
    timeline, calm = simulate_timeline(spec), simulate_timeline(SPEC)
    assert len(timeline.hiccups) > 3
    assert timeline.periods.max() > calm.periods.max() + 1
    assert len(timeline.periods) < len(calm.periods)


def test_a_scheduled_job_uses_processor_and_disk_and_leaves_the_training_alone() -> None:
    busy, calm = under("cpu_usage", cron_per_hour=20), under("cpu_usage")
    hit = np.abs(busy.values - calm.values) > 1
    assert 0.02 < hit.mean() < 0.6
    same = under("gpu_tensor_activity", cron_per_hour=20)
    np.testing.assert_array_equal(same.values, under("gpu_tensor_activity").values)


def test_before_its_start_a_task_has_no_process_and_then_it_warms_up() -> None:
    duty = under("gpu_duty_cycle", warm_up_at_seconds=200)
    assert levels(duty, 0, 200).max() < 1
    assert levels(duty, 500).min() > 80
    spec = dataclasses.replace(SPEC, conditions=Conditions(warm_up_at_seconds=200))
    periods = simulate_timeline(spec).periods
    after = periods[:8]
    assert after[0] > 2 * periods[-1]
    assert (np.diff(after) < 0.5).all()
    (loading,) = segments(simulate_timeline(spec), "load")
    assert loading[0] == 200


def test_a_restarted_task_stands_still_loads_and_goes_on() -> None:
    timeline = simulate_timeline(dataclasses.replace(SPEC, conditions=Conditions(restart_at_seconds=300)))
    (standing,), (loading,) = segments(timeline, "down"), segments(timeline, "load")
    assert standing[0] == 300
    assert 330 <= standing[1] <= 480
    assert loading[0] == standing[1]
    assert timeline.close[-1] > 890
    memory = under("gpu_memory_used", restart_at_seconds=300)
    assert levels(memory, 302, 328).max() < 1000


def test_of_two_swapped_machines_one_ends_where_the_other_begins() -> None:
    metric = under("cpu_usage", swap_at_seconds=400)
    spans = {}
    for row, machine in enumerate(metric.machines):
        times = metric.times[metric.offsets[row] : metric.offsets[row + 1]] - SPEC.start_at
        spans[machine] = (times[0], times[-1])
    (gone,) = [machine for machine, (_, last) in spans.items() if last < 500]
    (new,) = [machine for machine, (first, _) in spans.items() if first > 300]
    assert spans[gone][1] < 400 <= spans[new][0]
    assert gone != new


def test_a_skewed_clock_shifts_a_machines_instants_and_no_value() -> None:
    skewed, right = under("gpu_power_draw", clock_skew_seconds=3.0), under("gpu_power_draw")
    shift = (skewed.times - right.times).reshape(32, -1)
    assert np.ptp(shift, axis=1).max() < 1e-6
    assert 1 < shift[:, 0].std() < 6
    np.testing.assert_array_equal(skewed.values, right.values)


def test_absent_metrics_are_absent_on_some_machines_and_not_on_the_same_for_all() -> None:
    having = {name: set(under(name, absent_ratio=0.3).machines) for name in ("cpu_usage", "disk_io", "gpu_power_draw")}
    assert all(6 < len(machines) < 16 for machines in having.values())
    assert len({frozenset(machines) for machines in having.values()}) > 1


def test_a_constant_metric_reads_one_number() -> None:
    assert len(np.unique(under("gpu_sm_clock", constant_metrics=("gpu_sm_clock",)).values)) == 1


def test_what_a_fault_shows_in_is_neither_absent_nor_constant() -> None:
    hidden = Conditions(absent_ratio=0.99, constant_metrics=("gpu_sm_clock",))
    spec = dataclasses.replace(SPEC, metrics=("gpu_sm_clock", "cpu_usage"), conditions=hidden)
    raw, _ = simulate_task(spec, [Fault(3, "clock_drop", 300)], specs=CATALOGUE)
    clock, cpu = raw.metrics
    assert len(set(clock.machines)) == 16
    assert levels(clock, 310).argmin() == 3
    assert len(set(cpu.machines)) < 8


def test_impossible_conditions_are_named_with_their_remedy() -> None:
    with pytest.raises(SettingsError) as caught:
        ClusterSpec(machines=6, pipeline_stages=4, conditions=Conditions())
    assert caught.value.problems == ("simulate.pipeline_stages is 4: it must divide the 6 machines",)
    with pytest.raises(SettingsError) as caught:
        ClusterSpec(conditions=Conditions(moe_imbalance=-1, generations=3, absent_ratio=1))
    assert [problem.split(" is ")[0].split(".")[-1] for problem in caught.value.problems] == [
        "moe_imbalance",
        "absent_ratio",
        "generations",
    ]
