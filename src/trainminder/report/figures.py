"""The figures of the page: one machine against its peers, all machines in one metric, evidence over time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from trainminder import wording
from trainminder.report import drawing
from trainminder.report.digest import Band, Growth, Heat, score_lines
from trainminder.report.drawing import THEMES, Figure
from trainminder.report.evidence import days_of
from trainminder.report.terms import NORMAL_SCORE, Terms
from trainminder.types import FloatArray, MetricTrace, Trail, Verdict

__all__ = ["THEMES", "heat_figure", "heat_top", "suspect_figure", "trail_figure"]

#: Longest machine name beside a heatmap, in characters; on a phone they must leave the cells most of the width.
_LABEL_LENGTH, _NARROW_LENGTH = 24, 10
_ROW_PIXELS = 17
#: Verdicts that are named above the evidence over time; the labels of more would cover the plot.
_MOST_FLAGS = 4
#: Labels of the axis of evidence, and decades beyond which it is not drawn: what is rarer is no less certain.
_MOST_TICKS, _MOST_DECADES = 7, 12.0


def suspect_figure(
    trace: MetricTrace, machine: int, band: Band, verdict: Verdict | None = None, terms: Terms = NORMAL_SCORE
) -> Figure:
    """One machine's metric over its peers' band and, below, its score against the threshold.

    Args:
        machine: index into the trace's machines.
        band: that machine over its peers.
        verdict: marks its onset and confirmation; None draws the machine without marks.
        terms: what the score is called.
    """
    known = [part for part in (band.suspect, band.low, band.high) if np.isfinite(part).any()]
    largest = max((float(np.nanmax(np.abs(part))) for part in known), default=1.0)
    factor, unit = wording.scale_for(largest, trace.spec.unit)
    name = drawing.label(trace.scores.machines[machine], _LABEL_LENGTH)
    x_band = drawing.milliseconds(band.first_at, band.step_seconds)
    first_at, step, own, peers, threshold = score_lines(trace, machine, max(len(band.suspect), 1))
    x_score = drawing.milliseconds(first_at, step)
    suffix = f" {unit}" if unit else ""
    data = [
        _area(band, band.low / factor, band.high / factor, "@range"),
        _area(band, band.tenth / factor, band.ninetieth / factor, "@band"),
        drawing.line("peers' median", x_band, band.median / factor, "@median", 1.5, suffix=suffix),
        drawing.line(name, x_band, band.suspect / factor, "@suspect", 2.5, suffix=suffix),
        drawing.line("strangest peer", x_score, peers, "@median", 1.0, axis="y2"),
        drawing.line(terms.threshold, x_score, threshold, "@ink", 1.5, axis="y2", dash="dash"),
        drawing.line(name, x_score, own, "@suspect", 2.0, axis="y2"),
    ]
    from_at, to_at = float(trace.panel.times[0]), float(trace.panel.times[-1])
    layout = drawing.layout(from_at, to_at, height=430, margin_top=44 if verdict else 10)
    layout["hovermode"] = "x unified"
    layout["hoverlabel"] = {"bgcolor": "@plot", "font": drawing.FONT}
    layout["xaxis"]["anchor"] = "y2"
    layout["yaxis"] = drawing.axis(unit or trace.spec.unit or "value", [0.38, 1.0])
    layout["yaxis2"] = drawing.axis(terms.score, [0.0, 0.30])
    if verdict:
        _mark(layout, verdict, from_at, to_at)
    return {"data": data, "layout": layout}


def heat_figure(
    trace: MetricTrace, heat: Heat, verdicts: Sequence[Verdict] = (), terms: Terms = NORMAL_SCORE
) -> Figure:
    """Score by machine and time: grey below the threshold, orange to dark above it.

    Args:
        verdicts: their machines are marked beside the plot, the onset of a single one across it.
        terms: what the score is called.
    Returns:
        beside data and layout, under ``narrow``, shorter row labels for a narrow screen.
    """
    accused = {verdict.machine for verdict in verdicts}
    names = [trace.scores.machines[index] for index in heat.machines]
    rows = len(names)
    top = heat_top(heat)
    at_threshold = heat.threshold / top if 0 < heat.threshold < top else 0.5
    layout = drawing.layout(
        heat.first_at - heat.step_seconds / 2,
        heat.first_at + heat.step_seconds * (heat.scores.shape[1] - 0.5),
        height=rows * _ROW_PIXELS + 76,
        margin_top=26 if len(verdicts) == 1 else 8,
    )
    layout["plot_bgcolor"] = "@nodata"
    layout["hoverlabel"] = {"bgcolor": "@plot", "font": drawing.FONT}
    layout["xaxis"]["showgrid"] = False
    # Drawn, because a gap between the cells of a heatmap would show the colour that means "no samples".
    layout["shapes"] = [drawing.rule(row - 0.5) for row in range(1, rows)]
    layout["yaxis"] = {
        "range": [rows - 0.5, -0.5],
        "tickvals": list(range(rows)),
        "ticktext": _row_labels(names, accused, _LABEL_LENGTH),
        "tickfont": drawing.FONT,
        "automargin": True,
        "fixedrange": True,
        "showgrid": False,
        "zeroline": False,
    }
    if len(verdicts) == 1:
        onset = verdicts[0].onset
        layout["shapes"].append(drawing.upright(onset, "dot"))
        text = f"onset {wording.clock_time(onset)}"
        layout["annotations"] = [drawing.flag(text, onset, layout["xaxis"]["range"], 1.0, 2)]
    cells = {
        "type": "heatmap",
        **drawing.milliseconds(heat.first_at, heat.step_seconds),
        "z": [drawing.rounded(row, 1) for row in heat.scores],
        "zmin": 0,
        "zmax": round(top, 3),
        "colorscale": [
            [0, "@heat0"],
            [at_threshold, "@heat1"],
            [at_threshold, "@heat2"],
            [1, "@heat3"],
        ],
        "showscale": False,
        "hoverongaps": False,
        "hovertemplate": f"%{{y}}<br>%{{x|%H:%M:%S}} UTC<br>{terms.score} %{{z}}<extra></extra>",
    }
    return {"data": [cells], "layout": layout, "narrow": _row_labels(names, accused, _NARROW_LENGTH)}


def heat_top(heat: Heat) -> float:
    """The score at which the colour scale ends: three thresholds, so that a candidate is always plain."""
    if heat.threshold > 0:
        return 3.0 * heat.threshold
    known = heat.scores[np.isfinite(heat.scores)]
    return max(1.0, float(known.max())) if known.size else 1.0


def trail_figure(trail: Trail, growth: Growth, verdicts: Sequence[Verdict] = ()) -> Figure:
    """How the evidence against the most suspicious machines grew, to the limit and beyond.

    Drawn in machine-days on a logarithmic axis, so that the axis and the pointer say what an engineer can weigh.

    Args:
        verdicts: their machines are emphasised, their confirmations marked.
    """
    accused = {verdict.machine: verdict for verdict in verdicts}
    x = drawing.milliseconds(growth.first_at, growth.step_seconds)
    from_at, to_at = float(trail.times[0]), float(trail.times[-1])
    bounds = [from_at * 1000, to_at * 1000]
    data = []
    # The accused last: they lie on top.
    for index in sorted(range(len(trail.machines)), key=lambda index: trail.machines[index] in accused):
        name = trail.machines[index]
        # Several lines of the same colour are told apart only where they are thin.
        color, width = ("@suspect", 2.5 if len(accused) == 1 else 1.5) if name in accused else ("@median", 1.2)
        days = _days(growth.decades[index])
        curve = drawing.line(drawing.label(name, _LABEL_LENGTH), x, days, color, width)
        data.append(curve | {"y": _significant(days), "hovertemplate": "once in %{y:,.3~s} machine-days"})
    limit = 10.0**trail.limit
    data.append(
        {
            "type": "scatter",
            "x": bounds,
            "y": [limit, limit],
            "mode": "lines",
            "line": {"color": "@ink", "width": 1.5, "dash": "dash"},
            "hoverinfo": "skip",
        }
    )
    marked = [verdict for verdict in verdicts if verdict.machine in trail.machines]
    if marked:
        data.append(
            {
                "type": "scatter",
                "x": [verdict.confirmed * 1000 for verdict in marked],
                "y": _significant(_days(np.array([verdict.score for verdict in marked]))),
                "mode": "markers",
                "marker": {"size": 9, "color": "@suspect", "line": {"color": "@plot", "width": 1.5}},
                "hoverinfo": "skip",
            }
        )
    flags = _confirmations(marked, bounds)
    layout = drawing.layout(from_at, to_at, height=300 + 18 * len(flags), margin_top=10 + 18 * len(flags))
    layout["hovermode"] = "x unified"
    layout["hoverlabel"] = {"bgcolor": "@plot", "font": drawing.FONT}
    highest = float(np.nanmax(growth.decades, initial=0.0))
    top = min(max(trail.limit + 0.6, highest + 0.3), max(_MOST_DECADES, trail.limit + 0.6))
    step = max(1, -(-math.floor(top) // _MOST_TICKS))
    ticks = range(0, math.floor(top) + 1, step)
    layout["yaxis"] = drawing.axis("once in … machine-days", [0.0, 1.0]) | {
        "type": "log",
        "range": [-0.08, round(top, 3)],
        "tickvals": [10**tick for tick in ticks],
        "ticktext": [_power(tick) for tick in ticks],
    }
    layout["shapes"] = [drawing.upright(verdict.confirmed, "solid") for verdict in marked[:_MOST_FLAGS]]
    layout["annotations"] = [*flags, _limit_words(trail.limit, bounds)]
    return {"data": data, "layout": layout}


def _confirmations(verdicts: Sequence[Verdict], bounds: list[float]) -> list[Figure]:
    """When each verdict stood, one above the other; none where they are too many to be told apart."""
    if len(verdicts) > _MOST_FLAGS:
        return []
    flags = []
    for place, verdict in enumerate(verdicts):
        whose = f"{drawing.label(verdict.machine, _NARROW_LENGTH + 4)} " if len(verdicts) > 1 else ""
        text = f"{whose}confirmed {wording.clock_time(verdict.confirmed)}"
        flags.append(drawing.flag(text, verdict.confirmed, bounds, 1.0, 2 + 18 * place))
    return flags


def _limit_words(limit: float, bounds: list[float]) -> Figure:
    """Below the limit, on the right: who has passed it is above it by then."""
    return {
        "text": f"limit: {days_of(limit)}",
        "x": bounds[1],
        # On a logarithmic axis, plotly places words by the logarithm, but lines by the number.
        "y": limit,
        "xanchor": "right",
        "yanchor": "top",
        "showarrow": False,
        "font": drawing.FONT,
        "bgcolor": "@plot",
    }


def _days(decades: FloatArray) -> FloatArray:
    """Machine-days of decades: below 0, what happens more than once a day, all is drawn as once a day."""
    days: FloatArray = 10.0 ** np.clip(decades, 0.0, _MOST_DECADES)
    return days


def _significant(values: FloatArray) -> list[float | None]:
    """To three significant digits: a fixed number of decimals would lose the small ones."""
    return [float(f"{value:.3g}") if math.isfinite(value) else None for value in values.tolist()]


def _power(exponent: int) -> str:
    """``1``, ``10`` .. ``100,000``, then ``10⁶``: more digits would take the width from the plot."""
    superscript = str(exponent).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{10**exponent:,}" if exponent < 6 else f"10{superscript}"


def _area(band: Band, low: FloatArray, high: FloatArray, color: str) -> Figure:
    """A band as closed outlines, one per stretch without a gap: filling between two lines bridges gaps."""
    x: list[float | None] = []
    y: list[float | None] = []
    known = np.isfinite(low) & np.isfinite(high)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], known, [False]]).astype(np.int8)))
    decimals = drawing.decimals(np.concatenate([low, high]))
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        bins = np.arange(start, stop)
        instants = [round((band.first_at + float(index) * band.step_seconds) * 1000) for index in bins]
        if x:
            x.append(None)
            y.append(None)
        x += [*instants, *instants[::-1]]
        y += [*drawing.rounded(high[bins], decimals), *drawing.rounded(low[bins][::-1], decimals)]
    return {
        "type": "scatter",
        "x": x,
        "y": y,
        "mode": "none",
        "fill": "toself",
        "fillcolor": color,
        "hoverinfo": "skip",
    }


def _mark(layout: Figure, verdict: Verdict, from_at: float, to_at: float) -> None:
    bounds = [from_at * 1000, to_at * 1000]
    between = {
        "type": "rect",
        "layer": "below",
        "yref": "paper",
        "x0": verdict.onset * 1000,
        "x1": verdict.confirmed * 1000,
        "y0": 0,
        "y1": 1,
        "fillcolor": "@between",
        "line": {"width": 0},
    }
    layout["shapes"] = [between, drawing.upright(verdict.onset, "dot"), drawing.upright(verdict.confirmed, "solid")]
    # Two heights: the labels of a short fault would cover one another.
    layout["annotations"] = [
        drawing.flag(f"onset {wording.clock_time(verdict.onset)}", verdict.onset, bounds, 1.0, 2),
        drawing.flag(f"confirmed {wording.clock_time(verdict.confirmed)}", verdict.confirmed, bounds, 1.0, 20),
    ]


def _row_labels(names: Sequence[str], accused: set[str], longest: int) -> list[str]:
    """Names without the domain they share, the accused ones marked."""
    domains = {name.partition(".")[2] for name in names}
    is_shared = len(domains) == 1 and len(names) > 1 and not any(name.replace(".", "").isdigit() for name in names)
    labels = [drawing.label(name.partition(".")[0] if is_shared else name, longest) for name in names]
    return [f"<b>▶ {label}</b>" if name in accused else label for name, label in zip(names, labels, strict=True)]
