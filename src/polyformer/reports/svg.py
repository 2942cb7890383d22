"""Charts as an image: Plotly figures of :mod:`polyformer.reports.charts` drawn as one SVG, without a browser.

It draws what those charts use: lines, filled bands, markers with names; linear, logarithmic and named axes.

Plotly's own export needs kaleido, which starts a Chrome of the user's or, in its last version with a browser inside, is
a wheel of 80 MB. Other libraries (matplotlib, 10 MB without its requirements; vl-convert, 34 MB; pygal) cannot draw
Plotly figures, so that every chart would be written twice.
"""

from __future__ import annotations

import html
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["Panel", "draw_svg"]

_WIDTH, _PLOT_HEIGHT, _GAP = 480, 250, 24
_LEFT, _RIGHT, _BOTTOM = 64, 14, 46
_LINE, _SIZE = 18, 12
_INK, _SOFT, _GRID, _ACCENT = "#1b1f24", "#5a636e", "#e3e7ec", "#a84300"
_FONT = "system-ui, Helvetica, Arial, DejaVu Sans, sans-serif"
_DASHES = {"dash": "7 4", "dot": "2 3", "dashdot": "7 3 2 3", "longdash": "11 4", "longdashdot": "11 3 2 3"}

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Panel:
    """A chart of an image.

    Attributes:
        remark: a line below the title that must not be overlooked.
    """

    title: str
    figure: go.Figure
    remark: str = ""


def draw_svg(title: str, panels: Sequence[Panel], notes: Sequence[str] = (), columns: int = 2) -> str:
    """An SVG with its own background: a title, panels in rows of ``columns``, and notes below them."""
    columns = min(columns, len(panels))
    width = columns * _WIDTH + (columns + 1) * _GAP
    parts = [_text(_GAP, 34, title, size=17, weight=650)]
    top = 52.0
    for start in range(0, len(panels), columns):
        row = panels[start : start + columns]
        head = max(_head_height(panel) for panel in row)  # plots of a row stand side by side
        for i, panel in enumerate(row):
            parts.append(_draw_panel(panel, _GAP + i * (_WIDTH + _GAP), top, head))
        top += head + _PLOT_HEIGHT + _BOTTOM + _GAP
    for note in notes:
        for line in textwrap.wrap(note, int((width - 2 * _GAP) / (0.52 * _SIZE))):
            parts.append(_text(_GAP, top, line, colour=_SOFT))
            top += _LINE
    height = round(top + 8)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" font-family="{_FONT}">',
            f"<title>{html.escape(title)}</title>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff" stroke="#d5dae0"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _draw_panel(panel: Panel, left: float, top: float, head: float) -> str:
    parts = [_text(left, top + 14, panel.title, size=14, weight=600)]
    down = top + 14 + _LINE
    if panel.remark:
        parts.append(_text(left, down, panel.remark, colour=_ACCENT, weight=600))
        down += _LINE
    parts += _legend(panel.figure, left, down)
    frame = (left + _LEFT, top + head, left + _WIDTH - _RIGHT, top + head + _PLOT_HEIGHT)
    plot = _Plot(panel.figure, frame)
    parts += [*plot.axes(), *plot.traces()]
    return "<g>" + "\n".join(parts) + "</g>"


def _head_height(panel: Panel) -> float:
    rows = len(list(_legend_rows(panel.figure)))
    return 14 + _LINE * (0.6 + rows + bool(panel.remark))


# ---- legends ----


def _legend_rows(figure: go.Figure) -> Iterator[list[tuple[Any, str, float]]]:
    """Traces with their names and widths, as many in a row as fit; markers have theirs beside them."""
    row: list[tuple[Any, str, float]] = []
    used = 0.0
    for trace in figure.data:
        if trace.showlegend is False or not trace.name or trace.text is not None:
            continue
        name = html.unescape(trace.name)
        width = 34 + _text_width(name, _SIZE) + 14
        if row and used + width > _WIDTH:
            yield row
            row, used = [], 0.0
        row.append((trace, name, width))
        used += width
    if row:
        yield row


def _legend(figure: go.Figure, left: float, top: float) -> list[str]:
    parts = []
    for i, row in enumerate(_legend_rows(figure)):
        x, y = left, top + i * _LINE
        for trace, name, width in row:
            parts.append(f'<path d="M{x:.1f} {y - 4:.1f}h28" {_stroke(trace)}/>')
            parts.append(_text(x + 34, y, name))
            x += width
    return parts


