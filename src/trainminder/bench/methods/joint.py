"""All metrics of a task at once: one grid of windows, one score per machine, one verdict.

Metrics sampled at different intervals meet on the grid of the most common one: each gives its newest window there.
What a machine lacks in a window is put where its peers' median is, which speaks neither for nor against it; a machine
that lacks more than half of what its peers have is not judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainminder.align import column_medians
from trainminder.bench.methods.deciding import Found, Limits, chance_limits
from trainminder.bench.methods.paper import PROBABILITIES
from trainminder.bench.methods.prepared import Channel, Prepared, prepare
from trainminder.bench.types import LabelledTask
from trainminder.decide import Confirmed
from trainminder.types import BoolArray, Float32Array, FloatArray, IntArray, Verdict, WindowScores

__all__ = ["Joint", "JointMethod", "join", "learned_windows"]

#: One score blames too rarely rather than too often: looser ones are tried too. Above 1 it is the number of false
#: candidates in a window, not their chance.
LOOSER_PROBABILITIES = (*PROBABILITIES, 0.3, 1.0, 2.0)
#: Seconds between the windows at which slow methods look.
LOOK_SECONDS = 5.0
#: Methods that learn from the task itself learn from its beginning, so that a fault is not learned while it lasts.
LEARN_SHARE, LEARN_SECONDS = 0.2, 300.0


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """Channels on one grid.

    ``ends_at``: (window,) instant of each window's newest sample. ``at``: (channel, window) each channel's own window
    there. ``judged``: (channel, machine, window), whether the machine has it.
    """

    channels: tuple[Channel, ...]
    group_of: IntArray
    step_seconds: float
    ends_at: FloatArray
    at: IntArray
    judged: BoolArray

    @property
    def machines(self) -> tuple[str, ...]:
        return self.channels[0].panel.machines

    def now_and_then(self, seconds: float = LOOK_SECONDS) -> Joint:
        """The same with a window every so many seconds."""
        every = slice(None, None, max(int(seconds / self.step_seconds), 1))
        return replace(self, ends_at=self.ends_at[every], at=self.at[:, every], judged=self.judged[:, :, every])

    def enough(self) -> BoolArray:
        """(machine, window): whether a machine has at least half of the channels that its group has."""
        enough = np.zeros(self.judged.shape[1:], dtype=np.bool_)
        for group in np.unique(self.group_of[self.group_of >= 0]):
            members = np.flatnonzero(self.group_of == group)
            part = self.judged[:, members]
            enough[members] = (part.sum(axis=0) > 0) & (2 * part.sum(axis=0) >= part.any(axis=1).sum(axis=0))
        return enough

    def filled(self, channel: int, values: Float32Array) -> Float32Array:
        """What machines lack of (machine, window, width) values, put at the median of their group; 0 if all lack it."""
        filled = np.where(self.judged[channel][:, :, None], values, np.float32(0.0))
        for group in np.unique(self.group_of[self.group_of >= 0]):
            members = np.flatnonzero(self.group_of == group)
            part, judged = filled[members], self.judged[channel][members]
            if judged.all():
                continue
            wide = np.broadcast_to(judged[:, :, None], part.shape)
            flat = part.reshape(len(members), -1).astype(np.float64)
            medians = np.nan_to_num(column_medians(flat, wide.reshape(flat.shape))).reshape(part.shape[1:])
            filled[members] = np.where(wide, part, medians.astype(np.float32))
        return filled

    def means(self, channel: int) -> Float32Array:
        """(machine, window): the mean of each window, normalised."""
        means: Float32Array = self.channels[channel].windows(self.at[channel]).mean(axis=2)
        return means

    def spread(self, channel: int) -> FloatArray:
        """(window,) the ordinary standard deviation between healthy machines, normalised."""
        spread: FloatArray = self.channels[channel].scale.spread[self.at[channel]]
        return spread

    def scores(self, score: FloatArray) -> WindowScores:
        """What deciding takes, of (machine, window) scores."""
        return WindowScores(
            metric="",
            view="machine",
            machines=self.machines,
            ends_at=self.ends_at,
            step_seconds=self.step_seconds,
            dissimilarity=score,
            normal_score=score,
            threshold=score,
            group_of=self.group_of,
        )

    def verdict(self, found: Confirmed) -> Verdict:
        """The verdict, with the metric in which the machine lies furthest from its peers when confirmed."""
        window = int(np.searchsorted(self.ends_at, found.confirmed))
        machine = self.machines.index(found.machine)
        here = replace(self, at=self.at[:, [window]], judged=self.judged[:, :, [window]])
        peers = self.group_of == self.group_of[machine]
        furthest, metric = -1.0, ""
        for number, channel in enumerate(self.channels):
            if here.judged[number, machine, 0]:
                means = here.means(number)[:, 0]
                middle = np.median(means[peers & here.judged[number, :, 0]])
                departure = float(abs(means[machine] - middle) / here.spread(number)[0])
                if departure > furthest:
                    furthest, metric = departure, channel.panel.metric
        return Verdict(found.machine, None, metric, found.onset, found.confirmed, round(found.score, 3))


def join(prepared: Prepared, channels: Sequence[Channel] | None = None) -> Joint | None:
    """Put channels (None: all) on the grid of the most common interval; None where there is no channel."""
    given = tuple(prepared.channels if channels is None else channels)
    if not given:
        return None
    counts = Counter(channel.panel.step_seconds for channel in given)
    step = min(counts, key=lambda step: (-counts[step], step))
    grid = max((each for each in given if each.panel.step_seconds == step), key=lambda each: len(each.ends_at))
    ends_at = grid.ends_at
    at = np.zeros((len(given), len(ends_at)), dtype=np.int64)
    judged = np.zeros((len(given), len(grid.panel.machines), len(ends_at)), dtype=np.bool_)
    for number, channel in enumerate(given):
        # Grids of one interval may lie a little apart.
        newest = np.searchsorted(channel.ends_at, ends_at + step / 2) - 1
        at[number] = np.maximum(newest, 0)
        age = ends_at - channel.ends_at[at[number]]
        is_fresh = (newest >= 0) & (age < 1.5 * max(channel.panel.step_seconds, step))
        judged[number] = channel.judged[:, at[number]] & is_fresh
    return Joint(given, prepared.group_of, step, ends_at, at, judged)


def learned_windows(joint: Joint) -> int:
    """How many of the first windows are only learned from."""
    span = float(joint.ends_at[-1] - joint.ends_at[0])
    until = joint.ends_at[0] + min(LEARN_SHARE * span, LEARN_SECONDS)
    return int(np.searchsorted(joint.ends_at, until, "right"))


@dataclass(frozen=True, slots=True)
class JointMethod:
    """Judges a task by one score over all its channels.

    ``score``: gives (machine, window) on a grid, NaN where not judged; None where there is nothing to judge.
    """

    name: str
    score: Callable[[Prepared], tuple[Joint, FloatArray] | None]
    thresholds: tuple[float, ...] = LOOSER_PROBABILITIES
    limits: Callable[[Sequence[float]], Limits] = chance_limits

    def judge(self, task: LabelledTask, thresholds: Sequence[float]) -> list[tuple[Verdict, ...]]:
        """The verdicts at each threshold."""
        found = Found(thresholds, task.continuity_seconds)
        scored = self.score(prepare(task.raw))
        if scored is not None:
            joint, score = scored
            found.add(joint.scores(score), self.limits(thresholds), joint.verdict)
        return found.verdicts()
