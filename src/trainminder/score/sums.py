"""Dissimilarity: each machine's sum of distances to the others, exactly."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from trainminder.score.sums_kernel import KINDS, distance_sums
from trainminder.types import BoolArray, Distance, Float32Array, FloatArray, IntArray

__all__ = ["add_sums", "dissimilarity", "in_parallel"]


def dissimilarity(
    embeddings: Float32Array, judged: BoolArray, group_of: IntArray, distance: Distance = "euclidean"
) -> FloatArray:
    """Sum each machine's distances to all the others of its group, window by window.

    Args:
        embeddings: (machine, window, width), normalised units, no NaN where judged.
        judged: (machine, window), True where the machine takes part.
        group_of: (machine,) group of each machine; -1 takes part nowhere.
    Returns:
        (machine, window), >= 0, larger means further from its peers; NaN where not judged.
    Source: Minder, NSDI '25, similarity-based distance check.
    """
    sums = np.full(judged.shape, np.nan)
    windows = np.arange(judged.shape[1])
    for group in np.unique(group_of[group_of >= 0]):
        add_sums(embeddings, judged, np.flatnonzero(group_of == group), windows, distance, sums)
    return sums


def add_sums(
    embeddings: Float32Array,
    judged: BoolArray,
    members: IntArray,
    windows: IntArray,
    distance: Distance,
    sums: FloatArray,
) -> None:
    """``dissimilarity`` of one group in some windows, written into ``sums`` (machine, window)."""

    def work(some: IntArray) -> None:
        distance_sums(embeddings, judged, members, KINDS[distance], some, sums)

    in_parallel(windows, work)


def in_parallel(windows: IntArray, work: Callable[[IntArray], None]) -> None:
    """Do some work over parts of the windows on all cores; it must let go of the GIL."""
    threads = os.cpu_count() or 1
    if threads == 1 or len(windows) < 2:
        work(windows)
        return
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, part) for part in np.array_split(windows, min(threads * 4, len(windows)))]:
            done.result()
