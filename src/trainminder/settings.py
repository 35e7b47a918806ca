"""One settings model: what can be set, in which unit, why the default, and what changing it costs.

Values come from a YAML file, then ``TRAINMINDER_SECTION__KEY`` environment variables, then the command
line; the later wins. ``load_settings`` reports every problem at once.
"""

from __future__ import annotations

import difflib
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator

from trainminder.errors import SettingsError
from trainminder.types import Direction, Distance, Level, QueryKind

__all__ = [
    "DetectSettings",
    "MembershipSettings",
    "MetricSettings",
    "RecordingSettings",
    "Settings",
    "StoreSettings",
    "TaskSettings",
    "TrainSettings",
    "iter_settings",
    "load_settings",
    "merge_layers",
    "nearest_key",
    "nest",
]

ENVIRONMENT_PREFIX = "TRAINMINDER_"

#: What a settings file may hold, its aliases written out.
DEEPEST, MOST_VALUES = 20, 1_000_000

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

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
    """File holding the token; read again for every pass, so that a rotated token is picked up."""
    headers: dict[str, SecretStr] = {}
    """More headers, such as X-Scope-OrgID for the tenant of Mimir, Cortex or Loki-style gateways."""
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
    """Label that limits who is compared with whom (role, pipeline stage, rack). None: everyone."""


class TaskSettings(_Section):
    """A task that the settings name: its machines, or the selector that finds them."""

    name: str
    """Name used with --task and in every output."""
    machines: tuple[str, ...] | None = None
    """Static list of machines. None: every machine the matcher finds."""
    matcher: str = ""
    """PromQL label matchers of the task's series without braces, such as: cluster="a",job=~"dcgm|node"."""
    groups: dict[str, str] = {}
    """machine -> group; limits who is compared with whom."""


class QuerySettings(_Section):
    """One way to get a metric from a store; the first that finds series is used."""

    exporter: str = "settings"
    """Name shown by the doctor and in messages."""
    query: str
    """Selector (gauge, counter) or expression; $matcher stands for the task's matchers, $rate for a rate window."""
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
    """Which way a fault usually moves it; shown in evidence."""
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
    """More values that mean "no value", besides the known ones (near 9.2e18, 1.4e14, 2^31)."""


class DetectSettings(_Section):
    """How a pass judges."""

    method: Literal["default", "paper"] = "default"
    """Named method. default is the best one this version has; paper follows the publication."""
    minutes: Positive = 15.0
    """Length of data pulled for one pass (the paper's 15 minutes)."""
    metrics: tuple[str, ...] | None = None
    """Metrics in order of priority; None: every metric with data, in the catalogue's order."""
    window_samples: Annotated[int, Field(ge=2, le=512)] = 8
    """Samples per window (the paper's 8). Must be what the models were trained with."""
    distance: Distance = "euclidean"
    """Distance between embeddings; the paper finds that the kind matters little."""
    false_alarm_probability: Annotated[float, Field(gt=0, lt=0.5)] = 1e-4
    """Chance that one window of one metric makes a candidate although no machine is faulty, whatever the number
    of machines. Raising it finds subtler faults and blames healthy machines more often."""
    continuity_seconds: Annotated[float, Field(ge=0)] = 240.0
    """How long the same machine must remain the candidate (the paper's 4 minutes). Lower is faster, less sure."""
    min_machines: Annotated[int, Field(ge=3)] = 3
    """Fewest comparable machines: of two, neither stands out."""
    max_missing_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """A metric with a larger share of missing samples is not judged; if none is left, the verdict is unknown."""
    models_dir: Path | None = None
    """Folder of denoising models; the shipped ones otherwise."""


class TrainSettings(_Section):
    """How denoising models are trained."""

    hidden_size: Annotated[int, Field(ge=1, le=256)] = 4
    """LSTM hidden size (the paper's 4)."""
    latent_size: Annotated[int, Field(ge=1, le=256)] = 8
    """Latent size (the paper's 8)."""
    layers: Annotated[int, Field(ge=1, le=4)] = 1
    """LSTM layers (the paper's 1)."""
    kl_weight: Annotated[float, Field(ge=0)] = 1e-5
    """Weight of the KL term beside the squared error. Higher smooths more and blurs small faults."""
    epochs: Annotated[int, Field(ge=1)] = 20
    """Passes over the training windows."""
    batch_size: Annotated[int, Field(ge=1)] = 128
    """Windows per step."""
    learning_rate: Positive = 5e-2
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

    @model_validator(mode="after")
    def _names_are_unique(self) -> Settings:
        names = [task.name for task in self.tasks]
        doubled = sorted(name for name, count in Counter(names).items() if count > 1)
        if doubled:
            raise ValueError(f"tasks: the name {doubled[0]!r} is given twice: names must be unique")
        return self


