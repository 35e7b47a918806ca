"""What the page says and draws of each verdict, or of the strangest machine where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainminder import wording
from trainminder.report import digest
from trainminder.report.evidence import (
    VIEW_WORDS,
    against_peers,
    confidence_of,
    days_of,
    is_silent,
    metric_signs,
    own_and_peers,
    primary_evidence,
    remarks,
    silence_words,
    suspect_until,
)
from trainminder.report.plots import Plot, heat_plot, suspect_plot, trail_plot
from trainminder.report.terms import terms_of
from trainminder.types import Evidence, MetricTrace, PassResult, Verdict, View

__all__ = ["cases_and_heats", "evidence_over_time", "standing_rows"]

#: More verdicts than this are listed without a plot: so many machines at once are not a machine's fault.
MOST_PLOTTED = 12
#: Plots at full resolution; more share its bytes, so that a page without the plot library stays under 300 kB.
FULL_LINES, FULL_HEATS = 3, 2
_SHORT_VIEW: dict[View, str] = {"machine": "", "mean": "mean of devices", "device": "one device"}


def cases_and_heats(result: PassResult, standings: list[digest.Standing]) -> tuple[list[dict[str, Any]], list[Plot]]:
    """The verdicts with their plots (or the strangest machine's), and the heatmaps."""
    terms = terms_of(result.method)
    cases = [_case(result, verdict, index) for index, verdict in enumerate(result.verdicts)]
    judged: list[tuple[MetricTrace, tuple[Verdict, ...]]] = []
    for verdict in result.verdicts[:MOST_PLOTTED]:
        trace = digest.trace_of(result, verdict)
        if trace is not None and all(trace is not known for known, _ in judged):
            same = tuple(other for other in result.verdicts if digest.trace_of(result, other) is trace)
            judged.append((trace, same))
    strangest = _most_suspicious(result) or next((item for item in standings if item.machine is not None), None)
    if not judged and strangest is not None:
        judged = [(strangest.trace, ())]
        if not cases:
            cases = [_strangest_case(result, strangest)]
    bins = digest.MOST_BINS * FULL_HEATS // max(FULL_HEATS, len(judged))
    heats = [heat_plot(trace, verdicts, index, bins, terms) for index, (trace, verdicts) in enumerate(judged)]
    return cases, heats


def evidence_over_time(result: PassResult) -> Plot | None:
    """The plot of the trail; None where nothing was kept, or nobody was suspicious at any time."""
    trail = result.trail
    return trail_plot(trail, result.verdicts) if trail is not None and trail.decades.size else None


def _most_suspicious(result: PassResult) -> digest.Standing | None:
    """The machine against which there was most evidence, in the metric in which it departed for longest."""
    machines = result.trail.machines if result.trail else ()
    return next((item for machine in machines if (item := digest.standing_of(result, machine)) is not None), None)


def _case(result: PassResult, verdict: Verdict, index: int) -> dict[str, Any]:
    trace = digest.trace_of(result, verdict) if index < MOST_PLOTTED else None
    plot = None
    if trace is not None and verdict.machine in trace.scores.machines:
        machine = trace.scores.machines.index(verdict.machine)
        plotted = min(len(result.verdicts), MOST_PLOTTED)
        bins = digest.MOST_BINS * FULL_LINES // max(FULL_LINES, plotted)
        plot = suspect_plot(trace, machine, f"case-{index}", verdict, bins, terms_of(result.method))
    is_default = result.method == "default"
    of_method = _weighed(result, verdict) if is_default else _scored(result, verdict, trace)
    name = wording.plain(wording.machine_and_device(verdict.machine, verdict.device))
    sign = silence_words(verdict) if is_default and is_silent(verdict) else wording.plain(verdict.metric)
    return {"id": f"verdict-{index}", "title": f"{name}: {sign}", "plot": plot, "is_verdict": True} | of_method


def _scored(result: PassResult, verdict: Verdict, trace: MetricTrace | None) -> dict[str, Any]:
    """Facts and evidence of a method that gives one metric a normal score."""
    evidence = primary_evidence(verdict)
    since = wording.clock_time(verdict.onset, near=result.to_at)
    facts = [
        (
            "machine",
            wording.plain(wording.machine_and_device(verdict.machine, verdict.device)),
            wording.plain(verdict.fault_type or ""),
        ),
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
    return {"facts": facts, "evidence": [_evidence_row(item, result.to_at) for item in verdict.evidence]}


def _weighed(result: PassResult, verdict: Verdict) -> dict[str, Any]:
    """Facts and evidence of the method that weighs all metrics together."""
    decades, limit = confidence_of(verdict)
    since, confirmed = (wording.clock_time(at, near=result.to_at) for at in (verdict.onset, verdict.confirmed))
    evidence = primary_evidence(verdict)
    if is_silent(verdict):
        lasted, sign = "", ("leading sign", "silence", f"{silence_words(verdict)}, while its peers went on")
    else:
        value, peers = own_and_peers(evidence.value, evidence.peers, evidence.unit) if evidence else ("", "")
        lasted = f"for {wording.span(suspect_until(verdict) - verdict.onset)}"
        against = f"{value}, peers' median {peers}" if peers else value
        sign = ("leading sign", wording.plain(verdict.metric), wording.plain(against))
    facts = [
        (
            "machine",
            wording.plain(wording.machine_and_device(verdict.machine, verdict.device)),
            wording.plain(verdict.fault_type or ""),
        ),
        ("since", f"{since} UTC", lasted),
        ("confirmed", f"{confirmed} UTC", f"{wording.span(verdict.confirmed - verdict.onset)} after the onset"),
        sign,
        (
            "expected once in",
            days_of(decades),
            "of a healthy machine" + ("" if limit is None else f"; limit: {days_of(limit)}"),
        ),
    ]
    carries, minor = metric_signs(verdict)
    known = ("metric", "silence", "confidence", "considered")
    return {
        "facts": facts,
        "evidence": [],
        "lead": [wording.plain(item.text) for item in remarks(verdict, "silence")],
        "signs": [_sign_row(item, result.to_at) for item in carries],
        "minor": wording.plain(wording.some_names([item.metric for item in minor], most=len(minor))),
        "remarks": [
            wording.plain(item.text)
            for item in (
                *remarks(verdict, "confidence"),
                *(item for item in verdict.evidence if item.kind not in known),
            )
        ],
        "considered": _considered(result, verdict),
        "considered_at": confirmed,
    }


def _considered(result: PassResult, verdict: Verdict) -> list[str]:
    """Who else was considered beside a verdict and why it is not the one; whose own verdict came later is said."""
    convicted = tuple(f"{other.machine} departed" for other in result.verdicts)
    return [
        wording.plain(item.text)
        + (" at that time; its own verdict came later" if item.text.startswith(convicted) else "")
        for item in remarks(verdict, "considered")
    ]


def _strangest_case(result: PassResult, standing: digest.Standing) -> dict[str, Any]:
    trace, terms = standing.trace, terms_of(result.method)
    assert standing.machine is not None  # noqa: S101 chosen for having one
    machine = trace.scores.machines[standing.machine]
    trail = result.trail
    is_trailed = trail is not None and machine in trail.machines
    facts = [
        ("most suspicious machine" if is_trailed else "strangest machine", wording.plain(machine), "not a verdict"),
        ("metric", wording.plain(trace.spec.name), VIEW_WORDS[trace.scores.view]),
    ]
    if trail is not None and is_trailed:
        highest = float(trail.decades[trail.machines.index(machine)].max())
        more = f"of a healthy machine; limit: {days_of(trail.limit)}"
        facts.append(("expected once in", days_of(highest), more))
    elif trail is not None:
        facts.append(("evidence", "none", f"against any machine at any time; limit: {days_of(trail.limit)}"))
    if result.method == "default":
        facts.append((terms.above, wording.span(standing.seconds_above), "without a break"))
    else:
        facts += [
            ("highest normal score", f"{standing.peak:.1f}", f"threshold {standing.threshold:.1f}"),
            (terms.above, wording.span(standing.seconds_above), "without a break"),
        ]
    return {
        "id": "strangest",
        "title": "The most suspicious machine" if is_trailed else "The strangest machine",
        "facts": facts,
        "plot": suspect_plot(trace, standing.machine, "case-0", None, digest.MOST_BINS, terms),
        "evidence": [],
        "is_verdict": False,
    }


def _sign_row(item: Evidence, near: float) -> dict[str, str]:
    value, peers = own_and_peers(item.value, item.peers, item.unit)
    return {
        "weight": "" if item.weight is None else f"{100 * item.weight:.0f} %",
        "metric": wording.plain(item.metric),
        "where": wording.plain(item.device) if item.device is not None else _SHORT_VIEW[item.view],
        "value": wording.plain(value),
        "peers": wording.plain(peers),
        "band": wording.plain(_band(item)),
        "departure": wording.number(item.score),
        "until": wording.clock_time(item.until, near),
    }


def _band(item: Evidence) -> str:
    """Between what nine in ten of the peers were, the unit said once."""
    if item.peers_low is None or item.peers_high is None:
        return ""
    low, high = own_and_peers(item.peers_low, item.peers_high, item.unit)
    number, _, unit = low.partition(" ")
    return f"nine in ten {number if unit and high.endswith(f' {unit}') else low} to {high}"


def _evidence_row(item: Evidence, near: float) -> dict[str, str]:
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


def standing_rows(result: PassResult, standings: Sequence[digest.Standing]) -> list[dict[str, str]]:
    """The table of all metrics; of the method default one row each, by the view that departs more."""
    if result.method != "default":
        return [_standing_row(item) for item in standings]
    first: dict[str, digest.Standing] = {}
    for item in standings:
        first.setdefault(item.trace.spec.name, item)
    # The threshold is 1 everywhere, as the heading says.
    return [
        _standing_row(item) | ({"peak": f"{item.peak:.1f}"} if item.machine is not None else {})
        for item in first.values()
    ]


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
