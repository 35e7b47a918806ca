"""A pass in words: one sentence for logs and alerts, a short table for the terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trainminder import wording
from trainminder.report.evidence import (
    against_peers,
    confidence_of,
    considered_in,
    days_of,
    is_silent,
    metric_signs,
    own_and_peers,
    primary_evidence,
    rarity_and_limit,
    silence_words,
    suspect_until,
)
from trainminder.types import Evidence, PassResult, Verdict

__all__ = ["coverage_sentence", "print_result", "verdict_sentence"]

#: Enough for every case worth acting on by hand; a longer list belongs in the table below it.
MOST_NAMED = 3
MOST_ABSENT = 6
#: Signs of a verdict in the table, and lines about other machines below it: the report has them all.
MOST_SIGNS, MOST_CONSIDERED = 3, 5
#: Columns from which on the table of the method default has one line per sign.
WIDE = 120

_STYLES = {"faulty": "bold red", "none": "green", "unknown": "bold yellow"}


def verdict_sentence(result: PassResult) -> str:
    """The pass in one sentence on one line, in the field's words; foreign names are made printable.

    Such as ``task llm-7: machine gpu-03 (gpu5) is faulty: pcie_bandwidth has stood out since 10:32:07 UTC
    (for 241 s) at normal score 12.3 (threshold 5.1)``; of the method default, how rare that is on a healthy machine
    stands in place of the normal score.
    """
    task = f"task {wording.plain(result.task)}"
    if result.status == "unknown":
        return f"{task}: unknown: {wording.plain(result.reason or 'no reason was given')}"
    if result.status == "none" or not result.verdicts:
        seen, members = result.coverage.machines_seen, len(result.machines)
        among = f"{seen}" if seen >= members else f"the {seen} seen of {members}"
        return f"{task}: no machine stands out among {among} over {wording.span(result.to_at - result.from_at)}"
    if len(result.verdicts) == 1:
        verdict = result.verdicts[0]
        return f"{task}: machine {_named(verdict)} is faulty{_fault(verdict)}: {_stood_out(verdict, result)}"
    if result.method == "default":
        return f"{task}: {_several(result)}"
    named = [
        f"{_named(verdict)}{_fault(verdict, ', ', '')}: {_stood_out(verdict, result)}"
        for verdict in result.verdicts[:MOST_NAMED]
    ]
    return f"{task}: {_how_many(result)}: {'; '.join(named)}{_and_more(result)}"


def coverage_sentence(result: PassResult) -> str:
    """What could be seen, in one sentence."""
    coverage = result.coverage
    used = len(coverage.metrics_used)
    absent = [wording.plain(name) for name in coverage.metrics_absent]
    # Of many the number says enough here; the doctor lists them.
    named = f": {', '.join(absent)}" if len(absent) <= MOST_ABSENT else ""
    return (
        f"{coverage.machines_seen} of {len(result.machines)} machines seen, "
        f"{wording.ratio_as_percent(coverage.samples_missing)} of samples missing, "
        f"{used} metric{'' if used == 1 else 's'} used, "
        + (f"{len(absent)} absent{named}" if absent else "none absent")
    )


def print_result(result: PassResult, console: Console) -> None:
    """Print the sentence, a table of the verdicts, who else was considered, the coverage and the warnings.

    Off a terminal the sentences stay on one line each, so that they can be searched for.
    """
    unwrapped = not console.is_terminal

    def line(text: str, style: str = "") -> None:
        # Text objects, never markup: a machine called "[red]" prints as that.
        console.print(Text(text, style=style), soft_wrap=unwrapped, highlight=False)

    line(verdict_sentence(result), _STYLES[result.status])
    if result.verdicts:
        is_default = result.method == "default"
        table = _table_of_signs(result, is_wide=console.width >= WIDE) if is_default else _table(result)
        console.print(table, highlight=False)
    for text in _considered_lines(result):
        line(text)
    line(f"coverage: {coverage_sentence(result)}")
    for warning in result.warnings:
        line(f"warning: {wording.plain(warning)}", "yellow")


def _table(result: PassResult) -> Table:
    longest = max(len(wording.plain(verdict.metric)) for verdict in result.verdicts)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    for header in ("machine", "device", "metric", "since\n(UTC)", "normal\nscore", "value\nvs peers"):
        # A narrow terminal folds the machine names first: a metric cut in two is hard to search for.
        table.add_column(header, overflow="fold", min_width=min(22, longest) if header == "metric" else None)
    for verdict in result.verdicts:
        evidence = primary_evidence(verdict)
        value = against_peers(evidence.value, evidence.peers, evidence.unit) if evidence else "not given"
        cells = (
            wording.plain(verdict.machine),
            wording.plain(verdict.device) if verdict.device is not None else "-",
            wording.plain(verdict.metric),
            wording.clock_time(verdict.onset, near=result.to_at),
            f"{verdict.score:.1f}",
            value.replace(", peers ", "\npeers "),
        )
        table.add_row(*map(Text, cells))
    return table


def _table_of_signs(result: PassResult, *, is_wide: bool) -> Table:
    """One row per sign: of a verdict, the machine and the instants stand in the first."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    between = ", " if is_wide else "\n"
    instant_headers = ["since (UTC)", "confirmed (UTC)"] if is_wide else ["since,\nconfirmed\n(UTC)"]
    headers = [*instant_headers, "weight", "sign", f"value,{between[-1]}peers"]
    for header in ("machine", *headers):
        # No least width here: where columns do not fit, rich cuts cells off instead of folding them.
        table.add_column(header, overflow="fold", justify="right" if header == "weight" else "left")
    for verdict in result.verdicts:
        instants = [wording.clock_time(at, near=result.to_at) for at in (verdict.onset, verdict.confirmed)]
        head = [_named(verdict), *(instants if is_wide else ["\n".join(instants)])]
        for weight, name, value, peers in _sign_cells(verdict):
            table.add_row(*map(Text, (*head, weight, name, f"{value}{between}{peers}" if peers else value)))
            head = [""] * len(head)
    return table


