"""The settings model: what can be set, in which unit, why the default, and what changing it costs."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from trainminder.types import Direction, Distance, Level, QueryKind

__all__ = [
    "DetectSettings",
    "MachineRewrite",
    "MembershipSettings",
    "MetricSettings",
    "QuerySettings",
    "RecordingSettings",
    "Settings",
    "StoreSettings",
    "TaskSettings",
    "TrainSettings",
]

Positive = Annotated[float, Field(gt=0)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


class StoreSettings(_Section):
    """The Prometheus-compatible store that live tasks are read from."""

    url: str | None = None
    """Base address, such as http://prometheus:9090; a path prefix is kept."""
    username: str | None = None
    """User for basic authentication."""
    password: SecretStr | None = None
    """Password for basic authentication; prefer the environment to the file."""
    bearer_token: SecretStr | None = None
    """Token sent as "Authorization: Bearer ..."."""
    bearer_token_file: Path | None = None
    """File holding the token; read again for every request, so that a rotated token is picked up."""
    headers: dict[str, SecretStr] = {}
    """More headers, such as X-Scope-OrgID for the tenant of Mimir or Cortex."""
    ca_file: Path | None = None
    """PEM file of the authority that signed the store's certificate; the system's authorities otherwise."""
    client_certificate_file: Path | None = None
    """PEM file of the client certificate, where the store asks for one."""
    client_key_file: Path | None = None
    """PEM file of the client certificate's key."""
    verify_tls: bool = True
    """Check the store's certificate. Turning this off lets anyone in between feed false metrics."""
    timeout_seconds: Positive = 30.0
    """Longest wait for one answer. Raise it for slow stores; a pass then blocks longer on a dead one."""
    retries: Annotated[int, Field(ge=0, le=20)] = 4
    """Tries after the first for 429, 5xx and broken connections, with growing pauses (Retry-After is honoured)."""
    concurrency: Annotated[int, Field(ge=1, le=64)] = 6
    """Requests under way at once. More loads the store; fewer slows the fetch."""
    max_points: Annotated[int, Field(ge=2)] = 11_000
    """Most points per series in one request: Prometheus refuses more than 11,000."""
    max_samples: Annotated[int, Field(ge=1_000)] = 5_000_000
    """Most samples in one answer: longer ranges are cut in slices. Bounds memory; Prometheus refuses 50,000,000."""
    max_answer_mib: Annotated[int, Field(ge=1)] = 1_024
    """Largest answer accepted, decompressed; a larger one is refused rather than read into memory."""
    interval_seconds: Positive | None = None
    """Sampling interval of the store's series. None: measured for each metric."""
    replica_labels: tuple[str, ...] = ("replica", "prometheus_replica", "__replica__")
    """Labels that tell copies of one series apart: copies are merged, holes of one filled from the other."""
    cluster_labels: tuple[str, ...] = ("cluster", "k8s_cluster")
    """Labels that tell clusters apart: one machine name under two values is refused as ambiguous."""

    @field_validator("url")
    @classmethod
    def _has_a_scheme(cls, value: str | None) -> str | None:
        # An empty address is one that is not set, which the client says.
        if value and not re.match(r"\s*https?://", value, re.IGNORECASE):
            raise ValueError("write it with http:// or https://, such as http://prometheus:9090")
        return value


class MachineRewrite(_Section):
    """One rewriting of a machine name: the regular expression must match the whole name."""

    match: str
    """Regular expression (Python syntax), matched against the whole name."""
    replace: str
    r"""Replacement; \1 stands for the first group."""

    @field_validator("match")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return value


class MembershipSettings(_Section):
    """How a task's machines are found, and which label names a machine."""

    machine_label: str = "instance"
    """Label that names the machine. instance is on every series; with dcgm-exporter, Hostname may be a pod."""
    strip_port: bool = True
    """Cut ":port" from the label's value (IPv4, names and bracketed IPv6; a bare IPv6 address is left whole)."""
    machine_rewrites: tuple[MachineRewrite, ...] = ()
    """Rewritings applied in order after the port is cut, so that exporters' names for one machine meet."""
    device_labels: tuple[str, ...] = ("gpu", "device", "gpu_id", "id")
    """Labels that may name the device of a device-level series where its query states none."""
    task_labels: tuple[str, ...] = ("task", "job", "training_job", "job_name", "slurm_job_id", "pod_label_task")
    """Labels tried, in order, for --task NAME when no task of that name is in the settings."""
    group_label: str | None = None
    """Label that limits who is compared with whom (role, pipeline stage). None: everyone."""
    domain_labels: tuple[str, ...] = ()
    """Labels that say what machines share and fail with (rack, switch, NVLink domain)."""


