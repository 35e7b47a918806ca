"""What was written into a real store comes back to the sample."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from trainminder.catalogue import load_catalogue
from trainminder.errors import MembershipError, StoreError
from trainminder.membership.promql import find_task
from trainminder.settings import MembershipSettings, Settings, StoreSettings, TaskSettings
from trainminder.source.prometheus import PrometheusSource
from trainminder.source.prometheus.http import StoreClient
from trainminder.types import RawMetric, RawTask, Task

NOW = 1_764_580_000.0  # a multiple of 10 s
SECONDS = 120
MACHINES = [f"gpu-{i:02d}" for i in range(6)]
GAUGES = {"gpu_power_draw": "DCGM_FI_DEV_POWER_USAGE", "gpu_tensor_activity": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"}
LEVELS = {"gpu_power_draw": 600.0, "gpu_tensor_activity": 0.8}

Build = Callable[..., Any]


def recorded(make_series: Build) -> list[Any]:
    """Six machines with two devices each, and node_exporter's memory; 1 s, values with all their digits."""
    rng = np.random.default_rng(7)
    times = NOW + np.arange(SECONDS)
    series = []
    for machine in MACHINES:
        dcgm = {"instance": f"{machine}:9400", "job": "dcgm", "task": "llm-7", "Hostname": machine}
        for metric, name in GAUGES.items():
            for gpu in "01":
                values = LEVELS[metric] * (1 + 0.01 * rng.standard_normal(SECONDS))
                series.append(make_series(name, dcgm | {"gpu": gpu, "UUID": f"GPU-{machine}-{gpu}"}, times, values))
        node = {"instance": f"{machine}:9100", "job": "node", "task": "llm-7"}
        free = 4e11 + 1e9 * np.round(rng.standard_normal(SECONDS), 3)
        series.append(make_series("node_memory_MemAvailable_bytes", node, times, free))
        series.append(make_series("node_memory_MemTotal_bytes", node, times, np.full(SECONDS, 1e12)))
        idle = make_series("node_cpu_seconds_total", node | {"cpu": "0", "mode": "idle"}, times, 0.25 * (times - NOW))
        series.append(idle)
    return series


def fetched(url: str, task: Task, from_at: float = NOW, to_at: float = NOW + SECONDS - 1, **settings: Any) -> RawTask:
    membership = settings.pop("membership", MembershipSettings())
    metrics = settings.pop("metrics", None)
    store = StoreSettings(url=url, retries=1, **settings)
    with StoreClient(store) as client:
        source = PrometheusSource(client, load_catalogue(), store, membership, metrics)
        return source.fetch_raw(task, from_at, to_at)


def by_name(raw: RawTask, name: str) -> RawMetric:
    return next(metric for metric in raw.metrics if metric.metric == name)


def one(metric: RawMetric, machine: str, device: str | None) -> tuple[Any, Any]:
    i = list(zip(metric.machines, metric.devices, strict=True)).index((machine, device))
    part = slice(metric.offsets[i], metric.offsets[i + 1])
    return metric.times[part], metric.values[part]


@pytest.fixture(params=["prometheus_with", "victoria_metrics_with"])
def store_with(request: pytest.FixtureRequest) -> Build:
    start: Build = request.getfixturevalue(request.param)
    return start


