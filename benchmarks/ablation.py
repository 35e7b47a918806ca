"""What each part of the evidence is worth: the method default with one part left out, or changed, at a time.

Prints, for each, precision, recall, F1, false alarms per 1,000 machine-hours, the median delay of all faults and of
total ones, the tasks with two faults of which both are found, and the healthy tasks with a verdict, over simulated
tasks of seeds that no weight was chosen by. The limit is the shipped one unless said.

    python benchmarks/ablation.py [--tasks 256] [--first-seed 70000] [--jobs 2]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from trainminder.bench.measure import Tally, figures, tally
from trainminder.bench.methods.default import gathered, verdicts_at
from trainminder.bench.outcomes import Said, TaskFacts
from trainminder.bench.tasks import draw_set
from trainminder.bench.types import BenchTask
from trainminder.evidence.weights import PARTS, TRIED, Weights
from trainminder.settings import DetectSettings

FULL = "everything"
SHIPPED = DetectSettings().false_alarms_per_machine_day
#: What is varied -> the weights, and the false alarms allowed per machine-day.
VARIANTS = {
    FULL: (Weights(), SHIPPED),
    **{f"without {part}": (weights, SHIPPED) for part, weights in PARTS.items()},
    **{name: (weights, SHIPPED) for name, weights in TRIED.items()},
    **{f"{allowed:g} allowed": (Weights(), allowed) for allowed in (0.01, 0.02, 0.1)},
}


def judged(task: BenchTask) -> tuple[TaskFacts, dict[str, Tally]]:
    """One task, and what each variant makes of it."""
    labelled = task.make()
    facts = TaskFacts.of(labelled, task)
    judgement = gathered(labelled)
    return facts, {
        name: tally(facts, [Said.of(each) for each in verdicts_at(judgement, (allowed,), weights)[0]])
        for name, (weights, allowed) in VARIANTS.items()
    }


def table(results: Sequence[tuple[TaskFacts, dict[str, Tally]]]) -> str:
    """The figures of each variant, one line each."""
    head = ("P", "R", "F1", "FA/1000 h", "delay s", "total s", "both", "healthy")
    widths = (6, 6, 6, 10, 8, 8, 8, 8)
    lines = [" ".join([" " * 42, *(f"{name:>{width}}" for name, width in zip(head, widths, strict=True))])]
    for name in VARIANTS:
        found = figures([tallies[name] for _, tallies in results])
        total = [delay for facts, each in results if facts.tags["strength"] == "total" for delay in each[name].delays]
        pairs = [len(each[name].delays) == 2 for facts, each in results if facts.tags["fault"] == "two at once"]
        healthy = [each[name].false_alarms > 0 for _, each in results if not each[name].faults]
        lines.append(
            f"{name:42} {found['precision'] or 0:6.3f} {found['recall'] or 0:6.3f} {found['f1'] or 0:6.3f} "
            f"{found['false_alarms_per_1000_machine_hours']:10.2f} {found['delay_median_s'] or 0:8.0f} "
            f"{np.median(total):8.0f} {f'{sum(pairs)} of {len(pairs)}':>8} {f'{sum(healthy)} of {len(healthy)}':>8}"
        )
    return "\n".join(lines)


def main() -> None:
    """Judge the tasks and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=256)
    parser.add_argument("--first-seed", type=int, default=70_000)
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    tasks = draw_set(asked.first_seed, asked.tasks)
    with ProcessPoolExecutor(asked.jobs) as pool:
        print(table(list(pool.map(judged, tasks))))


if __name__ == "__main__":
    main()
