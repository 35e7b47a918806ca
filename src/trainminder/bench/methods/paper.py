"""The product's own methods, and the publication's ablations of its method that change one stage.

A method here runs the stages of a pass. Its threshold is ``detect.false_alarm_probability``; at each one its verdicts
are those of ``run_pass`` with that setting, but for their evidence, which the bench does not look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from trainminder.bench.methods.deciding import Found, chance_limits
from trainminder.bench.methods.prepared import Channel, Prepared, prepare
from trainminder.bench.types import LabelledTask
from trainminder.decide import Confirmed
from trainminder.types import Distance, Verdict, WindowScores

__all__ = ["PROBABILITIES", "SEVEN_METRICS", "THREE_METRICS", "UNSURE_PROBABILITIES", "PaperMethod", "verdict_in"]

#: Chances of a false candidate in one window, if all there was were chance; ordinary trouble is not chance.
PROBABILITIES = (1e-40, 1e-30, 1e-24, 1e-20, 1e-16, 1e-12, 1e-10, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
#: Where one window is enough for a verdict, much stricter ones may be needed.
UNSURE_PROBABILITIES = (1e-300, 1e-200, 1e-140, 1e-100, 1e-70, 1e-50, *PROBABILITIES)

#: The metrics that the publication's decision tree ranked, in its order.
SEVEN_METRICS = (
    "pfc_tx_packet_rate",
    "cpu_usage",
    "gpu_duty_cycle",
    "gpu_power_draw",
    "gpu_graphics_activity",
    "gpu_tensor_activity",
    "nvlink_bandwidth",
)
THREE_METRICS = SEVEN_METRICS[:3]


@dataclass(frozen=True, slots=True)
class PaperMethod:
    """The stages of a pass.

    ``metrics``: those that are asked; None: all. ``is_denoised``: False compares windows as they are.
    ``lasting_seconds``: how long a machine must remain the candidate; None: as shipped.
    """

    name: str
    thresholds: tuple[float, ...] = PROBABILITIES
    metrics: tuple[str, ...] | None = None
    distance: Distance = "euclidean"
    is_denoised: bool = True
    lasting_seconds: float | None = None

    def judge(self, task: LabelledTask, thresholds: Sequence[float]) -> list[tuple[Verdict, ...]]:
        """The verdicts at each ``detect.false_alarm_probability``."""
        prepared, found = prepare(task.raw), Found(thresholds, task.continuity_seconds)
        for channel in prepared.of_metrics(self.metrics):
            # A candidate at a stricter threshold is one at the loosest, with the same score.
            scores = self._scores(prepared, channel, max(thresholds))
            found.add(scores, chance_limits(thresholds), partial(verdict_in, channel), self.lasting_seconds)
        return found.verdicts()

    def _scores(self, prepared: Prepared, channel: Channel, probability: float) -> WindowScores:
        if self.is_denoised:
            return prepared.scores(channel, self.distance, probability)
        windows = channel.windows(np.arange(channel.panel.rows.shape[1]))
        windows[channel.panel.rows < 0] = np.nan
        return prepared.score(channel, windows, self.distance, probability)


def verdict_in(channel: Channel, found: Confirmed) -> Verdict:
    """The verdict of what was confirmed in one channel; without what nobody reads in the bench: device and evidence."""
    return Verdict(found.machine, None, channel.panel.metric, found.onset, found.confirmed, round(found.score, 3))
