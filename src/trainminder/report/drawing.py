"""Parts of Plotly figures as plain dicts, with the theme's colours left as ``@tokens`` for the page to fill in.

Plain dicts, because the figure classes take a second to import and add a template of 7 kB to every figure;
the tests check the dicts against those classes.
"""

from __future__ import annotations

import html
import math
from typing import Any

import numpy as np

from trainminder import wording
from trainminder.types import FloatArray

__all__ = [
    "FONT",
    "THEMES",
    "Figure",
    "axis",
    "decimals",
    "flag",
    "label",
    "layout",
    "line",
    "milliseconds",
    "rounded",
    "rule",
    "upright",
]

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

FONT = {"family": "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif", "size": 12, "color": "@ink"}


def layout(from_at: float, to_at: float, height: int, margin_top: int) -> Figure:
    """What all plots share: time runs from left to right, heights and margins are in CSS pixels."""
    return {
        "height": height,
        "margin": {"l": 8, "r": 24, "t": margin_top, "b": 46},
        "font": FONT,
        "paper_bgcolor": "@plot",
        "plot_bgcolor": "@plot",
        "showlegend": False,
        "xaxis": {
            "type": "date",
            "range": [from_at * 1000, to_at * 1000],
            "title": {"text": f"time (UTC), {_days(from_at, to_at)}", "font": FONT, "standoff": 8},
            "tickfont": FONT,
            "tickformat": "%H:%M" if to_at - from_at > 240 else "%H:%M:%S",
            "hoverformat": "%H:%M:%S UTC",
            "nticks": 8,
            "gridcolor": "@grid",
            "zeroline": False,
        },
    }


def axis(title: str, domain: list[float]) -> Figure:
    """An upright axis over that part of the plot's height."""
    return {
        "title": {"text": html.escape(wording.plain(title), quote=False), "font": FONT, "standoff": 6},
        "domain": domain,
        "tickfont": FONT,
        "gridcolor": "@grid",
        "zeroline": False,
        "automargin": True,
        "fixedrange": True,
        "rangemode": "normal",
        "nticks": 6,
    }


def line(
    name: str,
    x: Figure,
    values: FloatArray,
    color: str,
    width: float,
    axis: str = "y",
    dash: str = "solid",
    suffix: str = "",
) -> Figure:
    """A line, broken where a value is NaN."""
    trace: Figure = {
        "type": "scatter",
        "name": name,
        **x,
        "y": rounded(values, decimals(values)),
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


def upright(at: float, dash: str) -> Figure:
    """A line through all of the plot at an instant."""
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


def rule(height: float) -> Figure:
    """A line in the colour of the ground, between two rows."""
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": height,
        "y1": height,
        "line": {"color": "@plot", "width": 1},
    }


def flag(text: str, at: float, bounds: list[float], height: float, lift: int) -> Figure:
    """Words beside an instant, on the side that has more room.

    Args:
        bounds: first and last instant of the plot, in milliseconds.
        height: share of the plot's height. lift: CSS pixels above that.
    """
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
        "font": FONT,
    }


def label(name: str, longest: int) -> str:
    """A foreign name as plotly text: it reads a little HTML, so markup in names must arrive escaped."""
    return html.escape(wording.shortened(wording.plain(name), longest), quote=False)


def _days(from_at: float, to_at: float) -> str:
    first, last = (wording.date_time(at).partition(" ")[0] for at in (from_at, to_at))
    return first if first == last else f"{first} to {last}"


def milliseconds(first_at: float, step_seconds: float) -> Figure:
    """Instants at equal steps, as plotly counts them."""
    return {"x0": round(first_at * 1000), "dx": round(step_seconds * 1000, 3)}


def decimals(values: FloatArray) -> int:
    """Decimals that keep a thousandth of the range: rounding must stay invisible, digits cost bytes."""
    known = values[np.isfinite(values)]
    spread = float(known.max() - known.min()) if known.size else 0.0
    if spread <= 0:
        spread = abs(float(known[0])) if known.size and known[0] else 1.0
    return 3 - math.floor(math.log10(spread))


def rounded(values: FloatArray, decimals: int) -> list[float | None]:
    """Numbers with that many decimals; None where a value is not finite."""
    return [
        None if not math.isfinite(value) else int(value) if decimals <= 0 else value
        for value in np.round(values, decimals).tolist()
    ]


def _has_lone_sample(values: FloatArray) -> bool:
    known = np.concatenate([[False], np.isfinite(values), [False]])
    return bool((known[1:-1] & ~known[:-2] & ~known[2:]).any())
