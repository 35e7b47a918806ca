"""Synchronous training: everyone waits for the slowest, and it shows in everyone's metrics."""

from __future__ import annotations

import numpy as np
import pytest

from trainminder.catalogue import load_catalogue
from trainminder.simulate import ClusterSpec, Fault, Timeline, simulate_task, simulate_timeline
from trainminder.simulate.timeline import STATES
from trainminder.types import FloatArray

CALM = ClusterSpec(
    machines=6,
    devices_per_machine=2,
    seed=3,
    period_seconds=5.0,
    duration_seconds=1200,
    missing_ratio=0,
    gaps_per_hour=0,
    bursts_per_hour=0,
)
ONSET, END = 400.0, 1000.0


def median_period(timeline: Timeline, start: float, end: float) -> float:
    training = timeline.kind == STATES.index("compute")
    inside = (timeline.start[training] >= start) & (timeline.close[training] <= end)
    return float(np.median(timeline.periods[inside]))


def by_series(metric: str, *faults: Fault) -> FloatArray:
    """(series, sample); nothing is missing in ``CALM``."""
    raw, _ = simulate_task(CALM, faults, specs={metric: load_catalogue()[metric]})
    return raw.metrics[0].values.reshape(len(raw.metrics[0].machines), -1)


def test_an_undisturbed_iteration_lasts_its_period() -> None:
    assert median_period(simulate_timeline(CALM), 0, 1200) == pytest.approx(5.0, rel=0.02)


def test_every_part_ends_when_its_slowest_machine_is_done() -> None:
    timeline = simulate_timeline(CALM, [Fault(2, "clock_drop", ONSET)])
    np.testing.assert_array_equal(timeline.sync, timeline.done.max(axis=1))
    np.testing.assert_array_equal(timeline.start[1:], timeline.close[:-1])


def test_a_machine_at_half_speed_adds_its_lost_compute_time_to_everyones_iteration() -> None:
    timeline = simulate_timeline(CALM, [Fault(2, "clock_drop", ONSET, END - ONSET)])
    compute = float(np.median(timeline.own[timeline.kind == STATES.index("compute")]))
    assert median_period(timeline, 0, ONSET) == pytest.approx(5.0, rel=0.02)
    # half the speed: the computing takes twice as long, the rest of the iteration as long as before
    assert median_period(timeline, ONSET + 20, END) == pytest.approx(5.0 + compute, rel=0.03)
    assert median_period(timeline, END + 20, 1200) == pytest.approx(5.0, rel=0.02)


def test_a_weaker_fault_costs_less_time() -> None:
    periods = [
        median_period(simulate_timeline(CALM, [Fault(2, "clock_drop", ONSET, strength=strength)]), ONSET + 20, 1200)
        for strength in (0.2, 0.5, 1.0)
    ]
    assert 5.1 < periods[0] < periods[1] < periods[2]


