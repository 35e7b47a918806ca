"""Learn the order in which metrics are asked, for each environment, from simulated faults.

python tools/learn_orders.py              write src/trainminder/orders.toml and docs/metric-order.md
python tools/learn_orders.py --to DIR     write both there
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from trainminder.bench.tasks import PLAIN, PROFILED, Simulated, draw_set, shows_in
from trainminder.catalogue import load_catalogue
from trainminder.prioritise import LabelledWindows, Priority, hold_out, label_windows, learn_priority
from trainminder.settings import DetectSettings

ROOT = Path(__file__).resolve().parents[1]

#: Seeds that no other set uses.
FIRST_SEED, DRAWN = 90_000, 3_000
#: Tasks of an environment, and the largest of them.
TASKS, MOST_MACHINES = 480, 64
#: Every fourth task is held out of the tree that the evidence is measured with.
HELD_OUT = 4
#: Orders are compared by how well their first so many metrics tell.
FIRST = (1, 3, 5)


@dataclass(frozen=True, slots=True)
class Environment:
    """What is exported, and how often. ``intervals``: of the drawn tasks that are taken (seconds)."""

    title: str
    intervals: tuple[int, ...]
    metrics: tuple[str, ...]
    interval_seconds: float


HOST = ("cpu_usage", "memory_usage", "disk_io", "tcp_throughput", "rdma_throughput")

ENVIRONMENTS: Mapping[str, Environment] = {
    "profiled": Environment(
        "NVIDIA, every second, with profiling fields and the NIC's PFC counters", (1,), PROFILED, 1
    ),
    "plain": Environment("NVIDIA, every 15 s, without profiling fields and PFC counters", (15, 30), PLAIN, 15),
    "amd": Environment(
        "AMD, every 15 s, as device-metrics-exporter and node_exporter give it",
        (15, 30),
        (
            *HOST, "gpu_duty_cycle", "gpu_power_draw", "gpu_tensor_activity", "gpu_memory_bandwidth",
            "gpu_sm_clock", "gpu_temperature", "gpu_memory_used", "pcie_bandwidth", "nvlink_bandwidth",
        ),
        15,
    ),
    "ascend": Environment(
        "Huawei Ascend, every 15 s, as npu-exporter and node_exporter give it",
        (15, 30),
        (
            *HOST, "gpu_duty_cycle", "gpu_power_draw", "gpu_sm_clock", "gpu_temperature", "gpu_memory_used",
            "nvlink_bandwidth",
        ),
        15,
    ),
}  # fmt: skip

INTRODUCTION = """# The order of metrics

<!-- Written by `python tools/learn_orders.py`: change the program, not this page. -->

Metrics are asked most fault-sensitive first, as the publication has it. Which one that is depends on what a cluster
exports and how often, so an order is learned and shipped for each environment. `detect.metric_order` chooses: `auto`
takes the environment whose metrics are most like the task's, if its order proved better than that of
[the catalogue](metrics.md), and keeps that otherwise; a name takes that environment's, `catalogue` the catalogue's, and
`detect.metrics` states an order of your own. `trainminder prioritise` learns one from your own labelled recordings. As
all metrics are asked, the order decides between metrics that confirm at the same instant, and in which order evidence
is shown; it does not decide whether a fault is found.

How it is learned: per window of 8 samples and metric, the largest z-score of any machine is kept; a decision tree over
these maxima tells windows in a fault from others; metrics that split nearest to its root come first, then by how much
they help. The tasks are drawn like those of [the bench](bench.md), from seeds that nothing else uses.

