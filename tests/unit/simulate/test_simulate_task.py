"""The simulated task as a source would give it: reproducible, physical, sampled like an exporter samples."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from trainminder.catalogue import load_catalogue
from trainminder.errors import SettingsError
from trainminder.simulate import METRIC_MODELS, ClusterSpec, Fault, simulate_task
from trainminder.types import FloatArray, MetricSpec, RawMetric, RawTask

CATALOGUE = load_catalogue()
SPEC = ClusterSpec(machines=5, devices_per_machine=2, seed=9, duration_seconds=600)
FAULTS = [Fault(1, "pcie_downgrading", 200, 100), Fault(3, "thermal_throttling", 350)]


def simulate(spec: ClusterSpec = SPEC, *faults: Fault) -> RawTask:
    return simulate_task(spec, faults, specs=CATALOGUE)[0]


def one(metric: str, **changes: object) -> RawMetric:
    return simulate(dataclasses.replace(SPEC, metrics=(metric,), **changes)).metrics[0]  # type: ignore[arg-type]


def times_of(metric: RawMetric, index: int) -> FloatArray:
    return metric.times[metric.offsets[index] : metric.offsets[index + 1]] - SPEC.start_at


def same(left: RawMetric, right: RawMetric) -> bool:
    return left.times.tobytes() == right.times.tobytes() and left.values.tobytes() == right.values.tobytes()


def test_the_same_seed_gives_the_same_bytes() -> None:
    for left, right in zip(simulate(SPEC, *FAULTS).metrics, simulate(SPEC, *FAULTS).metrics, strict=True):
        assert same(left, right)


def test_another_seed_gives_another_task() -> None:
    other = simulate(dataclasses.replace(SPEC, seed=10))
    assert not any(same(left, right) for left, right in zip(simulate().metrics, other.metrics, strict=True))


@pytest.mark.parametrize("name", ["cpu_usage", "gpu_temperature", "nvlink_bandwidth"])
def test_a_metric_is_the_same_whatever_others_are_asked_for(name: str) -> None:
    among_all = next(metric for metric in simulate().metrics if metric.metric == name)
    assert same(one(name), among_all)


def test_every_metric_of_the_catalogue_is_given_at_its_level() -> None:
    raw = simulate()
    assert [metric.metric for metric in raw.metrics] == list(CATALOGUE)
    assert raw.metrics_absent == ()
    for metric in raw.metrics:
        devices = [None] if CATALOGUE[metric.metric].level == "machine" else ["gpu0", "gpu1"]
        assert list(zip(metric.machines, metric.devices, strict=True)) == [
            (machine, device) for machine in raw.machines for device in devices
        ]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_values_are_finite_and_within_physical_bounds_even_under_faults(seed: int) -> None:
    faults = [Fault(index % 5, fault_type, 50.0 * (index % 5), 200) for index, fault_type in enumerate(FAULT_TYPES)]
    for metric in simulate(dataclasses.replace(SPEC, seed=seed, bursts_per_hour=20), *faults).metrics:
        spec = CATALOGUE[metric.metric]
        assert np.isfinite(metric.values).all()
        assert metric.values.min() >= (spec.lower or 0)
        assert spec.upper is None or metric.values.max() <= spec.upper


FAULT_TYPES = ("ecc_error", "cpu_contention", "memory_leak", "nvlink_error", "slow_disk", "hdfs_error", "nic_dropout")


def test_the_series_are_laid_out_as_the_vocabulary_says() -> None:
    raw = simulate(SPEC, *FAULTS)
    assert (raw.from_at, raw.to_at) == (SPEC.start_at, SPEC.start_at + 600)
    for metric in raw.metrics:
        assert metric.offsets[0] == 0
        assert metric.offsets[-1] == len(metric.times) == len(metric.values)
        for index in range(len(metric.machines)):
            times = times_of(metric, index)
            assert (np.diff(times) > 0).all()
            assert times[0] >= 0
            assert times[-1] <= 600


def test_magnitudes_are_those_of_a_training_accelerator() -> None:
    means = {metric.metric: float(np.median(metric.values)) for metric in simulate().metrics}
    assert 300 < means["gpu_power_draw"] < 700
    assert 45 < means["gpu_temperature"] < 80
    assert means["gpu_duty_cycle"] >= 98
    assert 0.15 < means["gpu_tensor_activity"] < 0.6
    assert 1600 < means["gpu_sm_clock"] < 2000
    assert means["pfc_tx_packet_rate"] < 50


def test_each_machine_has_a_permanent_offset() -> None:
    power = one("gpu_power_draw", machines=32, devices_per_machine=1, missing_ratio=0, gaps_per_hour=0)
    values = power.values.reshape(32, -1)
    first, second = values[:, :300].mean(axis=1), values[:, 300:].mean(axis=1)
    assert 0.005 < first.std() / first.mean() < 0.03
    assert np.corrcoef(first, second)[0, 1] > 0.8


def test_machines_of_one_rack_share_their_air() -> None:
    heat = one("gpu_temperature", machines=64, devices_per_machine=1, missing_ratio=0, gaps_per_hour=0)
    racks = heat.values.reshape(64, -1).mean(axis=1).reshape(16, 4)
    assert racks.mean(axis=1).std() > racks.std(axis=1).mean()


@pytest.mark.parametrize("name", ["cpu_usage", "gpu_temperature", "gpu_power_draw"])
def test_the_data_begin_in_the_middle_of_a_running_task(name: str) -> None:
    values = one(name, missing_ratio=0, gaps_per_hour=0, bursts_per_hour=0, machines=40, period_seconds=3.0).values
    spread = values.reshape(-1, 600).std(axis=0)
    assert spread[:5].mean() < 1.6 * np.median(spread)
    middle = np.median(values.reshape(-1, 600)[:, :30])
    assert middle == pytest.approx(np.median(values), rel=0.05)


def test_bursts_hit_one_series_for_seconds_and_are_gone() -> None:
    calm = one("cpu_usage", bursts_per_hour=0, missing_ratio=0, gaps_per_hour=0).values.reshape(5, -1)
    lively = one("cpu_usage", bursts_per_hour=30, missing_ratio=0, gaps_per_hour=0).values.reshape(5, -1)
    hit = lively != calm
    runs = np.diff(np.flatnonzero(np.diff(np.pad(hit.astype(int), ((0, 0), (1, 1))).ravel())))[::2]
    assert 0.001 < hit.mean() < 0.3
    assert np.median(runs) <= 5
    assert (lively[hit] > calm[hit]).all()


def test_nothing_is_missing_when_nothing_is_lost() -> None:
    metric = one("cpu_usage", missing_ratio=0, gaps_per_hour=0)
    assert (np.diff(metric.offsets) == 600).all()


def test_samples_are_lost_at_the_stated_ratio() -> None:
    metric = one("gpu_power_draw", missing_ratio=0.1, gaps_per_hour=0)
    assert 1 - len(metric.times) / (10 * 600) == pytest.approx(0.1, abs=0.02)


def test_a_lost_scrape_is_lost_for_every_metric_of_the_exporter() -> None:
    spec = dataclasses.replace(SPEC, missing_ratio=0, gaps_per_hour=30)
    cpu, memory = (simulate(dataclasses.replace(spec, metrics=(name,))).metrics[0] for name in ("cpu_usage", "disk_io"))
    np.testing.assert_array_equal(cpu.times, memory.times)
    holes = [float(np.diff(times_of(cpu, index)).max()) for index in range(5)]
    assert max(holes) > 5


def test_machines_are_sampled_at_their_own_phase() -> None:
    metric = one("cpu_usage", missing_ratio=0, gaps_per_hour=0, jitter_ratio=0, phase_ratio=1.0)
    phases = [times_of(metric, index) % 1.0 for index in range(5)]
    assert all(phase.std() < 1e-6 for phase in phases)
    assert np.ptp([phase[0] for phase in phases]) > 0.2


def test_samples_come_late_but_within_their_interval() -> None:
    metric = one("cpu_usage", missing_ratio=0, gaps_per_hour=0, jitter_ratio=0.1, phase_ratio=0)
    late = times_of(metric, 0) - np.arange(600)
    assert 0.07 < late.mean() < 0.13
    assert late.min() >= 0
    assert late.max() < 1


def test_a_slow_exporter_gives_few_samples_of_the_same_task() -> None:
    slow = one("gpu_power_draw", interval_seconds=30.0, missing_ratio=0, gaps_per_hour=0)
    fast = one("gpu_power_draw", missing_ratio=0, gaps_per_hour=0)
    assert slow.interval_seconds == 30
    assert (np.diff(slow.offsets) == 20).all()
    assert slow.values.mean() == pytest.approx(fast.values.mean(), rel=0.1)


def test_rates_over_a_long_interval_average_the_iterations() -> None:
    calm = {"missing_ratio": 0, "gaps_per_hour": 0, "bursts_per_hour": 0, "period_seconds": 3.0}
    slow, fast = (one("rdma_throughput", interval_seconds=seconds, **calm).values for seconds in (30.0, 1.0))
    assert slow.std() < 0.3 * fast.std()


def test_a_metric_that_is_not_simulated_is_absent_and_never_made_up() -> None:
    own = MetricSpec(name="loss", unit="", declared=True)
    raw, _ = simulate_task(SPEC, specs={"cpu_usage": CATALOGUE["cpu_usage"], "loss": own})
    assert [metric.metric for metric in raw.metrics] == ["cpu_usage"]
    assert raw.metrics_absent == ("loss",)
    assert set(raw.specs) == {"cpu_usage"}


def test_a_metric_outside_the_catalogue_is_refused() -> None:
    with pytest.raises(SettingsError, match='"cpu" is not in the catalogue'):
        simulate(dataclasses.replace(SPEC, metrics=("cpu",)))


def test_impossible_clusters_are_refused_with_every_problem() -> None:
    with pytest.raises(SettingsError) as caught:
        ClusterSpec(machines=0, interval_seconds=0, missing_ratio=2, machine_pattern="gpu")
    assert len(caught.value.problems) == 4
    assert "machines is 0" in caught.value.problems[0]


def test_the_simulator_knows_nothing_outside_the_catalogue() -> None:
    assert METRIC_MODELS.keys() == set(CATALOGUE)
    assert all(model.level == CATALOGUE[name].level for name, model in METRIC_MODELS.items())
    assert all(model.upper == CATALOGUE[name].upper for name, model in METRIC_MODELS.items())