class TaskSettings(_Section):
    """A task that the settings name: its machines, or the selector that finds them."""

    name: str
    """Name used with --task and in every output."""
    machines: tuple[str, ...] | None = None
    """Static list of machines, for a store and for a recording of that name. None: every machine that is found."""
    matcher: str = ""
    """PromQL label matchers of the task's series without braces, such as: cluster="a",job=~"dcgm|node"."""
    groups: dict[str, str] = {}
    """machine -> group; limits who is compared with whom."""
    domains: dict[str, tuple[str, ...]] = {}
    """What machines share and fail with (a rack, a switch, an NVLink domain) -> its machines. Limits no
    comparison: where those of one depart together, it is named as what they share."""

    @field_validator("machines")
    @classmethod
    def _once_each(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        doubled = [machine for machine, count in Counter(value or ()).items() if count > 1]
        if doubled:
            raise ValueError(f"{doubled[0]!r} is given twice: a machine is a member once")
        return value


class QuerySettings(_Section):
    """One way to get a metric from a store; the first that finds series is used."""

    exporter: str = "settings"
    """Name shown by the doctor and in messages."""
    query: str
    """Selector (gauge, counter) or expression. $matcher stands for the task's matchers, $rate and $window for time
    ranges that fit the sampling, $machine_label for the machine's label."""
    kind: QueryKind = "gauge"
    """gauge: last value; counter: rate per second; expression: taken as it is."""
    device_label: str | None = None
    """Label that names the device; None for machine-level series."""
    selector: str | None = None
    """For an expression: the selector whose sampling interval counts."""
    scale: float = 1.0
    """Factor from the store's unit to the metric's."""


class MetricSettings(_Section):
    """Override a catalogue metric field by field, or admit a new metric."""

    unit: str = ""
    """Unit of the values."""
    lower: float | None = None
    """Physical lower bound, in the unit."""
    upper: float | None = None
    """Physical upper bound, in the unit."""
    level: Level = "machine"
    """Whether series are per machine or per device."""
    direction: Direction = "both"
    """Which way a fault usually moves it; for people, judging looks both ways."""
    spread: Annotated[float, Field(ge=0)] = 0.0
    """Ordinary standard deviation between healthy machines of one task, in the unit. Raising it hides subtle faults."""
    spread_ratio: Annotated[float, Field(ge=0)] = 0.03
    """The same as a share of the task's own level. Raising it hides subtle faults."""
    description: str = ""
    """One line for people."""
    queries: tuple[QuerySettings, ...] | None = None
    """Queries that replace the catalogue's."""


class RecordingSettings(_Section):
    """How recordings are read."""

    columns: dict[str, str] = {}
    """Rename columns on reading: file's name -> ours, such as time: timestamp or gpu: device."""
    duplicates: Literal["mean", "last"] = "mean"
    """What becomes of rows with the same machine, device and instant but other values.
    mean does not depend on the order of rows; last takes the one furthest down."""
    time_unit: Literal["auto", "s", "ms", "us", "ns"] = "auto"
    """Unit of integer or float timestamps; auto tells it from the magnitude and says so."""
    timezone: str = "UTC"
    """Zone of timestamps that carry none."""
    sentinels: tuple[float, ...] = ()
    """More values that mean "no value", in stores too, besides the known ones (near 2^63, 2^47, 2^31)."""


class DetectSettings(_Section):
    """How a pass judges."""

    method: Literal["default", "paper"] = "default"
    """Named method. default gathers evidence over time and over metrics, machine by machine; paper follows the
    publication: windows of one metric at a time, denoised and compared."""
    minutes: Positive = 15.0
    """Length of data pulled from a store for one pass (the paper's 15 minutes); a recording is judged whole."""
    metrics: tuple[str, ...] | None = None
    """Metrics in order of priority; None: every metric with data, in the order of metric_order."""
    metric_order: Literal["auto", "catalogue", "profiled", "plain", "amd", "ascend"] = "auto"
    """The learned order of an environment: NVIDIA with profiling fields or without, AMD, Ascend. auto takes the one
    whose metrics are most like the task's, where it proved better than the catalogue's; catalogue keeps that."""
    false_alarms_per_machine_day: Annotated[float, Field(gt=0, le=1)] = 0.05
    """How many healthy machines may be named per machine and day, by the method default. Lowering it names fewer
    healthy machines, and takes longer to name a faulty one."""
    window_samples: Annotated[int, Field(ge=2, le=512)] = 8
    """Samples per window (the paper's 8), by the method paper. Must be what the models were trained with."""
    distance: Distance = "euclidean"
    """Distance between embeddings, by the method paper, which finds that the kind matters little."""
    false_alarm_probability: Annotated[float, Field(gt=0, lt=0.5)] = 1e-4
    """Chance that one window of one metric makes a candidate although no machine is faulty, whatever the number
    of machines, by the method paper. Raising it finds subtler faults and blames healthy machines more often."""
    continuity_seconds: Annotated[float, Field(ge=0)] = 240.0
    """How long what is wrong with one machine must last (the paper's 4 minutes), by the method paper: it has to remain
    the candidate for this and as long as a window's compared samples look back. Lower is faster, less sure."""
    min_machines: Annotated[int, Field(ge=3)] = 3
    """Fewest machines that are compared, in the task and in each group: of two, neither stands out."""
    max_missing_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """A metric with a larger share of missing samples is not judged; if none is left, the verdict is unknown."""
    lag_seconds: Annotated[float, Field(ge=0, le=900)] = 10.0
    """Where samples come in as they are taken: how much older than the newest one may be to be taken in still. What
    comes later than that is left out, with a warning. Larger costs time, not delay: the newest is judged at once."""
    models_dir: Path | None = None
    """Folder of denoising models, for the method paper; the shipped ones otherwise."""


class TrainSettings(_Section):
    """How denoising models are trained."""

    hidden_size: Annotated[int, Field(ge=1, le=256)] = 4
    """LSTM hidden size (the paper's 4)."""
    latent_size: Annotated[int, Field(ge=1, le=256)] = 8
    """Latent size (the paper's 8)."""
    layers: Annotated[int, Field(ge=1, le=4)] = 1
    """LSTM layers (the paper's 1)."""
    kl_weight: Annotated[float, Field(ge=0)] = 1e-6
    """Weight of the KL term beside the squared error. Higher smooths more and blurs small faults."""
    epochs: Annotated[int, Field(ge=1)] = 20
    """Passes over the training windows."""
    batch_size: Annotated[int, Field(ge=1)] = 128
    """Windows per step."""
    learning_rate: Positive = 3e-2
    """Highest learning rate: reached over the first tenth of the steps, then falling to zero along a cosine."""
    max_windows: Annotated[int, Field(ge=100)] = 40_000
    """Most windows taken from the data, drawn by the seed."""
    seed: int = 0
    """Seed of everything random; the same seed and data give the same model."""


class Settings(_Section):
    """All settings."""

    store: StoreSettings = StoreSettings()
    """The metric store."""
    membership: MembershipSettings = MembershipSettings()
    """Which machines form a task."""
    tasks: tuple[TaskSettings, ...] = ()
    """Tasks named by hand."""
    metrics: dict[str, MetricSettings] = {}
    """Overrides of the catalogue and metrics of your own, by name."""
    recording: RecordingSettings = RecordingSettings()
    """Reading recordings."""
    detect: DetectSettings = DetectSettings()
    """Judging."""
    train: TrainSettings = TrainSettings()
    """Training."""

    @field_validator("tasks")
    @classmethod
    def _names_are_unique(cls, value: tuple[TaskSettings, ...]) -> tuple[TaskSettings, ...]:
        doubled = sorted(name for name, count in Counter(task.name for task in value).items() if count > 1)
        if doubled:
            raise ValueError(f"the name {doubled[0]!r} is given twice: names must be unique")
        return value
