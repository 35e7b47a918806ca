"""Alignment: one grid per metric, the nearest sample where one is missing, and the bounds of normalisation.

Pure. Takes the raw series of a task, gives panels (values and their presence mask) and, window by
window, the min-max bounds. Nothing here compares machines; that is scoring.
"""

from __future__ import annotations

from trainminder.align.placing import Cells, Placing, Row, cells_of
from trainminder.align.sampling import STRETCHES, Sampling, sampling_of
from trainminder.align.views import layout_of, panels, views_of
from trainminder.align.windows import (
    LEAST_RANGE,
    Bounds,
    column_medians,
    compared_samples,
    from_second,
    is_judged,
    looks_back,
    normalisation,
    window_means,
)

__all__ = [
    "LEAST_RANGE",
    "STRETCHES",
    "Bounds",
    "Cells",
    "Placing",
    "Row",
    "Sampling",
    "cells_of",
    "column_medians",
    "compared_samples",
    "from_second",
    "is_judged",
    "layout_of",
    "looks_back",
    "normalisation",
    "panels",
    "sampling_of",
    "views_of",
    "window_means",
]
