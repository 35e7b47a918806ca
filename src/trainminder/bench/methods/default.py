"""The product's default method. Its threshold is ``detect.false_alarms_per_machine_day``, as users get it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainminder.bench.methods.prepared import prepare
from trainminder.bench.types import LabelledTask
from trainminder.coverage import ACTIVITY
from trainminder.evidence import EvidenceState, Judgement
from trainminder.evidence.departed import Departed
from trainminder.evidence.findings import Suspicion, confirmed_instants, limit_of, shares_of
from trainminder.evidence.weights import Weights
from trainminder.pipeline import Fleet, viewed
from trainminder.settings import DetectSettings
from trainminder.types import Verdict

SETTINGS = DetectSettings()

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
    raw, prepared = task.raw, prepare(task.raw)
    fleet = Fleet(raw.machines, raw.specs, raw.groups, raw.domains)
    views, _ = viewed(prepared.block.cells, fleet, SETTINGS, {})
    judgement = Judgement(
        raw.machines,
        [view.panels[0] for name, view in views.items() if name in ACTIVITY],
        prepared.block.until,
        SETTINGS,
        prepared.group_names,
        prepared.group_of,
        EvidenceState(),
        groups=raw.groups,
        domains=raw.domains,
    )
    for view in views.values():
        judgement.add(judgement.judge(view.panels, view.spec, view.counts))
    return judgement


def verdicts_at(
    judgement: Judgement,
    thresholds: Sequence[float],
    weights: Weights = Weights(),  # noqa: B008 frozen
) -> list[tuple[Verdict, ...]]:
    """The verdicts at each number of false alarms allowed, whatever the evidence is worth."""
    suspicion, _, _ = judgement.weigh(weights)
    if suspicion is None:
        return [()] * len(thresholds)
    return [
        tuple(
            _verdict(suspicion, instant, machine, judgement.departed)
            for instant, machine in confirmed_instants(suspicion, limit_of(allowed, suspicion))
        )
        for allowed in thresholds
    ]


def _verdict(suspicion: Suspicion, instant: int, machine: int, departed: Mapping[str, Departed]) -> Verdict:
    shares = shares_of(suspicion, instant, machine, departed)
    return Verdict(
        suspicion.machines[machine],
        None,
        shares[0].metric if shares else next(iter(departed)),
        float(suspicion.since[instant, machine]),
        float(suspicion.times[instant]),
        round(float(suspicion.rarity[instant, machine]), 3),
    )
