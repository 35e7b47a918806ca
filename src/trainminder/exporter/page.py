"""Pages in the text format of Prometheus, under the names and labels of dcgm-exporter and node_exporter.

One page holds what both exporters of a machine would show. Which canonical metric stands behind which family, and
how it is split over CPUs, ports and directions, is the table below.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from trainminder.exporter.live import Reading

__all__ = ["metrics_page"]

Readings = Mapping[str, Mapping[str | None, Reading]]
Labels = Mapping[str, str]
Sample = tuple[Labels, float]

CPUS = 8
PORTS = tuple(f"mlx5_{number}" for number in range(4))
PAUSE_PRIORITY = 3
MEMORY_BYTES = 2 * 1024.0**4
DISK_BYTES = 7.68e12
DEVICE_MEMORY_MIB = 81_559.0
#: How the busy part of a CPU's time is spent.
CPU_MODES: Mapping[str, float] = {
    "iowait": 0.03, "irq": 0.0, "nice": 0.0, "softirq": 0.02, "steal": 0.0, "system": 0.2, "user": 0.75,
}  # fmt: skip

#: Bus numbers of the eight devices of a usual board.
_BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)


@dataclass(frozen=True, slots=True)
class _DeviceFamily:
    """A family of dcgm-exporter: ``scale`` times a canonical metric or hardware counter, or its ``total`` over time.

    ``most``: for what is left of a whole, the value is taken from this.
    """

    name: str
    metric: str
    help: str
    scale: float = 1.0
    is_counter: bool = False
    is_total: bool = False
    most: float | None = None


_GAUGES = (
    ("SM_CLOCK", "gpu_sm_clock", "SM clock frequency (in MHz)."),
    ("GPU_TEMP", "gpu_temperature", "GPU temperature (in C)."),
    ("POWER_USAGE", "gpu_power_draw", "Power draw (in W)."),
    ("GPU_UTIL", "gpu_duty_cycle", "GPU utilization (in %)."),
    ("FB_USED", "gpu_memory_used", "Framebuffer memory used (in MiB)."),
    ("XID_ERRORS", "xid_code", "Value of the last XID error encountered."),
    ("ROW_REMAP_FAILURE", "row_remap_failed", "Whether remapping of rows has failed."),
    ("PCIE_LINK_GEN", "pcie_link_gen", "PCIe generation in use."),
    ("PCIE_LINK_WIDTH", "pcie_link_width", "PCIe lanes in use."),
    ("CLOCK_THROTTLE_REASONS", "clock_throttle_reasons", "Bit mask of what holds the clocks down."),
)
_COUNTERS = (
    ("ECC_SBE_VOL_TOTAL", "ecc_correctable", "Total number of single-bit volatile ECC errors."),
    ("ECC_DBE_VOL_TOTAL", "ecc_uncorrectable", "Total number of double-bit volatile ECC errors."),
    ("PCIE_REPLAY_COUNTER", "pcie_replay", "Total number of PCIe retries."),
    ("NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "nvlink_crc_errors", "Total number of NVLink flow-control CRC errors."),
    ("NVLINK_REPLAY_ERROR_COUNT_TOTAL", "nvlink_replay_errors", "Total number of NVLink retries."),
    ("THERMAL_VIOLATION", "thermal_violation", "Throttling duration due to thermal constraints (in us)."),
    ("POWER_VIOLATION", "power_violation", "Throttling duration due to power constraints (in us)."),
)
_PROFILING = (
    ("GR_ENGINE_ACTIVE", "gpu_graphics_activity", "Ratio of time the graphics engine is active.", 1.0),
    ("SM_ACTIVE", "gpu_sm_activity", "Ratio of cycles an SM has at least 1 warp assigned.", 1.0),
    ("PIPE_TENSOR_ACTIVE", "gpu_tensor_activity", "Ratio of cycles the tensor pipe is active.", 1.0),
    ("PIPE_FP16_ACTIVE", "gpu_fp_activity", "Ratio of cycles the fp16 pipes are active.", 1.0),
    ("DRAM_ACTIVE", "gpu_memory_bandwidth", "Ratio of cycles the device memory interface is active.", 1.0),
    # Each way has half of the traffic.
    ("PCIE_TX_BYTES", "pcie_bandwidth", "Rate of bytes sent over PCIe.", 0.5),
    ("PCIE_RX_BYTES", "pcie_bandwidth", "Rate of bytes received over PCIe.", 0.5),
    ("NVLINK_TX_BYTES", "nvlink_bandwidth", "Rate of bytes sent over NVLink.", 0.5),
    ("NVLINK_RX_BYTES", "nvlink_bandwidth", "Rate of bytes received over NVLink.", 0.5),
)
_DEVICE_FAMILIES = (
    *(_DeviceFamily(f"DCGM_FI_DEV_{name}", metric, told) for name, metric, told in _GAUGES),
    _DeviceFamily(
        "DCGM_FI_DEV_FB_FREE", "gpu_memory_used", "Framebuffer memory free (in MiB).", most=DEVICE_MEMORY_MIB
    ),
    *(_DeviceFamily(f"DCGM_FI_DEV_{name}", metric, told, is_counter=True) for name, metric, told in _COUNTERS),
    _DeviceFamily(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "gpu_power_draw",
        "Total energy consumption since boot (in mJ).",
        scale=1e3,
        is_counter=True,
        is_total=True,
    ),
    *(_DeviceFamily(f"DCGM_FI_PROF_{name}", metric, told, scale) for name, metric, told, scale in _PROFILING),
)


def metrics_page(machine: str, readings: Readings, second: float, begun_at: float) -> str:
    """What a machine's exporters show.

    Args:
        readings: by metric and device, as ``LiveTask.read`` gives them.
        second: since the exporters started, at ``begun_at`` (Unix seconds), with all their counters at 0.
    """
    return "".join(_text(*family) for family in _families(machine, readings, second, begun_at))


Family = tuple[str, Literal["gauge", "counter"], str, list[Sample]]


def _families(machine: str, readings: Readings, second: float, begun_at: float) -> Iterator[Family]:
    yield "node_time_seconds", "gauge", "System time in seconds since epoch (1970).", [({}, begun_at + second)]
    yield "node_boot_time_seconds", "gauge", "Node boot time, in unixtime.", [({}, begun_at)]
    named = {"sysname": "Linux", "machine": "x86_64", "nodename": machine}
    yield "node_uname_info", "gauge", "Labeled system information as provided by the uname system call.", [(named, 1)]
    for build in (_cpu, _memory, _disk, _network, _rdma):
        yield from build(readings, second)
    for family in _DEVICE_FAMILIES:
        samples = [
            (_device_labels(machine, device), _device_value(family, reading))
            for device, reading in readings.get(family.metric, {}).items()
            if device is not None
        ]
        yield family.name, "counter" if family.is_counter else "gauge", family.help, samples


def _cpu(readings: Readings, second: float) -> Iterator[Family]:
    samples: list[Sample] = []
    for reading in _of_machine(readings, "cpu_usage"):
        busy = reading.total / 100
        modes = {"idle": second - busy} | {mode: share * busy for mode, share in CPU_MODES.items()}
        samples = [({"cpu": str(cpu), "mode": mode}, spent) for cpu in range(CPUS) for mode, spent in modes.items()]
    yield "node_cpu_seconds_total", "counter", "Seconds the CPUs spent in each mode.", samples


def _memory(readings: Readings, _: float) -> Iterator[Family]:
    for reading in _of_machine(readings, "memory_usage"):
        free = float(round(MEMORY_BYTES * (1 - reading.last / 100)))
        yield "node_memory_MemTotal_bytes", "gauge", "Memory information field MemTotal_bytes.", [({}, MEMORY_BYTES)]
        yield "node_memory_MemAvailable_bytes", "gauge", "Memory information field MemAvailable_bytes.", [({}, free)]
        rest = float(round(free * 0.4))
        yield "node_memory_MemFree_bytes", "gauge", "Memory information field MemFree_bytes.", [({}, rest)]


def _disk(readings: Readings, _: float) -> Iterator[Family]:
    io: list[Sample] = [({"device": "nvme0n1"}, reading.total) for reading in _of_machine(readings, "disk_io")]
    yield "node_disk_io_time_seconds_total", "counter", "Total seconds spent doing I/Os.", io
    for reading in _of_machine(readings, "disk_usage"):
        disk = {"device": "/dev/nvme0n1p2", "fstype": "ext4", "mountpoint": "/"}
        shared = {"device": "tmpfs", "fstype": "tmpfs", "mountpoint": "/dev/shm"}  # noqa: S108 - a label
        free = float(round(DISK_BYTES * (1 - reading.last / 100)))
        sizes: list[Sample] = [(disk, DISK_BYTES), (shared, MEMORY_BYTES / 2)]
        yield "node_filesystem_size_bytes", "gauge", "Filesystem size in bytes.", sizes
        left: list[Sample] = [(disk, free), (shared, MEMORY_BYTES / 4)]
        yield "node_filesystem_avail_bytes", "gauge", "Filesystem space available to non-root users in bytes.", left


def _network(readings: Readings, second: float) -> Iterator[Family]:
    for way in ("receive", "transmit"):
        samples: list[Sample] = [({"device": "lo"}, float(int(2e5 * second)))]
        samples += [({"device": "eth0"}, float(int(one.total / 2))) for one in _of_machine(readings, "tcp_throughput")]
        yield f"node_network_{way}_bytes_total", "counter", f"Network device statistic {way}_bytes.", samples


def _rdma(readings: Readings, _: float) -> Iterator[Family]:
    for way in ("received", "transmitted"):
        name = f"node_infiniband_port_data_{way}_bytes_total"
        share = 1 / (2 * len(PORTS))
        yield name, "counter", f"Number of data octets {way} on all links.", _ports(readings, "rdma_throughput", share)
    cnp = _ports(readings, "cnp_packet_rate", 1 / len(PORTS))
    yield "node_infiniband_rp_cnp_handled_total", "counter", "Congestion notification packets handled.", cnp
    for priority in range(8):
        share = 1.0 if priority == PAUSE_PRIORITY else 0.0
        samples: list[Sample] = [
            ({"device": "rdma0"}, float(int(share * reading.total)))
            for reading in _of_machine(readings, "pfc_tx_packet_rate")
        ]
        name = f"node_ethtool_transmitted_prio{priority}_pause"
        yield name, "counter", f"Network interface tx_prio{priority}_pause", samples
    for metric, name, told in (
        ("ib_symbol_errors", "symbol_error", "Minor link errors detected on one or more physical lanes."),
        ("ib_link_downed", "link_downed", "Times the link failed to recover from an error state and went down."),
        ("ib_link_error_recovery", "link_error_recovery", "Times the link successfully recovered from an error state."),
        ("rx_out_of_sequence", "out_of_sequence_packets_received", "Out of sequence packets received."),
    ):
        # The first port has them all.
        first = {"device": PORTS[0], "port": "1"}
        errors: list[Sample] = [(first, reading.last) for reading in _of_machine(readings, metric)]
        yield f"node_infiniband_{name}_total", "counter", told, errors


def _ports(readings: Readings, metric: str, share: float) -> list[Sample]:
    return [
        ({"device": device, "port": "1"}, float(int(share * reading.total)))
        for reading in _of_machine(readings, metric)
        for device in PORTS
    ]


def _of_machine(readings: Readings, metric: str) -> Iterable[Reading]:
    """The machine's own series of a metric: one, or none."""
    return (reading for device, reading in readings.get(metric, {}).items() if device is None)


def _device_value(family: _DeviceFamily, reading: Reading) -> float:
    value = reading.total if family.is_total else reading.last
    if family.most is not None:
        return max(0.0, family.most - value)
    return float(int(family.scale * value)) if family.is_counter else family.scale * value


def _device_labels(machine: str, device: str) -> Labels:
    number = int(device.removeprefix("gpu"))
    bus, domain = _BUSES[number % len(_BUSES)], number // len(_BUSES)
    return {
        "gpu": str(number),
        "UUID": f"GPU-{machine}-{number}",
        "pci_bus_id": f"{domain:08X}:{bus:02X}:00.0",
        "device": f"nvidia{number}",
        "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": machine,
    }


def _text(name: str, kind: str, told: str, samples: Iterable[Sample]) -> str:
    lines = []
    for labels, value in samples:
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        number = str(int(value)) if value == int(value) else repr(value)
        lines.append(f"{name}{{{inside}}} {number}\n" if inside else f"{name} {number}\n")
    return f"# HELP {name} {told}\n# TYPE {name} {kind}\n{''.join(lines)}" if lines else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
