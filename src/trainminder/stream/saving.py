"""Saving: what a stream remembers as bytes, and back. Versioned, checked, compact; nothing in it is ever executed.

A tree of plain values in JSON, with the arrays beside it in one Arrow record batch, compressed. Only the classes named
by the caller are made when it is read, with the fields that they have; everything else is refused.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from trainminder.errors import StateError

__all__ = ["FORMAT", "pack", "unpack"]

#: What the bytes begin with, and the version of what follows.
MAGIC, FORMAT = b"trainminder-stream", 1
HEAD = struct.Struct(f">{len(MAGIC)}sH32s")
#: Tuples longer than this that occur again are written once.
LONG = 8


class _Writer:
    def __init__(self, classes: Sequence[type]) -> None:
        self._classes = frozenset(classes)
        self.arrays: list[np.ndarray[Any, Any]] = []
        self.shared: list[Any] = []
        self._places: dict[tuple[Any, ...], int] = {}

    def tree(self, value: Any) -> Any:
        """The value as JSON knows it: plain ones as they are, others as a list with their kind first."""
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, int | float):
            return value
        if isinstance(value, np.ndarray):
            self.arrays.append(value)
            return ["array", len(self.arrays) - 1]
        if isinstance(value, tuple):
            return self._tuple(value)
        if isinstance(value, frozenset):
            return ["set", [self.tree(item) for item in sorted(value)]]
        if isinstance(value, Mapping):
            return ["map", [[self.tree(key), self.tree(item)] for key, item in value.items()]]
        if type(value) not in self._classes:
            raise TypeError(f"{type(value)} is not among what can be saved")
        return [
            type(value).__name__,
            {each.name: self.tree(getattr(value, each.name)) for each in dataclasses.fields(value)},
        ]

    def _tuple(self, value: tuple[Any, ...]) -> Any:
        if len(value) <= LONG or not isinstance(value[0], str | tuple):
            return ["tuple", [self.tree(item) for item in value]]
        if value not in self._places:
            self._places[value] = len(self.shared)
            self.shared.append(None)
            self.shared[self._places[value]] = [self.tree(item) for item in value]
        return ["shared", self._places[value]]


def pack(value: Any, classes: Sequence[type]) -> bytes:
    """A value as bytes: plain values, tuples, mappings, arrays, and objects of these dataclasses."""
    writer = _Writer(classes)
    tree = writer.tree(value)
    arrays = [np.ascontiguousarray(array) for array in writer.arrays]
    about = {
        "tree": tree,
        "shared": writer.shared,
        "arrays": [[np.lib.format.dtype_to_descr(array.dtype), list(array.shape)] for array in arrays],
    }
    columns = [json.dumps(about).encode(), *(array.tobytes() for array in arrays)]
    frame = pl.DataFrame({str(number): [column] for number, column in enumerate(columns)})
    sink = io.BytesIO()
    frame.write_ipc_stream(sink, compression="zstd")
    body = sink.getvalue()
    return HEAD.pack(MAGIC, FORMAT, hashlib.sha256(body).digest()) + body


class _Reader:
    def __init__(self, arrays: list[np.ndarray[Any, Any]], shared: list[Any], classes: Sequence[type]) -> None:
        self._arrays, self._trees = arrays, shared
        self._classes = {cls.__name__: cls for cls in classes}
        self._shared: dict[int, tuple[Any, ...]] = {}

    def value(self, tree: Any) -> Any:
        """What ``_Writer.tree`` was given."""
        if not isinstance(tree, list):
            return tree
        kind, held = tree
        if kind == "array":
            return self._arrays[held]
        if kind == "tuple":
            return tuple(self.value(item) for item in held)
        if kind == "shared":
            if held not in self._shared:
                self._shared[held] = tuple(self.value(item) for item in self._trees[held])
            return self._shared[held]
        if kind == "set":
            return frozenset(self.value(item) for item in held)
        if kind == "map":
            return {self.value(key): self.value(item) for key, item in held}
        cls = self._classes[kind]
        if held.keys() != {each.name for each in dataclasses.fields(cls)}:
            raise KeyError(kind)
        return cls(**{name: self.value(item) for name, item in held.items()})


def unpack(saved: bytes, classes: Sequence[type]) -> Any:
    """What ``pack`` was given.

    Raises:
        StateError: it is damaged, or of another version.
    """
    remedy = "restore it from a copy, or begin anew"
    if len(saved) < HEAD.size or not saved.startswith(MAGIC):
        raise StateError(f"this is no saved stream: {remedy}")
    _, version, checksum = HEAD.unpack_from(saved)
    if version != FORMAT:
        raise StateError(
            f"the stream was saved in format {version}, and this version reads format {FORMAT}: begin anew"
        )
    body = memoryview(saved)[HEAD.size :]
    if hashlib.sha256(body).digest() != checksum:
        raise StateError(f"the saved stream is damaged, its checksum is not its own: {remedy}")
    try:
        columns = pl.read_ipc_stream(io.BytesIO(body)).row(0)
        about = json.loads(columns[0])
        arrays = [
            np.frombuffer(column, dtype=np.lib.format.descr_to_dtype(_as_descr(descr))).reshape(shape).copy()
            for column, (descr, shape) in zip(columns[1:], about["arrays"], strict=True)
        ]
        return _Reader(arrays, about["shared"], classes).value(about["tree"])
    except (pl.exceptions.PolarsError, ValueError, KeyError, TypeError, IndexError) as error:
        raise StateError(f"the saved stream cannot be read ({error}): {remedy}") from error


def _as_descr(descr: Any) -> Any:
    """What JSON made lists of, as numpy wants it: fields as tuples, with their shape if they have one."""
    if isinstance(descr, str):
        return descr
    return [(name, kind, *(tuple(shape) for shape in rest)) for name, kind, *rest in descr]
