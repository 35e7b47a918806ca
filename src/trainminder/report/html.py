"""One self-contained page about one pass: it opens offline, prints, and reads well on a phone.

The plots are drawn by plotly's script, inlined from the installed package: the page fetches nothing, and its
content security policy allows only the scripts it carries, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from trainminder import wording
from trainminder.errors import SettingsError
from trainminder.report import digest, figures
from trainminder.report.advice import next_steps
from trainminder.report.evidence import VIEW_WORDS, against_peers, primary_evidence, suspect_until
from trainminder.report.text import coverage_sentence, verdict_sentence
from trainminder.types import MetricTrace, PassResult, Verdict

__all__ = ["render_report", "write_report"]

#: More verdicts than this are listed without a plot: so many machines at once are not a machine's fault.
MOST_PLOTTED = 12
#: Plots at full resolution; more share its bytes, so that a page without the plot library stays under 300 kB.
FULL_LINES, FULL_HEATS = 3, 2
#: Names listed before "and n more".
MOST_LISTED = 12


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure with what stands around it."""

    id: str
    title: str
    description: str
    """What a reader who cannot see the plot should know."""
    figure: dict[str, Any]
    kind: str
    notes: tuple[str, ...] = ()
    threshold: str = ""
    top: str = ""


def write_report(result: PassResult, path: Path) -> None:
    """Write the page about one pass.

    Raises:
        SettingsError: the file cannot be written; the message names it.
    """
    try:
        path.write_text(render_report(result), encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"report {path}: {error.strerror}: give a path that can be written") from error


def render_report(result: PassResult, generated_at: float | None = None) -> str:
    """The page about one pass as HTML; the same result gives the same text.

    Args:
        generated_at: shown at the foot; None leaves it out.
    """
    # Here, because it costs a tenth of a second that a pass printed as text need not pay.
    from plotly.offline import get_plotlyjs

    script = _asset("report.js")
    plotly = f"\n{get_plotlyjs()}\n"
    standings = digest.rank_traces(result)
    cases, heats = _plots(result, standings)
    page = (
        _environment()
        .get_template("report.html.j2")
        .render(
            result=result,
            sentence=verdict_sentence(result),
            steps=next_steps(result),
            cases=cases,
            heats=heats,
            has_plots=bool(heats) or any(case["plot"] for case in cases),
            standings=[_standing_row(item) for item in standings],
            coverage=coverage_sentence(result),
            unseen=wording.plain(wording.some_names(digest.unseen_machines(result), MOST_LISTED)),
            from_at=wording.date_time(result.from_at),
            to_at=wording.date_time(result.to_at),
            span=wording.span(result.to_at - result.from_at),
            generated=wording.date_time(generated_at) if generated_at is not None else None,
            themes=figures.THEMES,
            style=Markup(_asset("report.css")),  # noqa: S704 ours, not a reader's
            script=Markup(script),  # noqa: S704 ours
            plotly=Markup(plotly),  # noqa: S704 the installed package's
            policy=_policy(script, plotly),
            plain=wording.plain,
        )
    )
    return page if page.endswith("\n") else f"{page}\n"


def _plots(result: PassResult, standings: list[digest.Standing]) -> tuple[list[dict[str, Any]], list[Plot]]:
    """The verdicts with their plots (or the strangest machine's), and the heatmaps."""
    cases = [_case(result, verdict, index) for index, verdict in enumerate(result.verdicts)]
    judged: list[tuple[MetricTrace, tuple[Verdict, ...]]] = []
    for verdict in result.verdicts[:MOST_PLOTTED]:
        trace = digest.trace_of(result, verdict)
        if trace is not None and all(trace is not known for known, _ in judged):
            same = tuple(other for other in result.verdicts if digest.trace_of(result, other) is trace)
            judged.append((trace, same))
    strangest = next((item for item in standings if item.machine is not None), None)
    if not judged and strangest is not None:
        judged = [(strangest.trace, ())]
        if not cases:
            cases = [_strangest_case(strangest)]
    bins = digest.MOST_BINS * FULL_HEATS // max(FULL_HEATS, len(judged))
    heats = [_heat_plot(trace, verdicts, index, bins) for index, (trace, verdicts) in enumerate(judged)]
    return cases, heats


def _case(result: PassResult, verdict: Verdict, index: int) -> dict[str, Any]:
    evidence = primary_evidence(verdict)
    trace = digest.trace_of(result, verdict) if index < MOST_PLOTTED else None
    plot = None
    if trace is not None and verdict.machine in trace.scores.machines:
        machine = trace.scores.machines.index(verdict.machine)
        plotted = min(len(result.verdicts), MOST_PLOTTED)
        bins = digest.MOST_BINS * FULL_LINES // max(FULL_LINES, plotted)
        plot = _suspect_plot(trace, machine, f"case-{index}", verdict, bins)
    name = wording.plain(wording.machine_and_device(verdict.machine, verdict.device))
    since = wording.clock_time(verdict.onset, near=result.to_at)
    facts = [
        ("machine", name, wording.plain(verdict.fault_type or "")),
        ("metric", wording.plain(verdict.metric), VIEW_WORDS[trace.scores.view] if trace else ""),
        (
            "since",
            f"{since} UTC",
            f"for {wording.span(suspect_until(verdict) - verdict.onset)}; confirmed "
            f"{wording.clock_time(verdict.confirmed, near=result.to_at)}",
        ),
    ]
    if evidence is not None:
        value, _, peers = against_peers(evidence.value, evidence.peers, evidence.unit).partition(", ")
        facts.append(("value", wording.plain(value), wording.plain(peers.replace("peers ", "peers' median "))))
    facts.append(("normal score", f"{verdict.score:.1f}", f"threshold {evidence.threshold:.1f}" if evidence else ""))
    return {
        "id": f"verdict-{index}",
        "title": f"{name}: {wording.plain(verdict.metric)}",
        "facts": facts,
        "plot": plot,
        "evidence": [_evidence_row(item, result.to_at) for item in verdict.evidence],
        "is_verdict": True,
    }


