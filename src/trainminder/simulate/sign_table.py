"""What each fault leaves in counters and logs, and what healthy machines leave there: data, nothing that draws.

Kinds, codes and shapes of messages are those of the NVIDIA driver, the Linux kernel, mlx5, PyTorch and HDFS; how
often and how much is ours. A template's fields are filled by ``signs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from trainminder.types import Level

__all__ = [
    "AER_CORRECTED",
    "APPLICATION_XIDS",
    "CHATTER",
    "CLEANUP_XID",
    "COUNTERS",
    "SIGNS",
    "STICKY_XIDS",
    "WATCHDOG",
    "Change",
    "CounterModel",
    "Line",
    "SignSet",
]

How = Literal["rate", "jump", "set", "bits", "latch"]
When = Literal["begin", "end", "late"]

SW_POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, HW_POWER_BRAKE = 0x4, 0x8, 0x20, 0x40, 0x80


@dataclass(frozen=True, slots=True)
class CounterModel:
    """One hardware counter of a healthy machine.

    ``healthy``: value of a gauge. A counter begins at 0 or, on ``used`` of its series, at about ``begins``; it
    rises ``per_hour`` times an hour and series, by about ``step``.
    """

    level: Level
    is_gauge: bool = False
    healthy: float = 0.0
    used: float = 0.0
    begins: float = 0.0
    per_hour: float = 0.0
    step: float = 1.0


#: Violations count microseconds.
COUNTERS: Mapping[str, CounterModel] = {
    "xid_code": CounterModel("device", is_gauge=True),
    "ecc_uncorrectable": CounterModel("device", used=0.01, begins=1),
    "ecc_correctable": CounterModel("device", used=0.15, begins=4, per_hour=0.05),
    "row_remap_failed": CounterModel("device", is_gauge=True),
    "pcie_replay": CounterModel("device", used=0.5, begins=40, per_hour=0.3, step=2),
    "pcie_link_gen": CounterModel("device", is_gauge=True, healthy=5),
    "pcie_link_width": CounterModel("device", is_gauge=True, healthy=16),
    "nvlink_crc_errors": CounterModel("device", used=0.1, begins=5, per_hour=0.02),
    "nvlink_replay_errors": CounterModel("device", used=0.2, begins=10, per_hour=0.05),
    "clock_throttle_reasons": CounterModel("device", is_gauge=True),
    "thermal_violation": CounterModel("device", used=0.1, begins=2e6, per_hour=0.01, step=3e5),
    "power_violation": CounterModel("device", used=0.9, begins=5e9),
    "ib_symbol_errors": CounterModel("machine", used=0.3, begins=20, per_hour=0.3, step=3),
    "ib_link_downed": CounterModel("machine", used=0.3, begins=1),
    "ib_link_error_recovery": CounterModel("machine", used=0.2, begins=1, per_hour=0.01),
    "rx_out_of_sequence": CounterModel("machine", used=0.9, begins=1e4, per_hour=20, step=30),
}


@dataclass(frozen=True, slots=True)
class Line:
    """A message.

    ``text`` may hold several lines, which the kernel writes at once.
    ``when``: *begin* and *end* of each episode of the fault, or *late*, in the last tenth of the whole fault.
    ``delay``: the range of seconds after that. ``every``: repeated after about so many seconds while the episode lasts.
    ``xid``: the code that the device's ``xid_code`` shows from then on.
    """

    source: str
    text: str
    chance: float = 1.0
    when: When = "begin"
    delay: tuple[float, float] = (0.0, 2.0)
    every: float | None = None
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """How a counter changes: by ``rate`` a second at full strength, or by one ``jump``; a gauge is ``set``, or has
    ``bits`` added, while the fault lasts, or is latched for good.
    """

    counter: str
    how: How
    amount: float
    chance: float = 1.0


@dataclass(frozen=True, slots=True)
class SignSet:
    """One way in which a fault shows; of several, each is drawn with its share of the weights."""

    lines: tuple[Line, ...] = ()
    changes: tuple[Change, ...] = ()
    weight: float = 1.0


def _xid(
    code: int, text: str, chance: float = 1.0, delay: tuple[float, float] = (0.0, 0.5), *, of_process: bool = True
) -> Line:
    process = "pid={pid}, name=python3" if of_process else "pid='<unknown>', name=<unknown>"
    return Line("kernel", f"NVRM: Xid (PCI:{{pci}}): {code}, {process}, {text}", chance, delay=delay, xid=code)


def _kernel(
    text: str, chance: float = 1.0, delay: tuple[float, float] = (0.0, 2.0), every: float | None = None
) -> Line:
    return Line("kernel", text, chance, delay=delay, every=every)


def _dcgm(text: str, chance: float) -> Line:
    return Line("dcgm", text, chance, delay=(10.0, 40.0))


def _cuda(text: str, chance: float) -> Line:
    return Line("training", f"[rank{{rank}}]: RuntimeError: CUDA error: {text}", chance, delay=(0.5, 5.0))


_CHANNEL = "Ch {channel:08x}"
_MMU_FAULT = (
    _CHANNEL + ", intr 00000000. MMU Fault: ENGINE GRAPHICS GPC{unit} GPCCLIENT_T1_{small} faulted @ 0x{address:x}. "
    "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
)
_WARP = "Graphics SM Warp Exception on (GPC {unit}, TPC {small}, SM 0): Out Of Range Address"
_DOUBLE_BIT = (
    "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition {unit}, "
    "subpartition {small}."
)
_REMAPPED = "Row Remapper: New row (0x{row:016x}) marked for remapping, reset gpu to activate."
_OFF_THE_BUS = "GPU has fallen off the bus."
_NEEDS_REBOOT = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
_NVLINK = "NVLink: fatal error detected on link {link}(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
_GSP = (
    "Timeout after 6s of waiting for RPC response from GPU{gpu} GSP! Expected function 76 (GSP_RM_CONTROL) "
    "(0x2080a026 0x{small:x})."
)
_LIMITED = (
    "mlx5_core {nic}: 126.024 Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x8 link at {port} "
    "(capable of 504.112 Gb/s with 32.0 GT/s PCIe x16 link)"
)
_COMPROMISED = "mlx5_core {nic}: poll_health:1133:(pid 0): device's health compromised - reached miss count"
_DOWN, _UP = "mlx5_core {nic} {interface}: Link down", "mlx5_core {nic} {interface}: Link up"
_PORT_ERROR = "{host}:{pid}:{pid2} [{gpu}] NCCL WARN NET/IB : {hca}:1 Got async event : port error"
_SLOW_READ = (
    "WARN hdfs.DFSClient: Slow ReadProcessor read fields took {slow}ms (threshold=30000ms); ack: seqno: {number} "
    "reply: SUCCESS downstreamAckTimeNanos: {row} flag: 0, targets: "
    "[DatanodeInfoWithStorage[10.0.{octet}.{small}:9866,DS-{row:08x},DISK]]"
)
_NO_DATANODE = (
    "WARN hdfs.DFSClient: Failed to connect to /10.0.{octet}.{small}:9866 for file /data/part-{number:05d}: "
    "java.net.SocketTimeoutException: 60000 millis timeout while waiting for channel to be ready for read"
)
_BLOCKED = "INFO: task {task}:{pid} blocked for more than 120 seconds."
_THERMAL = "There were thermal violations totaling {tenths:.1f} seconds for GPU {gpu}"
_PERF = "perf: interrupt took too long ({number} > 2500), lowering kernel.perf_event_max_sample_rate to 79750"
_OOM = "python3 invoked oom-killer: gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE|__GFP_COMP|__GFP_ZERO), order=0"
_IO_ERROR = "I/O error, dev nvme1n1, sector {row} op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2"
_EXT4 = (
    "EXT4-fs error (device nvme1n1): ext4_find_entry:1663: inode #{number}: comm python3: reading directory lblock 0"
)
_HOT_CPU = "CPU{core}: Core temperature is above threshold, cpu clock is throttled (total events = {number})"
_SXID = "nvidia-nvswitch{unit}: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link {link} LTSSM Fault Up"

AER_CORRECTED = """\
pcieport {port}: AER: Corrected error received: {pci}.0
nvidia {pci}.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)
nvidia {pci}.0:   device [10de:2330] error status/mask=00001000/0000e000
nvidia {pci}.0:    [12] Timeout"""

SIGNS: Mapping[str, tuple[SignSet, ...]] = {
    "ecc_error": (
        SignSet(
            (
                _xid(48, _DOUBLE_BIT, of_process=False),
                _xid(63, _REMAPPED, 0.8, (0.5, 3.0), of_process=False),
                _cuda("uncorrectable ECC error encountered", 0.7),
            ),
            (Change("ecc_uncorrectable", "jump", 2), Change("ecc_correctable", "rate", 0.02, 0.4)),
            weight=0.45,
        ),
        SignSet(
            (
                _xid(94, "Contained: SM (0x{unit:x}). RST: No, D-RST: No"),
                _xid(63, _REMAPPED, 0.8, (0.5, 3.0), of_process=False),
                _cuda("uncorrectable ECC error encountered", 0.7),
            ),
            (Change("ecc_uncorrectable", "jump", 1),),
            weight=0.3,
        ),
        SignSet(
            (
                _xid(95, "Uncontained: FBHUB. RST: Yes, D-RST: No", of_process=False),
                _xid(64, "Row Remapper: Failed to remap row (0x{row:016x}).", 0.5, (0.5, 3.0), of_process=False),
                _cuda("uncorrectable ECC error encountered", 0.7),
            ),
            (Change("ecc_uncorrectable", "jump", 4), Change("row_remap_failed", "latch", 1, 0.5)),
            weight=0.25,
        ),
    ),
    "pcie_downgrading": (
        SignSet(
            (_kernel(AER_CORRECTED, 0.8, every=15.0), _kernel(_LIMITED, 0.4)),
            (Change("pcie_replay", "rate", 25.0), Change("pcie_link_width", "set", 8, 0.6)),
            weight=0.6,
        ),
        SignSet(
            (_kernel(_LIMITED, 0.4),),
            (Change("pcie_link_gen", "set", 3), Change("pcie_replay", "rate", 3.0, 0.5)),
            weight=0.4,
        ),
    ),
    "nic_dropout": (
        SignSet(
            (_kernel(_COMPROMISED, 0.5), _kernel(_DOWN), Line("training", _PORT_ERROR, 0.7, delay=(0.5, 5.0))),
            (
                Change("ib_link_downed", "jump", 1),
                Change("ib_symbol_errors", "jump", 40, 0.3),
                Change("rx_out_of_sequence", "jump", 900, 0.5),
            ),
        ),
    ),
    "gpu_card_drop": (
        SignSet(
            (
                _xid(79, _OFF_THE_BUS, of_process=False),
                _kernel(f"NVRM: GPU {{pci}}.0: {_OFF_THE_BUS}", delay=(0.0, 0.5)),
                _xid(154, _NEEDS_REBOOT, 0.5, (0.5, 1.0), of_process=False),
                _kernel("pcieport {port}: pciehp: Slot({slot}): Link Down", 0.4, (0.0, 0.5)),
                _dcgm("GPU {gpu} is lost: reboot the machine to recover it", 0.5),
            ),
        ),
    ),
    "nvlink_error": (
        SignSet(
            (_xid(74, _NVLINK, of_process=False), _dcgm("GPU {gpu}'s NvLink link {link} is currently down", 0.5)),
            (Change("nvlink_crc_errors", "rate", 8.0), Change("nvlink_replay_errors", "rate", 3.0, 0.8)),
            weight=0.7,
        ),
        # A degraded link that the driver keeps: counters alone.
        SignSet((), (Change("nvlink_crc_errors", "rate", 30.0), Change("nvlink_replay_errors", "rate", 12.0)), 0.3),
    ),
    # Optics say little: half of these faults leave packets out of order at most.
    "aoc_error": (
        SignSet(
            (_kernel(_DOWN), Line("kernel", _UP, when="end", delay=(0.0, 1.0))),
            (
                Change("ib_symbol_errors", "rate", 12.0, 0.5),
                Change("ib_link_error_recovery", "rate", 0.05, 0.5),
                Change("ib_link_downed", "jump", 1, 0.6),
                Change("rx_out_of_sequence", "rate", 60.0, 0.6),
            ),
            weight=0.5,
        ),
        SignSet((), (Change("rx_out_of_sequence", "rate", 60.0, 0.6),), weight=0.5),
    ),
    "cuda_execution_error": (
        SignSet(
            (
                _xid(31, _MMU_FAULT),
                _xid(43, _CHANNEL, 0.4, (0.5, 2.0)),
                _cuda("an illegal memory access was encountered", 0.9),
            ),
            weight=0.45,
        ),
        SignSet(
            (_xid(13, _WARP), _xid(43, _CHANNEL, 0.6, (0.5, 2.0)), _cuda("unspecified launch failure", 0.9)),
            weight=0.35,
        ),
        SignSet((_xid(43, _CHANNEL), _cuda("device-side assert triggered", 0.9)), weight=0.2),
    ),
    "gpu_execution_error": (
        SignSet(
            (_xid(109, _CHANNEL + ", errorString CTX SWITCH TIMEOUT, Info 0x{small:x}c00c", delay=(3.0, 20.0)),),
            weight=0.4,
        ),
        SignSet((_xid(62, "{channel:04x}({row:08x}) 00000000 00000000", of_process=False),), weight=0.2),
        SignSet((_xid(119, _GSP, delay=(6.0, 12.0)),), weight=0.25),
        # A kernel that spins forever is in order for the driver.
        SignSet(weight=0.15),
    ),
    "hdfs_error": (
        SignSet(
            (
                Line("training", _SLOW_READ, 0.8, delay=(30.0, 45.0), every=60.0),
                Line("training", _NO_DATANODE, 0.6, delay=(60.0, 75.0), every=60.0),
            ),
            weight=0.6,
        ),
        SignSet(
            (
                _kernel("nfs: server storage-{unit} not responding, still trying", delay=(5.0, 60.0)),
                Line("kernel", "nfs: server storage-{unit} OK", 0.9, "end"),
                _kernel(_BLOCKED, 0.5, (120.0, 180.0), every=120.0),
            ),
            weight=0.4,
        ),
    ),
    # What became of the machine is seen by others alone.
    "machine_unreachable": (SignSet(),),
    "thermal_throttling": (
        SignSet(
            (_dcgm(_THERMAL, 0.6),),
            (
                Change("clock_throttle_reasons", "bits", SW_THERMAL | HW_THERMAL),
                Change("thermal_violation", "rate", 6e5),
            ),
            weight=0.7,
        ),
        SignSet((_dcgm(_THERMAL, 0.6),), (Change("clock_throttle_reasons", "bits", SW_THERMAL),), weight=0.3),
    ),
    "clock_drop": (
        SignSet(
            (_dcgm("Detected clock throttling due to HW slowdown on GPU {gpu}", 0.4),),
            (
                Change("clock_throttle_reasons", "bits", HW_SLOWDOWN | HW_POWER_BRAKE),
                Change("power_violation", "rate", 7e5, 0.6),
            ),
            weight=0.6,
        ),
        # Clocks left locked low: nothing throttles.
        SignSet(weight=0.4),
    ),
    "cpu_contention": (
        SignSet(
            (
                _kernel(_PERF, 0.4),
                _kernel("watchdog: BUG: soft lockup - CPU#{core} stuck for 22s! [{task}:{pid}]", 0.2, (22.0, 60.0)),
            ),
        ),
    ),
    "memory_leak": (SignSet((Line("kernel", _OOM, 0.3, "late"),)),),
    "slow_disk": (
        SignSet(
            (
                _kernel("nvme nvme1: I/O {number} QID {core} timeout, aborting", 0.7, (20.0, 60.0), every=60.0),
                _kernel(_BLOCKED, 0.5, (120.0, 180.0), every=120.0),
            ),
            weight=0.6,
        ),
        SignSet((_kernel(_IO_ERROR, 1.0, (1.0, 30.0), every=40.0), _kernel(_EXT4, 0.4, (5.0, 60.0))), weight=0.4),
    ),
    "switch_fault": (
        SignSet(
            (_kernel(_DOWN, 0.3), Line("kernel", _UP, 0.3, "end")),
            (Change("rx_out_of_sequence", "rate", 80.0, 0.8), Change("ib_symbol_errors", "rate", 2.0, 0.3)),
        ),
    ),
    "rack_fault": (
        SignSet(
            (_kernel(_HOT_CPU, 0.3),),
            (
                Change("clock_throttle_reasons", "bits", HW_POWER_BRAKE, 0.8),
                Change("power_violation", "rate", 6e5, 0.8),
            ),
        ),
    ),
    "nvlink_domain_fault": (
        SignSet(
            (_kernel(_SXID, 0.4), _xid(74, _NVLINK, 0.5, (0.0, 5.0), of_process=False)),
            (Change("nvlink_crc_errors", "rate", 15.0, 0.9), Change("nvlink_replay_errors", "rate", 6.0, 0.9)),
        ),
    ),
}

#: What a program's own bugs log on healthy machines.
APPLICATION_XIDS = (_xid(31, _MMU_FAULT), _xid(13, _WARP))
#: The driver tidies up after a process that was killed.
CLEANUP_XID = _xid(45, _CHANNEL)
#: Codes from before the data begin, which the gauge still shows.
STICKY_XIDS = (13, 31, 43, 45, 63, 94)

WATCHDOG = (
    "[rank{rank}]:[E{stamp} ProcessGroupNCCL.cpp:683] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={sequence}, OpType=ALLREDUCE, NumelIn={numel}, NumelOut={numel}, Timeout(ms)={timeout_ms}) "
    "ran for {ran_ms} milliseconds before timing out."
)

#: Source, text, times an hour and machine.
CHATTER = (
    ("cron", "(root) CMD (command -v debian-sa1 > /dev/null && debian-sa1 1 1)", 6.0),
    ("cron", "(root) CMD (cd / && run-parts --report /etc/cron.hourly)", 1.0),
    ("systemd", "Started session-{number}.scope - Session {number} of User ops.", 0.7),
    ("systemd", "logrotate.service: Deactivated successfully.", 0.2),
    ("kernel", _PERF, 0.02),
)
