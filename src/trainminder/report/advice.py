"""What to do next, by verdict and metric: commands that only look, never change anything."""

from __future__ import annotations

from trainminder.report import words
from trainminder.types import PassResult, Verdict

__all__ = ["next_steps"]

#: First word of a canonical metric -> what to look at on the machine itself (NVIDIA and Linux commands).
_LOOK: dict[str, str] = {
    "pcie": "PCIe link: nvidia-smi --query-gpu=index,pcie.link.gen.current,pcie.link.width.current --format=csv",
    "nvlink": "NVLink: nvidia-smi nvlink --status, and nvidia-smi nvlink --errorcounters",
    "gpu": "GPU health: nvidia-smi -q -d ECC,PERFORMANCE,TEMPERATURE,POWER",
    "pfc": "NIC: ethtool -S INTERFACE | grep -i pause, and the switch port it is plugged into",
    "cnp": "NIC: ethtool -S INTERFACE | grep -i cnp, and the switch port it is plugged into",
    "rdma": "RDMA ports: rdma link show, ibstat; link down or error counters rising",
    "tcp": "Network: ip -s link; errors and drops rising",
    "cpu": "Processes: top; is a training process gone, or something else running",
    "memory": "Host memory: free -m, and dmesg -T | grep -i oom",
    "disk": "Disks: df -h and iostat -x 1",
}


def next_steps(result: PassResult) -> list[str]:
    """Two to four steps, the most telling first, as sentences."""
    if result.status == "faulty" and result.verdicts:
        return _for_faulty(result.verdicts)
    if result.status == "unknown":
        return [
            "Unknown is not healthy: nothing was found out about this task. Remove the reason above, then look again.",
            "Check what can be seen: which metrics each machine has, how often they are sampled, and when they last came.",
            "Until then judge by other means: the task's own log, Xid messages (dmesg -T | grep -i xid), link states.",
        ]
    steps = [
        "If the task is slow or stuck all the same, look for a cause that strikes all machines alike: storage, "
        "network fabric, the code, the data.",
        "A fault shows only in metrics that were judged: see the absent ones under Coverage.",
    ]
    if any(result.coverage.metrics_absent) or result.coverage.machines_seen < len(result.machines):
        return steps[::-1]
    return steps


def _for_faulty(verdicts: tuple[Verdict, ...]) -> list[str]:
    first = verdicts[0]
    name = words.machine_and_device(first.machine, first.device)
    steps = [
        f"On {words.plain(first.machine)}, look for hardware errors first: dmesg -T | grep -iE 'xid|nvlink|mce|pcie'."
    ]
    look = _LOOK.get(first.metric.partition("_")[0])
    if look:
        steps.append(f"{look}.")
    steps.append(f"If {name} is confirmed: save a checkpoint if you can, take the machine out, restart without it.")
    if len(verdicts) > 1:
        steps.append("Several machines stand out: check what they share (switch, rack, power) before taking any out.")
    return steps
