"""A task as every method sees it: groups, and each view of each metric that can be judged, on its grid.

What methods share is made once per task, for the task that was last asked for: alignment by whichever method asks
first, embeddings and scores by the first that needs them. A method's time beside others therefore leaves out what
others before it made; alone it bears everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from trainminder.align import compared_samples, is_judged, normalisation
from trainminder.coverage import Sight
from trainminder.denoise import load_model
from trainminder.errors import Unobservable
from trainminder.feed import Block, Feed
from trainminder.paper import window_scores
from trainminder.pipeline import Fleet, groups_of, viewed
from trainminder.settings import DetectSettings
from trainminder.types import (
    BoolArray,
    Distance,
    Float32Array,
    FloatArray,
    IntArray,
    MetricSpec,
    Panel,
    RawTask,
    Scale,
    WindowScores,
)

__all__ = ["SETTINGS", "Channel", "Prepared", "prepare"]

#: As shipped: what methods do not vary.
SETTINGS = DetectSettings(method="paper")


@dataclass(frozen=True, slots=True, eq=False)
class Channel:
    """One view of one metric. ``judged``: (machine, window), as in the pipeline; ``counts``: (window,) whether the
    metric does.
    """

    spec: MetricSpec
    panel: Panel
    scale: Scale
    judged: BoolArray
    counts: BoolArray

    @property
    def name(self) -> str:
        return f"{self.panel.metric}/{self.panel.view}"

    @property
    def ends_at(self) -> FloatArray:
        """(window,) instant of each window's newest sample."""
        return self.panel.times[self.panel.window_samples - 1 :]

    @property
    def compared(self) -> int:
        """Newest samples of a window that are compared."""
        return compared_samples(self.panel.step_seconds, self.panel.window_samples)

    def windows(self, at: IntArray, some: slice = slice(None)) -> Float32Array:
        """(machine, window, sample): these windows as they are, normalised; of a machine without a row, any row's.

        Args:
            at: (window,) which windows.
            some: which machines'.
        """
        rows = np.maximum(self.panel.rows[some][:, at], 0)
        sliding = np.lib.stride_tricks.sliding_window_view(self.panel.values, self.panel.window_samples, axis=1)
        low, high = self.scale.low[at][:, None], self.scale.high[at][:, None]
        normalised: Float32Array = ((sliding[rows, at] - low) / (high - low)).astype(np.float32)
        return normalised


@dataclass(frozen=True, slots=True)
class _Given:
    """A denoiser that has rendered the windows already."""

    embedding: Float32Array

    @property
    def window_samples(self) -> int:
        return int(self.embedding.shape[2])

    def embed(self, values: FloatArray, rows: IntArray, low: FloatArray, high: FloatArray) -> Float32Array:
        del values, rows, low, high
        return self.embedding


@dataclass(slots=True)
class Prepared:
    """A task's channels in the order in which metrics are asked, and what was computed of them so far."""

    raw: RawTask
    group_names: tuple[str, ...]
    group_of: IntArray
    channels: tuple[Channel, ...]
    block: Block
    _embedded: dict[str, Float32Array] = field(default_factory=dict)
    _scored: dict[tuple[str, Distance, float], WindowScores] = field(default_factory=dict)

    def of_metrics(self, names: Iterable[str] | None) -> tuple[Channel, ...]:
        """The channels of these metrics; None: all."""
        wanted = None if names is None else set(names)
        return tuple(each for each in self.channels if wanted is None or each.panel.metric in wanted)

    def embedding(self, channel: Channel) -> Float32Array:
        """(machine, window, sample): every window as the shipped model renders it."""
        if channel.name not in self._embedded:
            model = load_model(None, channel.panel.metric, SETTINGS.window_samples)
            panel, scale = channel.panel, channel.scale
            self._embedded[channel.name] = model.embed(panel.values, panel.rows, scale.low, scale.high)
        return self._embedded[channel.name]

    def scores(self, channel: Channel, distance: Distance, probability: float) -> WindowScores:
        """What the pipeline scores with this distance and this chance of a false candidate."""
        key = channel.name, distance, probability
        if key not in self._scored:
            self._scored[key] = self.score(channel, self.embedding(channel), distance, probability)
        return self._scored[key]

    def score(self, channel: Channel, embedding: Float32Array, distance: Distance, probability: float) -> WindowScores:
        """The same of another embedding of the same windows."""
        changed = SETTINGS.model_copy(update={"distance": distance, "false_alarm_probability": probability})
        scores = window_scores(channel.panel, channel.scale, _Given(embedding), changed, self.group_of)
        scores.normal_score[:, ~channel.counts] = np.nan
        return scores


_last: list[Prepared] = []


def prepare(task: RawTask) -> Prepared:
    """The task's channels, judged as a pass judges them; remembered until another task is asked for."""
    if not (_last and _last[0].raw is task):
        _last.clear()
        _last.append(_prepare(task))
    return _last[0]


def _prepare(task: RawTask) -> Prepared:
    block = Feed(0).with_samples(task).rest()
    fleet = Fleet(task.machines, task.specs, task.groups, task.domains)
    names, group_of = groups_of(fleet, SETTINGS.min_machines, [])
    views, seen = viewed(block.cells, fleet, SETTINGS, {})
    channels = []
    for name, view in views.items():
        try:
            Sight().admit(seen[name], SETTINGS)
        except Unobservable:
            continue
        for panel in view.panels:
            if not panel.rows.shape[1]:
                continue
            present = is_judged(panel.present, panel.window_samples)
            judged = (panel.rows >= 0) & present[np.maximum(panel.rows, 0), np.arange(panel.rows.shape[1])]
            counts = view.counts[panel.window_samples - 1 :]
            channels.append(Channel(view.spec, panel, normalisation(panel, view.spec), judged & counts, counts))
    return Prepared(task, names, group_of, tuple(channels), block)
