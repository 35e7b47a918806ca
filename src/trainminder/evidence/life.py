"""The life of a task: when it works, so that machines can be compared, and when all of it suffers at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trainminder.align import STRETCHES, column_medians
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
    """What is remembered of a task's life.

    ``metric``: by whose instants it is told, the finest of the first stretch; ``levels``: by metric that tells, the
    median machine's value lately; ``is_live``: whether it works; seconds idle, and of grace that are left;
    ``progress``: of each metric, of ``life_kernel.PROGRESS``.
    """

    metric: str | None = None
    levels: Mapping[str, float] = field(default_factory=dict)
    is_live: bool = True
    idle_seconds: float = 0.0
    grace_seconds: float = 0.0
    progress: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Life:
    """When a task works: ``live`` (instant,) at ``times``; ``before``: until then, whether it did or nothing told."""

    times: FloatArray
    live: BoolArray
    before: bool = True

    def at(self, times: FloatArray) -> BoolArray:
        """(instant,) whether it works, by what was known at those instants."""
        if not len(self.times):
            return np.full(len(times), self.before)
        at = np.searchsorted(self.times, times + 1e-6) - 1
        return np.where(at >= 0, self.live[np.maximum(at, 0)], self.before)


def work(activity: Sequence[Panel], state: LifeState) -> tuple[Life, LifeState]:
    """When a task works: while the median machine is active, but for a while after it has stood still.

    Starts, restarts and evaluations stand still for longer than an iteration; what follows them is no ordinary work
    until loaders and caches are warm.

    Args:
        activity: machine-level views of metrics in ``coverage.ACTIVITY``.
    """
    finest = _finest(activity, state.metric)
    now = {panel.metric: column_medians(panel.values, panel.present)[panel.first :] for panel in activity}
    levels = {**state.levels, **{name: float(level[-1]) for name, level in now.items() if len(level)}}
    if finest is None:
        return Life(np.zeros(0), np.zeros(0, dtype=np.bool_), state.is_live), replace(state, levels=levels)
    times = finest.times[finest.first :]
    is_active = np.zeros(len(times), dtype=np.bool_)
    of = {panel.metric: panel.times[panel.first :] for panel in activity}
    for name in levels:
        at = np.searchsorted(of.get(name, times[:0]), times + 1e-6)
        # Before its first new sample, what it was counts.
        level = np.concatenate(([state.levels.get(name, np.nan)], now.get(name, times[:0])))
        is_active |= level[at] >= ACTIVITY[name]
    step = finest.step_seconds
    live = np.ones(len(times), dtype=np.bool_)
    idle, grace = follow_work(is_active, step, min(step, 1.0), state.idle_seconds, state.grace_seconds, live)
    is_live = bool(live[-1]) if len(live) else state.is_live
    return Life(times, live, state.is_live), LifeState(finest.metric, levels, is_live, idle, grace, state.progress)


def _finest(activity: Sequence[Panel], known: str | None) -> Panel | None:
    """The panel by whose instants life is told: the finest of those that are there from the beginning."""
    if known is not None or not activity:
        return next((panel for panel in activity if panel.metric == known), None)
    began = min(float(panel.times[0]) for panel in activity)
    early = [panel for panel in activity if panel.times[0] < began + STRETCHES[0]]
    return min(early, key=lambda panel: panel.step_seconds)


def progress(panel: Panel, live: BoolArray, state: LifeState) -> tuple[np.ndarray, np.ndarray] | None:
    """Whether the median machine makes less progress than before, in one metric; None where it does not tell.

    Args:
        panel: the machine-level view. live: (new instant,).
    Returns:
        (new instant,) 0, ``IMPACT`` or ``DEEP``; and what is remembered.
    """
    is_declared = cause_of(panel.metric) is DECLARED
    if not is_declared and panel.metric not in PROGRESSING:
        return None
    # Counted are all that have a sample: who is compared with whom does not matter to the task's progress.
    level = column_medians(panel.values[:, panel.first :], panel.present[:, panel.first :])
    memory = state.progress[panel.metric].copy() if panel.metric in state.progress else np.zeros(1, dtype=PROGRESS)
    found = np.zeros(len(level), dtype=np.int8)
    follow_progress(level, live, panel.step_seconds, min(panel.step_seconds, 1.0), is_declared, memory, found)
    return found, memory
