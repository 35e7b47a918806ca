"""The frozen vocabulary: what passes between the stages, and nothing that computes.

Array axes keep one order everywhere: machine (or row), window or second, then step or width.
Instants are Unix seconds (UTC) as float64; durations are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Float32Array = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]

Level = Literal["machine", "device"]
Direction = Literal["up", "down", "both"]
Distance = Literal["euclidean", "manhattan", "chebyshev"]
QueryKind = Literal["gauge", "counter", "expression"]
View = Literal["machine", "mean", "device"]
Status = Literal["faulty", "none", "unknown"]

# ---------------------------------------------------------------- what is measured


@dataclass(frozen=True, slots=True)
class MetricQuery:
    """How one exporter's series become a canonical metric.

    ``kind``: *gauge* and *counter* hold a bare selector (the store adapter wraps it in
    ``last_over_time`` or ``rate``); *expression* is a whole PromQL expression. Templates may use
    ``$matcher`` (the task's label matchers), ``$rate`` and ``$window`` (time ranges that fit the sampling:
    for rates and for last values) and ``$machine_label``.
    ``selector`` names, for an expression, the series whose sampling interval counts.
    ``scale`` multiplies the answer into the catalogue's unit.
    """

    exporter: str
    query: str
    kind: QueryKind = "gauge"
    device_label: str | None = None
    selector: str | None = None
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """A canonical metric: its unit, physical bounds, and how far healthy machines may differ.

    ``spread`` (in the metric's unit) and ``spread_ratio`` (of the task's own level) state the
    standard deviation that healthy machines of one task ordinarily have; the larger of the two
    counts. It is what is known before any data: with few machines it keeps two that agree by
    chance from convicting the third, and however still the peers are, a third of it is the least
    spread that is believed.
    """

    name: str
    unit: str
    lower: float | None = None
    upper: float | None = None
    level: Level = "machine"
    direction: Direction = "both"
    spread: float = 0.0
    spread_ratio: float = 0.03
    description: str = ""
    queries: tuple[MetricQuery, ...] = ()
    declared: bool = False
    """True for a metric asked for by name with ``--metric``: a source that lacks it is an error, not an absence."""


@dataclass(frozen=True, slots=True)
class RawMetric:
    """One metric as its source gave it: every series, whatever its instants.

    Series ``i`` is ``times[offsets[i]:offsets[i + 1]]`` (strictly increasing) with ``values``
    likewise (finite: a missing sample is absent, never a number). ``machines[i]`` and
    ``devices[i]`` name it. A machine-level series has device None.
    """

    metric: str
    machines: tuple[str, ...]
    devices: tuple[str | None, ...]
    offsets: IntArray
    times: FloatArray
    values: FloatArray
    interval_seconds: float | None = None
    """The sampling interval where the source knows it; None: estimated from the instants."""


@dataclass(frozen=True, slots=True)
class FoundAs:
    """Under which name a source found a metric: a column, or the series of an exporter."""

    name: str
    exporter: str | None = None


@dataclass(frozen=True, slots=True)
class RawTask:
    """What one look at a source gave for one task: the input of a pass."""

    task: str
    from_at: float
    to_at: float
    machines: tuple[str, ...]
    """Members, sorted by name: those stated by membership, else all that were seen."""
    metrics: tuple[RawMetric, ...]
    specs: Mapping[str, MetricSpec]
    """The specification of every metric in ``metrics``."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """machine -> group; empty: everyone is compared with everyone."""
    metrics_absent: tuple[str, ...] = ()
    """Canonical metrics that were asked for and not found."""
    warnings: tuple[str, ...] = ()
    is_partial: bool = False
    """The store said that its answer is incomplete."""
    sources: Mapping[str, FoundAs] = field(default_factory=dict)
    """metric -> under which name it was found, where the source knows."""
    note: str | None = None
    """How the task was found, where that was not stated by the user."""
    domains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What machines share and fail with (a rack, a switch) -> its machines."""
    is_stated: bool = False
    """Whether ``machines`` are all members by what membership states, not just those that were seen."""


@dataclass(frozen=True, slots=True)
class Task:
    """One distributed training job, as membership describes it."""

    name: str
    machines: tuple[str, ...] | None = None
    """None: every machine that the matcher finds."""
    matcher: str = ""
    """PromQL label matchers that select the task's series, without braces."""
    groups: Mapping[str, str] = field(default_factory=dict)
    note: str | None = None
    """How the task was found, where that was not stated by the user."""
    domains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Truth:
    """One known fault of a labelled task: ``start`` and ``end`` count as the task's own instants do."""

    machine: str
    device: str | None
    fault_type: str
    start: float
    end: float

    def as_json(self) -> dict[str, Any]:
        """One entry of a ``.truth.json`` file."""
        return {name: getattr(self, name) for name in self.__slots__}


# ---------------------------------------------------------------- what the stages pass on


@dataclass(frozen=True, slots=True)
class Panel:
    """One metric on one grid: the output of alignment.

    ``values``: shape (row, second), in the metric's unit, padded with the nearest sample;
    ``present``: likewise, False where padded. A row with no sample at all is NaN throughout.
    ``row_machine``: (row,) index into ``machines``; ``row_device``: the device of each row, or None.
    ``rows``: (machine, window) the row that stands for a machine in a window; -1 where it has none.
    ``first``: seconds before this were judged before; they are there to look back upon.
    """

    metric: str
    view: View
    machines: tuple[str, ...]
    step_seconds: float
    times: FloatArray
    values: FloatArray
    present: BoolArray
    row_machine: IntArray
    row_device: tuple[str | None, ...]
    rows: IntArray
    window_samples: int
    first: int = 0