def _strangest_case(standing: digest.Standing) -> dict[str, Any]:
    trace = standing.trace
    assert standing.machine is not None  # noqa: S101 chosen for having one
    name = wording.plain(trace.scores.machines[standing.machine])
    facts = [
        ("strangest machine", name, "not a verdict"),
        ("metric", wording.plain(trace.spec.name), VIEW_WORDS[trace.scores.view]),
        ("highest normal score", f"{standing.peak:.1f}", f"threshold {standing.threshold:.1f}"),
        ("longest above the threshold", wording.span(standing.seconds_above), "without a break"),
    ]
    return {
        "id": "strangest",
        "title": "The strangest machine",
        "facts": facts,
        "plot": _suspect_plot(trace, standing.machine, "case-0", None, digest.MOST_BINS),
        "evidence": [],
        "is_verdict": False,
    }


def _suspect_plot(trace: MetricTrace, machine: int, plot_id: str, verdict: Verdict | None, bins: int) -> Plot:
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
        description=f"{metric} of {name} over time, above the range of its {band.peers} peers; below it the normal "
        f"score of {name} with the threshold.{marks}",
        figure=figures.suspect_figure(trace, machine, band, verdict),
        kind="suspect",
        notes=tuple(notes),
    )


def _heat_plot(trace: MetricTrace, verdicts: tuple[Verdict, ...], index: int, bins: int) -> Plot:
    machines = trace.scores.machines
    accused = tuple(machines.index(verdict.machine) for verdict in verdicts if verdict.machine in machines)
    heat = digest.heat_of(trace, accused, bins)
    metric = wording.plain(trace.spec.name)
    view = VIEW_WORDS[trace.scores.view]
    shown, total = len(heat.machines), len(machines)
    notes = [f"The {shown} strangest of {total} machines are shown."] if shown < total else []
    if view:
        notes.append(f"Compared: {view}.")
    if heat.windows_per_bin > 1:
        notes.append(f"Each cell is the largest normal score of {wording.span(heat.step_seconds)}.")
    return Plot(
        id=f"heat-{index}",
        title=f"Normal score of {metric}, {'the strangest machines' if shown < total else 'every machine'} over time",
        description=f"Heatmap of the normal score of {metric}: {shown} of {total} machines by time, "
        f"the strangest on top: {wording.plain(machines[heat.machines[0]]) if heat.machines else 'none'}.",
        figure=figures.heat_figure(trace, heat, verdicts),
        kind="heat",
        notes=tuple(notes),
        threshold=f"{heat.threshold:.1f}" if heat.threshold > 0 else "not known",
        top=f"{figures.heat_top(heat):.0f}",
    )


def _evidence_row(item: Any, near: float) -> dict[str, str]:
    place = wording.plain(item.device) if item.device is not None else VIEW_WORDS[item.view]
    return {
        "sign": wording.plain(item.kind),
        "metric": wording.plain(item.metric),
        "where": place,
        "time": f"{wording.clock_time(item.since, near)} to {wording.clock_time(item.until, near)}",
        "score": f"{item.score:.1f} ({item.threshold:.1f})",
        "value": wording.plain(against_peers(item.value, item.peers, item.unit)),
        "text": wording.plain(item.text),
    }


def _standing_row(item: digest.Standing) -> dict[str, str]:
    trace = item.trace
    is_judged = item.machine is not None
    return {
        "metric": wording.plain(trace.spec.name),
        "view": VIEW_WORDS[trace.scores.view],
        "machine": wording.plain(trace.scores.machines[item.machine]) if item.machine is not None else "not judged",
        "peak": f"{item.peak:.1f} ({item.threshold:.1f})" if is_judged else "",
        "above": wording.span(item.seconds_above) if is_judged else "",
        "missing": wording.ratio_as_percent(item.missing),
    }


def _policy(*scripts: str) -> str:
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts
    )
    # Plotly writes style rules and draws heatmaps as data: images.
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        f"base-uri 'none'; form-action 'none'"
    )


@cache
def _asset(name: str) -> str:
    return Path(__file__).with_name("templates").joinpath(name).read_text(encoding="utf-8")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["plain"] = wording.plain
    environment.policies["json.dumps_kwargs"] = {"sort_keys": True, "separators": (",", ":"), "allow_nan": False}
    environment.policies["json.dumps_function"] = json.dumps
    return environment