*Held out*: a tree grown on three of four tasks, asked about the windows of the fourth. Balanced accuracy is the mean of
the shares of fault windows and of ordinary windows that it tells right (0.5: a guess). *First k* grows it from the
first k metrics of an order alone: the learned order should do better with few; where it does not, the figures say so.
The catalogue's order begins with the one that the publication learned from production (PFC, CPU, duty cycle, power,
graphics engine, tensor activity, NVLink)."""


def tasks_of(environment: Environment) -> list[Simulated]:
    """Tasks drawn like the bench's, sampled as the environment samples; half of them without a fault."""
    found: list[Simulated] = []
    for drawn in draw_set(FIRST_SEED, DRAWN):
        task = drawn.make
        assert isinstance(task, Simulated)  # noqa: S101 - all of a drawn set are
        is_fit = int(task.spec.interval_seconds) in environment.intervals and task.spec.machines <= MOST_MACHINES
        if is_fit and shows_in(task.tags["fault"], environment.metrics):
            spec = replace(task.spec, metrics=environment.metrics, interval_seconds=environment.interval_seconds)
            found.append(replace(task, spec=spec))
    faulty = [task for task in found if task.faults][: TASKS // 2]
    healthy = [task for task in found if not task.faults][: TASKS // 2]
    return [task for pair in zip(faulty, healthy, strict=False) for task in pair]


def windows_of(task: Simulated) -> LabelledWindows:
    """What the tree is grown from: metrics in the catalogue's order, so that a tie says nothing of ours."""
    labelled, wanted = task(), set(task.spec.metrics or ())
    metrics = [name for name in load_catalogue() if name in wanted]
    return label_windows(labelled.raw, labelled.truths, metrics, DetectSettings().window_samples)


def section(
    name: str, environment: Environment, priority: Priority, windows: Sequence[LabelledWindows]
) -> tuple[str, bool]:
    """What the page says of one environment, and whether its order is better than the catalogue's."""
    held = np.arange(len(windows)) // 2 % HELD_OUT == 0
    known = [each for each, is_held in zip(windows, held, strict=True) if not is_held]
    asked = [each for each, is_held in zip(windows, held, strict=True) if is_held]
    learned = learn_priority(known).metrics
    catalogue = windows[0].metrics
    told = {
        count: [hold_out(known, asked, order[:count]) for order in (learned, catalogue)]
        for count in (*FIRST, len(catalogue))
    }
    rows = [f"| {count} | {ours:.3f} | {theirs:.3f} |" for count, (ours, theirs) in told.items()]
    ours, theirs = np.mean([told[count] for count in FIRST], axis=0)
    is_better = bool(ours > theirs)
    choice = "takes it" if is_better else "keeps the catalogue's"
    used = [metric for metric in priority.metrics if priority.depths[metric] is not None]
    order = [
        f"| {place} | `{metric}` | {priority.depths[metric]} | {priority.helps[metric]:.3f} |"
        for place, metric in enumerate(used, start=1)
    ]
    unused = [f"`{metric}`" for metric in priority.metrics if metric not in used]
    text = "\n".join(
        [
            f"## `{name}`",
            "",
            f"{environment.title}. {len(windows)} tasks, {priority.windows} windows, {priority.abnormal} of them in a "
            "fault.",
            "",
            "| place | metric | least depth in the tree | share of what the tree gains |",
            "|---|---|---|---|",
            *order,
            "",
            *([f"Not used by the tree, and asked last: {', '.join(unused)}.", ""] if unused else []),
            f"Held out ({len(asked)} tasks):",
            "",
            "| first k | learned order | catalogue's order |",
            "|---|---|---|",
            *rows,
            "",
            f"Over the first {', '.join(map(str, FIRST))}: {ours:.3f} beside {theirs:.3f}. `auto` {choice}.",
            "",
            "<details><summary>The upper part of the tree</summary>",
            "",
            "```text",
            "\n".join(line for line in priority.tree.splitlines() if line.count("|   ") < 4),
            "```",
            "",
            "</details>",
        ]
    )
    return text, is_better


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, metavar="DIR", help="default: the package and docs/")
    arguments = parser.parse_args()
    data = arguments.to or ROOT / "src" / "trainminder"
    page = arguments.to or ROOT / "docs"
    orders, sections = ["# Written by tools/learn_orders.py: the order of metrics, by environment.\n"], [INTRODUCTION]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as workers:
        for name, environment in ENVIRONMENTS.items():
            windows = list(workers.map(windows_of, tasks_of(environment), chunksize=4))
            priority = learn_priority(windows)
            text, is_better = section(name, environment, priority, windows)
            lines = [f'    "{metric}",' for metric in priority.metrics]
            about = [f'title = "{environment.title}"', f"is_better = {str(is_better).lower()}"]
            orders.append("\n".join([f"[{name}]", *about, "metrics = [", *lines, "]\n"]))
            sections.append(text)
            print(f"{name}: {', '.join(priority.metrics)}", flush=True)
    (data / "orders.toml").write_text("\n".join(orders), encoding="utf-8")
    (page / "metric-order.md").write_text("\n\n".join(sections) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