def load_settings(
    path: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """Build the settings from a YAML file, the environment and flags; the later wins.

    Args:
        path: YAML file; None: no file.
        environment: variables ``TRAINMINDER_SECTION__KEY``; None: the process's.
        flags: dotted key -> value, such as {"detect.method": "paper"}; None values are left out.
    Raises:
        SettingsError: every problem found, each with its key path and the remedy.
    """
    merged, _ = merge_layers(path, environment, flags)
    try:
        return Settings.model_validate(merged)
    except ValidationError as error:
        raise SettingsError(*[_describe(problem) for problem in error.errors()]) from error


def merge_layers(
    path: Path | None, environment: Mapping[str, str] | None, flags: Mapping[str, Any] | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """The raw values in force, nested, and for each dotted key the layer that set it (file, environment, flag)."""
    layers = {
        "file": _read_file(path) if path else {},
        "environment": _read_environment(os.environ if environment is None else environment),
        "flag": nest({key: value for key, value in (flags or {}).items() if value is not None}),
    }
    merged: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for layer, values in layers.items():
        _merge(merged, values)
        origin |= dict.fromkeys(_dotted(values), layer)
    return merged, origin


def iter_settings(model: type[BaseModel] = Settings, prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Every setting as (dotted key, type, default, explanation); list and map items show as ``[]``."""
    for name, info in model.model_fields.items():
        key = f"{prefix}{name}"
        inner, suffix = _inner_model(info.annotation)
        if inner is not None:
            yield from iter_settings(inner, f"{key}{suffix}.")
            continue
        default = "required" if info.is_required() else _plain(info.default)
        yield key, _type_name(info.annotation), default, " ".join((info.description or "").split())


def nearest_key(key: str) -> str | None:
    """The known dotted key, or section, most like ``key``."""
    known = [name for name, *_ in iter_settings()]
    # Sections first: "detct" is nearer to "detect" than to any key in it.
    sections = dict.fromkeys(name.rpartition(".")[0].removesuffix("[]") for name in known)
    close = difflib.get_close_matches(key, [*sections, *known], n=1, cutoff=0.5)
    return close[0] if close else None


def _inner_model(annotation: Any) -> tuple[type[BaseModel] | None, str]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, ""
    for argument in get_args(annotation):
        inner, suffix = _inner_model(argument)
        if inner is not None:
            return inner, ("[]" if get_origin(annotation) in (tuple, dict) else "") + suffix
    return None, ""


def _type_name(annotation: Any) -> str:
    """A type in words: "number", "list of text", "machine | device"."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_name(arguments[0])
    if origin is Literal:
        return " | ".join(str(choice) for choice in arguments)
    if origin in (Union, UnionType):
        return " | ".join(_type_name(argument) for argument in arguments)
    if origin is tuple:
        return f"list of {_type_name(arguments[0])}"
    if origin is dict:
        return f"mapping of {_type_name(arguments[1])}"
    return _TYPE_NAMES.get(annotation, str(annotation))


_TYPE_NAMES: Mapping[Any, str] = {
    bool: "true | false",
    float: "number",
    int: "whole number",
    str: "text",
    Path: "path",
    SecretStr: "secret",
    type(None): "null",
}


def _plain(value: Any) -> str:
    """A default as it would be written in the settings file."""
    if value is None:
        return "null"
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise SettingsError(f"settings file {path}: {reason}: give a readable YAML file with --settings") from error
    try:
        values = yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader, in C where there is one
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        reason = " ".join(str(getattr(error, "problem", None) or error).split())
        raise SettingsError(f"settings file {path} is not YAML{where}: {reason}") from error
    except (RecursionError, ValueError) as error:
        raise SettingsError(f"settings file {path} cannot be read as YAML ({error}): see docs/settings.md") from error
    if values is None:
        return {}
    if not _is_plain(values):
        raise SettingsError(
            f"settings file {path} is nested deeper than {DEEPEST} levels, holds itself, or grows beyond "
            f"{MOST_VALUES} values by its aliases: write it plainly"
        )
    if not isinstance(values, dict):
        raise SettingsError(f"settings file {path} holds a {type(values).__name__}: it must be a mapping of sections")
    return values


def _is_plain(values: Any) -> bool:
    """Whether a tree is of a size that a person writes; aliases may make a small file endless."""
    left = [(values, 1)]
    seen = 0
    while left:
        value, depth = left.pop()
        inside = [*value.keys(), *value.values()] if isinstance(value, dict) else value
        if isinstance(inside, list | tuple | set):
            seen += len(inside)
            if depth > DEEPEST or seen > MOST_VALUES:
                return False
            left += [(each, depth + 1) for each in inside]
    return True


def _read_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, text in environment.items():
        # Single-part names such as TRAINMINDER_HOME are not settings keys; a section always follows.
        if name.startswith(ENVIRONMENT_PREFIX) and "__" in name:
            key = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
            try:
                found[key] = yaml.safe_load(text)
            except yaml.YAMLError:
                found[key] = text
    return nest(found)


def nest(values: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as nested mappings.

    Raises:
        SettingsError: a key is given a value of its own and another key stands under it.
    """
    nested: dict[str, Any] = {}
    for key, value in values.items():
        *parents, last = key.split(".")
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise SettingsError(f"{key}: {parent} is also given as {place!r}: give one or the other")
        place[last] = value
    return nested


def _merge(base: dict[str, Any], over: Mapping[str, Any]) -> None:
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            _merge(base[key], value)
        else:
            base[key] = value


def _dotted(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _describe(problem: Any) -> str:
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        nearest = nearest_key(re.sub(r"\.\d+\.", "[].", key))
        hint = f'; did you mean "{nearest}"?' if nearest else '; see "trainminder settings explain"'
        return f"{key}: unknown setting{hint}"
    given = problem.get("input")
    message = problem["msg"].removeprefix("Value error, ")
    # A secret's value must not reach a log through its error.
    secret = re.search(r"password|token|headers", key)
    shown = "" if secret or isinstance(given, dict | list) or not key else f" (it is {given!r})"
    return f"{key}: {message}{shown}" if key else message
