"""What makes metrics depart together, and how often a healthy machine does so: the only numbers learned beforehand.

Metrics of one cause move together whenever any of them does (power, clock and temperature; the processor and the disk
of a host), so that they count as one sign. Metrics of several causes are several signs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["CAUSES", "DECLARED", "DOWNWARDS", "REPORTING", "Cause", "cause_of"]


@dataclass(frozen=True, slots=True)
class Cause:
    """Metrics that one thing moves, and how often it moves them on a healthy machine.

    A healthy machine is expected to depart for longer than ``D`` seconds
    ``per_day * (1 + D / bend_seconds) ** -power`` times a day. A power of 2 to 3 is a heavy tail: what
    lasts ten times longer is a hundred to a thousand times rarer, not impossible.
    ``is_silence``: whether it is that a machine ceased to report.
    """

    name: str
    metrics: tuple[str, ...] = ()
    per_day: float = 2.0
    bend_seconds: float = 15.0
    power: float = 2.0
    is_silence: bool = False

    @property
    def sign(self) -> str:
        """The first of its metrics, or its own name where it has none of its own."""
        return self.metrics[0] if self.metrics else self.name


#: A host runs other work than training (logging, backups, scheduled jobs of minutes): twenty times a day is ordinary.
#: A host that does less than its peers has lost what the training does there.
#: What only the training uses departs a few times a day, for seconds.
CAUSES: Mapping[str, Cause] = {
    cause.name: cause
    for cause in (
        Cause(
            "host",
            ("cpu_usage", "memory_usage", "disk_usage", "disk_io", "tcp_throughput"),
            per_day=20.0,
            bend_seconds=60.0,
            power=3.0,
        ),
        Cause("lost host work", per_day=5.0, bend_seconds=30.0, power=2.5),
        Cause("network", ("rdma_throughput", "pfc_tx_packet_rate", "cnp_packet_rate")),
        Cause(
            "work",
            (
                "gpu_duty_cycle",
                "gpu_graphics_activity",
                "gpu_tensor_activity",
                "gpu_sm_activity",
                "gpu_fp_activity",
                "gpu_memory_bandwidth",
            ),
        ),
        Cause("heat", ("gpu_power_draw", "gpu_sm_clock", "gpu_temperature")),
        Cause("gpu memory", ("gpu_memory_used",)),
        Cause("pcie", ("pcie_bandwidth",)),
        Cause("nvlink", ("nvlink_bandwidth",)),
    )
}
#: What moves a declared metric is not known: all of them count as one sign.
DECLARED = Cause("declared")
#: A machine of which most series cease. Machines may leave a task for good reasons.
REPORTING = Cause("reporting", per_day=5.0, bend_seconds=30.0, power=3.0, is_silence=True)

#: Where a metric of the first departs downwards, it counts for the second.
DOWNWARDS = {"host": "lost host work"}

_BY_METRIC = {metric: cause for cause in CAUSES.values() for metric in cause.metrics}


def cause_of(metric: str) -> Cause:
    """The cause that a metric belongs to."""
    return _BY_METRIC.get(metric, DECLARED)
