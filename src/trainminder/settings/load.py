"""Settings from their layers: file, environment, flags; and every problem of them at once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from trainminder.errors import SettingsError
from trainminder.settings.explain import nearest_key
from trainminder.settings.sections import Settings

__all__ = ["ENVIRONMENT_PREFIX", "load_settings", "merge_layers", "nest"]

ENVIRONMENT_PREFIX = "TRAINMINDER_"

#: What a settings file may hold, its aliases written out.
DEEPEST, MOST_VALUES = 20, 1_000_000

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


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


#: What is wanted, in a user's words rather than the library's.
_WANTED = {
    "tuple_type": "a list is wanted, such as [a, b]",
    "dict_type": "a mapping is wanted, such as {name: value}",
    "model_type": "a mapping of settings is wanted",
    "string_type": "text is wanted",
    "float_type": "a number is wanted",
    "float_parsing": "a number is wanted",
    "int_type": "a whole number is wanted",
    "int_parsing": "a whole number is wanted",
    "int_from_float": "a whole number is wanted",
    "bool_type": "true or false is wanted",
    "bool_parsing": "true or false is wanted",
}


def _describe(problem: Any) -> str:
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        nearest = nearest_key(re.sub(r"\.\d+\.", "[].", key))
        hint = f'; did you mean "{nearest}"?' if nearest else '; see "trainminder settings explain"'
        return f"{key}: unknown setting{hint}"
    given = problem.get("input")
    message = _WANTED.get(problem["type"], problem["msg"].removeprefix("Value error, "))
    # A secret's value must not reach a log through its error; an address may hold one.
    secret = re.search(r"password|token|headers", key) or (key == "store.url" and "@" in str(given))
    shown = "" if secret or isinstance(given, dict | list) or not key else f" (it is {given!r})"
    return f"{key}: {message}{shown}" if key else message
