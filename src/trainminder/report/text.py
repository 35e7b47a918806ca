"""A pass in words: one sentence for logs and alerts, a short table for the terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trainminder import wording
from trainminder.report.evidence import against_peers, primary_evidence, suspect_until
from trainminder.types import PassResult, Verdict

__all__ = ["coverage_sentence", "print_result", "verdict_sentence"]

#: Enough for every case worth acting on by hand; a longer list belongs in the table below it.
MOST_NAMED = 3
MOST_ABSENT = 6

_STYLES = {"faulty": "bold red", "none": "green", "unknown": "bold yellow"}


def verdict_sentence(result: PassResult) -> str:
    """The pass in one sentence on one line, in the field's words; foreign names are made printable.

    Such as ``task llm-7: machine gpu-03 (gpu5) is faulty: pcie_bandwidth has stood out since 10:32:07 UTC
    (for 241 s) at normal score 12.3 (threshold 5.1)``.
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
    named = [
        f"{_named(verdict)}{_fault(verdict, ', ', '')}: {_stood_out(verdict, result)}"
        for verdict in result.verdicts[:MOST_NAMED]
    ]
    machines = len({verdict.machine for verdict in result.verdicts})
    more = len(result.verdicts) - len(named)
    tail = f"; and {more} more" if more else ""
    subject = f"{machines} machines are faulty" if machines > 1 else "1 machine is faulty"
    return f"{task}: {subject}: {'; '.join(named)}{tail}"


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
    """Print the sentence, a table of the verdicts, the coverage and the warnings.

    Off a terminal the sentences stay on one line each, so that they can be searched for.
    """
    unwrapped = not console.is_terminal

    def line(text: str, style: str = "") -> None:
        # Text objects, never markup: a machine called "[red]" prints as that.
        console.print(Text(text, style=style), soft_wrap=unwrapped, highlight=False)

    line(verdict_sentence(result), _STYLES[result.status])
    if result.verdicts:
        console.print(_table(result), highlight=False)
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


def _named(verdict: Verdict) -> str:
    return wording.plain(wording.machine_and_device(verdict.machine, verdict.device))


def _fault(verdict: Verdict, before: str = " (", after: str = ")") -> str:
    return f"{before}{wording.plain(verdict.fault_type)}{after}" if verdict.fault_type else ""


def _stood_out(verdict: Verdict, result: PassResult) -> str:
    evidence = primary_evidence(verdict)
    threshold = f" (threshold {evidence.threshold:.1f})" if evidence else ""
    since = wording.clock_time(verdict.onset, near=result.to_at)
    lasted = wording.span(suspect_until(verdict) - verdict.onset)
    return (
        f"{wording.plain(verdict.metric)} has stood out since {since} UTC (for {lasted}) "
        f"at normal score {verdict.score:.1f}{threshold}"
    )
