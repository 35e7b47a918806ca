"""The plots of the bench's page: SVG files, the same bytes for the same figures.

Colours are told apart by every kind of colour vision, and nothing is said by colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_comparison", "draw_delays", "draw_heatmap", "draw_trade_off"]

INK, QUIET, GRID = "#222222", "#6b6b6b", "#dddddd"
#: Okabe and Ito's colours, which all kinds of colour vision tell apart: for what stands out.
BLUE, ORANGE = "#0072b2", "#d55e00"
EMPHASIS = {"default": BLUE, "paper": ORANGE}
#: The type of its keys differs between versions of the library.
STYLE: Any = {
    "font.size": 9.0,
    "font.family": ["DejaVu Sans", "sans-serif"],
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.titlesize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    # Text stays text: it can be searched, and the files stay small.
    "svg.fonttype": "none",
    # Not drawn from the clock or from chance: the same figures give the same bytes.
    "svg.hashsalt": "trainminder",
}
Methods = Mapping[str, Mapping[str, Any]]


@contextmanager
def _figure(path: Path, width: float, height: float) -> Iterator[Figure]:
    """A figure of so many inches, written to ``path`` at the end."""
    import matplotlib
    from matplotlib.figure import Figure as New

    with matplotlib.rc_context(STYLE):
        figure = New(figsize=(width, height))
        figure.set_layout_engine("constrained", w_pad=0.1, h_pad=0.1)
        yield figure
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _order(methods: Methods) -> list[str]:
    """From the best F1 to the worst; those without one last."""
    return sorted(methods, key=lambda name: -1.0 if methods[name]["f1"] is None else methods[name]["f1"], reverse=True)


def _colour(name: str) -> str:
    return EMPHASIS.get(name, QUIET)


def _rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0)
    for label in axes.get_yticklabels():
        if label.get_text() in EMPHASIS:
            label.set_fontweight("bold")


def draw_comparison(methods: Methods, path: Path) -> None:
    """Precision, recall, F1 and false alarms of every method, with their intervals."""
    names = _order(methods)
    panels = {
        "f1": "F1",
        "precision": "precision",
        "recall": "recall",
        "false_alarms_per_1000_machine_hours": "false alarms per\n1,000 machine-hours",
    }
    with _figure(path, 9.5, 1.2 + 0.27 * len(names)) as figure:
        for number, ((key, title), axes) in enumerate(
            zip(panels.items(), figure.subplots(1, 4, sharey=True), strict=True)
        ):
            for row, name in enumerate(names):
                value, bounds = methods[name][key], methods[name]["intervals"][key]
                if value is None:
                    continue
                if bounds is not None:
                    axes.plot(bounds, (row, row), color=_colour(name), linewidth=2, alpha=0.45, solid_capstyle="butt")
                axes.plot(value, row, "o", color=_colour(name), markersize=5)
            _rows(axes, names)
            axes.set_title(title)
            if number < 3:
                axes.set_xlim(-0.03, 1.03)
                axes.set_xticks((0, 0.25, 0.5, 0.75, 1), ("0", "", "0.5", "", "1"))
            else:
                axes.set_xlim(left=0)


def draw_heatmap(methods: Methods, tag: str, key: str, path: Path, *, title: str, is_ratio: bool = True) -> None:
    """One figure of every method for each value of a tag that defines it.

    Args:
        key: the figure, such as ``recall``.
        title: what the tag means.
        is_ratio: whether the figure lies between 0 and 1.
    """
    names = _order(methods)
    values = list(next(iter(methods.values()))["by"][tag])
    cells = np.array([[_number(methods[name]["by"][tag][value][key]) for name in names] for value in values])
    values = [value for value, row in zip(values, cells, strict=True) if not np.isnan(row).all()]
    cells = cells[~np.isnan(cells).all(axis=1)]
    from matplotlib.colors import LinearSegmentedColormap

    # Ends while dark text can still be read on it.
    shades = LinearSegmentedColormap.from_list("shades", ["#ffffff", "#c6dbef", "#6baed6"])
    colours = shades.with_extremes(bad="#f2f2f2")
    longest = max((len(value) for value in values), default=0)
    with _figure(path, 1.2 + 0.075 * longest + 0.56 * len(names), 1.6 + 0.27 * len(values)) as figure:
        axes = figure.subplots()
        greatest = 1.0 if is_ratio or not np.nanmax(cells, initial=0.0) else float(np.nanmax(cells))
        axes.imshow(np.ma.masked_invalid(cells), cmap=colours, vmin=0, vmax=greatest, aspect="auto")
        axes.set_xticks(range(len(names)), names, rotation=40, ha="left", rotation_mode="anchor")
        axes.xaxis.tick_top()
        axes.set_yticks(range(len(values)), values)
        axes.set_ylabel(title)
        axes.set_xticks(np.arange(len(names) + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(len(values) + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="white", linewidth=1.5)
        axes.tick_params(which="both", length=0)
        axes.spines[:].set_visible(False)
        for label in axes.get_xticklabels():
            if label.get_text() in EMPHASIS:
                label.set_fontweight("bold")
        for row, column in np.ndindex(*cells.shape):
            cell = cells[row, column]
            text = "-" if np.isnan(cell) else f"{cell:.2f}" if is_ratio else f"{cell:.1f}"
            axes.text(column, row, text, ha="center", va="center", fontsize=8)


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def draw_delays(methods: Methods, path: Path) -> None:
    """How long after the onset a fault is confirmed: median and 90th percentile."""
    names = [name for name in _order(methods) if methods[name]["delay_median_s"] is not None]
    with _figure(path, 6.5, 1.2 + 0.27 * len(names)) as figure:
        axes = figure.subplots()
        for row, name in enumerate(names):
            median, late = methods[name]["delay_median_s"], methods[name]["delay_p90_s"]
            axes.plot((median, late), (row, row), color=_colour(name), linewidth=2, alpha=0.45)
            axes.plot(median, row, "o", color=_colour(name), markersize=5)
            axes.plot(late, row, "|", color=_colour(name), markersize=9, markeredgewidth=2)
        _rows(axes, names)
        axes.set_xlim(left=0)
        axes.set_xlabel("seconds from onset to confirmation: median (dot) to 90th percentile (bar)")


def draw_trade_off(methods: Methods, limit: float, path: Path) -> None:
    """Recall against false alarms at every threshold, on the calibration set; the chosen ones are filled."""
    rate = "false_alarms_per_1000_machine_hours"
    names = _order(methods)
    columns = 4
    lines = -(-len(names) // columns)
    with _figure(path, 9.5, 0.6 + 1.75 * lines) as figure:
        grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        widest = max((point[rate] for name in names for point in methods[name]["calibration"]), default=0.0)
        for axes in grid.flat[len(names) :]:
            axes.set_visible(False)
        for name, axes in zip(names, grid.flat, strict=False):
            points = methods[name]["calibration"]
            chosen = methods[name]["threshold"]["threshold"]
            axes.axvline(limit, color=QUIET, linewidth=1, linestyle=":")
            axes.plot(
                [point[rate] for point in points],
                [_number(point["recall"]) for point in points],
                "o-",
                color=_colour(name),
                markerfacecolor="white",
                markersize=3.5,
                linewidth=1.2,
            )
            for point in points:
                if point["threshold"] == chosen:
                    axes.plot(point[rate], _number(point["recall"]), "o", color=_colour(name), markersize=6)
            axes.set_title(name, fontweight="bold" if name in EMPHASIS else "normal")
            axes.grid()
            # Most thresholds lie near the limit; those far beyond it would squeeze them together.
            axes.set_xscale("symlog", linthresh=1.0)
            axes.set_xlim(-0.15, 1.3 * max(widest, limit, 1.0))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.minorticks_off()
            axes.set_ylim(-0.04, 1.04)
            axes.set_yticks((0, 0.5, 1), ("0", "0.5", "1"))
        figure.supxlabel("false alarms per 1,000 machine-hours (dotted: the limit)", fontsize=9)
        figure.supylabel("recall", fontsize=9)
