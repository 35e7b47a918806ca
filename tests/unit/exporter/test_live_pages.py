"""What the exporters of a simulated task show, at any second and past the simulated stretch."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from trainminder.catalogue import load_catalogue
from trainminder.exporter.live import LiveTask
from trainminder.exporter.page import metrics_page
from trainminder.simulate import ClusterSpec, Fault, simulate_task
from trainminder.types import FloatArray

SPEC = ClusterSpec(
    machines=3, devices_per_machine=2, seed=4, duration_seconds=60, bursts_per_hour=0, period_seconds=2.0
)
BEGUN = 1_764_580_000.0
MACHINE = "machine-0001"
Page = dict[str, float]


@contextmanager
def live(fault: Fault | None = None, spec: ClusterSpec = SPEC) -> Iterator[LiveTask]:
    task = LiveTask(spec, fault, load_catalogue())
    yield task
    task.close()


def page_of(task: LiveTask, second: float, machine: str = MACHINE) -> Page:
    """Every series of a page, by its name with the labels that tell devices, CPUs and ports apart."""
    text = metrics_page(machine, task.read(machine, second), second, BEGUN)
    shown: Page = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()  # type: ignore[union-attr]
            kept = re.findall(r'(?:gpu|device|cpu|mode|port|mountpoint)="([^"]*)"', labels or "")
            shown[" ".join([name, *kept])] = float(value)
    return shown


def total(page: Page, series: str) -> float:
    return sum(value for name, value in page.items() if re.fullmatch(series, name))


def samples_of(metric: str, spec: ClusterSpec = SPEC) -> tuple[FloatArray, FloatArray]:
    """Instants (from the start) and values of the machine's (first) series, as simulated, none lost."""
    whole = dataclasses.replace(spec, missing_ratio=0, gaps_per_hour=0, metrics=(metric,))
    (found,) = simulate_task(whole, specs=load_catalogue())[0].metrics
    first = found.machines.index(MACHINE)
    part = slice(found.offsets[first], found.offsets[first + 1])
    return found.times[part] - spec.start_at, found.values[part]


