"""Memory that was freed stays with the process, for what comes next.

Judging makes and frees the same arrays of some megabytes block after block. Left alone, the C library hands each back
to the system and asks for it again, which then has to find and clear it: on a virtual machine, that may take about as
long as judging.
"""

from __future__ import annotations

import ctypes

__all__ = ["keep_freed_memory"]

#: Of ``malloc.h``: keep this much at the top of the heap, and ask the system apart for no less than this.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES, LARGE_BYTES = 1 << 30, 64 << 20


def keep_freed_memory() -> None:
    """Tell the C library of this process; one that knows no such thing (musl, macOS) is left as it is."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
