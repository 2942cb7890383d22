"""Charts as SVG: points where they belong, names that cannot break out, nothing outside the image."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyformer.reports import charts
from polyformer.reports.svg import Panel, draw_svg

COSTS = [
    charts.ModelCost("polyformer", 0.917, 40.0, 0.05, 500 << 20),
    charts.ModelCost("polyattn", 0.915, 41.0, 0.05, 500 << 20),
    charts.ModelCost("specformer", 0.80, 180.0, 240.0, 2000 << 20),
]


def _elements(svg: str, tag: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(svg).iter(f"{{http://www.w3.org/2000/svg}}{tag}"))


def _points(element: ElementTree.Element) -> np.ndarray:
    return np.array([pair.split(",") for pair in element.attrib["points"].split()], np.float64)


def test_a_line_goes_from_corner_to_corner() -> None:
    chart = charts.unified_chart(np.array([[0.0, 1.0, 2.0]]))
    svg = draw_svg("A <title> & more", [Panel("<b>", chart, remark="stands in")], ["a note " * 40])
    texts = [element.text or "" for element in _elements(svg, "text")]
    assert {"A <title> & more", "<b>", "stands in", "frequency λ", "response h(λ)", "all nodes"} <= set(texts)
    ticks = ["0.0", "0.5", "1.0", "1.5", "2.0"]
    assert [text for text in texts if text in ticks] == ticks * 2
    [line] = _elements(svg, "polyline")
    points = _points(line)
    assert np.all(np.diff(points[:, 0]) > 0)
    assert np.all(np.diff(points[:, 1]) < 0)  # up the page
    np.testing.assert_allclose(points[1], (points[0] + points[2]) / 2, atol=0.1)
    axis = next(element for element in _elements(svg, "path") if "V" in element.attrib["d"])
    left = float(axis.attrib["d"][1:].split()[0])
    assert points[0, 0] == left
    assert sum("a note" in text for text in texts) > 1, "a long note is not broken"


def test_bands_lie_below_lines_and_rows_of_panels_below_each_other() -> None:
    chart = charts.overlay_chart({"x": np.random.default_rng(0).random((5, 9))})
    svg = draw_svg("t", [Panel(str(i), chart) for i in range(3)], columns=2)
    assert svg.index("<polygon") < svg.index("<polyline")
    tops = [_points(line)[:, 1].min() for line in _elements(svg, "polyline")]
    assert tops[0] == tops[1] < tops[2]
    assert _elements(svg, "polygon")[0].attrib["fill-opacity"] == "0.15"


def test_markers_by_area_and_names_that_do_not_meet() -> None:
    svg = draw_svg("t", [Panel("a", charts.cost_chart(COSTS, "ROC-AUC")), Panel("b", charts.preparation_chart(COSTS))])
    circles = _elements(svg, "circle")
    assert len(circles) == 6
    radius = [float(circle.attrib["r"]) for circle in circles[:3]]
    assert (radius[2] / radius[0]) ** 2 == pytest.approx(4, rel=0.02)
    texts = {element.text: element for element in _elements(svg, "text")}
    assert {"0.05 s", "240 s", "0.1", "1", "10", "100"} <= set(texts)
    first, second = (float(texts[name].attrib["y"]) for name in ("polyformer", "polyattn"))
    assert abs(first - second) > 8 or texts["polyformer"].attrib["x"] != texts["polyattn"].attrib["x"]


@pytest.mark.parametrize("size", [(1060, 500), (500, 900)])
def test_nothing_is_outside_the_image(browser: Any, tmp_path: Path, size: tuple[int, int]) -> None:
    panels = [Panel("specformer", charts.cost_chart(COSTS, "ROC-AUC")), Panel("b", charts.preparation_chart(COSTS))]
    path = tmp_path / "figure.svg"
    path.write_text(draw_svg("A figure", panels, ["what it shows"], columns=2 if size[0] > 1000 else 1))
    browser.get(path.as_uri())
    outside = browser.execute_script(
        """const whole = document.documentElement.getBoundingClientRect();
           return [...document.querySelectorAll('text')].filter(t => {
             const box = t.getBoundingClientRect();
             const beside = box.left < whole.left || box.right > whole.right;
             return beside || box.top < whole.top || box.bottom > whole.bottom;
           }).map(t => t.textContent)"""
    )
    assert outside == []
