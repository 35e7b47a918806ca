"""Time one pass over a large task, phase by phase, beside the straightforward way on the same data in the same process.

    python benchmarks/pass.py [--machines 1500] [--metrics 7] [--seconds 900]

The data are simulated: machine-level metrics at one second, one faulty machine. The straightforward way takes the same
aligned, normalised windows and goes window by window: torch forward, scipy cdist, sum; then the same normal score and
continuity. Both must give the same verdict.
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

import numpy as np
from scipy.spatial.distance import cdist

from trainminder import pipeline
from trainminder.catalogue import load_catalogue
from trainminder.denoise import DenoisingModel, load_model
from trainminder.denoise.training import torch_renderer
from trainminder.pipeline import run_pass
from trainminder.score import dissimilarity
from trainminder.settings import DetectSettings
from trainminder.simulate import ClusterSpec, Fault, simulate_task
from trainminder.types import BoolArray, Float32Array, FloatArray, IntArray, PassResult, RawTask

#: In the paper's order; the levels of all are made "machine" for this benchmark.
METRICS = (
    "pfc_tx_packet_rate",
    "cpu_usage",
    "memory_usage",
    "tcp_throughput",
    "rdma_throughput",
    "disk_io",
    "cnp_packet_rate",
    "disk_usage",
)
SETTINGS = DetectSettings()
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


class OneByOne:
    """The straightforward denoiser: one torch forward per window, over all machines."""

    def __init__(self, model: DenoisingModel) -> None:
        self.window_samples = model.window_samples
        self._render = torch_renderer(model)

    def embed(self, values: FloatArray, rows: IntArray, low: FloatArray, high: FloatArray) -> Float32Array:
        width = self.window_samples
        embeddings = np.empty((*rows.shape, width), dtype=np.float32)
        for window in range(rows.shape[1]):
            taken = (values[rows[:, window], window : window + width] - low[window]) / (high[window] - low[window])
            embeddings[:, window] = self._render(taken.astype(np.float32))
        return embeddings


def sums_one_by_one(
    embeddings: Float32Array, judged: BoolArray, group_of: IntArray, distance: str = "euclidean"
) -> FloatArray:
    """The straightforward dissimilarity: one whole distance matrix per window."""
    del group_of
    sums = np.full(judged.shape, np.nan)
    for window in range(judged.shape[1]):
        here = judged[:, window]
        points = embeddings[here, window]
        sums[here, window] = cdist(points, points, distance).sum(axis=1)
    return sums


def timed_pass(
    raw: RawTask, phases: Phases, denoiser_for: Callable[[str], DenoisingModel | OneByOne], distances: Sums
) -> tuple[PassResult, float]:
    """One pass with its phases timed, and with this way to sum distances."""

    def timed_denoiser(metric: str) -> DenoisingModel | OneByOne:
        denoiser = denoiser_for(metric)
        return _Timed(denoiser, phases)  # type: ignore[return-value]

    names = {
        "panels": "align",
        "normalisation": "normalise",
        "dissimilarity": "distances",
        "normal_score": "score",
        "follow": "decide",
    }
    kept = {name: getattr(pipeline, name) for name in names}
    for name, work in (kept | {"dissimilarity": distances}).items():
        setattr(pipeline, name, phases.wrap(names[name], work))
    try:
        began = time.perf_counter()
        result, _ = run_pass(raw, SETTINGS, timed_denoiser)
        return result, time.perf_counter() - began
    finally:
        for name, work in kept.items():
            setattr(pipeline, name, work)


class _Timed:
    def __init__(self, denoiser: DenoisingModel | OneByOne, phases: Phases) -> None:
        self.window_samples = denoiser.window_samples
        self.embed = phases.wrap("denoise", denoiser.embed)


def verdict_of(result: PassResult) -> tuple[object, ...]:
    """What must agree."""
    return tuple((v.machine, v.metric, v.onset, v.confirmed) for v in result.verdicts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=1500)
    parser.add_argument("--metrics", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=900)
    asked = parser.parse_args()
    spec = ClusterSpec(
        asked.machines, seed=1, duration_seconds=asked.seconds, metrics=METRICS[: asked.metrics], task="bench"
    )
    fault = Fault(asked.machines // 3, "pcie_downgrading", onset_seconds=asked.seconds / 3)
    raw, _ = simulate_task(spec, [fault], specs=load_catalogue())
    models = {name: load_model(None, name, SETTINGS.window_samples) for name in METRICS[: asked.metrics]}
    print(f"{asked.machines} machines x {asked.metrics} metrics x {asked.seconds} s, simulated, from memory")
    small, _ = simulate_task(ClusterSpec(8, seed=1, metrics=METRICS[:1], duration_seconds=60), specs=load_catalogue())
    run_pass(small, SETTINGS, models.__getitem__)  # compiled before it is timed

    ours, theirs = Phases(), Phases()
    fast, fast_seconds = timed_pass(raw, ours, models.__getitem__, dissimilarity)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    loops = {name: OneByOne(model) for name, model in models.items()}
    pipeline.METRICS_AT_ONCE = 1  # straightforward: one metric after the other
    slow, slow_seconds = timed_pass(raw, theirs, loops.__getitem__, sums_one_by_one)
    print("ours judges two metrics at a time, so that its phases overlap and add up to more than the whole")
    print(f"{'phase':<12}{'ours, s':>10}{'loops, s':>10}{'ratio':>8}")
    for phase in ("align", "normalise", "denoise", "distances", "score", "decide"):
        mine, other = ours.seconds[phase], theirs.seconds[phase]
        print(f"{phase:<12}{mine:>10.2f}{other:>10.2f}{other / max(mine, 1e-9):>8.1f}")
    print(f"{'whole pass':<12}{fast_seconds:>10.2f}{slow_seconds:>10.2f}{slow_seconds / fast_seconds:>8.1f}")
    print(f"peak memory of the process up to the end of our pass: {peak:.0f} MiB")
    print(f"verdict (ours):  {verdict_of(fast)}")
    print(f"verdict (loops): {verdict_of(slow)}")
    if verdict_of(fast) != verdict_of(slow):
        raise SystemExit("the verdicts differ")


if __name__ == "__main__":
    main()
