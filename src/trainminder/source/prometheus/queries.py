"""PromQL from the catalogue's templates, sampling intervals, and how a range is cut. Pure: nothing asks a store."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trainminder.settings import MembershipSettings
from trainminder.source.prometheus.matrix import MatrixAnswer
from trainminder.source.prometheus.names import escape_regex, matching_label, quote
from trainminder.types import MetricQuery, MetricSpec, QueryKind, Task

__all__ = [
    "RATE_INTERVALS",
    "Grid",
    "duration",
    "is_rate",
    "machine_regex",
    "measured_interval",
    "metric_names",
    "probe",
    "queries_of",
    "range_expression",
    "render",
    "selector_of",
    "series_name",
    "task_matchers",
]

#: A rate needs two samples in its window; four leave room for late scrapes and a lost one.
RATE_INTERVALS = 4.0
#: One sample fits always, and a stopped series is gone after half an interval more, not after five minutes.
WINDOW_INTERVALS = 1.5
#: VictoriaMetrics refuses queries longer than 16 KiB; the rest is for what gateways add.
MOST_QUERY_BYTES = 12_000

COUNTER_ENDING = "_total"

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_PLACEHOLDER = re.compile(r"\$(matcher|rate|window|machine_label)\b")


def queries_of(spec: MetricSpec) -> tuple[MetricQuery, ...]:
    """The metric's queries; a metric declared without any is taken for a series name or an expression.

    By the convention of exporters a name that ends in ``_total`` is a counter.
    """
    if spec.queries or not spec.declared:
        return spec.queries
    kind: QueryKind = "gauge" if _NAME.fullmatch(spec.name) else "expression"
    if kind == "gauge" and spec.name.endswith(COUNTER_ENDING):
        # A count says how long an exporter runs; what machines do alike is its rate.
        kind = "counter"
    return (MetricQuery(exporter="declared", query=spec.name, kind=kind),)


def selector_of(query: MetricQuery) -> str | None:
    """The template of the selector whose series and sampling interval count; None: not known."""
    return _with_matcher(query.query) if query.kind != "expression" else query.selector


def _with_matcher(selector: str) -> str:
    """A bare selector that also carries ``$matcher``, wherever the user left it out."""
    if "$matcher" in selector:
        return selector
    text = selector.strip()
    if text.endswith("}"):
        inside = text[:-1].rstrip()
        return inside + ("$matcher}" if inside.endswith(("{", ",")) else ",$matcher}")
    return text + "{$matcher}"


def is_rate(query: MetricQuery) -> bool:
    """Whether the answer is a rate over a window, which outlives its series by some samples."""
    return query.kind == "counter" or "$rate" in query.query


def render(template: str, *, matcher: str = "", interval: float = 15.0, machine_label: str = "instance") -> str:
    """A template filled in; an empty matcher takes its comma with it."""
    if not matcher:
        template = re.sub(r"\s*,\s*\$matcher\b|\$matcher\b\s*,\s*", "", template)
    values = {
        "matcher": matcher,
        "rate": duration(RATE_INTERVALS * interval),
        "window": duration(WINDOW_INTERVALS * interval),
        "machine_label": machine_label,
    }
    return _PLACEHOLDER.sub(lambda found: values[found[1]], template)


def duration(seconds: float) -> str:
    """PromQL duration in whole milliseconds."""
    return f"{max(1, round(seconds * 1000))}ms"


def range_expression(query: MetricQuery, matcher: str, interval: float, machine_label: str) -> str:
    """What a range query asks for: never more than the window behind each instant, so nothing stale is carried."""
    template = query.query
    if query.kind == "gauge":
        template = f"last_over_time({_with_matcher(template)}[$window])"
    elif query.kind == "counter":
        template = f"rate({_with_matcher(template)}[$rate])"
    return render(template, matcher=matcher, interval=interval, machine_label=machine_label)


def probe(query: MetricQuery, matcher: str, seconds: float) -> str | None:
    """An instant query that finds every series with a sample in the last ``seconds``.

    Where it starts with ``resets`` its values are the counter resets in that time; else they say nothing.
    """
    selector = selector_of(query)
    if selector is None:
        return None
    text = render(selector, matcher=matcher)
    if "__name__" in selector:
        # A function over several metrics would give several series of one name, which Prometheus refuses.
        return text
    return f"{'resets' if is_rate(query) else 'last_over_time'}({text}[{duration(seconds)}])"


def metric_names(spec: MetricSpec) -> list[str]:
    """The series names that a metric's queries start from."""
    names: list[str] = []
    for query in queries_of(spec):
        template = selector_of(query) or query.query
        found = re.match(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\{|$)", template)
        if found:
            names.append(found[1])
    return names


def series_name(query: MetricQuery) -> str:
    """The series that a query asks for, without the task's matcher: a name, or a selector where it has none."""
    text = render(selector_of(query) or query.query)
    found = re.match(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\{|$)", text)
    return found[1] if found else text


def _without_braces(matcher: str) -> str:
    """The task's matcher as it goes inside braces."""
    text = matcher.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    return text.strip().strip(",").strip()


def task_matchers(task: Task, settings: MembershipSettings, template: str) -> list[str]:
    """The matchers that together find the task's series, each short enough for one query.

    A list of machines without a matcher becomes a regular expression on the machine label, in pieces. Where names
    are rewritten the label's values are not known: then everything is asked for, and filtered afterwards.
    """
    matcher = _without_braces(task.matcher)
    if matcher or task.machines is None or settings.machine_rewrites:
        return [matcher]
    uses = max(1, template.count("$matcher"))
    room = max(500, (MOST_QUERY_BYTES - len(template)) // uses)
    pieces: list[list[str]] = [[]]
    length = 0
    for name in task.machines:
        size = len(matching_label([name], settings).encode())
        if pieces[-1] and length + size > room:
            pieces.append([])
            length = 0
        pieces[-1].append(name)
        length += size
    return [matching_label(piece, settings) for piece in pieces]


def machine_regex(names: list[str], label: str) -> str:
    """A matcher for exactly these values of a label."""
    return f"{label}=~{quote('|'.join(escape_regex(name) for name in names))}"


def measured_interval(answer: MatrixAnswer) -> tuple[float, float] | None:
    """Shortest and longest sampling interval of the series of a raw answer; None where none has three samples."""
    found: list[float] = []
    for start, end in zip(answer.offsets[:-1].tolist(), answer.offsets[1:].tolist(), strict=True):
        if end - start >= 3:
            gaps = np.diff(answer.times[start:end])
            gaps = gaps[gaps > 0]
            if len(gaps):
                found.append(_snapped(float(np.median(gaps))))
    return (min(found), max(found)) if found else None


def _snapped(seconds: float) -> float:
    """Scrapes jitter by milliseconds: near a whole second it is that, else hundredths (thousandths below 0.1 s)."""
    whole = round(seconds)
    if whole >= 1 and abs(seconds - whole) <= 0.02 * whole:
        return float(whole)
    return max(round(seconds, 2 if seconds >= 0.1 else 3), 0.001)


@dataclass(frozen=True, slots=True)
class Grid:
    """The instants of a range query: multiples of the step since the epoch, in milliseconds, both ends included."""

    first_ms: int
    last_ms: int
    step_ms: int

    @classmethod
    def between(cls, from_at: float, to_at: float, step: float) -> Grid:
        """All multiples of ``step`` seconds (at least 0.1) in the range; empty where it holds none."""
        step_ms = max(100, round(step * 1000))
        first = -(-round(from_at * 1000) // step_ms) * step_ms
        return cls(first, round(to_at * 1000) // step_ms * step_ms, step_ms)

    @property
    def points(self) -> int:
        return max(0, (self.last_ms - self.first_ms) // self.step_ms + 1)

    def slices(self, most_points: int) -> Iterator[Grid]:
        """Consecutive pieces of at most ``most_points``; the seams neither share nor miss an instant."""
        for start in range(self.first_ms, self.last_ms + 1, self.step_ms * most_points):
            yield Grid(start, min(start + self.step_ms * (most_points - 1), self.last_ms), self.step_ms)
