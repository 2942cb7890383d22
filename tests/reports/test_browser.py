"""The report in a real browser: what is shown, against the numbers from Python; no errors, no network, nothing cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from polyformer.datasets import load_dataset
from polyformer.filters import filter_coefficients
from polyformer.models import NodeWiseFilter, Workload
from polyformer.reports import write_comparison, write_report
from polyformer.reports.findings import gather
from polyformer.reports.outcome import Outcome
from polyformer.runs.execution import execute_run
from polyformer.runs.request import RunRequest
from polyformer.runs.run import Run

BOARD = "minefield:width=20,height=15"
SETTINGS = {"order": 3, "hidden_channels": 16, "heads": 4, "epochs": 3}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    run = tmp_path_factory.mktemp("runs") / "run"
    execute_run(RunRequest(BOARD, settings=SETTINGS), run)
    findings = gather(run)
    write_report(findings, run / "report.html")
    write_comparison([findings, findings], run / "comparison.html")
    assert findings.outcome is not None
    return run, findings.outcome


@pytest.fixture
def page(browser: Any, outcome: tuple[Path, Outcome]) -> Any:
    _open(browser, outcome[0] / "report.html", 1440)
    return browser


def _open(browser: Any, path: Path, width: int) -> None:
    """Open a page and wait until its charts are drawn, which a busy machine does after it has loaded."""
    from selenium.webdriver.support.ui import WebDriverWait

    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get_log("browser"), browser.get_log("performance")
    browser.get(path.as_uri())
    drawn = "return [...document.querySelectorAll('.chart')].every(chart => chart.querySelector('svg'))"
    WebDriverWait(browser, 60).until(lambda page: page.execute_script(drawn))


def _facts(page: Any) -> dict[str, str]:
    rows = page.find_elements("css selector", "#panel-facts div")
    return {row.get_attribute("data-fact"): row.find_element("tag name", "dd").text for row in rows}


def _expected(outcome: Outcome, node: int) -> dict[str, str]:
    filters, best = outcome.filters, int(outcome.scores[node].argmax())
    assert filters is not None
    names, label = ("safe", "mine"), int(outcome.task.labels[node])
    return {
        "cluster": f"kind {filters.cluster[node] + 1}",
        "class": names[label],
        "prediction": names[best],
        "correct": "correct" if best == label else "wrong",
        "degree": str(np.diff(outcome.task.graph.indptr)[node]),
        "low": f"{filters.bands[node, 0]:.3f}",
    }


def _click(page: Any, node: int) -> None:
    from selenium.webdriver import ActionChains

    canvas = page.find_element("id", "map")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    x, y = page.execute_script(f"return explorer.screen('{node}')")
    right, down = x - canvas.size["width"] / 2, y - canvas.size["height"] / 2
    ActionChains(page).move_to_element_with_offset(canvas, right, down).click().perform()


def test_the_filter_stands_beside_the_map_in_one_view(page: Any, outcome: tuple[Path, Outcome]) -> None:
    page.execute_script("document.getElementById('explorer').scrollIntoView()")
    boxes = page.execute_script(
        "return ['map', 'node-filter', 'panel-title'].map(id => document.getElementById(id).getBoundingClientRect())"
    )
    assert all(box["top"] >= 0 and box["bottom"] <= 900 for box in boxes)
    first = int(page.find_element("id", "panel-title").text.removeprefix("Node "))
    assert first in outcome[1].split.test
    assert "test node" in page.find_element("id", "panel-words").text


def test_clicking_a_node_shows_its_class_prediction_and_filter(page: Any, outcome: tuple[Path, Outcome]) -> None:
    run, found = outcome
    _click(page, 137)
    assert page.find_element("id", "panel-title").text == "Node 137"
    shown = _facts(page)
    assert shown | _expected(found, 137) == shown
    graph = found.task.graph
    buttons = [button.text for button in page.find_elements("css selector", "#panel-neighbours button")]
    assert buttons == [str(node) for node in graph.indices[graph.indptr[137] : graph.indptr[138]]]
    _, model = Run(run).load()
    model.bind(load_dataset(BOARD).graph, Workload(None, 300))
    alpha = filter_coefficients(cast(NodeWiseFilter, model), np.array([137]))[0].mean(axis=0)
    text = page.find_element("id", "coefficients-text").text.removeprefix("α: ")
    assert [float(part) for part in text.split(", ")] == pytest.approx(alpha.tolist(), abs=2e-4)
    drawn = page.execute_script("return document.getElementById('node-filter').data[2].y")
    assert found.filters is not None
    assert np.allclose(drawn, found.filters.responses[137].mean(axis=0), atol=1e-3)
    page.find_elements("css selector", "#panel-neighbours button")[0].click()
    assert page.find_element("id", "panel-title").text == f"Node {buttons[0]}"


def test_the_stages_of_a_cascade_can_be_chosen(browser: Any, tmp_path: Path) -> None:
    settings = {"epochs": 2, "num_layers": 2, "hidden_channels": 8, "heads": 2}
    execute_run(RunRequest(BOARD, model="cascade", settings=settings), tmp_path / "run")
    findings = gather(tmp_path / "run")
    write_report(findings, tmp_path / "report.html")
    assert findings.outcome is not None
    filters = findings.outcome.filters
    assert filters is not None
    assert filters.later is not None
    _open(browser, tmp_path / "report.html", 1440)
    browser.execute_script("explorer.choose('42')")
    browser.execute_script(
        "const s = document.getElementById('layer'); s.value = '1'; s.dispatchEvent(new Event('change'))"
    )
    text = browser.find_element("id", "coefficients-text").text.removeprefix("α: ")
    assert [float(part) for part in text.split(", ")] == pytest.approx(filters.later[42, 0].mean(axis=0), abs=2e-4)
    assert browser.find_element("id", "layer-input").text == "Relative to the output of stage 1."
    assert not browser.get_log("browser")


def test_searching_by_keyboard(page: Any, outcome: tuple[Path, Outcome]) -> None:
    box = page.find_element("id", "node")
    box.send_keys("42\n")
    assert page.find_element("id", "panel-title").text == "Node 42"
    shown = _facts(page)
    assert shown | _expected(outcome[1], 42) == shown
    box.clear()
    box.send_keys("<script>\n")
    assert page.find_element("id", "message").text == "There is no node “<script>” on this map."
    assert page.find_element("id", "panel-title").text == "Node 42"
    canvas = page.find_element("id", "map")
    canvas.send_keys("\ue014")  # right arrow
    assert page.find_element("id", "panel-title").text == "Node 43"


def test_every_colouring_and_head_and_theme_can_be_chosen(page: Any, outcome: tuple[Path, Outcome]) -> None:
    from selenium.webdriver.support.ui import Select

    select = Select(page.find_element("id", "colour"))
    legends = set()
    for option in [option.get_attribute("value") for option in select.options]:
        select.select_by_value(option)
        legends.add(page.find_element("id", "legend").text)
    assert any("safe" in legend and "mine" in legend for legend in legends)
    assert len(legends) > 6
    select.select_by_value("alpha1")
    filters = outcome[1].filters
    assert filters is not None
    alpha = filters.coefficients[:, :, 1].mean(axis=1)
    ends = page.find_element("id", "legend").text.split()
    assert [float(end) for end in ends] == pytest.approx([alpha.min(), alpha.max()], abs=2e-3)
    select.select_by_value("class")
    label = outcome[1].task.labels[0]
    colour = page.execute_script(
        "const [x, y] = explorer.screen('0'); "
        "return [...document.getElementById('map').getContext('2d').getImageData(x, y, 1, 1).data].slice(0, 3)"
    )
    assert colour == [[0, 114, 178], [230, 159, 0]][label]
    before = page.execute_script("return document.getElementById('node-filter').data[2].y[0]")
    Select(page.find_element("id", "head")).select_by_value("2")
    assert page.execute_script("return document.getElementById('node-filter').data[2].y[0]") != before
    theme = page.execute_script("return document.documentElement.dataset.theme")
    page.find_element("id", "theme").click()
    assert page.execute_script("return document.documentElement.dataset.theme") != theme


@pytest.mark.parametrize("name", ["report.html", "comparison.html"])
@pytest.mark.parametrize("width", [390, 1440])
def test_no_errors_no_network_nothing_cut_off(
    browser: Any, outcome: tuple[Path, Outcome], width: int, name: str
) -> None:
    _open(browser, outcome[0] / name, width)
    assert browser.find_elements("css selector", ".chart svg")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    cut = browser.execute_script(
        """return [...document.querySelectorAll('main *')].filter(e => {
             if (e.closest('svg, thead') || !e.innerText || getComputedStyle(e).display === 'inline') return false;
             const box = e.getBoundingClientRect();
             return box.right > innerWidth + 1 || box.left < -1 || e.scrollWidth > e.clientWidth + 1;
           }).map(e => e.outerHTML.slice(0, 80))"""
    )
    assert cut == []
    outside = browser.execute_script(
        """return [...document.querySelectorAll('.chart svg text')].filter(t => {
             const box = t.getBoundingClientRect(), chart = t.closest('.chart').getBoundingClientRect();
             const beside = box.right > chart.right + 2 || box.left < chart.left - 2;
             return box.width && (beside || box.bottom > chart.bottom + 2);
           }).map(t => t.textContent)"""
    )
    assert outside == []
    assert browser.get_log("browser") == []
    requests = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [r["params"]["request"]["url"] for r in requests if r["method"] == "Network.requestWillBeSent"]
    assert [url for url in urls if not url.startswith(("file:", "data:", "blob:"))] == []