def test_what_was_written_comes_back_to_the_sample(
    store_with: Build, make_series: Build, request: pytest.FixtureRequest
) -> None:
    # VictoriaMetrics keeps twelve digits; Prometheus every bit.
    rtol = 1e-11 if "victoria" in request.node.name else 0.0
    series = recorded(make_series)
    url = store_with(series).url
    with StoreClient(StoreSettings(url=url)) as client:
        task = find_task("llm-7", Settings(), client, load_catalogue(), NOW, NOW + SECONDS)
        with pytest.raises(MembershipError, match=r'no task "llm-8".*did you mean "llm-7"'):
            find_task("llm-8", Settings(), client, load_catalogue(), NOW, NOW + SECONDS)
    assert task.matcher == 'task="llm-7"'
    raw = fetched(url, task)
    assert raw.machines == tuple(MACHINES)
    assert raw.warnings == ()
    assert {metric.metric for metric in raw.metrics} == {*GAUGES, "memory_usage", "cpu_usage"}
    assert "gpu_temperature" in raw.metrics_absent
    for metric, name in GAUGES.items():
        got = by_name(raw, metric)
        assert got.interval_seconds == 1.0
        assert len(got.machines) == 12
        for stored in (item for item in series if item.name == name):
            times, values = one(got, stored.labels["Hostname"], f"gpu{stored.labels['gpu']}")
            np.testing.assert_array_equal(times, stored.times)
            np.testing.assert_allclose(values, stored.values, rtol=rtol, atol=0.0)
    memory = next(item for item in series if item.name == "node_memory_MemAvailable_bytes")
    np.testing.assert_allclose(
        one(by_name(raw, "memory_usage"), "gpu-00", None)[1], 100 * (1 - memory.values / 1e12), rtol=1e-12
    )
    _, busy = one(by_name(raw, "cpu_usage"), "gpu-03", None)
    np.testing.assert_allclose(busy, 75.0, rtol=1e-9)
    assert len(busy) >= SECONDS - 4


def test_slices_leave_no_seam(store_with: Build, make_series: Build) -> None:
    url = store_with(recorded(make_series)).url
    task = Task("llm-7", matcher='task="llm-7"')
    whole = fetched(url, task, metrics=["gpu_power_draw"])
    cut = fetched(url, task, metrics=["gpu_power_draw"], max_points=17)
    np.testing.assert_array_equal(by_name(whole, "gpu_power_draw").times, by_name(cut, "gpu_power_draw").times)
    np.testing.assert_array_equal(by_name(whole, "gpu_power_draw").values, by_name(cut, "gpu_power_draw").values)


def test_a_static_list_of_machines_finds_them_by_label_alone(prometheus_with: Build, make_series: Build) -> None:
    url = prometheus_with(recorded(make_series)).url
    settings = Settings(tasks=(TaskSettings(name="mine", machines=("gpu-04", "gpu-01", "gpu-99")),))
    with StoreClient(StoreSettings(url=url)) as client:
        task = find_task("mine", settings, client, load_catalogue(), NOW, NOW + SECONDS)
    raw = fetched(url, task, metrics=["gpu_power_draw", "memory_usage"])
    assert raw.machines == ("gpu-01", "gpu-04", "gpu-99")
    assert {machine for metric in raw.metrics for machine in metric.machines} == {"gpu-01", "gpu-04"}
    assert [text for text in raw.warnings if "no series at all" in text] == [
        "members that have no series at all: gpu-99"
    ]


def test_a_stopped_machine_is_not_carried_forward(store_with: Build, make_series: Build) -> None:
    series = recorded(make_series)
    stop = 60
    cut = [
        make_series(item.name, item.labels, item.times[:stop], item.values[:stop])
        if item.labels["instance"].startswith("gpu-02")
        else item
        for item in series
    ]
    raw = fetched(store_with(cut).url, Task("llm-7", matcher='task="llm-7"'))
    for metric in raw.metrics:
        times, _ = one(metric, "gpu-02", "gpu0" if metric.metric in GAUGES else None)
        # The window of one and a half intervals may show the last sample once more.
        assert NOW + stop - 4 <= times[-1] <= NOW + stop
    _, busy = one(by_name(raw, "cpu_usage"), "gpu-02", None)
    np.testing.assert_allclose(busy, 75.0, rtol=1e-9)
    assert any(text.startswith("machine gpu-02 stopped reporting cpu_usage, gpu_power_draw") for text in raw.warnings)


def test_a_counter_that_restarts_gives_no_spike_and_is_told(store_with: Build, make_series: Build) -> None:
    times = NOW + np.arange(SECONDS)
    series = []
    for i in range(3):
        total = 8.1e12 + 2.5e9 * (times - NOW)
        if i == 1:
            total[60:] = 1.1e8 + 2.5e9 * np.arange(SECONDS - 60)
        for way in ("receive", "transmit"):
            labels = {"instance": f"n{i}:9100", "device": "eth0", "task": "t"}
            series.append(make_series(f"node_network_{way}_bytes_total", labels, times, total))
    raw = fetched(store_with(series).url, Task("t", matcher='task="t"'), metrics=["tcp_throughput"])
    metric = by_name(raw, "tcp_throughput")
    assert metric.values.min() > 0.0
    assert metric.values.max() < 5.0e9 * 1.01
    np.testing.assert_allclose(one(metric, "n0", None)[1], 5.0e9, rtol=1e-6)
    assert raw.warnings == ("machine n1: the counters of tcp_throughput started again from zero: a restart?",)


