"""Each plot of the page with what stands around it: title, notes, and words for who does not see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainminder import wording
from trainminder.report import digest, figures
from trainminder.report.evidence import VIEW_WORDS, days_of
from trainminder.report.terms import Terms
from trainminder.types import MetricTrace, Trail, Verdict

__all__ = ["Plot", "heat_plot", "suspect_plot", "trail_plot"]


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure with what stands around it."""

    id: str
    title: str
    description: str
    """What a reader who cannot see the plot should know."""
    figure: dict[str, Any]
    kind: str
    """*suspect*, *heat* or *trail*: which legend it has."""
    notes: tuple[str, ...] = ()
    threshold: str = ""
    top: str = ""
    has_others: bool = False
    """Whether a trail shows machines without a verdict."""


def suspect_plot(
    trace: MetricTrace, machine: int, plot_id: str, verdict: Verdict | None, bins: int, terms: Terms
) -> Plot:
    """One machine in one metric against its peers."""
    device = verdict.device if verdict else None
    band = digest.band_of(trace, machine, device, bins)
    name = wording.plain(wording.machine_and_device(trace.scores.machines[machine], device))
    metric = wording.plain(trace.spec.name)
    view = VIEW_WORDS[trace.scores.view]
    notes = [f"{metric}: {wording.plain(trace.spec.description)}."] if trace.spec.description else []
    if view:
        notes.append(f"Compared: {view}.")
    if band.samples_per_bin > 1:
        notes.append(
            f"Each point stands for {wording.span(band.step_seconds)}: the sample furthest from the peers' median."
        )
    marks = (
        f" Onset {wording.clock_time(verdict.onset)} UTC, confirmed {wording.clock_time(verdict.confirmed)} UTC."
        if verdict
        else ""
    )
    return Plot(
        id=plot_id,
        title=f"{name} against its {band.peers} peers",
        description=f"{metric} of {name} over time, above the range of its {band.peers} peers; below it the "
        f"{terms.score} of {name} with the threshold.{marks}",
        figure=figures.suspect_figure(trace, machine, band, verdict, terms),
        kind="suspect",
        notes=tuple(notes),
    )


def heat_plot(trace: MetricTrace, verdicts: tuple[Verdict, ...], index: int, bins: int, terms: Terms) -> Plot:
    """All machines in one metric."""
    machines = trace.scores.machines
    accused = tuple(machines.index(verdict.machine) for verdict in verdicts if verdict.machine in machines)
    heat = digest.heat_of(trace, accused, bins)
    metric = wording.plain(trace.spec.name)
    view = VIEW_WORDS[trace.scores.view]
    shown, total = len(heat.machines), len(machines)
    whose = "the strangest machines" if shown < total else "every machine"
    notes = [f"The {shown} strangest of {total} machines are shown."] if shown < total else []
    if view:
        notes.append(f"Compared: {view}.")
    if heat.windows_per_bin > 1:
        notes.append(f"Each cell is the largest {terms.score} of {wording.span(heat.step_seconds)}.")
    return Plot(
        id=f"heat-{index}",
        title=f"{terms.score.capitalize()} of {metric}, {whose} over time",
        description=f"Heatmap of the {terms.score} of {metric}: {shown} of {total} machines by time, "
        f"the strangest on top: {wording.plain(machines[heat.machines[0]]) if heat.machines else 'none'}.",
        figure=figures.heat_figure(trace, heat, verdicts, terms),
        kind="heat",
        notes=tuple(notes),
        threshold=f"{heat.threshold:.1f}" if heat.threshold > 0 else "not known",
        top=f"{figures.heat_top(heat):.0f}",
    )


def trail_plot(trail: Trail, verdicts: Sequence[Verdict]) -> Plot:
    """How the evidence against the most suspicious machines grew."""
    growth = digest.growth_of(trail)
    accused = {verdict.machine: verdict for verdict in verdicts}
    names = [wording.plain(name) for name in trail.machines]
    reached = [
        f"{wording.plain(name)} passes it at {wording.clock_time(accused[name].confirmed)} UTC"
        if name in accused
        else f"{wording.plain(name)} comes as far as once in {days_of(float(decades.max()))}"
        for name, decades in zip(trail.machines, trail.decades, strict=True)
    ]
    limit = days_of(trail.limit)
    notes = [
        "The higher a line, the rarer what the machine does is on a healthy one. It rises the longer the machine "
        "departs and the more departs at once; it falls when that ceases or others depart alike. The verdict stands "
        "where it first reaches the limit.",
        f"Shown: {', '.join(names)}; all others are less suspicious.",
    ]
    if growth.instants_per_bin > 1:
        notes.append(f"Each point is the highest of {wording.span(growth.step_seconds)}.")
    return Plot(
        id="trail",
        title="How rare it is on a healthy machine to come so far",
        description=f"Evidence against {wording.counted(len(names), 'machine')} over time, as the machine-days in "
        f"which a healthy machine is expected to come so far once. The limit is once in {limit}: {'; '.join(reached)}.",
        figure=figures.trail_figure(trail, growth, verdicts),
        kind="trail",
        notes=tuple(notes),
        has_others=any(name not in accused for name in trail.machines),
    )
