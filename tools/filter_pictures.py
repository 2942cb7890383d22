"""Draws the pictures of docs/filters.md: signals of three frequencies on a ring, and responses of filters and bases.

``python tools/filter_pictures.py`` writes the SVG files under docs/figures. Every number in them is computed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import polyformer as pf

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
COLOURS = ("#3568b8", "#c2571a", "#2e8b57", "#8a4fb3", "#b8860b", "#666666", "#b03060")
STYLE = "font-family:sans-serif;font-size:12px;fill:#808080"


def document(width: int, height: int, parts: list[str]) -> str:
    """An SVG file whose grey text is legible on a light and on a dark page."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">'
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def text(x: float, y: float, words: str, anchor: str = "middle") -> str:
    """A line of words."""
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" style="{STYLE}">{words}</text>'


def signals() -> str:
    """A ring of 24 nodes three times; the signal is an eigenvector of the Laplacian, drawn as bars from the ring."""
    count, parts = 24, []
    angle = 2 * np.pi * np.arange(count) / count
    for place, wave in enumerate((1, 6, 12)):
        values, frequency = np.cos(wave * angle), 1 - np.cos(2 * np.pi * wave / count)
        x, y = 130 + 240 * place, 130
        parts.append(f'<circle cx="{x}" cy="{y}" r="70" fill="none" stroke="#808080" stroke-width="1"/>')
        for turn, value in zip(angle, values, strict=True):
            inner = x + 70 * np.cos(turn), y + 70 * np.sin(turn)
            outer = x + (70 + 35 * value) * np.cos(turn), y + (70 + 35 * value) * np.sin(turn)
            colour = COLOURS[0] if value >= 0 else COLOURS[1]
            line = f'x1="{inner[0]:.1f}" y1="{inner[1]:.1f}" x2="{outer[0]:.1f}" y2="{outer[1]:.1f}"'
            parts.append(f'<line {line} stroke="{colour}" stroke-width="3"/>')
            parts.append(f'<circle cx="{outer[0]:.1f}" cy="{outer[1]:.1f}" r="4" fill="{colour}"/>')
        words = ("neighbours agree", "neighbours say nothing of each other", "neighbours disagree")[place]
        parts += [text(x, 260, f"λ = {frequency:.2f}"), text(x, 280, words)]
    return document(740, 295, parts)


def panel(left: int, title: str, curves: dict[str, np.ndarray], lam: np.ndarray, low: float, high: float) -> list[str]:
    """Curves over λ in [0, 2] with a frame, a title and a legend."""
    top, width, height = 40, 300, 180
    parts = [f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#808080"/>']
    parts.append(text(left + width / 2, 25, title))
    zero = top + height * high / (high - low)
    parts.append(f'<line x1="{left}" x2="{left + width}" y1="{zero:.1f}" y2="{zero:.1f}" stroke="#80808060"/>')
    for tick in (0, 1, 2):
        parts.append(text(left + width * tick / 2, top + height + 18, f"λ = {tick}" if tick == 0 else str(tick)))
    for number, (name, values) in enumerate(curves.items()):
        points = " ".join(
            f"{left + width * x / 2:.1f},{top + height * (high - y) / (high - low):.1f}"
            for x, y in zip(lam, values, strict=True)
        )
        colour = COLOURS[number]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        at = left + 8 + 98 * (number % 3), top + height + 40 + 18 * (number // 3)
        parts.append(f'<rect x="{at[0]}" y="{at[1] - 9}" width="10" height="10" fill="{colour}"/>')
        parts.append(text(at[0] + 15, at[1], name, "start"))
    return parts


def filters() -> str:
    """On the left three filters as polynomials of degree 4; on the right one filter for each of three nodes' tastes."""
    lam = np.linspace(0, 2, 101)
    named = {"low-pass": (1 - lam / 2) ** 2, "band-pass": (lam * (2 - lam)) ** 2, "high-pass": (lam / 2) ** 2}
    bernstein = pf.basis_response("bernstein", order=4, lam=lam)
    bands = {f"k = {k}": row for k, row in enumerate(bernstein)}
    parts = panel(20, "three filters", named, lam, -0.1, 1.1)
    parts += panel(400, "tokens of the Bernstein basis, K = 4", bands, lam, -0.1, 1.1)
    return document(720, 290, parts)


def bases() -> str:
    """Responses of the tokens of two other bases."""
    lam, parts = np.linspace(0, 2, 101), []
    for place, name in enumerate(("chebyshev", "monomial")):
        curves = {f"k = {k}": row for k, row in enumerate(pf.basis_response(name, order=4, lam=lam))}
        parts += panel(20 + 380 * place, f"tokens of the {name} basis, K = 4", curves, lam, -1.1, 1.1)
    return document(720, 290, parts)


def main() -> None:
    """Write all pictures."""
    for name, draw in {"filter-signals": signals, "filter-responses": filters, "filter-bases": bases}.items():
        (FIGURES / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
