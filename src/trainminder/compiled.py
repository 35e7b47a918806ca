"""Functions that numba compiles: the one place that says how, and where compiled code is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

__all__ = ["compiled"]

F = TypeVar("F", bound=Callable[..., Any])


def compiled(**options: Any) -> Callable[[F], F]:
    """A decorator: compile a function on its first call, without the GIL, and keep the code for later processes.

    numba refuses to keep code where it can write neither beside the package nor under the user's home. A container
    with a read-only file system is such a place: there a function is compiled in each process.

    Args:
        options: more options of ``numba.njit``.
    """

    def compile_later(function: F) -> F:
        try:
            return cast(F, njit(nogil=True, cache=True, **options)(function))
        except RuntimeError:
            return cast(F, njit(nogil=True, **options)(function))

    return compile_later
