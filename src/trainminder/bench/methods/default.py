"""The product's default method. Its threshold is ``detect.false_alarms_per_machine_day``, as users get it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from trainminder.bench.methods.prepared import SETTINGS, prepare
from trainminder.bench.types import LabelledTask
from trainminder.evidence import EvidenceState, Judgement
from trainminder.evidence.findings import Suspicion, confirmed_instants, limit_of, shares_of
from trainminder.evidence.gather import MetricSigns
from trainminder.evidence.weights import Weights
from trainminder.settings import DetectSettings
from trainminder.suspect import without_dead_fields
from trainminder.types import Verdict

__all__ = ["ALLOWED", "DefaultMethod", "gathered", "verdicts_at"]

#: False alarms per machine-day, strictest first.
ALLOWED = (1e-5, 1e-4, 3e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.3)


@dataclass(frozen=True, slots=True)
class DefaultMethod:
    """The pass as it is; evidence is gathered once, and held against each limit."""

    name: str = "default"
    thresholds: tuple[float, ...] = ALLOWED
    shipped: float = DetectSettings().false_alarms_per_machine_day

    def judge(self, task: LabelledTask, thresholds: Sequence[float]) -> list[tuple[Verdict, ...]]:
        """The verdicts at each number of false alarms allowed, without what the bench does not look at."""
        return verdicts_at(gathered(task), thresholds)


def gathered(task: LabelledTask) -> Judgement:
    """All signs of a task, not yet weighed."""
    prepared = prepare(task.raw)
    raw, _ = without_dead_fields(task.raw, SETTINGS.window_samples)
    judgement = Judgement(raw, SETTINGS, prepared.group_names, prepared.group_of, EvidenceState())
    for _, channels in groupby(prepared.channels, key=lambda channel: channel.panel.metric):
        some = tuple(channels)
        judgement.add(judgement.judge([channel.panel for channel in some], some[0].spec))
    return judgement


def verdicts_at(
    judgement: Judgement,
    thresholds: Sequence[float],
    weights: Weights = Weights(),  # noqa: B008 frozen
) -> list[tuple[Verdict, ...]]:
    """The verdicts at each number of false alarms allowed, whatever the evidence is worth."""
    suspicion, _ = judgement.weigh(weights)
    if suspicion is None:
        return [()] * len(thresholds)
    return [
        tuple(
            _verdict(suspicion, instant, machine, judgement.signs)
            for instant, machine in confirmed_instants(suspicion, limit_of(allowed, suspicion))
        )
        for allowed in thresholds
    ]


def _verdict(suspicion: Suspicion, instant: int, machine: int, signs: Sequence[MetricSigns]) -> Verdict:
    shares = shares_of(suspicion, instant, machine, signs)
    return Verdict(
        suspicion.machines[machine],
        None,
        shares[0].signs.metric if shares else signs[0].metric,
        float(suspicion.since[instant, machine]),
        float(suspicion.times[instant]),
        round(float(suspicion.rarity[instant, machine]), 3),
    )