def test_a_slower_sampling_is_measured(store_with: Build, make_series: Build) -> None:
    times = NOW + 3 + 15 * np.arange(40)
    series = [
        make_series(
            "DCGM_FI_DEV_GPU_TEMP", {"instance": f"m{i}:9400", "gpu": "0", "task": "t"}, times, 60.0 + times % 7
        )
        for i in range(3)
    ]
    raw = fetched(store_with(series).url, Task("t", matcher='task="t"'), NOW, NOW + 600)
    metric = by_name(raw, "gpu_temperature")
    assert metric.interval_seconds == 15.0
    at, values = one(metric, "m1", "gpu0")
    np.testing.assert_array_equal(np.diff(at), 15.0)
    np.testing.assert_array_equal(values, 60.0 + times % 7)


def test_a_range_the_store_refuses_is_halved(prometheus_with: Build, make_series: Build) -> None:
    rng = np.random.default_rng(1)
    times = NOW + np.arange(0, 3000)
    series = [
        make_series("DCGM_FI_DEV_GPU_TEMP", {"instance": f"m{i}", "gpu": "0", "task": "t"}, times, rng.random(3000))
        for i in range(3)
    ]
    url = prometheus_with(series).url
    # Ten samples per second: five times more points than Prometheus gives at once, all in one slice at first.
    raw = fetched(
        url,
        Task("t", matcher='task="t"'),
        NOW,
        NOW + 2999,
        interval_seconds=0.1,
        max_points=100_000,
        metrics=["gpu_temperature"],
    )
    at, _ = one(by_name(raw, "gpu_temperature"), "m0", "gpu0")
    np.testing.assert_allclose(np.diff(np.unique(np.floor(at))), 1.0)
    assert len(np.unique(at)) == len(at)


def test_one_name_in_two_clusters_is_refused(prometheus_with: Build, make_series: Build) -> None:
    times = NOW + np.arange(30)
    series = [
        make_series(
            "DCGM_FI_DEV_GPU_TEMP", {"instance": "n1", "gpu": "0", "cluster": c, "task": "t"}, times, times * 0 + v
        )
        for c, v in (("east", 60.0), ("west", 30.0))
    ]
    url = prometheus_with(series).url
    with pytest.raises(StoreError, match=r'n1 is in more than one cluster \(east, west\).*cluster="east"'):
        fetched(url, Task("t", matcher='task="t"'), NOW, NOW + 29)
    raw = fetched(url, Task("t", matcher='task="t",cluster="west"'), NOW, NOW + 29)
    assert set(by_name(raw, "gpu_temperature").values) == {30.0}


def test_real_node_exporters_give_every_machine_metric(node_exporter: Build, prometheus_scraping: Build) -> None:
    addresses = [node_exporter().url.removeprefix("http://") for _ in range(3)]
    server = prometheus_scraping({address: f"host-{i}:9100" for i, address in enumerate(addresses)})
    time.sleep(14)
    now = time.time()
    wanted = ["cpu_usage", "memory_usage", "disk_usage", "disk_io", "tcp_throughput"]
    raw = fetched(server.url, Task("llm", matcher='task="llm"'), now - 12, now - 1, metrics=wanted)
    assert raw.machines == ("host-0", "host-1", "host-2")
    for metric in raw.metrics:
        assert metric.machines == raw.machines, metric.metric
        assert metric.devices == (None, None, None)
        assert metric.interval_seconds == 1.0
        assert np.diff(metric.offsets).min() >= 3
        spec = raw.specs[metric.metric]
        assert metric.values.min() >= (spec.lower or 0.0)
        assert metric.values.max() <= (spec.upper or np.inf)
    # Block devices and outer network devices may be absent in a container; the rest never is.
    assert {"cpu_usage", "memory_usage"} <= {metric.metric for metric in raw.metrics}
    assert not [text for text in raw.warnings if "several series" in text]