# ---- the plot itself ----


class _Axis:
    """From values to shares of the axis' length, and its ticks."""

    def __init__(self, layout: Any, values: list[Any], padding: float) -> None:
        self.title = "" if layout.title.text is None else str(layout.title.text)
        self.log = layout.type == "log"
        self.names: list[str] = []
        if values and isinstance(values[0], str):
            self.names = list(dict.fromkeys(values))
            self.low, self.high = -0.6, len(self.names) - 0.4
            return
        numbers = self._scale(np.array(values, np.float64))
        numbers = numbers[np.isfinite(numbers)]
        least, most = (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 1.0)
        margin = padding * ((most - least) or abs(most) or 1.0)
        self.low, self.high = least - margin, most + margin

    def _scale(self, values: np.ndarray) -> np.ndarray:
        return np.log10(np.maximum(values, 1e-12)) if self.log else values

    def place(self, values: Any) -> np.ndarray:
        """Shares in [0, 1]."""
        if self.names:
            numbers = np.array([self.names.index(value) for value in values], np.float64)
        else:
            numbers = self._scale(np.asarray(values, np.float64))
        return np.asarray((numbers - self.low) / (self.high - self.low))

    def ticks(self) -> list[tuple[float, str]]:
        """Positions of the ticks, as shares of the axis, and their texts."""
        if self.names:
            return [(float(self.place([name])[0]), name) for name in self.names]
        if self.log:
            return [(float(self.place([v])[0]), f"{v:,g}") for v in _log_ticks(self.low, self.high)]
        values, digits = _ticks(self.low, self.high)
        return [(float(self.place([v])[0]), f"{v:.{digits}f}".replace("-", "−")) for v in values]


