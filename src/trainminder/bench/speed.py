"""How long a pass takes and how much memory, beside the straightforward way on the same data in the same process.

The data are simulated: machine-level metrics at one second, one faulty machine. The straightforward way takes the same
aligned, normalised windows and goes window by window: torch forward, scipy ``cdist``, sum; then the same normal score
and continuity. Both must give the same verdicts.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from types import ModuleType
from typing import Any

import numpy as np

from trainminder import paper, pipeline
from trainminder.bench.peak import peak_mib, reset_peak
from trainminder.bench.run import Advance, say_nothing
from trainminder.catalogue import load_catalogue
from trainminder.denoise import DenoisingModel, load_model
from trainminder.errors import BenchError, SettingsError
from trainminder.settings import DetectSettings
from trainminder.simulate import ClusterSpec, Fault, simulate_task
from trainminder.stream import run_pass
from trainminder.types import BoolArray, Denoiser, Float32Array, FloatArray, IntArray, PassResult, RawTask

__all__ = [
    "METRICS",
    "SIZES",
    "OneByOne",
    "Size",
    "Speed",
    "compile_first",
    "every_window",
    "measure_speed",
    "parse_sizes",
    "same_verdicts",
    "speed_task",
    "stage",
    "stages",
    "sums_one_by_one",
]

#: In the paper's order; machine-level ones, so that the number of metrics is the number of panels.
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
#: What is timed is the method paper: the straightforward way is one of doing what it does.
SETTINGS = DetectSettings(method="paper")


@dataclass(frozen=True, slots=True)
class Size:
    """What a pass is timed over: machines x metrics x seconds."""

    machines: int
    metrics: int = 7
    seconds: int = 900


#: A small task, an ordinary one, and the largest that the paper reports.
SIZES = (Size(64), Size(256), Size(1500))


@dataclass(frozen=True, slots=True)
class Speed:
    """What one size took. ``as_json`` is an entry of ``sizes`` in ``bench --speed --format json``.

    ``naive_s``: None without torch. ``peak_mib``: most memory of the whole process during the pass, its data included;
    None where the system does not tell.
    """

    size: Size
    pass_s: float
    naive_s: float | None
    peak_mib: float | None

    def as_json(self) -> dict[str, Any]:
        return {
            "machines": self.size.machines,
            "metrics": self.size.metrics,
            "seconds": self.size.seconds,
            "pass_s": self.pass_s,
            "naive_s": self.naive_s,
            "ratio": None if self.naive_s is None else self.naive_s / self.pass_s,
            # Nothing streams yet: a pass looks at the whole range again.
            "stream_cpu_s_per_s": None,
            "peak_mib": self.peak_mib,
        }


def parse_sizes(text: str) -> tuple[Size, ...]:
    """``64,1500x7x900``: machines, and optionally metrics and seconds.

    Raises:
        SettingsError: not in that form, or a size that cannot be simulated and judged.
    """
    sizes = []
    for part in text.split(","):
        numbers = part.strip().split("x")
        if len(numbers) > 3 or not all(number.isdecimal() for number in numbers):
            raise SettingsError(f'--sizes "{part}": write MACHINES or MACHINESxMETRICSxSECONDS, such as 64 or 64x7x900')
        size = Size(*map(int, numbers))
        least = SETTINGS.min_machines
        if size.machines < least or not 1 <= size.metrics <= len(METRICS) or size.seconds < SETTINGS.window_samples:
            raise SettingsError(
                f'--sizes "{part}": at least {least} machines, 1 to {len(METRICS)} metrics and at least '
                f"{SETTINGS.window_samples} s are needed"
            )
        sizes.append(size)
    return tuple(sizes)


def measure_speed(sizes: Sequence[Size], advance: Advance = say_nothing) -> list[Speed]:
    """Time every size, each in a process of its own, so that no size's memory counts for another.

    Raises:
        BenchError: the two ways do not give the same verdicts.
    """
    measured = []
    for size in sizes:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            measured.append(pool.submit(_measure, size).result())
        advance(1, at=f"{size.machines} machines")
    return measured


def _measure(size: Size) -> Speed:
    raw = speed_task(size)
    models = {name: load_model(None, name, SETTINGS.window_samples) for name in METRICS[: size.metrics]}
    compile_first()
    held = reset_peak()
    fast, pass_s = _timed(raw, models.__getitem__)
    peak = None if held is None else peak_mib()
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("scipy") is None:
        return Speed(size, pass_s, None, peak)
    loops = {name: OneByOne(model) for name, model in models.items()}
    # Straightforward: every window, one metric after the other.
    with stages(dissimilarity=sums_one_by_one, METRICS_AT_ONCE=1, stride_of=every_window):
        slow, naive_s = _timed(raw, loops.__getitem__)
    if not same_verdicts(fast, slow):
        raise BenchError(f"{size.machines} machines: the two ways differ: {fast.verdicts} and {slow.verdicts}")
    return Speed(size, pass_s, naive_s, peak)


def _timed(raw: RawTask, denoiser_for: Callable[[str], Denoiser]) -> tuple[PassResult, float]:
    began = time.perf_counter()
    result = run_pass(raw, SETTINGS, denoiser_for)
    return result, time.perf_counter() - began


def speed_task(size: Size) -> RawTask:
    """The simulated task of that size."""
    spec = ClusterSpec(
        size.machines,
        seed=1,
        duration_seconds=size.seconds,
        metrics=METRICS[: size.metrics],
        task="bench",
    )
    fault = Fault(size.machines // 3, "pcie_downgrading", onset_seconds=size.seconds / 3)
    return simulate_task(spec, [fault], specs=load_catalogue())[0]


def compile_first() -> None:
    """A small pass, so that compiling is not timed."""
    small, _ = simulate_task(ClusterSpec(8, seed=1, metrics=METRICS[:1], duration_seconds=60), specs=load_catalogue())
    run_pass(small, SETTINGS, lambda name: load_model(None, name, SETTINGS.window_samples))


def every_window(continuity_seconds: float, step_seconds: float) -> int:
    """A stride that passes over nothing."""
    del continuity_seconds, step_seconds
    return 1


def same_verdicts(one: PassResult, other: PassResult) -> bool:
    """Whether two passes name the same machines for the same metrics since and at the same instants."""
    first, second = (
        [(verdict.machine, verdict.metric, verdict.onset, verdict.confirmed) for verdict in result.verdicts]
        for result in (one, other)
    )
    return first == second


class OneByOne:
    """The straightforward denoiser: one torch forward per window, over all machines."""

    def __init__(self, model: DenoisingModel) -> None:
        from trainminder.denoise.training import torch_renderer

        self.window_samples = model.window_samples
        self._render = torch_renderer(model)

    def embed(self, values: FloatArray, rows: IntArray, low: FloatArray, high: FloatArray) -> Float32Array:
        """(machine, window, sample), as ``Denoiser.embed``; every machine must have a row in every window."""
        width = self.window_samples
        embeddings = np.empty((*rows.shape, width), dtype=np.float32)
        for window in range(rows.shape[1]):
            taken = (values[rows[:, window], window : window + width] - low[window]) / (high[window] - low[window])
            embeddings[:, window] = self._render(taken.astype(np.float32))
        return embeddings


def sums_one_by_one(
    embeddings: Float32Array, judged: BoolArray, group_of: IntArray, distance: str = "euclidean"
) -> FloatArray:
    """The straightforward dissimilarity: one whole distance matrix per window.

    Args:
        embeddings: (machine, window, sample).
        judged: (machine, window).
        group_of: not looked at: all machines are one group here.
    Returns:
        (machine, window) sums; NaN where not judged.
    """
    from scipy.spatial.distance import cdist

    del group_of
    sums = np.full(judged.shape, np.nan)
    for window in range(judged.shape[1]):
        here = judged[:, window]
        points = embeddings[here, window]
        sums[here, window] = cdist(points, points, distance).sum(axis=1)
    return sums


@contextmanager
def stages(**others: Any) -> Iterator[None]:
    """Let passes use these in place of what ``pipeline`` or ``paper`` has under those names: for measuring alone."""
    kept = {name: stage(name) for name in others}
    try:
        for name, other in others.items():
            setattr(_home(name), name, other)
        yield
    finally:
        for name, own in kept.items():
            setattr(_home(name), name, own)


def stage(name: str) -> Any:
    """What passes use under that name."""
    return getattr(_home(name), name)


def _home(name: str) -> ModuleType:
    return pipeline if hasattr(pipeline, name) else paper
