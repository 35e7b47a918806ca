"""Plotly figures as plain dicts, with the theme's colours left as ``@tokens`` for the page to fill in.

Plain dicts, because the figure classes take a second to import and add a template of 7 kB to every figure;
the tests check the dicts against those classes.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from trainminder import wording
from trainminder.report.digest import Band, Heat, score_lines
from trainminder.types import FloatArray, MetricTrace, Verdict

__all__ = ["THEMES", "heat_figure", "heat_top", "suspect_figure"]

Figure = dict[str, Any]

#: Blue and orange stay apart for every common colour blindness, and each scale runs one way in lightness.
THEMES: dict[str, dict[str, str]] = {
    "light": {
        "@ink": "#1b1f24",
        "@plot": "#ffffff",
        "@grid": "#e3e6ea",
        "@suspect": "#c2410c",
        "@median": "#2563a8",
        "@band": "rgba(37,99,168,0.30)",
        "@range": "rgba(37,99,168,0.14)",
        "@between": "rgba(194,65,12,0.08)",
        "@nodata": "#b8d4ee",
        "@heat0": "#f7f7f6",
        "@heat1": "#cfd3d8",
        "@heat2": "#f2a541",
        "@heat3": "#7a1f04",
    },
    "dark": {
        "@ink": "#e6e9ed",
        "@plot": "#15181c",
        "@grid": "#31373f",
        "@suspect": "#ff9d57",
        "@median": "#79b4f0",
        "@band": "rgba(121,180,240,0.32)",
        "@range": "rgba(121,180,240,0.15)",
        "@between": "rgba(255,157,87,0.10)",
        "@nodata": "#24507c",
        "@heat0": "#1b1f24",
        "@heat1": "#464d57",
        "@heat2": "#c96a12",
        "@heat3": "#ffe9b8",
    },
}

_FONT = {"family": "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif", "size": 12, "color": "@ink"}
#: Longest machine name beside a heatmap, in characters; on a phone they must leave the cells most of the width.
_LABEL_LENGTH, _NARROW_LENGTH = 24, 10
_ROW_PIXELS = 17


def suspect_figure(trace: MetricTrace, machine: int, band: Band, verdict: Verdict | None = None) -> Figure:
    """One machine's metric over its peers' band and, below, its normal score against the threshold.

    Args:
        machine: index into the trace's machines.
        band: that machine over its peers.
        verdict: marks its onset and confirmation; None draws the machine without marks.
    """
    known = [part for part in (band.suspect, band.low, band.high) if np.isfinite(part).any()]
    largest = max((float(np.nanmax(np.abs(part))) for part in known), default=1.0)
    factor, unit = wording.scale_for(largest, trace.spec.unit)
    name = _label(trace.scores.machines[machine], _LABEL_LENGTH)
    x_band = _milliseconds(band.first_at, band.step_seconds)
    first_at, step, own, peers, threshold = score_lines(trace, machine, max(len(band.suspect), 1))
    x_score = _milliseconds(first_at, step)
    suffix = f" {unit}" if unit else ""
    data = [
        _area(band, band.low / factor, band.high / factor, "@range"),
        _area(band, band.tenth / factor, band.ninetieth / factor, "@band"),
        _line("peers' median", x_band, band.median / factor, "@median", 1.5, suffix=suffix),
        _line(name, x_band, band.suspect / factor, "@suspect", 2.5, suffix=suffix),
        _line("strangest peer", x_score, peers, "@median", 1.0, axis="y2"),
        _line("threshold", x_score, threshold, "@ink", 1.5, axis="y2", dash="dash"),
        _line(name, x_score, own, "@suspect", 2.0, axis="y2"),
    ]
    from_at, to_at = float(trace.panel.times[0]), float(trace.panel.times[-1])
    layout = _layout(from_at, to_at, height=430, margin_top=44 if verdict else 10)
    layout["hovermode"] = "x unified"
    layout["hoverlabel"] = {"bgcolor": "@plot", "font": _FONT}
    layout["xaxis"]["anchor"] = "y2"
    layout["yaxis"] = _axis(unit or trace.spec.unit or "value", [0.38, 1.0])
    layout["yaxis2"] = _axis("normal score", [0.0, 0.30])
    if verdict:
        _mark(layout, verdict, from_at, to_at)
    return {"data": data, "layout": layout}


def heat_figure(trace: MetricTrace, heat: Heat, verdicts: Sequence[Verdict] = ()) -> Figure:
    """Normal score by machine and time: grey below the threshold, orange to dark above it.

    Args:
        verdicts: their machines are marked beside the plot, the onset of a single one across it.
    Returns:
        beside data and layout, under ``narrow``, shorter row labels for a narrow screen.
    """
    accused = {verdict.machine for verdict in verdicts}
    names = [trace.scores.machines[index] for index in heat.machines]
    rows = len(names)
    top = heat_top(heat)
    at_threshold = heat.threshold / top if 0 < heat.threshold < top else 0.5
    layout = _layout(
        heat.first_at - heat.step_seconds / 2,
        heat.first_at + heat.step_seconds * (heat.scores.shape[1] - 0.5),
        height=rows * _ROW_PIXELS + 76,
        margin_top=26 if len(verdicts) == 1 else 8,
    )
    layout["plot_bgcolor"] = "@nodata"
    layout["hoverlabel"] = {"bgcolor": "@plot", "font": _FONT}
    layout["xaxis"]["showgrid"] = False
    # Drawn, because a gap between the cells of a heatmap would show the colour that means "no samples".
    layout["shapes"] = [_rule(row - 0.5) for row in range(1, rows)]
    layout["yaxis"] = {
        "range": [rows - 0.5, -0.5],
        "tickvals": list(range(rows)),
        "ticktext": _row_labels(names, accused, _LABEL_LENGTH),
        "tickfont": _FONT,
        "automargin": True,
        "fixedrange": True,
        "showgrid": False,
        "zeroline": False,
    }
    if len(verdicts) == 1:
        onset = verdicts[0].onset
        layout["shapes"].append(_upright(onset, "dot"))
        layout["annotations"] = [_flag(f"onset {wording.clock_time(onset)}", onset, layout["xaxis"]["range"], 1.0, 2)]
    cells = {
        "type": "heatmap",
        **_milliseconds(heat.first_at, heat.step_seconds),
        "z": [_rounded(row, 1) for row in heat.scores],
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
        "hovertemplate": "%{y}<br>%{x|%H:%M:%S} UTC<br>normal score %{z}<extra></extra>",
    }
    return {"data": [cells], "layout": layout, "narrow": _row_labels(names, accused, _NARROW_LENGTH)}


def heat_top(heat: Heat) -> float:
    """The normal score at which the colour scale ends: three thresholds, so that a candidate is always plain."""
    if heat.threshold > 0:
        return 3.0 * heat.threshold
    known = heat.scores[np.isfinite(heat.scores)]
    return max(1.0, float(known.max())) if known.size else 1.0


def _layout(from_at: float, to_at: float, height: int, margin_top: int) -> Figure:
    return {
        "height": height,
        "margin": {"l": 8, "r": 24, "t": margin_top, "b": 46},
        "font": _FONT,
        "paper_bgcolor": "@plot",
        "plot_bgcolor": "@plot",
        "showlegend": False,
        "xaxis": {
            "type": "date",
            "range": [from_at * 1000, to_at * 1000],
            "title": {"text": f"time (UTC), {_days(from_at, to_at)}", "font": _FONT, "standoff": 8},
            "tickfont": _FONT,
            "tickformat": "%H:%M" if to_at - from_at > 240 else "%H:%M:%S",
            "hoverformat": "%H:%M:%S UTC",
            "nticks": 8,
            "gridcolor": "@grid",
            "zeroline": False,
        },
    }


def _axis(title: str, domain: list[float]) -> Figure:
    return {
        "title": {"text": html.escape(wording.plain(title), quote=False), "font": _FONT, "standoff": 6},
        "domain": domain,
        "tickfont": _FONT,
        "gridcolor": "@grid",
        "zeroline": False,
        "automargin": True,
        "fixedrange": True,
        "rangemode": "normal",
        "nticks": 6,
    }


def _line(
    name: str,
    x: Figure,
    values: FloatArray,
    color: str,
    width: float,
    axis: str = "y",
    dash: str = "solid",
    suffix: str = "",
) -> Figure:
    trace: Figure = {
        "type": "scatter",
        "name": name,
        **x,
        "y": _rounded(values, _decimals(values)),
        "yaxis": axis,
        "mode": "lines",
        "connectgaps": False,
        "line": {"color": color, "width": width, "dash": dash},
        "hovertemplate": f"%{{y}}{html.escape(wording.plain(suffix), quote=False)}",
    }
    if _has_lone_sample(values):
        # A sample between two gaps has no line of its own.
        trace["mode"] = "lines+markers"
        trace["marker"] = {"size": 4, "color": color}
    return trace


def _area(band: Band, low: FloatArray, high: FloatArray, color: str) -> Figure:
    """A band as closed outlines, one per stretch without a gap: filling between two lines bridges gaps."""
    x: list[float | None] = []
    y: list[float | None] = []
    known = np.isfinite(low) & np.isfinite(high)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], known, [False]]).astype(np.int8)))
    decimals = _decimals(np.concatenate([low, high]))
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        bins = np.arange(start, stop)
        instants = [round((band.first_at + float(index) * band.step_seconds) * 1000) for index in bins]
        if x:
            x.append(None)
            y.append(None)
        x += [*instants, *instants[::-1]]
        y += [*_rounded(high[bins], decimals), *_rounded(low[bins][::-1], decimals)]
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
    layout["shapes"] = [between, _upright(verdict.onset, "dot"), _upright(verdict.confirmed, "solid")]
    # Two heights: the labels of a short fault would cover one another.
    layout["annotations"] = [
        _flag(f"onset {wording.clock_time(verdict.onset)}", verdict.onset, bounds, 1.0, 2),
        _flag(f"confirmed {wording.clock_time(verdict.confirmed)}", verdict.confirmed, bounds, 1.0, 20),
    ]


def _upright(at: float, dash: str) -> Figure:
    instant = at * 1000
    return {
        "type": "line",
        "yref": "paper",
        "x0": instant,
        "x1": instant,
        "y0": 0,
        "y1": 1,
        "line": {"color": "@ink", "width": 1.5, "dash": dash},
    }


def _rule(height: float) -> Figure:
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": height,
        "y1": height,
        "line": {"color": "@plot", "width": 1},
    }


def _flag(text: str, at: float, bounds: list[float], height: float, lift: int) -> Figure:
    is_left = (at * 1000 - bounds[0]) < 0.5 * (bounds[1] - bounds[0])
    return {
        "text": text,
        "x": at * 1000,
        "y": height,
        "yref": "paper",
        "yshift": lift,
        "xanchor": "left" if is_left else "right",
        "yanchor": "bottom",
        "showarrow": False,
        "font": _FONT,
    }


def _label(name: str, longest: int) -> str:
    """A foreign name as plotly text: it reads a little HTML, so markup in names must arrive escaped."""
    return html.escape(wording.shortened(wording.plain(name), longest), quote=False)


def _row_labels(names: Sequence[str], accused: set[str], longest: int) -> list[str]:
    """Names without the domain they share, the accused ones marked."""
    domains = {name.partition(".")[2] for name in names}
    is_shared = len(domains) == 1 and len(names) > 1 and not any(name.replace(".", "").isdigit() for name in names)
    labels = [_label(name.partition(".")[0] if is_shared else name, longest) for name in names]
    return [f"<b>▶ {label}</b>" if name in accused else label for name, label in zip(names, labels, strict=True)]


def _days(from_at: float, to_at: float) -> str:
    first, last = (wording.date_time(at).partition(" ")[0] for at in (from_at, to_at))
    return first if first == last else f"{first} to {last}"


def _milliseconds(first_at: float, step_seconds: float) -> Figure:
    return {"x0": round(first_at * 1000), "dx": round(step_seconds * 1000, 3)}


def _decimals(values: FloatArray) -> int:
    """Decimals that keep a thousandth of the range: rounding must stay invisible, digits cost bytes."""
    known = values[np.isfinite(values)]
    spread = float(known.max() - known.min()) if known.size else 0.0
    if spread <= 0:
        spread = abs(float(known[0])) if known.size and known[0] else 1.0
    return 3 - math.floor(math.log10(spread))


def _rounded(values: FloatArray, decimals: int) -> list[float | None]:
    return [
        None if not math.isfinite(value) else int(value) if decimals <= 0 else value
        for value in np.round(values, decimals).tolist()
    ]


def _has_lone_sample(values: FloatArray) -> bool:
    known = np.concatenate([[False], np.isfinite(values), [False]])
    return bool((known[1:-1] & ~known[:-2] & ~known[2:]).any())
