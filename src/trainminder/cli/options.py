"""Options that several commands share, and how they become settings.

A command takes an option by its alias (``prometheus: PrometheusOption = None``), collects them with the
``*_flags`` function of the group, and hands the result to ``settings_from``.
"""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trainminder.engine import EngineName
from trainminder.errors import SettingsError

if TYPE_CHECKING:
    from trainminder.settings import DetectSettings, Settings

__all__ = [
    "AtOption",
    "BearerTokenFileOption",
    "CaFileOption",
    "ColumnOption",
    "ContinuityOption",
    "EngineOption",
    "FailOnFaultyOption",
    "FormatOption",
    "HeaderOption",
    "Invocation",
    "MachineLabelOption",
    "MethodOption",
    "MetricOption",
    "MinutesOption",
    "ModelsDirOption",
    "OptionalAtOption",
    "PrometheusOption",
    "RecordingArgument",
    "RecordingsArgument",
    "ReportOption",
    "TaskOption",
    "detect_flags",
    "invocation_of",
    "parse_overrides",
    "recording_flags",
    "say_unused",
    "settings_from",
    "store_flags",
]

# ---------------------------------------------------------------- recordings

RecordingArgument = Annotated[
    Path | None,
    typer.Argument(metavar="[RECORDING]", help="Recording to read: a Parquet or CSV file, or a folder of them."),
]
RecordingsArgument = Annotated[
    list[Path] | None, typer.Argument(metavar="[RECORDING]...", help="Recordings to read: files or folders.")
]
MetricOption = Annotated[
    list[str] | None,
    typer.Option("--metric", metavar="NAME[=UNIT]", help="Admit a column or query as a metric. Repeatable."),
]
ColumnOption = Annotated[
    list[str] | None,
    typer.Option("--column", metavar="FROM=TO", help="Rename a column, such as time=timestamp. Repeatable."),
]

# ---------------------------------------------------------------- the store

PrometheusOption = Annotated[
    str | None, typer.Option("--prometheus", metavar="URL", help="Prometheus-compatible store to read from.")
]
TaskOption = Annotated[str | None, typer.Option("--task", metavar="NAME", help="The task to look at.")]
AtOption = Annotated[
    str,
    typer.Option("--at", metavar="INSTANT", help="End of the data: ISO 8601, Unix seconds, now, or -15m."),
]
OptionalAtOption = Annotated[
    str | None,
    typer.Option("--at", metavar="INSTANT", help="End of the data: ISO 8601, Unix seconds, now, or -15m."),
]
MinutesOption = Annotated[
    float | None, typer.Option("--minutes", metavar="MINUTES", help="How much data before that end. [15]")
]
BearerTokenFileOption = Annotated[
    Path | None,
    typer.Option("--bearer-token-file", metavar="FILE", help="File with the token for the store."),
]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=VALUE", help="Header for the store, such as X-Scope-OrgID=a. Repeatable."),
]
CaFileOption = Annotated[
    Path | None, typer.Option("--ca-file", metavar="FILE", help="Authority of the store's certificate (PEM).")
]
MachineLabelOption = Annotated[
    str | None, typer.Option("--machine-label", metavar="LABEL", help="Label that names the machine. [instance]")
]

# ---------------------------------------------------------------- judging

EngineOption = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        metavar="local|ray",
        help="Where work is done: in this process, or by the workers of a Ray cluster (RAY_ADDRESS, or one started "
        "here; needs the extra scale).",
    ),
]
MethodOption = Annotated[
    str | None,
    typer.Option(
        "--method",
        metavar="default|paper",
        help="Method of detection: default gathers evidence over time and metrics, paper follows Minder. [default]",
    ),
]
ContinuityOption = Annotated[
    float | None,
    typer.Option(
        "--continuity-seconds",
        metavar="SECONDS",
        help="How long a machine must stand out to be faulty, by the method paper. [240]",
    ),
]
ModelsDirOption = Annotated[
    Path | None,
    typer.Option(
        "--models-dir", metavar="DIR", help="Denoising models of the method paper; the shipped ones otherwise."
    ),
]
FormatOption = Annotated[
    Literal["table", "json"], typer.Option("--format", metavar="table|json", help="What to print.")
]
ReportOption = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Also write a self-contained HTML page.")
]
FailOnFaultyOption = Annotated[bool, typer.Option("--fail-on-faulty", help="Exit with 2 when a machine is faulty.")]


