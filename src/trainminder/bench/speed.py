"""What judging costs: passes and streams, beside the straightforward way on the same data in the same process.

The data are simulated: machine-level metrics at one second, one faulty machine. A pass judges all of it at once; a
stream is given ten seconds at a time and looks at the verdict after each, as a watcher of a live task does. The
straightforward way takes the same aligned, normalised windows and goes window by window: torch forward, scipy
``cdist``, sum; then the same normal score and continuity. All must give the same verdicts.
"""

from __future__ import annotations

import importlib.util
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from multiprocessing import get_context
from types import ModuleType
from typing import Any

import numpy as np

from trainminder import paper, pipeline
from trainminder.allocator import keep_freed_memory
from trainminder.bench.peak import peak_mib, reset_peak
from trainminder.bench.run import Advance, say_nothing
from trainminder.catalogue import load_catalogue
from trainminder.denoise import DenoisingModel, load_model
from trainminder.errors import BenchError, SettingsError
from trainminder.score import Scored, backed_score, normal_score
from trainminder.settings import DetectSettings
from trainminder.simulate import ClusterSpec, Fault, simulate_task
from trainminder.source.cutting import in_pieces
from trainminder.stream import TaskStream, run_pass
from trainminder.types import BoolArray, Denoiser, Float32Array, FloatArray, IntArray, Panel, PassResult, RawTask, Scale

