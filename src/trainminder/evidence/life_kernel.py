"""The loops over instants of a task's life, compiled."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trainminder.compiled import compiled

__all__ = ["PROGRESS", "follow_progress", "follow_work"]

#: Samples by which the first level of progress is known.
FIRST = 20
#: Of one metric's progress: of the last seconds, of minutes, how far it strays, and what its first samples were.
PROGRESS = np.dtype(
    [
        ("now", "f8"),
        ("usual", "f8"),
        ("stray", "f8"),
        ("is_low", "i8"),
        ("seen", "i8"),
        ("first", "f8", (FIRST,)),
    ]
)
#: Seconds without activity after which a task stands still, and of what follows that is no ordinary work either.
STILL_SECONDS, GRACE_SECONDS = 20.0, 90.0
#: Share of the usual progress that is lost when the task suffers; once it does, until less than the second is.
LOST, STILL_LOST = 0.1, 0.05
#: Share of the usual progress below which hardly anything is left.
LITTLE = 0.4


@compiled()
def follow_work(is_active: Any, step: float, pace: float, idle: float, grace: float, live: Any) -> tuple[float, float]:
    """Mark in ``live`` when the task works; gives the seconds idle, and of grace that are left."""
    for t in range(len(is_active)):
        if is_active[t]:
            if idle >= STILL_SECONDS * pace:
                grace = GRACE_SECONDS * pace
            idle = 0.0
            live[t] = grace <= 0.0
            grace = max(grace - step, 0.0)
        else:
            idle += step
            live[t] = False
    return idle, grace


@compiled()
def follow_progress(
    level: Any, live: Any, step: float, pace: float, is_both_ways: bool, memory: Any, found: Any
) -> None:
    """Mark in ``found`` when progress is lost (1) or nearly all of it is (2).

    Args:
        level: (instant,) the median machine's value.
        is_both_ways: more than usual counts as well: the metric's direction is not known.
    """
    to_now = 1.0 - math.exp(-step / max(20.0 * pace, 3.0 * step))
    to_usual = 1.0 - math.exp(-step / max(300.0 * pace, 20.0 * step))
    m = memory[0]
    for t in range(len(level)):
        found[t] = 0
        if not live[t] or math.isnan(level[t]):
            m.is_low = 0
            continue
        if m.seen < FIRST:
            m.first[m.seen] = level[t]
            m.seen += 1
            if m.seen == FIRST:
                first = m.first.copy()
                m.usual = m.now = np.median(first)
                m.stray = np.median(np.abs(first - m.usual))
            continue
        m.now += to_now * (level[t] - m.now)
        lost = abs(m.usual - m.now) if is_both_ways else m.usual - m.now
        if lost > (STILL_LOST if m.is_low else LOST) * abs(m.usual) and lost > 4.0 * m.stray:
            m.is_low = 1
            found[t] = 2 if m.now < LITTLE * m.usual else 1
        else:
            m.is_low = 0
            m.usual += to_usual * (level[t] - m.usual)
            m.stray += to_usual * (abs(m.now - m.usual) - m.stray)
