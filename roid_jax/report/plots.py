"""Panels as SVG for a page: light, drawn in the page's own ink, in light and dark alike.

A figure for a file is `figures.draw`'s; that takes a tenth of a second each, and a page of
some hundred runs has some hundred of these.
"""

import html
import math
from collections.abc import Sequence

import numpy as np
from matplotlib.ticker import MaxNLocator

from roid_jax.report import figures

_WIDTH, _HEIGHT = 460, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 30, 46


class _Axis:
    """Where a number lies on the paper, from `start` to `end`."""

    def __init__(self, values: np.ndarray, scale: str, start: float, end: float):
        finite = values[np.isfinite(values) & ((values > 0) | (scale != "log"))]
        low, high = (float(np.min(finite)), float(np.max(finite))) if finite.size else (0.1, 1.0)
        self.is_log = scale == "log"
        if self.is_log:
            low, high = math.log10(low), math.log10(high)
        room = 0.04 * (high - low) or 0.5
        self._low, self._high = low - room, high + room
        self._start, self._end = start, end

    def __call__(self, values: np.ndarray) -> np.ndarray:
        if self.is_log:
            values = np.log10(np.maximum(values, 10.0**self._low))
        share = (values - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)

    def ticks(self) -> np.ndarray:
        """Returns some round numbers within."""
        if self.is_log and self._high - self._low >= 1.5:
            found = 10.0 ** np.arange(math.ceil(self._low), math.floor(self._high) + 1)
        elif self.is_log:
            decades = 10.0 ** np.arange(math.floor(self._low), math.ceil(self._high) + 1)
            found = np.outer(decades, [1, 2, 5]).ravel()
        else:
            found = MaxNLocator(5).tick_values(self._low, self._high)
        place = np.log10(found) if self.is_log else found
        return found[(place >= self._low) & (place <= self._high)]


def figure(panels: Sequence[figures.Panel]) -> str:
    """Returns the panels as HTML, side by side where there is room, with one legend below."""
    colours = {label: _ink(colour) for label, colour in figures.colours(panels).items()}
    drawn = "".join(_draw(panel, colours) for panel in panels)
    items = "".join(
        f'<span><i style="background:{colour}"></i>{html.escape(label)}</span>'
        for label, colour in colours.items()
        if label
    )
    return f"<figure><div class=panels>{drawn}</div><figcaption>{items}</figcaption></figure>"


def _ink(colour: str) -> str:
    """Returns a colour that is seen on both papers: what is almost black is the page's ink."""
    return "var(--ink)" if colour == "#222222" else colour


def _draw(panel: figures.Panel, colours: dict[str, str]) -> str:
    """Returns one panel."""
    every_x = np.concatenate([line.x for line in panel.lines] or [np.zeros(0)]).astype(float)
    edges = [edge for line in panel.lines for edge in line.band() or (line.y,)]
    every_y = np.concatenate(edges or [np.zeros(0)]).astype(float)
    x_axis = _Axis(every_x, panel.x_scale, _LEFT, _WIDTH - _RIGHT)
    y_axis = _Axis(every_y, panel.y_scale, _HEIGHT - _BOTTOM, _TOP)
    parts = [_grid(panel, x_axis, y_axis)]
    parts += [_line(line, colours[line.label], x_axis, y_axis) for line in panel.lines]
    label = html.escape(f"{panel.title}: {panel.y_label} over {panel.x_label}")
    opening = f'<svg role="img" aria-label="{label}" viewBox="0 0 {_WIDTH} {_HEIGHT}">'
    return f"{opening}{''.join(parts)}</svg>"


def _grid(panel: figures.Panel, x_axis: _Axis, y_axis: _Axis) -> str:
    """Returns the title, the axes' names, ticks, and a light rule at each."""
    bottom, middle = _HEIGHT - _BOTTOM, (_LEFT + _WIDTH - _RIGHT) / 2
    parts = [f"<text class=title x={middle:.0f} y=18>{html.escape(panel.title)}</text>"]
    parts.append(f"<text x={middle:.0f} y={_HEIGHT - 6}>{html.escape(panel.x_label)}</text>")
    turned = f"translate(13 {(_TOP + bottom) / 2:.0f}) rotate(-90)"
    parts.append(f'<text transform="{turned}">{html.escape(panel.y_label)}</text>')
    ticks = y_axis.ticks()
    for value, y in zip(ticks, y_axis(ticks), strict=True):
        parts.append(f'<path class=rule d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(f"<text class=left x={_LEFT - 6} y={y + 4:.1f}>{_short(value)}</text>")
    if panel.ticks is None:
        places, names = x_axis.ticks(), [_short(value) for value in x_axis.ticks()]
    else:
        places, names = np.arange(len(panel.ticks)), list(panel.ticks)
    for name, x in zip(names, x_axis(places.astype(float)), strict=True):
        parts.append(f"<text x={x:.1f} y={bottom + 17}>{html.escape(name)}</text>")
    parts.append(f'<path class=axis d="M{_LEFT} {_TOP}V{bottom}H{_WIDTH - _RIGHT}"/>')
    return "".join(parts)


def _short(value: float) -> str:
    """Returns a number as it stands on an axis."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if abs(value) >= 1e4 else f"{value:.4g}"


def _line(line: figures.Line, colour: str, x_axis: _Axis, y_axis: _Axis) -> str:
    """Returns a line with its band, or dots."""
    x, y = x_axis(line.x.astype(float)), y_axis(line.y.astype(float))
    parts = []
    band = line.band()
    if band is not None:
        low, high = map(y_axis, band)
        outline = _path(np.concatenate([x, x[::-1]]), np.concatenate([high, low[::-1]]))
        parts.append(f'<path d="{outline}Z" fill="{colour}" opacity=".17"/>')
    if line.style in ("o", "*"):
        radius = 2.6 if line.style == "o" else 6
        dots = "".join(
            f"<circle cx={a:.1f} cy={b:.1f} r={radius} />" for a, b in zip(x, y, strict=True)
        )
        parts.append(f'<g fill="{colour}">{dots}</g>')
    else:
        dash = ' stroke-dasharray="6 4"' if line.style.startswith("--") else ""
        parts.append(
            f'<path d="{_path(x, y)}" fill="none" stroke="{colour}" stroke-width="1.8"{dash}/>'
        )
    return "".join(parts)


def _path(x: np.ndarray, y: np.ndarray) -> str:
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))
