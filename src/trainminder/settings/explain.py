"""What can be set, read off the model itself: keys, types, defaults, explanations."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr

from trainminder.settings.sections import Settings

__all__ = ["iter_settings", "nearest_key"]


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
