"""What to do next, by verdict and metric: every command only looks, none changes anything."""

from __future__ import annotations

from trainminder import wording
from trainminder.report.evidence import is_silent, metric_signs
from trainminder.types import PassResult, Verdict

__all__ = ["next_steps"]

#: First word of a canonical metric -> what to look at on the machine itself, and with what (NVIDIA and Linux).
_LOOK: dict[str, tuple[str, str]] = {
    "pcie": (
        "Has the PCIe link fallen to a lower generation or width?",
        "nvidia-smi --query-gpu=index,pcie.link.gen.current,pcie.link.width.current --format=csv",
    ),
    "nvlink": ("Are NVLink links down, or their errors rising?", "nvidia-smi nvlink --status"),
    "gpu": ("Are there ECC errors, or is a GPU throttled?", "nvidia-smi -q -d ECC,PERFORMANCE,TEMPERATURE,POWER"),
    "pfc": ("Is the NIC sending pause frames? Check its switch port too.", "ethtool -S INTERFACE | grep -i pause"),
    "cnp": ("Is the NIC congested? Check its switch port too.", "ethtool -S INTERFACE | grep -i cnp"),
    "rdma": ("Is an RDMA port down?", "rdma link show"),
    "tcp": ("Are network errors or drops rising?", "ip -s link"),
    "cpu": ("Is a training process gone, or something else running?", "top -b -n 1 | head -20"),
    "memory": ("Has the host run out of memory?", "dmesg -T | grep -i oom"),
    "disk": ("Is a disk full or slow?", "df -h"),
}

#: Things to look at on the machine, at most; and the weight from which on a metric beside the first is worth a look.
MOST_LOOKS, SHARE_TO_LOOK = 2, 0.15


def next_steps(result: PassResult) -> list[tuple[str, str]]:
    """Two to four steps, the most telling first: a sentence and the command that goes with it, or ""."""
    if result.status == "faulty" and result.verdicts:
        return _for_faulty(result.verdicts)
    if result.status == "unknown":
        return [
            (
                "Unknown is not healthy: nothing was found out. Remove the reason above and look again.",
                "",
            ),
            ("Check which metrics each machine has, how often they are sampled, and when the last sample came.", ""),
            (
                "Until then, judge by the task's own log, by link states, and on each machine by",
                "dmesg -T | grep -i xid",
            ),
        ]
    steps = [
        (
            "If the task is slow or stuck all the same, look for what strikes all machines alike: storage, network "
            "fabric, code, data.",
            "",
        )
    ]
    if result.coverage.machines_seen < len(result.machines):
        steps.insert(0, ("Look at the machines that were not seen: they are unknown, not healthy (see Coverage).", ""))
    if result.coverage.metrics_absent:
        steps.append(("A fault may show only in a metric that is absent: see Coverage.", ""))
    return steps


def _for_faulty(verdicts: tuple[Verdict, ...]) -> list[tuple[str, str]]:
    first = verdicts[0]
    machine = wording.plain(first.machine)
    steps = [(f"On {machine}, look for hardware errors:", "dmesg -T | grep -iE 'xid|nvlink|mce|pcie'")]
    if is_silent(first):
        steps.insert(0, (f"Does {machine} still answer, and do its exporters still run?", "ping -c 3 MACHINE"))
    # What leads a verdict may be an effect: a slow PCIe link fills the NIC's buffer.
    metrics = [first.metric, *(sign.metric for sign in metric_signs(first)[0] if (sign.weight or 0.0) >= SHARE_TO_LOOK)]
    looks = [_LOOK[kind] for kind in dict.fromkeys(metric.partition("_")[0] for metric in metrics) if kind in _LOOK]
    steps += looks[: MOST_LOOKS - (len(steps) - 1)]
    if len({verdict.machine for verdict in verdicts}) > 1:
        steps.append(("Check what the machines share (switch, rack, power) before taking any out.", ""))
    else:
        steps.append((f"If that confirms it: take {machine} out and restart the task without it.", ""))
    return steps