def _ticks(low: float, high: float) -> tuple[list[float], int]:
    """Four to eight round numbers, and how many digits they have after the point.

    >>> _ticks(0.0, 2.0), _ticks(0.13, 0.71)
    (([0.0, 0.5, 1.0, 1.5, 2.0], 1), ([0.2, 0.3, 0.4, 0.5, 0.6, 0.7], 1))
    """
    rough = (high - low) / 8
    power = math.floor(math.log10(rough))
    factor = next(factor for factor in (1, 2, 5, 10) if factor * 10.0**power >= rough * 0.999)
    step, digits = factor * 10.0**power, max(0, -power - (factor == 10))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, digits) + 0.0 for i in range(first, last + 1)], digits


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten between 10^low and 10^high, and 2 and 5 times those where they are few.

    >>> _log_ticks(-0.1, 2.2), _log_ticks(0.1, 1.2)
    ([1.0, 10.0, 100.0], [2.0, 5.0, 10.0])
    """
    factors = (1, 2, 5) if high - low < 2 else (1,)
    values = [factor * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for factor in factors]
    return [value for value in values if low <= math.log10(value) <= high]


class _Plot:
    """A figure inside a frame of left, top, right and bottom."""

    def __init__(self, figure: go.Figure, frame: Box) -> None:
        self.figure, self.frame = figure, frame
        marked = any("markers" in (trace.mode or "") for trace in figure.data)
        self.x = _Axis(figure.layout.xaxis, [v for trace in figure.data for v in trace.x], 0.12 if marked else 0.0)
        self.y = _Axis(figure.layout.yaxis, [v for trace in figure.data for v in trace.y], 0.14 if marked else 0.05)

    def points(self, trace: Any) -> np.ndarray:
        """On the page: (n, 2)."""
        left, top, right, bottom = self.frame
        x, y = self.x.place(trace.x), self.y.place(trace.y)
        return np.stack([left + x * (right - left), bottom - y * (bottom - top)], axis=1)

    def axes(self) -> Iterator[str]:
        left, top, right, bottom = self.frame
        for share, text in self.x.ticks():
            x = left + share * (right - left)
            yield f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="{_GRID}"/>'
            yield _text(x, bottom + 17, text, anchor="middle", colour=_SOFT)
        for share, text in self.y.ticks():
            y = bottom - share * (bottom - top)
            yield f'<line x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="{_GRID}"/>'
            yield _text(left - 7, y + 4, text, anchor="end", colour=_SOFT)
        yield f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="{_SOFT}"/>'
        yield _text((left + right) / 2, bottom + 36, self.x.title, anchor="middle")
        if self.y.title:
            middle = (top + bottom) / 2
            x = left - 48
            turned = f'transform="rotate(-90 {x:.1f} {middle:.1f})"'
            yield _text(x, middle, self.y.title, anchor="middle", more=turned)

    def traces(self) -> Iterator[str]:
        for trace in sorted(self.figure.data, key=lambda trace: trace.fill != "toself"):  # bands below lines
            points = self.points(trace)
            if trace.fill == "toself":
                yield f'<polygon points="{_path(points)}" {_fill(trace.fillcolor)}/>'
            elif "lines" in (trace.mode or ""):
                yield f'<polyline points="{_path(points)}" fill="none" {_stroke(trace)}/>'
        marked = [trace for trace in self.figure.data if "markers" in (trace.mode or "")]
        for trace in marked:
            yield from self._markers(trace)
        yield from self._names(marked)

    def _markers(self, trace: Any) -> Iterator[str]:
        opacity = 1.0 if trace.marker.opacity is None else trace.marker.opacity
        fill = f'fill="{html.escape(str(trace.marker.color))}" fill-opacity="{opacity}"'
        for (x, y), size in zip(self.points(trace), _sizes(trace), strict=True):
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size / 2:.1f}" {fill} stroke="#ffffff"/>'

    def _names(self, traces: Sequence[Any]) -> Iterator[str]:
        """Names beside markers, each where it covers nothing if there is such a place."""
        occupied: list[Box] = []
        for trace in traces:
            for (x, y), size in zip(self.points(trace), _sizes(trace), strict=True):
                occupied.append((x - size / 2, y - size / 2, x + size / 2, y + size / 2))
        for trace in traces:
            if trace.text is None:
                continue
            for (x, y), size, text in zip(self.points(trace), _sizes(trace), trace.text, strict=True):
                name = html.unescape(str(text))
                width, away = _text_width(name, _SIZE), size / 2 + 5
                spots = [(x + away, y + 4), (x - away - width, y + 4), (x - width / 2, y - away)]
                spots += [(x - width / 2, y + away + 9), (x + away * 0.7, y - away * 0.7), (x + away * 0.7, y + away)]
                best = min(spots, key=lambda spot: self._overlap(_text_box(spot, width), occupied))
                occupied.append(_text_box(best, width))
                yield _text(*best, name)

    def _overlap(self, box: Box, occupied: Sequence[Box]) -> float:
        """Area that the box shares with others or has outside the frame."""
        left, top, right, bottom = self.frame
        area = (box[2] - box[0]) * (box[3] - box[1])
        return sum(_shared(box, other) for other in occupied) + 2 * (area - _shared(box, (left, top, right, bottom)))


def _text_box(spot: tuple[float, float], width: float) -> Box:
    return spot[0], spot[1] - _SIZE, spot[0] + width, spot[1] + 3


def _shared(a: Box, b: Box) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))


def _sizes(trace: Any) -> np.ndarray:
    size = 8.0 if trace.marker.size is None else trace.marker.size
    return np.broadcast_to(np.asarray(size, np.float64), len(trace.x))


# ---- pieces ----


def _path(points: np.ndarray) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _stroke(trace: Any) -> str:
    dash = _DASHES.get(trace.line.dash or "solid")
    pattern = "" if dash is None else f' stroke-dasharray="{dash}"'
    width = 2 if trace.line.width is None else trace.line.width
    return f'stroke="{html.escape(str(trace.line.color))}" stroke-width="{width}"{pattern} stroke-linejoin="round"'


def _fill(colour: str) -> str:
    """``rgba(…)`` as attributes that every program that draws SVG knows."""
    red, green, blue, opacity = re.findall(r"[\d.]+", colour)
    return f'fill="rgb({red},{green},{blue})" fill-opacity="{opacity}"'


def _text_width(text: str, size: float) -> float:
    """About how wide a text is: fonts differ."""
    return 0.56 * size * len(text)


def _text(
    x: float,
    y: float,
    content: str,
    *,
    anchor: str = "start",
    size: float = _SIZE,
    weight: int = 400,
    colour: str = _INK,
    more: str = "",
) -> str:
    style = f'font-size="{size}" font-weight="{weight}" fill="{colour}" text-anchor="{anchor}" {more}'.rstrip()
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{html.escape(content)}</text>'