def test_waiting_machines_stay_busy_while_their_work_power_and_traffic_fall() -> None:
    fault = Fault(2, "clock_drop", ONSET, END - ONSET, device=1)
    slowed = slice(430, 1000)
    victims = [series for series in range(12) if series // 2 != 2]

    def change(metric: str) -> float:
        before, after = by_series(metric), by_series(metric, fault)
        return float(after[victims, slowed].mean() / before[victims, slowed].mean())

    assert change("gpu_tensor_activity") < 0.75
    assert change("gpu_power_draw") < 0.9
    assert change("nvlink_bandwidth") < 0.75
    # busy-waiting counts as busy
    assert change("gpu_duty_cycle") == pytest.approx(1.0, abs=0.02)


def test_the_culprit_does_as_much_work_as_its_victims_only_slower() -> None:
    tensor = by_series("gpu_tensor_activity", Fault(2, "clock_drop", ONSET, END - ONSET, device=1))[:, 430:1000]
    assert tensor[5].mean() == pytest.approx(tensor[0].mean(), rel=0.05)
    # it spreads over the whole iteration what the others do in bursts
    assert tensor[5].std() < 0.8 * tensor[0].std()


def test_a_slow_link_slows_the_traffic_of_all_machines() -> None:
    fault = Fault(4, "pcie_downgrading", ONSET, END - ONSET)
    before, after = by_series("rdma_throughput"), by_series("rdma_throughput", fault)
    assert (after[:, 430:1000].mean(axis=1) < 0.75 * before[:, 430:1000].mean(axis=1)).all()


def test_a_crash_stops_the_whole_task_until_it_is_over() -> None:
    timeline = simulate_timeline(CALM, [Fault(1, "ecc_error", ONSET, END - ONSET)])
    assert not ((timeline.close > ONSET + 10) & (timeline.close < END)).any()
    assert median_period(timeline, END + 10, 1200) == pytest.approx(5.0, rel=0.02)


def test_a_hung_task_spins_without_working_or_sending() -> None:
    fault = Fault(1, "ecc_error", ONSET, END - ONSET)
    hung = slice(420, 990)
    victims = [series for series in range(12) if series // 2 != 1]
    assert by_series("gpu_tensor_activity", fault)[victims, hung].max() == 0
    assert by_series("gpu_duty_cycle", fault)[victims, hung].min() >= 98
    peers = by_series("rdma_throughput", fault)[[0, 2, 3, 4, 5], hung]
    assert peers.max() < 0.01 * by_series("rdma_throughput")[:, hung].mean()


def test_a_slow_disk_stretches_the_checkpoints_and_hardly_the_iterations() -> None:
    healthy, slow = simulate_timeline(CALM), simulate_timeline(CALM, [Fault(0, "slow_disk", 0.0)])
    saving = STATES.index("save")

    def saves(timeline: Timeline) -> float:
        return float(np.mean((timeline.close - timeline.start)[(timeline.kind == saving) & (timeline.start > 0)]))

    assert saves(slow) > 3 * saves(healthy)
    assert median_period(slow, 0, 1200) == pytest.approx(5.0, rel=0.08)


def test_all_machines_dip_together_while_a_checkpoint_is_written() -> None:
    timeline = simulate_timeline(CALM)
    first = int(np.flatnonzero((timeline.kind == STATES.index("save")) & (timeline.start > 0))[0])
    # from when the averaging windows hold nothing but writing, to when the first machine is done
    saving = slice(int(timeline.start[first]) + 2, int(timeline.done[first].min()))
    tensor, disk, tcp = by_series("gpu_tensor_activity"), by_series("disk_io"), by_series("tcp_throughput")
    assert tensor[:, saving].max() == 0
    assert (disk[:, saving].min(axis=1) > 5 * np.median(disk, axis=1)).all()
    assert (tcp[:, saving].min(axis=1) > 5 * np.median(tcp, axis=1)).all()


def test_healthy_machines_show_the_same_wave() -> None:
    power = by_series("gpu_power_draw")[::2]
    alike = np.asarray(np.corrcoef(power))
    assert alike.min() > 0.85


def test_the_states_of_a_window_fill_it() -> None:
    timeline = simulate_timeline(CALM, [Fault(2, "cpu_contention", ONSET)])
    until = np.tile(np.arange(1.0, 1200.0), (6, 1))
    shares = timeline.shares(until, 1.0)
    np.testing.assert_allclose(shares.sum(axis=0), 1, atol=1e-9)
    assert shares.min() >= -1e-9
    mine = timeline.with_lost_time(shares, 2, until, 1.0)
    np.testing.assert_allclose(mine.sum(axis=0), 1, atol=1e-9)
    # three tenths of the culprit's progress are lost: it idles for three tenths of its longer computing time
    computing, idle = mine[STATES.index("compute"), 450:].sum(), mine[STATES.index("idle"), 450:].sum()
    assert idle / (idle + computing) == pytest.approx(0.3, abs=0.05)


def test_a_task_that_halts_stands_still_and_its_fault_ends_there() -> None:
    fault = Fault(1, "ecc_error", ONSET, halts_after_seconds=300.0)
    timeline = simulate_timeline(CALM, [fault])
    _, (truth,) = simulate_task(CALM, [fault], specs=load_catalogue())
    assert truth.end - CALM.start_at == ONSET + 300
    standing = timeline.kind == STATES.index("down")
    assert timeline.start[standing].tolist() == [ONSET + 300]
    hung, down = slice(430, 690), slice(710, 1190)
    duty = by_series("gpu_duty_cycle", fault)
    assert duty[[0, 1, 4, 5], hung].min() >= 98
    assert duty[:, down].max() == 0


def test_a_task_started_again_trains_without_the_fault() -> None:
    fault = Fault(1, "cuda_execution_error", ONSET, halts_after_seconds=100.0, restarts_after_seconds=120.0)
    timeline = simulate_timeline(CALM, [fault])
    (loading,) = timeline.start[timeline.kind == STATES.index("load")]
    assert loading == pytest.approx(ONSET + 220)
    assert median_period(timeline, 900, 1200) == pytest.approx(5.0, rel=0.02)


def test_work_cut_off_by_a_halt_is_counted_up_to_it() -> None:
    timeline = simulate_timeline(CALM, [Fault(1, "clock_drop", ONSET, halts_after_seconds=301.5)])
    last = int(np.flatnonzero(timeline.close <= ONSET + 301.5)[-1])
    assert timeline.close[last] == ONSET + 301.5
    whole = float(np.median(timeline.own[timeline.kind == STATES.index("compute")]))
    assert (timeline.own[last] < 1.02 * whole).all()
    until = np.tile(np.arange(1.0, 1200.0), (6, 1))
    np.testing.assert_allclose(timeline.shares(until, 1.0).sum(axis=0), 1, atol=1e-9)


def test_an_intermittent_fault_slows_the_task_only_while_it_is_there() -> None:
    fault = Fault(2, "clock_drop", ONSET, END - ONSET, on_seconds=100.0, off_seconds=100.0)
    timeline = simulate_timeline(CALM, [fault])
    compute = float(np.median(timeline.own[timeline.kind == STATES.index("compute")]))
    assert median_period(timeline, ONSET + 10, ONSET + 100) == pytest.approx(5.0 + compute, rel=0.05)
    assert median_period(timeline, ONSET + 110, ONSET + 200) == pytest.approx(5.0, rel=0.02)
    clock = by_series("gpu_sm_clock", fault)[4:6].min(axis=0)
    assert clock[410:490].max() < 1200
    assert clock[510:590].min() > 1500