__all__ = [
    "METRICS",
    "SIZES",
    "Cost",
    "Growth",
    "OneByOne",
    "Size",
    "Speed",
    "growth_of",
    "measure_speed",
    "parse_sizes",
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
#: The straightforward way is one of doing what the method paper does.
SETTINGS = DetectSettings(method="paper")
#: How much a stream is given at once, in seconds.
PIECE_SECONDS = 10.0
#: The straightforward way is timed up to this many machines x metrics x seconds: beyond, it takes many minutes.
NAIVE_MOST = 1500 * 8 * 900
#: Times that a pass is made, of which the fastest counts.
PASSES = 2
#: What ``paper`` and ``pipeline`` call the stages that are timed.
STAGES = {"viewed": "align", "normalisation": "normalise", "stand_out": "compare", "followed_sparingly": "decide"}


@dataclass(frozen=True, slots=True)
class Size:
    """What a pass is timed over: machines x metrics x seconds."""

    machines: int
    metrics: int = 7
    seconds: int = 900


#: From a small task to one larger than the paper reports.
SIZES = (Size(64), Size(512), Size(1500), Size(4000), Size(10000))


@dataclass(frozen=True, slots=True)
class Cost:
    """What one method took over one size.

    ``stream_cpu_s_per_s``: seconds of processor time for each second of data, on all cores together. ``peak_mib``,
    ``stream_peak_mib``: most memory of the whole process during a pass and a stream, its data included; None where the
    system does not tell. ``phases``: seconds of a pass; metrics are judged two at a time, so that they overlap.
    """

    pass_s: float
    stream_cpu_s_per_s: float
    peak_mib: float | None
    stream_peak_mib: float | None
    phases: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Speed:
    """What one size took. ``as_json`` is an entry of ``sizes`` in ``bench --speed --format json``.

    ``naive_s``: None without torch, and where it would take too long.
    """

    size: Size
    paper: Cost
    default: Cost
    naive_s: float | None

    def as_json(self) -> dict[str, Any]:
        return {
            "machines": self.size.machines,
            "metrics": self.size.metrics,
            "seconds": self.size.seconds,
            **asdict(self.paper),
            "naive_s": self.naive_s,
            "ratio": None if self.naive_s is None else self.naive_s / self.paper.pass_s,
            "default": asdict(self.default),
        }


@dataclass(frozen=True, slots=True)
class Growth:
    """By what the cost of a method grew from one size to a larger one. ``allowed``: by what n log n grows."""

    method: str
    machines: tuple[int, int]
    passes: float
    streams: float
    allowed: float


def growth_of(speeds: Sequence[Speed]) -> list[Growth]:
    """By what cost grew from each size to the next with as many metrics and seconds."""
    found = []
    for method in ("default", "paper"):
        for one, other in pairwise(speeds):
            few, many = one.size.machines, other.size.machines
            if few < many and (one.size.metrics, one.size.seconds) == (other.size.metrics, other.size.seconds):
                least, most = getattr(one, method), getattr(other, method)
                found.append(
                    Growth(
                        method,
                        (few, many),
                        most.pass_s / least.pass_s,
                        most.stream_cpu_s_per_s / least.stream_cpu_s_per_s,
                        many * math.log(many) / (few * math.log(few)),
                    )
                )
    return found


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
        BenchError: a stream or the straightforward way does not give the verdicts of a pass.
    """
    measured = []
    for size in sizes:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            measured.append(pool.submit(_measure, size).result())
        advance(1, at=f"{size.machines} machines")
    return measured


def _measure(size: Size) -> Speed:
    # As the command line does.
    keep_freed_memory()
    raw = speed_task(size)
    models = {name: load_model(None, name, SETTINGS.window_samples) for name in METRICS[: size.metrics]}
    compile_first()
    default, _ = _cost(raw, DetectSettings(), models.__getitem__)
    paper, fast = _cost(raw, SETTINGS, models.__getitem__)
    has_torch = importlib.util.find_spec("torch") is not None and importlib.util.find_spec("scipy") is not None
    if not has_torch or size.machines * size.metrics * size.seconds > NAIVE_MOST:
        return Speed(size, paper, default, None)
    loops = {name: OneByOne(model) for name, model in models.items()}
    # Straightforward: every window, one metric after the other.
    with stages(stand_out=one_by_one, METRICS_AT_ONCE=1, stride_of=every_window):
        began = time.perf_counter()
        slow = run_pass(raw, SETTINGS, loops.__getitem__)
        naive_s = time.perf_counter() - began
    if not same_verdicts(fast, slow):
        raise BenchError(f"{size.machines} machines: the two ways differ: {fast.verdicts} and {slow.verdicts}")
    return Speed(size, paper, default, naive_s)


def _cost(raw: RawTask, settings: DetectSettings, denoiser_for: Callable[[str], Denoiser]) -> tuple[Cost, PassResult]:
    pass_s, held = math.inf, reset_peak()
    for _ in range(PASSES):
        phases = Phases()
        with stages(**{name: phases.wrap(phase, stage(name)) for name, phase in STAGES.items()}):
            began = time.perf_counter()
            result = run_pass(raw, settings, phases.of(denoiser_for))
            took = time.perf_counter() - began
        if took < pass_s:
            pass_s, best = took, dict(phases.seconds)
    peak = None if held is None else peak_mib()
    pieces = list(in_pieces(raw, raw.from_at - PIECE_SECONDS, PIECE_SECONDS))
    held = reset_peak()
    began = time.process_time()
    stream = TaskStream(settings, denoiser_for)
    for piece in pieces:
        stream.take(piece)
        streamed = stream.result()
    used = time.process_time() - began
    if not same_verdicts(result, streamed):
        raise BenchError(f"the stream says {streamed.verdicts}, and the pass {result.verdicts}")
    seconds = raw.to_at - raw.from_at
    return Cost(pass_s, used / seconds, peak, None if held is None else peak_mib(), best), result


class Phases:
    """Seconds spent in each named phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._lock = threading.Lock()

    def wrap(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same work, timed."""

        def timed(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return work(*arguments, **named)
            finally:
                with self._lock:
                    self.seconds[name] += time.perf_counter() - began

        return timed

    def of(self, denoiser_for: Callable[[str], Denoiser]) -> Callable[[str], Denoiser]:
        """The same models, timed."""
        return lambda metric: _Timed(denoiser_for(metric), self)


class _Timed:
    def __init__(self, denoiser: Denoiser, phases: Phases) -> None:
        self.window_samples = denoiser.window_samples
        self.embed = phases.wrap("denoise", denoiser.embed)


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
    for settings in (SETTINGS, DetectSettings()):
        run_pass(small, settings, lambda name: load_model(None, name, SETTINGS.window_samples))


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


def one_by_one(
    embeddings: Float32Array,
    judged: BoolArray,
    group_of: IntArray,
    panel: Panel,
    scale: Scale,
    *,
    distance: str,
    false_alarm_probability: float,
    min_machines: int,
) -> Scored:
    """``score.stand_out`` by ``sums_one_by_one``."""
    width = embeddings.shape[2]
    sums = sums_one_by_one(embeddings, judged, group_of, distance)
    score, threshold = normal_score(
        sums,
        scale.spread,
        group_of,
        width=width,
        false_alarm_probability=false_alarm_probability,
        min_machines=min_machines,
    )
    return Scored(sums, backed_score(score, threshold, sums, panel, scale, group_of, width=width), threshold)


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