@dataclass(frozen=True, slots=True)
class Scale:
    """Min-max bounds of a metric, window by window, using only data up to each window's end.

    ``low``, ``high``: (window,), in the metric's unit, high > low. ``spread``: (window,), the
    ordinary standard deviation between healthy machines, in normalised units, > 0.
    """

    low: FloatArray
    high: FloatArray
    spread: FloatArray


@dataclass(frozen=True, slots=True)
class WindowScores:
    """How far each machine is from its peers in each window of one metric.

    ``dissimilarity``, ``normal_score``: (machine, window), NaN where a machine could not be judged.
    ``threshold``: (machine, window), the normal score above which a machine is a candidate there;
    it depends on the number of machines compared. ``ends_at``: (window,) instant of the newest sample.
    """

    metric: str
    view: View
    machines: tuple[str, ...]
    ends_at: FloatArray
    step_seconds: float
    dissimilarity: FloatArray
    normal_score: FloatArray
    threshold: FloatArray
    group_of: IntArray
    """(machine,) index of the group each machine is compared within; -1: none large enough."""


@dataclass(frozen=True, slots=True)
class Continuity:
    """Since when one machine has remained the candidate of one metric, view and group.

    ``devices``: in how many windows each of its devices was the odd one.
    """

    machine: str
    since_at: float
    last_at: float
    windows: int
    score_sum: float
    devices: tuple[tuple[str, int], ...] = ()
    is_confirmed: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """One sign against a machine (or for it), in numbers and in words."""

    kind: str
    metric: str
    view: View
    device: str | None
    since: float
    until: float
    score: float
    threshold: float
    value: float | None
    peers: float | None
    unit: str
    text: str
    weight: float | None = None
    """Its share among the signs of its verdict, where they were weighed."""
    peers_low: float | None = None
    peers_high: float | None = None
    """Between these were nine in ten of the peers."""

    def as_json(self) -> dict[str, Any]:
        """The object that ``evidence`` holds in the JSON output."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Verdict:
    """A faulty machine: which, since when, and when the verdict stood."""

    machine: str
    device: str | None
    metric: str
    onset: float
    confirmed: float
    score: float
    fault_type: str | None = None
    evidence: tuple[Evidence, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The object that ``verdicts`` holds in the JSON output."""
        plain = {name: getattr(self, name) for name in self.__slots__ if name != "evidence"}
        return plain | {"evidence": [item.as_json() for item in self.evidence]}


@dataclass(frozen=True, slots=True)
class Coverage:
    """What could be seen: an unseen machine is unknown, never healthy."""

    machines_seen: int
    samples_missing: float
    metrics_used: tuple[str, ...]
    metrics_absent: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "machines_seen": self.machines_seen,
            "samples_missing": self.samples_missing,
            "metrics_used": list(self.metrics_used),
            "metrics_absent": list(self.metrics_absent),
        }


@dataclass(frozen=True, slots=True)
class MetricTrace:
    """What a pass saw of one metric and view; the report draws it."""

    spec: MetricSpec
    panel: Panel
    scores: WindowScores


@dataclass(frozen=True, slots=True)
class Trail:
    """How the evidence against the most suspicious machines grew; the report draws it.

    ``decades``: (machine, instant), -log10 of how often a day a healthy machine is expected to come so far.
    ``limit``: the decades that convict.
    """

    machines: tuple[str, ...]
    times: FloatArray
    decades: Float32Array
    limit: float


@dataclass(frozen=True, slots=True)
class PassResult:
    """The result of one pass over one task. ``as_json`` is the contract of ``detect --format json``."""

    task: str
    method: str
    from_at: float
    to_at: float
    machines: tuple[str, ...]
    status: Status
    reason: str | None
    verdicts: tuple[Verdict, ...]
    coverage: Coverage
    warnings: tuple[str, ...]
    traces: tuple[MetricTrace, ...] = ()
    trail: Trail | None = None
    """Of the method default, where traces are kept."""

    def as_json(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "method": self.method,
            "from": self.from_at,
            "to": self.to_at,
            "machines": len(self.machines),
            "status": self.status,
            "reason": self.reason,
            "verdicts": [verdict.as_json() for verdict in self.verdicts],
            "coverage": self.coverage.as_json(),
            "warnings": list(self.warnings),
        }


class Denoiser(Protocol):
    """What the pipeline asks of a denoising model: windows in, embeddings out."""

    @property
    def window_samples(self) -> int: ...

    def embed(self, values: FloatArray, rows: IntArray, low: FloatArray, high: FloatArray) -> Float32Array:
        """Normalise, denoise and return every window's embedding.

        Args:
            values: (row, second), in the metric's unit, padded; NaN only in rows never referred to.
            rows: (machine, window) row of each machine in the window that starts at that second;
                -1 gives an embedding of NaN.
            low, high: (window,) min-max bounds.
        Returns:
            (machine, window, width), normalised units.
        """
        ...
