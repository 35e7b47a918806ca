"""Carrying what is remembered of named things over to the names of now, without looking names up that are the same."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import wraps
from typing import Any, TypeVar

import numpy as np

__all__ = ["carried", "of_same"]

Found = TypeVar("Found")


def carried(
    names: Sequence[Hashable], known: Sequence[Hashable], records: np.ndarray[Any, Any] | None, fresh: Any
) -> np.ndarray[Any, Any]:
    """The records by these names, copied: those that are known, and fresh ones for the others.

    Args:
        known: the names of ``records`` along its first axis; None of them: nothing is known.
        fresh: what the record of a new name is; of the shape of one, or a scalar.
    """
    if records is not None and (names is known or tuple(names) == tuple(known)):
        return records.copy()
    like = np.asarray(fresh) if records is None else records
    shape = (len(names), *(like.shape[1:] if records is not None else like.shape))
    found = np.empty(shape, dtype=like.dtype)
    found[...] = fresh
    if records is not None:
        place = {name: index for index, name in enumerate(known)}
        pairs = [(index, place[name]) for index, name in enumerate(names) if name in place]
        if pairs:
            here, there = np.array(pairs).T
            found[here] = records[there]
    return found


def of_same(most: int) -> Callable[[Callable[..., Found]], Callable[..., Found]]:
    """A decorator: remember what a function gave for the same objects, so many times.

    For functions of long tuples of names: whether they are the same objects is known at once, whether they are equal
    is not. The arguments must not be changed.
    """

    def remember(function: Callable[..., Found]) -> Callable[..., Found]:
        kept: OrderedDict[tuple[int, ...], tuple[tuple[Any, ...], Found]] = OrderedDict()

        @wraps(function)
        def remembering(*given: Any) -> Found:
            key = tuple(map(id, given))
            held = kept.get(key)
            if held is None:
                # The objects are kept with it, so that no other takes their place in memory.
                held = kept[key] = given, function(*given)
                while len(kept) > most:
                    try:
                        kept.popitem(last=False)
                    except KeyError:  # another thread was faster
                        break
            return held[1]

        return remembering

    return remember