@pytest.mark.parametrize(
    ("metric", "series"),
    [
        ("gpu_power_draw", "DCGM_FI_DEV_POWER_USAGE 0 nvidia0"),
        ("gpu_tensor_activity", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE 0 nvidia0"),
    ],
)
def test_a_gauge_shows_the_newest_sample(metric: str, series: str) -> None:
    times, values = samples_of(metric)
    with live() as task:
        for place in (0, 20, 59):
            assert page_of(task, float(times[place]) + 1e-6)[series] == pytest.approx(values[place], rel=1e-12)


@pytest.mark.parametrize(
    ("metric", "rises"),
    [
        ("cpu_usage", lambda page: 100 / 0.75 / 8 * total(page, r"node_cpu_seconds_total \d user")),
        ("disk_io", lambda page: total(page, "node_disk_io_time_seconds_total nvme0n1")),
        ("tcp_throughput", lambda page: total(page, "node_network_(receive|transmit)_bytes_total eth0")),
        ("rdma_throughput", lambda page: total(page, "node_infiniband_port_data_.*")),
        ("pfc_tx_packet_rate", lambda page: total(page, r"node_ethtool_transmitted_prio\d_pause .*")),
    ],
)
def test_the_rise_of_a_counter_is_the_simulated_rate(metric: str, rises: Callable[[Page], float]) -> None:
    times, values = samples_of(metric)
    with live() as task:
        first, last = (rises(page_of(task, float(times[place]))) for place in (9, 49))
    expected = (values[10:50] * np.diff(times[9:50])).sum()
    assert last - first == pytest.approx(expected, rel=1e-6, abs=16)


def test_the_modes_of_a_cpu_share_the_time_there_was() -> None:
    with live() as task:
        page = page_of(task, 33.25)
    spent = [value for name, value in page.items() if name.startswith("node_cpu_seconds_total 3 ")]
    assert len(spent) == 8
    assert sum(spent) == pytest.approx(33.25)


def test_labels_and_types_are_those_of_the_exporters() -> None:
    with live() as task:
        text = metrics_page(MACHINE, task.read(MACHINE, 5.0), 5.0, BEGUN)
    assert "# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n" in text
    assert "# TYPE node_cpu_seconds_total counter\n" in text
    assert "# TYPE DCGM_FI_DEV_PCIE_REPLAY_COUNTER counter\n" in text
    assert (
        'DCGM_FI_DEV_XID_ERRORS{gpu="1",UUID="GPU-machine-0001-1",pci_bus_id="00000000:43:00.0",device="nvidia1",'
        'modelName="NVIDIA H100 80GB HBM3",Hostname="machine-0001"} 0\n'
    ) in text
    assert 'node_filesystem_size_bytes{device="/dev/nvme0n1p2",fstype="ext4",mountpoint="/"} 7680000000000\n' in text


def test_the_task_goes_on_past_what_was_simulated_first() -> None:
    with live(Fault(1, "clock_drop", 0.0, device=0)) as task:
        seconds = [0.0, 20.0, 59.9, 60.1, 90.0, 121.5, 200.0, 260.0]
        pages = [page_of(task, second) for second in seconds]
        other = page_of(task, 260.0, "machine-0002")
    assert all(page.keys() == pages[0].keys() for page in pages)
    counters = [name for name in pages[0] if "_total" in name or "TOTAL" in name or "VIOLATION" in name]
    for name in counters:
        assert (np.diff([page[name] for page in pages]) >= 0).all(), name
    energy = np.array([page["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION 1 nvidia1"] for page in pages]) / 1e3
    watts = np.diff(energy) / np.diff(seconds)
    assert watts == pytest.approx(watts[1], rel=0.5)
    assert pages[-1]["DCGM_FI_DEV_SM_CLOCK 0 nvidia0"] < 0.7 * other["DCGM_FI_DEV_SM_CLOCK 0 nvidia0"]


def test_a_later_stretch_has_noise_of_its_own_and_the_same_permanent_differences() -> None:
    with live() as task:
        stretches = [
            np.array([page_of(task, begin + second)["DCGM_FI_DEV_GPU_TEMP 0 nvidia0"] for second in range(10, 60)])
            for begin in (0.0, 60.0, 121.0)
        ]
    assert stretches[1].tolist() != stretches[0].tolist()
    assert stretches[2].tolist() != stretches[1].tolist()
    assert np.ptp([stretch.mean() for stretch in stretches]) < 2.0


def test_an_xid_stays_shown_in_later_stretches() -> None:
    for seed in range(20):
        spec = dataclasses.replace(SPEC, seed=seed)
        with live(Fault(1, "ecc_error", 10.0, device=0), spec) as task:
            series = "DCGM_FI_DEV_XID_ERRORS 0 nvidia0"
            before, after, later = (page_of(task, second).get(series) for second in (5.0, 40.0, 60.5))
        if after != before:
            assert later == after
            return
    pytest.fail("no seed showed an Xid")


def test_a_machine_out_of_reach_shows_nothing_and_the_others_do() -> None:
    with live(Fault(1, "machine_unreachable", 20.0)) as task:
        assert task.read(MACHINE, 10.0)
        assert task.read(MACHINE, 30.0) == {}
        assert task.read(MACHINE, 70.0) == {}
        assert task.read("machine-0000", 30.0).keys() == task.read("machine-0000", 10.0).keys()


def test_a_device_off_the_bus_is_missing_from_the_page() -> None:
    with live(Fault(1, "gpu_card_drop", 20.0, device=1)) as task:
        before, after = (task.read(MACHINE, second)["gpu_power_draw"] for second in (10.0, 30.0))
    assert (set(before), set(after)) == ({"gpu0", "gpu1"}, {"gpu0"})
