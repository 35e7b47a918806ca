from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from small_tasks import NOW, POWER, series_of, task_of, undenoised, wavy_machines
from trainminder.evidence.silence import follow_silence
from trainminder.evidence.weights import PARTS, Weights
from trainminder.settings import DetectSettings
from trainminder.stream import run_pass
from trainminder.types import FloatArray, MetricSpec, Panel, PassResult, RawTask

LINK = MetricSpec("pcie_bandwidth", "bytes/s", lower=0.0, spread_ratio=0.05)
CPU = MetricSpec("cpu_usage", "percent", lower=0.0, upper=100.0, spread=2.0)


def judged(raw: RawTask, allowed: float = 0.05) -> PassResult:
    return run_pass(raw, DetectSettings(false_alarms_per_machine_day=allowed), undenoised)


def with_change(machines: dict[str, FloatArray], who: str, when: slice, factor: float) -> dict[str, FloatArray]:
    changed = machines[who].copy()
    changed[when] *= factor
    return machines | {who: changed}


def confirmed_after(raw: RawTask, allowed: float = 0.05) -> float:
    (verdict,) = judged(raw, allowed).verdicts
    return verdict.confirmed - verdict.onset


def test_a_sign_in_a_second_cause_convicts_sooner() -> None:
    power = with_change(wavy_machines(8, 900), "gpu-03", slice(400, None), 0.5)
    link = wavy_machines(8, 900, level=1e10, seed=1)
    alone = task_of(series_of("power", power), series_of(LINK.name, link), specs=(POWER, LINK))
    both = with_change(link, "gpu-03", slice(400, None), 0.5)
    together = task_of(series_of("power", power), series_of(LINK.name, both), specs=(POWER, LINK))
    assert confirmed_after(together) < 0.7 * confirmed_after(alone)


def test_fewer_false_alarms_allowed_take_longer() -> None:
    raw = task_of(series_of("power", with_change(wavy_machines(8, 1800), "gpu-03", slice(400, None), 0.5)))
    waits = [confirmed_after(raw, allowed) for allowed in (0.1, 0.05, 0.01)]
    assert waits == sorted(waits)
    assert waits[0] < waits[-1]


def test_what_comes_and_goes_adds_up_and_one_burst_of_it_does_not() -> None:
    machines = wavy_machines(8, 1800)
    once = with_change(machines, "gpu-03", slice(600, 620), 0.5)
    assert judged(task_of(series_of("power", once))).verdicts == ()
    often = machines
    for start in range(600, 1800, 35):
        often = with_change(often, "gpu-03", slice(start, start + 20), 0.5)
    (verdict,) = judged(task_of(series_of("power", often))).verdicts
    assert verdict.machine == "gpu-03"


def test_at_thirty_seconds_a_gross_fault_is_confirmed_by_its_third_sample_and_a_burst_of_two_is_not() -> None:
    def task(lasting: int) -> RawTask:
        levels = {POWER: 600.0, LINK: 1e10, CPU: 40.0}
        machines = [wavy_machines(16, 120, level=level, seed=seed) for seed, level in enumerate(levels.values())]
        changed = [with_change(each, "gpu-03", slice(60, 60 + lasting), 0.5) for each in machines]
        series = [series_of(spec.name, each, step=30.0) for spec, each in zip(levels, changed, strict=True)]
        return task_of(*series, specs=tuple(levels))

    (verdict,) = judged(task(3)).verdicts
    # The mean of the last samples departs from the second faulty one on, and two samples must depart.
    assert (verdict.machine, verdict.confirmed) == ("gpu-03", NOW + 62 * 30.0)
    assert judged(task(2)).verdicts == ()


def test_two_that_fail_together_are_both_named() -> None:
    machines = wavy_machines(12, 1800)
    for name in ("gpu-03", "gpu-08"):
        machines = with_change(machines, name, slice(600, None), 0.5)
    assert {verdict.machine for verdict in judged(task_of(series_of("power", machines))).verdicts} == {
        "gpu-03",
        "gpu-08",
    }


RACK = ("gpu-02", "gpu-05", "gpu-07", "gpu-11")


def group_task(**shared: tuple[str, ...]) -> RawTask:
    machines = wavy_machines(16, 1800)
    for name in RACK:
        machines = with_change(machines, name, slice(600, None), 0.7)
    return dataclasses.replace(task_of(series_of("power", machines)), domains=shared)


def test_a_domain_that_departs_as_one_is_named_sooner_than_as_many_strangers() -> None:
    result = judged(group_task(rack7=RACK, rack8=("gpu-01", "gpu-03")))
    assert {verdict.machine for verdict in result.verdicts} == set(RACK)
    for verdict in result.verdicts:
        (item,) = [item for item in verdict.evidence if item.kind == "group"]
        assert "all share rack7" in item.text
        assert "of whose 4 machines 4 departed" in item.text
        assert not [item for item in verdict.evidence if item.kind == "considered"]
    strangers = judged(group_task()).verdicts
    assert all(verdict.confirmed > result.verdicts[0].confirmed for verdict in strangers)


