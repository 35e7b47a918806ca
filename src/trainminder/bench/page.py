"""The bench's page: Markdown with tables, and plots beside it, from what ``Comparison.as_json`` gives."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainminder.bench import plots
from trainminder.bench.measure import INTERVAL, RESAMPLES
from trainminder.errors import SettingsError
from trainminder.version import __version__

__all__ = ["write_page"]

#: What recall is broken down by, where tasks say it, and how it is called.
TAGS = {
    "fault": "fault",
    "strength": "strength",
    "size": "machines",
    "interval": "sampling interval",
    "difficulty": "difficulty",
}
RATE = "false_alarms_per_1000_machine_hours"
Shown = Mapping[str, Any]


def write_page(shown: Shown, path: Path, command: str) -> None:
    """Write the page and, into a folder of its name, its plots.

    A file ``NAME-notes.md`` beside it, written by hand, is linked.

    Args:
        shown: what ``bench --format json`` prints.
        path: the Markdown file.
        command: what prints the same.
    Raises:
        SettingsError: it cannot be written.
    """
    folder = path.with_suffix("")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text("\n\n".join(_sections(shown, path, folder, command)) + "\n", encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"--page {path}: {error.strerror}: name a file in a folder that can be written") from error


def _sections(shown: Shown, path: Path, folder: Path, command: str) -> Iterable[str]:
    methods: Mapping[str, Shown] = shown["methods"]
    yield "# Bench" if shown["set"] == "standard" else f"# Bench: {Path(shown['set']).name}"
    yield "<!-- Written by `trainminder bench --page`: what is changed here is lost. -->"
    yield _what_was_done(shown, command)
    notes = path.with_name(f"{path.stem}-notes.md")
    if notes.exists():
        yield f"[Notes]({notes.name}) say what these figures mean and where they differ from the paper's."
    yield "## Methods side by side"
    yield _table(*_comparison(methods))
    share = f"{INTERVAL:.0%}".replace("%", " %")
    yield (
        f"In brackets: {share} intervals from {RESAMPLES:,} bootstrap samples of the tasks. Delay is data time from "
        "the onset to the instant at which the verdict stood; a dash is what is undefined."
    )
    plots.draw_comparison(methods, folder / "comparison.svg")
    yield _picture(folder, "comparison.svg", f"F1, precision, recall and false alarms with their {share} intervals")
    for tag in _told(methods):
        yield from _broken_down(methods, tag, folder)
    yield "## Delay"
    if any(each["delay_median_s"] is not None for each in methods.values()):
        plots.draw_delays(methods, folder / "delay.svg")
        yield _picture(folder, "delay.svg", "Seconds from onset to confirmation, median and 90th percentile")
    else:
        yield "No method found a fault."
    yield "## Thresholds"
    yield _table(*_thresholds(methods))
    if all(each["calibration"] for each in methods.values()):
        limit = next(iter(methods.values()))["threshold"]["limit"]
        plots.draw_trade_off(methods, limit, folder / "trade-off.svg")
        yield _picture(
            folder, "trade-off.svg", "Recall against false alarms at every threshold, on the calibration set"
        )
    yield "## Cost"
    yield _table(*_costs(methods))
    yield (
        "Seconds are those of the machine that ran this, where every worker has its share of the processors; the ratio "
        "holds elsewhere. Memory is what judging took above what the process held, without the processes that a method "
        "starts (node, for `mad` and `dbscan`). What several methods need of a task (alignment, embeddings) counts to "
        "the first that needs it."
    )
    if shown["failures"]:
        yield "## Failures"
        yield "A method that fails counts as having said nothing."
        yield _table(
            ("method", "task", "error"), [(each["method"], each["task"], each["error"]) for each in shown["failures"]]
        )


def _what_was_done(shown: Shown, command: str) -> str:
    tasks = f"{shown['tasks']} tasks, {shown['machine_hours']:,.0f} machine-hours"
    if shown["seeds"]:
        tasks += f", simulated from the seeds {_ranges(shown['seeds'])}"
    seeds = _ranges(shown["calibration_seeds"])
    chosen = {
        "calibrated": f"chosen on other tasks, simulated from the seeds {seeds}, by one rule",
        "stored": "chosen on simulated tasks by an earlier standard run and stored in the package, by one rule",
        "given": "given in a file; the rule for it is",
    }[shown["thresholds"]]
    limit = next(iter(shown["methods"].values()))["threshold"]["limit"]
    return (
        f"{tasks}. `{command}` of version {__version__} prints these figures.\n\n"
        "A verdict is true only if it names a truly faulty machine and was confirmed after the fault's onset; every "
        "other verdict is a false alarm. Machines that one fault strikes together count as one fault, found when any "
        "of them is named. "
        f"Each method's threshold was {chosen}: the best F1 at no more than {limit:g} false alarms "
        "per 1,000 machine-hours"
        + ("; that of `default` is the product's own setting." if "default" in shown["methods"] else ".")
    )


def _ranges(numbers: Sequence[int]) -> str:
    """``1 to 3 and 7``."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return " and ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in spans)


