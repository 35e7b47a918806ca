"""The life of a task: when it works, so that machines can be compared, and when all of it suffers at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trainminder.align import column_medians
from trainminder.coverage import ACTIVITY
from trainminder.evidence.causes import DECLARED, cause_of
from trainminder.evidence.life_kernel import PROGRESS, follow_progress, follow_work
from trainminder.types import BoolArray, FloatArray, Panel

__all__ = ["DEEP", "IMPACT", "Life", "LifeState", "progress", "work"]

#: Of ``progress``: nothing, the whole task suffers, hardly anything is left of its progress.
IMPACT, DEEP = 1, 2
#: Metrics in which the progress of a task shows: all of them fall when one machine holds up the rest.
PROGRESSING = frozenset(
    {
        "gpu_graphics_activity",
        "gpu_power_draw",
        "gpu_sm_activity",
        "gpu_tensor_activity",
        "nvlink_bandwidth",
        "pcie_bandwidth",
        "rdma_throughput",
    }
)


@dataclass(frozen=True, slots=True)
class LifeState:
    """What is remembered of a task's life: seconds idle and of grace that are left, and of each metric's progress."""

    idle_seconds: float = 0.0
    grace_seconds: float = 0.0
    progress: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Life:
    """When a task works: ``live`` (instant,) at ``times``. No instants: nothing tells, and it is taken to work."""

    times: FloatArray
    live: BoolArray

    def at(self, times: FloatArray) -> BoolArray:
        """(instant,) whether it works, by what was known at those instants."""
        if not len(self.times):
            return np.ones(len(times), dtype=np.bool_)
        return self.live[np.maximum(np.searchsorted(self.times, times + 1e-6) - 1, 0)]


def work(activity: Sequence[Panel], state: LifeState, after: float) -> tuple[Life, LifeState]:
    """When a task works: while the median machine is active, but for a while after it has stood still.

    Starts, restarts and evaluations stand still for longer than an iteration; what follows them is no ordinary work
    until loaders and caches are warm.

    Args:
        activity: machine-level views of metrics in ``coverage.ACTIVITY``.
        after: instants up to this one were followed before.
    """
    if not activity:
        return Life(np.zeros(0), np.zeros(0, dtype=np.bool_)), state
    finest = min(activity, key=lambda panel: panel.step_seconds)
    times = finest.times[finest.times > after]
    is_active = np.zeros(len(times), dtype=np.bool_)
    for panel in activity:
        level = column_medians(panel.values, panel.present)
        at = np.maximum(np.searchsorted(panel.times, times + 1e-6) - 1, 0)
        is_active |= level[at] >= ACTIVITY[panel.metric]
    step = finest.step_seconds
    live = np.ones(len(times), dtype=np.bool_)
    idle, grace = follow_work(is_active, step, min(step, 1.0), state.idle_seconds, state.grace_seconds, live)
    return Life(times, live), LifeState(idle, grace, state.progress)


def progress(panel: Panel, live: BoolArray, first: int, state: LifeState) -> tuple[np.ndarray, np.ndarray] | None:
    """Whether the median machine makes less progress than before, in one metric; None where it does not tell.

    Args:
        panel: the machine-level view. live: (instant,) from ``first`` on.
    Returns:
        (instant,) 0, ``IMPACT`` or ``DEEP``; and what is remembered.
    """
    is_declared = cause_of(panel.metric) is DECLARED
    if not is_declared and panel.metric not in PROGRESSING:
        return None
    # Counted are all that have a sample: who is compared with whom does not matter to the task's progress.
    level = column_medians(panel.values[:, first:], panel.present[:, first:])
    memory = state.progress[panel.metric].copy() if panel.metric in state.progress else np.zeros(1, dtype=PROGRESS)
    found = np.zeros(len(level), dtype=np.int8)
    follow_progress(level, live, panel.step_seconds, min(panel.step_seconds, 1.0), is_declared, memory, found)
    return found, memory