def test_machines_of_a_domain_elsewhere_do_not_count_as_its_own() -> None:
    result = judged(group_task(rack7=(*RACK, "of-another-task-1", "of-another-task-2", "of-another-task-3")))
    (item,) = [item for item in result.verdicts[0].evidence if item.kind == "group"]
    assert "of whose 4 machines 4 departed" in item.text


def test_a_domain_of_which_few_depart_says_nothing() -> None:
    # As under one switch that all share.
    everyone = tuple(f"gpu-{number:02d}" for number in range(16))
    assert judged(group_task(switch=everyone)).verdicts == judged(group_task()).verdicts


def test_domains_that_cut_across_those_that_depart_say_nothing() -> None:
    across = judged(group_task(a=("gpu-02", "gpu-03"), b=("gpu-05", "gpu-08"), c=("gpu-07", "gpu-09")))
    assert across.verdicts == judged(group_task()).verdicts


def test_a_machine_that_works_as_little_as_its_share_when_all_do_less_does_not_depart() -> None:
    machines = wavy_machines(8, 1800)
    machines["gpu-03"] = 0.9 * machines["gpu-03"]
    machines = {name: np.where(np.arange(1800) < 900, values, 0.5 * values) for name, values in machines.items()}
    assert judged(task_of(series_of("power", machines))).verdicts == ()


def test_a_busier_host_takes_longer_to_convict_than_an_idle_one() -> None:
    calm = wavy_machines(8, 1800, level=40.0)
    busy = task_of(series_of(CPU.name, with_change(calm, "gpu-03", slice(400, None), 2.0)), specs=(CPU,))
    idle = task_of(series_of(CPU.name, with_change(calm, "gpu-03", slice(400, None), 0.05)), specs=(CPU,))
    assert judged(busy).verdicts == () or confirmed_after(busy) > confirmed_after(idle)


def panel_of(present: np.ndarray) -> Panel:
    machines = tuple(f"gpu-{number:02d}" for number in range(len(present)))
    return Panel(
        metric="power",
        view="machine",
        machines=machines,
        step_seconds=1.0,
        times=NOW + np.arange(present.shape[1], dtype=np.float64),
        values=np.where(present, 600.0, np.nan),
        present=present,
        row_machine=np.arange(len(present)),
        row_device=(None,) * len(present),
        rows=np.arange(len(present))[:, None].repeat(present.shape[1], axis=1),
        window_samples=1,
    )


def test_who_ceases_alone_is_silent_and_who_ceases_with_the_store_is_not() -> None:
    present = np.ones((8, 60), dtype=np.bool_)
    present[3, 30:] = False
    silence, _ = follow_silence(panel_of(present))
    assert not silence.ceased[:32].any()
    assert silence.ceased[33:, 3].all()
    assert not np.delete(silence.ceased, 3, axis=1).any()
    present[:, 30:] = False
    assert not follow_silence(panel_of(present))[0].ceased.any()


def test_who_is_exchanged_is_not_silent_once_the_other_reports() -> None:
    present = np.ones((9, 60), dtype=np.bool_)
    present[3, 30:] = False
    present[8, :40] = False
    silence, _ = follow_silence(panel_of(present))
    assert silence.ceased[35, 3]
    assert not silence.ceased[40:, 3].any()


@pytest.mark.parametrize("cut", [1, 4, 31, 33, 46, 59])
@pytest.mark.parametrize("back", [0, 1, 4])
def test_silence_followed_in_pieces_is_what_the_whole_gives(cut: int, back: int) -> None:
    present = np.ones((8, 60), dtype=np.bool_)
    present[3, 30:45] = False
    whole, left = follow_silence(panel_of(present))
    assert whole.ceased.any()
    first, heard = follow_silence(panel_of(present[:, :cut]))
    # some seconds before the cut are there to look back upon
    begin = max(cut - back, 0)
    second, resumed = follow_silence(dataclasses.replace(panel_of(present[:, begin:]), first=cut - begin), heard)
    assert np.array_equal(np.vstack([first.ceased, second.ceased]), whole.ceased)
    assert np.array_equal(np.vstack([first.ever, second.ever]), whole.ever)
    assert np.array_equal(resumed.rows, left.rows)


@pytest.mark.parametrize("part", PARTS)
def test_each_part_of_the_ablation_differs_from_the_whole_in_what_it_leaves_out(part: str) -> None:
    changed = {
        each.name
        for each in dataclasses.fields(Weights)
        if getattr(PARTS[part], each.name) != getattr(Weights(), each.name)
    }
    assert changed
    assert all(getattr(PARTS[part], name) in (0.0, 1.0, 1e9) for name in changed)


def test_a_machine_that_swings_to_and_fro_about_its_peers_is_not_named() -> None:
    machines = wavy_machines(8, 1800)
    swings = np.where(np.arange(1800) // 25 % 2 == 0, 1.25, 0.75)
    swings[:600] = 1.0
    machines["gpu-03"] = machines["gpu-03"] * swings
    assert judged(task_of(series_of("power", machines))).verdicts == ()