def _comparison(methods: Mapping[str, Shown]) -> tuple[Sequence[str], list[Sequence[str]]]:
    headings = (
        "method",
        "precision",
        "recall",
        "F1",
        "false alarms per 1,000 machine-hours",
        "top-1",
        "delay, median s",
        "delay, p90 s",
    )
    keys = {"precision": 3, "recall": 3, "f1": 3, RATE: 2, "top1": 3, "delay_median_s": 0, "delay_p90_s": 0}
    rows: list[Sequence[str]] = [
        (name, *(_figure(each[key], digits, each["intervals"][key]) for key, digits in keys.items()))
        for name, each in methods.items()
    ]
    return headings, rows


def _told(methods: Mapping[str, Shown]) -> list[str]:
    """The tags that divide the tasks, those that are known by name first."""
    by: Shown = next(iter(methods.values()))["by"]
    return [tag for tag in (*TAGS, *(tag for tag in by if tag not in TAGS)) if len(by.get(tag, ())) > 1]


def _broken_down(methods: Mapping[str, Shown], tag: str, folder: Path) -> Iterable[str]:
    name = TAGS.get(tag, tag)
    parts: Mapping[str, Shown] = next(iter(methods.values()))["by"][tag]
    for key, what, digits in (("recall", "Recall", 2), (RATE, "False alarms per 1,000 machine-hours", 1)):
        if key == RATE and tag != "difficulty":
            continue
        values = [value for value, part in parts.items() if part[key] is not None]
        if not values:
            continue
        file = f"{'recall' if key == 'recall' else 'false-alarms'}-by-{re.sub('[^a-z0-9]+', '-', tag.lower())}.svg"
        yield f"## {what} by {name}"
        plots.draw_heatmap(methods, tag, key, folder / file, title=name, is_ratio=key == "recall")
        yield _picture(folder, file, f"{what} by {name} and method")
        counted = "faults" if key == "recall" else "tasks"
        rows = [
            (
                value,
                str(parts[value][counted]),
                *(_figure(each["by"][tag][value][key], digits) for each in methods.values()),
            )
            for value in values
        ]
        yield f"<details><summary>{what} by {name} as a table</summary>"
        yield _table((name, counted, *methods), rows)
        yield "</details>"


def _thresholds(methods: Mapping[str, Shown]) -> tuple[Sequence[str], list[Sequence[str]]]:
    headings = ("method", "threshold", "F1 on the calibration set", "false alarms per 1,000 machine-hours there", "")
    rows: list[Sequence[str]] = []
    for name, each in methods.items():
        chosen: Shown = each["threshold"]
        said = "" if chosen["is_within_limit"] else "none keeps to the limit: the one with the fewest false alarms"
        rows.append((name, f"{chosen['threshold']:g}", _figure(chosen["f1"], 3), _figure(chosen[RATE], 2), said))
    return headings, rows


def _costs(methods: Mapping[str, Shown]) -> tuple[Sequence[str], list[Sequence[str]]]:
    reference = "paper" if "paper" in methods else next(iter(methods))
    unit = methods[reference]["seconds"]
    rows: list[Sequence[str]] = [
        (
            name,
            _figure(each["seconds"], 1),
            _figure(each["seconds_median"], 2),
            _figure(each["seconds"] / unit if each["seconds"] is not None and unit else None, 2),
            _figure(each["peak_mib"], 0),
        )
        for name, each in methods.items()
    ]
    return ("method", "s, all tasks", "s, median task", f"beside `{reference}`", "MiB"), rows


def _picture(folder: Path, name: str, text: str) -> str:
    return f"![{text}]({folder.name}/{name})"


def _figure(value: float | None, digits: int, bounds: Sequence[float] | None = None) -> str:
    if value is None:
        return "-"
    interval = "" if bounds is None else f" ({bounds[0]:.{digits}f}..{bounds[1]:.{digits}f})"
    return f"{value:.{digits}f}{interval}"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)
