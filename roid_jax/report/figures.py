"""Figures for files, drawn from plain arrays and returned as the bytes of a PNG or an SVG."""

import io
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

# One colour per method, the same in every figure, and told apart without colour vision too.
COLOURS = {
    "greedy": "#7f7f7f",
    "UCB": "#b8860b",
    "TS": "#0072b2",
    "IDS 0": "#d55e00",
    "IDS 0.01": "#e69f00",
    "IDS 0.05": "#cc79a7",
    "IDS 0.1": "#882255",
    "IDS 0.5": "#009e73",
    "randomised IDS 0": "#56b4e9",
    "IDS": "#d55e00",
    "randomised IDS": "#56b4e9",
    "TS at least": "#003f66",
    "IDS 0 at most": "#7a3500",
    "bound": "#222222",
    "elliptical branch": "#222222",
    "coverage branch": "#777777",
}
# For other labels; they are seen on light paper and on dark.
_SPARE = ("#d1495b", "#2f8fd0", "#1a9e6f", "#b565c9", "#c8920a", "#5f6fd6", "#4cb5ab", "#8a8f98")


class Line(NamedTuple):
    """A line with an optional band: one standard error, or an interval from low to high."""

    label: str
    x: np.ndarray
    y: np.ndarray
    error: np.ndarray | None = None
    style: str = "-"  # matplotlib's; `o` for dots, `*` for one that is marked
    low: np.ndarray | None = None
    high: np.ndarray | None = None

    def band(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Returns the band's lower and upper edge, None where it has no height."""
        if self.low is not None and self.high is not None:
            return self.low, self.high
        if self.error is None or not np.any(self.error > 0):
            return None
        return self.y - self.error, self.y + self.error


class Panel(NamedTuple):
    """One set of axes."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    x_scale: str = "linear"
    y_scale: str = "linear"
    ticks: Sequence[str] | None = None  # names of the x positions, where x is not a number


def draw(
    panels: Sequence[Panel], *, columns: int, title: str, width: float = 4.4, form: str = "png"
) -> bytes:
    """Returns the panels in a grid and one legend below, as `png` or `svg`.

    Matplotlib is imported here: it takes most of a second, and a run draws only at its end.
    """
    from matplotlib.figure import Figure

    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(width * columns, 3.4 * rows + 0.9), layout="constrained", dpi=130)
    figure.suptitle(title, fontsize=12, fontweight="bold")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    handles: dict[str, Artist] = {}
    colour_of = colours(panels)
    for axes, panel in zip(grid.flat, panels, strict=False):
        handles = _draw_panel(axes, panel, colour_of) | handles
    # So many beside each other as there is room for, at about a tenth of an inch a letter.
    longest = max((len(label) for label in handles), default=0)
    beside = max(1, min(8, int(10 * width * columns / (longest + 6))))
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=beside, frameon=False
    )
    buffer = io.BytesIO()
    timeless = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
    figure.savefig(buffer, format=form, metadata=timeless[form])
    return buffer.getvalue()


def colours(panels: Sequence[Panel]) -> dict[str, str]:
    """Returns a colour for each label, the same in every panel."""
    spare = itertools.cycle(_SPARE)
    labels = dict.fromkeys(line.label for panel in panels for line in panel.lines)
    return {label: COLOURS.get(label) or next(spare) for label in labels}


def _draw_panel(axes: "Axes", panel: Panel, colours: dict[str, str]) -> dict[str, "Artist"]:
    """Draws one panel and returns the first artist of each label, for the legend."""
    from matplotlib import ticker

    handles: dict[str, Artist] = {}
    has_positive = any(np.any(line.y > 0) for line in panel.lines)
    y_scale = panel.y_scale if has_positive else "linear"  # nothing has no logarithm
    thickness = min(4.5, 1.0 + 0.6 * len(panel.lines))
    for line in panel.lines:
        colour = colours[line.label]
        artist = axes.plot(
            line.x,
            line.y,
            line.style,
            color=colour,
            linewidth=thickness,
            markersize=13 if line.style == "*" else 5,  # a star is to be seen among dots
        )[0]
        handles.setdefault(line.label, artist)
        # Later lines are thinner, so that one that lies on another leaves it visible.
        thickness = max(1.4, thickness - 0.6)
        band = line.band()
        if band is not None:
            low, high = band
            if y_scale == "log":  # a band may reach below zero, where there is no logarithm
                low = np.maximum(low, 0.1 * line.y)
            axes.fill_between(line.x, low, high, color=colour, alpha=0.18, lw=0)
    axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    axes.set_xscale(panel.x_scale)
    axes.set_yscale(y_scale)
    if y_scale == "log":
        low, high = axes.get_ylim()
        if high < 300 * low:
            axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    if panel.ticks is not None:
        axes.set_xticks(range(len(panel.ticks)), panel.ticks)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return handles