def _sign_cells(verdict: Verdict) -> list[tuple[str, str, str, str]]:
    """Weight, sign, value and peers of the first signs of a verdict."""
    carries, _ = metric_signs(verdict)
    cells = [("", "silence", silence_words(verdict), "peers report")] if is_silent(verdict) else []
    cells += [_metric_cells(item) for item in carries[: MOST_SIGNS - len(cells)]]
    more = sum(item.kind == "metric" for item in verdict.evidence) - min(len(carries), MOST_SIGNS - is_silent(verdict))
    if more > 0:
        cells.append(("", f"and {wording.counted(more, 'more metric')}", "", ""))
    return cells or [("", wording.plain(verdict.metric), "not given", "")]


def _metric_cells(item: Evidence) -> tuple[str, str, str, str]:
    value, peers = own_and_peers(item.value, item.peers, item.unit)
    return (
        "" if item.weight is None else f"{100 * item.weight:.0f} %",
        wording.plain(wording.machine_and_device(item.metric, item.device)),
        wording.plain(value),
        wording.plain(f"peers {peers}") if peers else "",
    )


def _considered_lines(result: PassResult) -> list[str]:
    """Who else was considered and why it is not the one, a line each."""
    considered = considered_in(result)
    lines = [
        f"considered at {wording.clock_time(verdict.confirmed, near=result.to_at)}: {wording.plain(item.text)}"
        for verdict, item in considered[:MOST_CONSIDERED]
    ]
    more = len(considered) - len(lines)
    return [*lines, f"considered: {wording.counted(more, 'more machine')}; see the report"] if more else lines


def _named(verdict: Verdict) -> str:
    return wording.plain(wording.machine_and_device(verdict.machine, verdict.device))


def _fault(verdict: Verdict, before: str = " (", after: str = ")") -> str:
    return f"{before}{wording.plain(verdict.fault_type)}{after}" if verdict.fault_type else ""


def _stood_out(verdict: Verdict, result: PassResult) -> str:
    if result.method == "default":
        return _departed(verdict, result)
    evidence = primary_evidence(verdict)
    threshold = f" (threshold {evidence.threshold:.1f})" if evidence else ""
    since = wording.clock_time(verdict.onset, near=result.to_at)
    lasted = wording.span(suspect_until(verdict) - verdict.onset)
    return (
        f"{wording.plain(verdict.metric)} has stood out since {since} UTC (for {lasted}) "
        f"at normal score {verdict.score:.1f}{threshold}"
    )


def _how_many(result: PassResult) -> str:
    machines = len({verdict.machine for verdict in result.verdicts})
    return f"{machines} machines are faulty" if machines > 1 else "1 machine is faulty"


def _and_more(result: PassResult) -> str:
    more = len(result.verdicts) - MOST_NAMED
    return f"; and {more} more" if more > 0 else ""


def _several(result: PassResult) -> str:
    """Several verdicts of the method default, the limit said once: it is the same for all."""
    named = []
    for verdict in result.verdicts[:MOST_NAMED]:
        since = wording.clock_time(verdict.onset, near=result.to_at)
        what = "silent" if is_silent(verdict) else wording.plain(verdict.metric)
        rare = days_of(confidence_of(verdict)[0])
        named.append(f"{_named(verdict)}{_fault(verdict)}: {what} since {since} UTC, once in {rare}")
    limit = confidence_of(result.verdicts[0])[1]
    tail = "" if limit is None else f" (expected of a healthy machine; limit once in {days_of(limit)})"
    return f"{_how_many(result)}: {'; '.join(named)}{_and_more(result)}{tail}"


def _departed(verdict: Verdict, result: PassResult) -> str:
    since = wording.clock_time(verdict.onset, near=result.to_at)
    if is_silent(verdict):
        ceased, _, part = silence_words(verdict).partition(",")
        what = f"it {ceased} at {since} UTC{f',{part},' if part else ''} while its peers went on"
    else:
        lasted = wording.span(suspect_until(verdict) - verdict.onset)
        what = f"{wording.plain(verdict.metric)} has departed from its peers since {since} UTC (for {lasted})"
    return f"{what}; a healthy machine does so {rarity_and_limit(*confidence_of(verdict))}"
