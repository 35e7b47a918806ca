"""A task followed: the store is asked only for what is new."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trainminder.errors import MembershipError
from trainminder.source.prometheus.source import Begins, PrometheusSource
from trainminder.types import RawMetric, RawTask, Task

__all__ = ["Followed"]

#: How far back is asked at most for what is new, in seconds, if nothing was missed.
BACK_SECONDS = 900.0


class Followed:
    """One task of a store, cycle by cycle.

    Args:
        from_at: its first cycle begins there; Unix seconds.
        lag_seconds: samples may come so much later than others (``detect.lag_seconds``): so much is asked for again.
    """

    def __init__(self, source: PrometheusSource, task: Task, from_at: float, lag_seconds: float) -> None:
        self._source, self._task, self._from_at = source, task, from_at
        self._begins = Begins(overlap_seconds=lag_seconds)

    def new(self, to_at: float) -> RawTask | None:
        """What came up to an instant (Unix seconds) since the last cycle, and some of what came before.

        Returns:
            None where nothing did.
        Raises:
            MembershipError: the task never had any series.
            StoreError: the store could not be read; the next cycle asks for the same again.
            SettingsError: the range is empty.
        """
        # A metric that was not there before is asked for so far back; what was missed in between, from where it was.
        from_at = max(self._from_at, min([to_at - BACK_SECONDS, *self._begins.reached.values()]))
        try:
            raw = self._source.fetch_raw(self._task, from_at, to_at, self._begins)
        except MembershipError:
            if not self._begins.reached:
                raise
            return None
        reached = {metric.metric: _reached(metric) for metric in raw.metrics}
        before = self._begins.reached
        self._begins = replace(
            self._begins, reached={**before, **{name: max(at, before.get(name, at)) for name, at in reached.items()}}
        )
        return raw


def _reached(metric: RawMetric) -> float:
    """Up to when most of the series of a metric came: a few that run ahead, or ended, do not count."""
    ends = metric.offsets[1:][np.diff(metric.offsets) > 0]
    return float(np.median(metric.times[ends - 1]))
