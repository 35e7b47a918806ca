"""Time one pass of the method paper over a large task, phase by phase, beside the straightforward way.

Both run on the same data in the same process.

    python benchmarks/pass.py [--machines 1500] [--metrics 7] [--seconds 900]

``trainminder bench --speed`` times whole passes; this shows where the time goes. ``trainminder.bench.speed`` says what
the data are and what the straightforward way is.
"""

from __future__ import annotations

import argparse
import resource
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from trainminder.bench.speed import (
    METRICS,
    SETTINGS,
    OneByOne,
    Size,
    compile_first,
    every_window,
    same_verdicts,
    speed_task,
    stage,
    stages,
    sums_one_by_one,
)
from trainminder.denoise import load_model
from trainminder.score import dissimilarity
from trainminder.stream import run_pass
from trainminder.types import Denoiser, FloatArray, PassResult, RawTask

R = TypeVar("R")
Sums = Callable[..., FloatArray]


class Phases:
    """Seconds spent in each named phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._lock = threading.Lock()

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            with self._lock:
                self.seconds[name] += time.perf_counter() - began

    def wrap(self, name: str, work: Callable[..., R]) -> Callable[..., R]:
        def timed(*arguments: Any, **named: Any) -> R:
            with self.timed(name):
                return work(*arguments, **named)

        return timed


def timed_pass(
    raw: RawTask, phases: Phases, denoiser_for: Callable[[str], Denoiser], distances: Sums
) -> tuple[PassResult, float]:
    """One pass with its phases timed, and with this way to sum distances."""
    names = {
        "viewed": "align",
        "normalisation": "normalise",
        "dissimilarity": "distances",
        "normal_score": "score",
        "followed_sparingly": "decide",
    }
    works = {name: stage(name) for name in names} | {"dissimilarity": distances}
    with stages(**{name: phases.wrap(names[name], work) for name, work in works.items()}):
        began = time.perf_counter()
        result = run_pass(raw, SETTINGS, lambda metric: _Timed(denoiser_for(metric), phases))
        return result, time.perf_counter() - began


class _Timed:
    def __init__(self, denoiser: Denoiser, phases: Phases) -> None:
        self.window_samples = denoiser.window_samples
        self.embed = phases.wrap("denoise", denoiser.embed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=1500)
    parser.add_argument("--metrics", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=900)
    asked = parser.parse_args()
    raw = speed_task(Size(asked.machines, asked.metrics, asked.seconds))
    models = {name: load_model(None, name, SETTINGS.window_samples) for name in METRICS[: asked.metrics]}
    print(f"{asked.machines} machines x {asked.metrics} metrics x {asked.seconds} s, simulated, from memory")
    compile_first()

    ours, theirs = Phases(), Phases()
    fast, fast_seconds = timed_pass(raw, ours, models.__getitem__, dissimilarity)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    loops = {name: OneByOne(model) for name, model in models.items()}
    with stages(METRICS_AT_ONCE=1, stride_of=every_window):  # straightforward: every window, one metric after the other
        slow, slow_seconds = timed_pass(raw, theirs, loops.__getitem__, sums_one_by_one)
    print("ours judges two metrics at a time, so that its phases overlap and add up to more than the whole")
    print(f"{'phase':<12}{'ours, s':>10}{'loops, s':>10}{'ratio':>8}")
    for phase in ("align", "normalise", "denoise", "distances", "score", "decide"):
        mine, other = ours.seconds[phase], theirs.seconds[phase]
        print(f"{phase:<12}{mine:>10.2f}{other:>10.2f}{other / max(mine, 1e-9):>8.1f}")
    print(f"{'whole pass':<12}{fast_seconds:>10.2f}{slow_seconds:>10.2f}{slow_seconds / fast_seconds:>8.1f}")
    print(f"peak memory of the process up to the end of our pass: {peak:.0f} MiB")
    for verdict in fast.verdicts:
        print(f"verdict of both: {verdict.machine}, {verdict.metric}, {verdict.onset:.0f} to {verdict.confirmed:.0f}")
    if not same_verdicts(fast, slow):
        raise SystemExit(f"the verdicts differ: {fast.verdicts} and {slow.verdicts}")


if __name__ == "__main__":
    main()
