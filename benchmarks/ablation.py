"""What each part of the evidence is worth: the method default with one part left out at a time.

Prints, for each, precision, recall, F1, false alarms per 1,000 machine-hours and the median delay at the shipped
limit, over simulated tasks of seeds that nothing was chosen by.

    python benchmarks/ablation.py [--tasks 256] [--first-seed 70000] [--jobs 2]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from trainminder.bench.measure import Tally, figures, tally
from trainminder.bench.methods.default import gathered, verdicts_at
from trainminder.bench.outcomes import Said, TaskFacts
from trainminder.bench.tasks import draw_set
from trainminder.bench.types import BenchTask
from trainminder.evidence.weights import PARTS, Weights
from trainminder.settings import DetectSettings

FULL = "everything"
VARIANTS = {FULL: Weights()} | {f"without {part}": weights for part, weights in PARTS.items()}


def judged(task: BenchTask, allowed: float) -> dict[str, Tally]:
    """What each variant makes of one task."""
    labelled = task.make()
    facts = TaskFacts.of(labelled, task)
    judgement = gathered(labelled)
    return {
        name: tally(facts, [Said.of(each) for each in verdicts_at(judgement, (allowed,), weights)[0]])
        for name, weights in VARIANTS.items()
    }


def table(tallies: Sequence[dict[str, Tally]]) -> str:
    """The figures of each variant, one line each."""
    lines = [f"{'':50} {'P':>6} {'R':>6} {'F1':>6} {'FA/1000 h':>10} {'delay s':>8}"]
    for name in VARIANTS:
        found = figures([each[name] for each in tallies])
        lines.append(
            f"{name:50} {found['precision'] or 0:6.3f} {found['recall'] or 0:6.3f} {found['f1'] or 0:6.3f} "
            f"{found['false_alarms_per_1000_machine_hours']:10.2f} {found['delay_median_s'] or 0:8.0f}"
        )
    return "\n".join(lines)


def main() -> None:
    """Judge the tasks and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=256)
    parser.add_argument("--first-seed", type=int, default=70_000)
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    allowed = DetectSettings().false_alarms_per_machine_day
    tasks = draw_set(asked.first_seed, asked.tasks)
    with ProcessPoolExecutor(asked.jobs) as pool:
        print(table(list(pool.map(partial(judged, allowed=allowed), tasks))))


if __name__ == "__main__":
    main()
