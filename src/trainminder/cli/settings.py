"""``trainminder settings``: what is in force, whether it is right, and what can be set."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trainminder.cli.options import invocation_of, settings_from
from trainminder.cli.output import markdown_table
from trainminder.errors import SettingsError

if TYPE_CHECKING:
    from trainminder.settings import Settings

__all__ = ["app"]

app = typer.Typer(help="Show, check and explain the settings.", rich_markup_mode=None)

_MASK = "**********"

Described = tuple[str, str, str, str]


@app.command("show")
def show(ctx: typer.Context) -> None:
    """Print the settings in force.

    As YAML; each setting that was set says where it comes from, and secrets are masked.

    Example: trainminder --settings trainminder.yaml settings show
    """
    from trainminder.settings import merge_layers

    invocation = invocation_of(ctx)
    settings = settings_from(ctx)
    # Of a metric only what was set: the rest is the catalogue's, not these defaults.
    effective = settings.model_dump(mode="json") | {"metrics": _stated_metrics(settings)}
    _, origin = merge_layers(invocation.settings_file, None, invocation.overrides)
    comments = {key: _origin_text(key, layer, invocation.settings_file) for key, layer in origin.items()}
    for line in _yaml_lines(effective, comments):
        typer.echo(line)


@app.command("check")
def check(ctx: typer.Context) -> None:
    """Report every problem of the settings at once.

    The exit code is 1 if there is one.

    Example: trainminder --settings trainminder.yaml settings check
    """
    from trainminder.catalogue import load_catalogue
    from trainminder.settings import merge_layers

    load_catalogue(settings_from(ctx).metrics)
    invocation = invocation_of(ctx)
    _, origin = merge_layers(invocation.settings_file, os.environ, invocation.overrides)
    counts = {layer: list(origin.values()).count(layer) for layer in ("file", "environment", "flag")}
    typer.echo(
        f"The settings are right. Values set: {counts['file']} in {invocation.settings_file or 'no file'}, "
        f"{counts['environment']} in the environment, {counts['flag']} on the command line."
    )


@app.command("explain")
def explain(
    key: Annotated[str | None, typer.Argument(metavar="[KEY]", help="A setting or a section; all without it.")] = None,
    form: Annotated[
        Literal["text", "markdown"], typer.Option("--format", metavar="text|markdown", help="What to print.")
    ] = "text",
) -> None:
    """Say what a setting means.

    Its type, its default, and what changing it costs.

    Example: trainminder settings explain detect.continuity_seconds
    """
    from trainminder.settings import ENVIRONMENT_PREFIX, iter_settings

    known = list(iter_settings())
    wanted = known if key is None else _matching(key, known)
    if form == "markdown":
        typer.echo(_markdown(wanted))
        return
    for name, kind, default, meaning in wanted:
        typer.echo(f"{name}  ({kind}; {_default_text(default)})")
        typer.echo(f"    {meaning}")
        if "[]" not in name:
            typer.echo(f"    environment: {ENVIRONMENT_PREFIX}{name.upper().replace('.', '__')}")


# ---------------------------------------------------------------- show


def _stated_metrics(settings: Settings) -> dict[str, Any]:
    stated: dict[str, Any] = settings.model_dump(mode="json", exclude_unset=True).get("metrics", {})
    return stated


def _yaml_lines(values: Mapping[str, Any], comments: Mapping[str, str], parents: tuple[str, ...] = ()) -> Iterator[str]:
    indent = "  " * len(parents)
    for name, value in values.items():
        key = ".".join((*parents, name))
        comment = f"  # {comments[key]}" if key in comments else ""
        # A mapping with entries is opened; an empty one, a list or a plain value stays on its line.
        if isinstance(value, dict) and value:
            yield f"{indent}{_inline(name)}:{comment}"
            yield from _yaml_lines(value, comments, (*parents, name))
        else:
            yield f"{indent}{_inline(name)}: {_inline(_without_credentials(value))}{comment}"


def _inline(value: Any) -> str:
    import yaml

    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")


def _without_credentials(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return re.sub(r"(?<=://)[^/@\s]+@", f"{_MASK}@", value)


def _origin_text(key: str, layer: str, settings_file: Path | None) -> str:
    if layer == "file":
        return f"from {settings_file}"
    if layer == "environment":
        return f"from TRAINMINDER_{key.upper().replace('.', '__')}"
    return "from the command line"


# ---------------------------------------------------------------- explain


def _matching(key: str, known: Iterable[Described]) -> list[Described]:
    from trainminder.settings import nearest_key

    known = list(known)
    found = [entry for entry in known if _is_under(entry[0], key)]
    if found:
        return found
    nearest = nearest_key(key)
    hint = f'did you mean "{nearest}"?' if nearest else 'see "trainminder settings explain" for all'
    raise SettingsError(f"{key}: unknown setting; {hint}")


def _is_under(name: str, key: str) -> bool:
    """Whether setting ``name`` is ``key`` or stands under it; metrics.cpu_usage.unit asks for metrics[].unit."""
    asked, parts = _parts(key), _parts(name)
    return len(asked) <= len(parts) and all(part in ("*", word) for word, part in zip(asked, parts, strict=False))


def _parts(key: str) -> list[str]:
    return key.rstrip(".").replace("[]", ".*").split(".")


def _default_text(default: str) -> str:
    return default if default == "required" else f"default {default or 'empty'}"


def _markdown(entries: Iterable[Described]) -> str:
    blocks: list[str] = []
    for section, group in groupby(entries, key=lambda entry: entry[0].split(".")[0]):
        rows = [(f"`{name}`", kind, _markdown_default(default), meaning) for name, kind, default, meaning in group]
        blocks.append(f"## {section}\n\n{markdown_table(('setting', 'type', 'default', 'meaning'), rows)}")
    return "\n\n".join(blocks)


def _markdown_default(default: str) -> str:
    return default if default == "required" else f"`{default}`" if default else "empty"