def recording_flags(column: Iterable[str] | None) -> dict[str, Any]:
    """The settings that recording options set; ``--metric`` goes to ``Catalogue.with_declared``.

    Raises:
        SettingsError: a ``--column`` without its two names.
    """
    columns = _pairs(column, "--column", "FROM=TO", "=")
    return {"recording.columns": columns or None}


def store_flags(
    prometheus: str | None = None,
    bearer_token_file: Path | None = None,
    header: Iterable[str] | None = None,
    ca_file: Path | None = None,
    machine_label: str | None = None,
) -> dict[str, Any]:
    """The settings that store options set.

    Raises:
        SettingsError: a ``--header`` without name or value.
    """
    return {
        "store.url": prometheus,
        "store.bearer_token_file": bearer_token_file,
        "store.headers": _pairs(header, "--header", "NAME=VALUE", "=", ":") or None,
        "store.ca_file": ca_file,
        "membership.machine_label": machine_label,
    }


def detect_flags(
    method: str | None = None,
    minutes: float | None = None,
    continuity_seconds: float | None = None,
    models_dir: Path | None = None,
) -> dict[str, Any]:
    """The settings that the options of judging set."""
    return {
        "detect.method": method,
        "detect.minutes": minutes,
        "detect.continuity_seconds": continuity_seconds,
        "detect.models_dir": models_dir,
    }


def say_unused(settings: DetectSettings, continuity_seconds: float | None, models_dir: Path | None = None) -> None:
    """Say that options were given which the method does not look at."""
    if settings.method == "default" and (continuity_seconds, models_dir) != (None, None):
        typer.echo("note: --continuity-seconds and --models-dir are for --method paper; default uses neither", err=True)


# ---------------------------------------------------------------- from options to settings


@dataclass(frozen=True, slots=True)
class Invocation:
    """What the options before the command said."""

    settings_file: Path | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """What ``--set`` said, nested by section."""


def invocation_of(ctx: typer.Context) -> Invocation:
    """The invocation that a command runs in."""
    invocation = ctx.obj
    return invocation if isinstance(invocation, Invocation) else Invocation()


def settings_from(ctx: typer.Context, flags: Mapping[str, Any] | None = None) -> Settings:
    """The settings in force: file, then environment, then ``--set``, then the command's own flags.

    Args:
        ctx: the command's context.
        flags: dotted key -> value; None values are left out.
    Raises:
        SettingsError: every problem at once.
    """
    from trainminder.settings import load_settings

    for note in _misspelt_variables(os.environ):
        logging.getLogger(__name__).warning(note)
    invocation = invocation_of(ctx)
    stated = {key: value for key, value in (flags or {}).items() if value is not None}
    return load_settings(invocation.settings_file, flags={**copy.deepcopy(dict(invocation.overrides)), **stated})


def parse_overrides(texts: Iterable[str] | None) -> dict[str, Any]:
    """``KEY=VALUE`` of ``--set``, nested by section; values are YAML: numbers, lists and null mean themselves.

    Raises:
        SettingsError: no key or no "=", or a key that stands both for a value and for a section.
    """
    pairs = _pairs(texts, "--set", "KEY=VALUE", "=", may_be_empty=True)
    if not pairs:
        return {}
    import yaml

    from trainminder.settings import nest

    values: dict[str, Any] = {}
    for key, text in pairs.items():
        try:
            values[key] = yaml.safe_load(text)
        except yaml.YAMLError:
            values[key] = text
    return nest(values)


def _pairs(
    texts: Iterable[str] | None, option: str, form: str, *separators: str, may_be_empty: bool = False
) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts or ():
        cut = min((at for separator in separators if (at := text.find(separator)) > 0), default=0)
        name, value = text[:cut].strip(), text[cut + 1 :].strip()
        if not name or not (value or may_be_empty):
            # A header's value may be a secret, whatever is wrong with it.
            given = "" if option == "--header" else f' "{text}"'
            raise SettingsError(f"{option}{given}: write {option} {form}")
        pairs[name] = value
    return pairs


def _misspelt_variables(environment: Mapping[str, str]) -> list[str]:
    """A section is followed by two underscores; with one, the variable would be ignored in silence."""
    from trainminder.settings import ENVIRONMENT_PREFIX, iter_settings

    right = {key.replace(".", "_"): key.replace(".", "__") for key, *_ in iter_settings() if "[]" not in key}
    return [
        f"{name} is ignored: did you mean {ENVIRONMENT_PREFIX}{right[rest].upper()}?"
        for name in sorted(environment)
        if name.startswith(ENVIRONMENT_PREFIX)
        and (rest := name.removeprefix(ENVIRONMENT_PREFIX).lower()) in right
        and "__" not in name
    ]
