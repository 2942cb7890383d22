"""The live explorer in a real browser: what is shown, against the run; keyboard, touch, themes, phone; no errors."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from polyformer.server.service import Service
from tests.server.explorer.served import make_people, serving

RIGHT, LEFT, DOWN, ENTER, ESCAPE, BACKSPACE = "\ue014", "\ue012", "\ue015", "\ue007", "\ue00c", "\ue003"


def _open(browser: Any, address: str, width: int = 1440, node: str = "", dark: bool = False) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    browser.get("about:blank")
    browser.get_log("browser"), browser.get_log("performance")
    browser.get(f"{address}/explorer" + (f"#node={node}" if node else ""))
    ready = (
        "const e = window.explorer; return e && e.state.chosen >= 0 && e.map.count > 0 && 'prediction' in "
        "e.state.summary.columns && e.state.column !== null && e.panel.node.facts.prediction !== undefined"
    )
    _wait(browser, lambda: browser.execute_script(ready))


def _wait(browser: Any, true: Callable[[], Any]) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 60, poll_frequency=0.05).until(lambda _: true())


def _text(browser: Any, name: str) -> str:
    return str(browser.find_element("id", name).text)


def _title(browser: Any, title: str) -> None:
    _wait(browser, lambda: _text(browser, "panel-title") == title)


@pytest.fixture
def page(browser: Any, board: tuple[str, Service]) -> Any:
    _open(browser, board[0])
    return browser


OVERLAPS = """
const [title, ...others] = [...document.querySelectorAll("#node-filter text")]
  .sort((one, other) => other.hasAttribute("transform") - one.hasAttribute("transform"));
const a = title.getBoundingClientRect();
return others.filter((text) => {
  const b = text.getBoundingClientRect();
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}).map((text) => text.textContent);
"""


@pytest.mark.parametrize("width", [1440, 390])
def test_the_title_of_an_axis_lies_on_no_number(browser: Any, people: tuple[str, Service], width: int) -> None:
    _open(browser, people[0], width)
    assert browser.execute_script(OVERLAPS) == []


def test_a_click_shows_the_node_its_prediction_and_its_filter(page: Any, board: tuple[str, Service]) -> None:
    from selenium.webdriver import ActionChains

    canvas = page.find_element("id", "map")
    x, y = page.execute_script("return explorer.map.screen(137)")
    size = canvas.size
    ActionChains(page).move_to_element_with_offset(
        canvas, x - size["width"] / 2, y - size["height"] / 2
    ).click().perform()
    _title(page, "Node 137")
    state, answers = board[1].state, board[1].state.answers
    scores = answers.scores(np.array([137]))[0]
    numbers = sorted(float(bar.text) for bar in page.find_elements("css selector", "#probabilities .number"))
    assert numbers == pytest.approx(sorted(scores.tolist()), abs=1e-3)
    label = state.label_of(137)
    assert _text(page, "panel-words").startswith(f"Class {label} · predicted ")
    assert answers.tokens_response is not None
    response = (answers.coefficients(np.array([137]))[0] @ answers.tokens_response).mean(axis=0)
    curves = page.execute_script("return document.getElementById('node-filter').curves")
    assert [curve["name"] for curve in curves][1] == "this node"
    assert curves[0]["name"].startswith("kind ")
    assert np.allclose(curves[1]["y"], response, atol=1e-5)
    assert page.current_url.endswith("#node=137")
    shown = [int(button.text) for button in page.find_elements("css selector", ".neighbour button:first-child")]
    graph = state.task.graph
    assert shown == graph.indices[graph.indptr[137] : graph.indptr[138]].tolist()
    page.find_elements("css selector", ".neighbour button:first-child")[0].click()
    _title(page, f"Node {shown[0]}")
    page.find_element("id", "back").click()
    _title(page, "Node 137")


def test_the_keyboard_searches_and_walks(page: Any) -> None:
    page.find_element("tag name", "body").send_keys("/")
    box = page.switch_to.active_element
    assert box.get_attribute("id") == "query"
    box.send_keys("42")
    _wait(page, lambda: "nodes" in _text(page, "found-words"))
    assert page.find_elements("css selector", ".result b")[0].text == "42"
    box.send_keys(ENTER)
    _title(page, "Node 42")
    canvas = page.switch_to.active_element
    assert canvas.get_attribute("id") == "map"
    assert page.execute_script("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    canvas.send_keys(RIGHT)
    _title(page, "Node 43")
    canvas.send_keys(DOWN)
    _title(page, "Node 63")
    canvas.send_keys(BACKSPACE)
    _title(page, "Node 43")
    page.execute_script("explorer.choose(0)")
    _title(page, "Node 0")
    canvas.send_keys(LEFT)
    _wait(page, lambda: _text(page, "message") == "There is no neighbour in this direction.")
    box.clear()
    box.send_keys("nothing such<b>")
    _wait(page, lambda: _text(page, "found-words") == "No node fits.")
    box.send_keys(ESCAPE)
    assert not page.find_element("id", "found").is_displayed()


def test_attributes_are_found_and_lit_on_the_map(page: Any, board: tuple[str, Service]) -> None:
    labels = board[1].state.task.labels
    mine, safe = int(np.flatnonzero(labels == 1)[0]), int(np.flatnonzero(labels == 0)[0])
    _colour(page, "class")
    lit = _pixel(page, safe)
    page.find_element("id", "query").send_keys("class=mine")
    _wait(page, lambda: _text(page, "found-words") == f"{(labels == 1).sum()} nodes")
    page.find_element("id", "highlight").click()
    _wait(page, lambda: _pixel(page, safe) != lit)
    assert _pixel(page, mine) == [230, 159, 0]
    page.find_element("id", "chip-clear").click()
    _wait(page, lambda: _pixel(page, safe) == lit)


def _colour(page: Any, key: str) -> None:
    from selenium.webdriver.support.ui import Select

    Select(page.find_element("id", "colour")).select_by_value(key)
    _wait(page, lambda: page.execute_script("return explorer.state.colouring") == key)
    _wait(page, lambda: page.find_element("id", "legend").text != "")


def _pixel(page: Any, row: int) -> list[int]:
    """The colour of a node on the map, away from marks in its middle."""
    pixel: list[int] = page.execute_script(
        "const [x, y] = explorer.map.screen(arguments[0]); return explorer.map.pixel(x + 6, y + 6)", row
    )
    return pixel


def test_every_colouring_can_be_chosen(page: Any, board: tuple[str, Service]) -> None:
    from selenium.webdriver.support.ui import Select

    keys = [option.get_attribute("value") for option in Select(page.find_element("id", "colour")).options]
    for key in keys:
        page.execute_script("explorer.state.column = null")
        Select(page.find_element("id", "colour")).select_by_value(key)
        _wait(page, lambda: page.execute_script("return explorer.state.column !== null"))
        assert _text(page, "legend")
    assert {"cluster", "prediction", "confidence", "class", "part", "low", "alpha0", "degree", "feature:0"} <= set(keys)
    _colour(page, "class")
    label = int(board[1].state.task.labels[211])
    _wait(page, lambda: _pixel(page, 211) == [[0, 114, 178], [230, 159, 0]][label])
    assert page.get_log("browser") == []


def test_what_if_moves_prediction_and_filter(browser: Any, people: tuple[str, Service]) -> None:
    from selenium.webdriver.support.ui import Select

    _open(browser, people[0], node="ann7")
    _title(browser, "Node ann7")
    before = browser.execute_script("return document.getElementById('node-filter').curves.at(-1).y")
    name = browser.find_element("id", "feature-name")
    name.send_keys("city")
    value = browser.find_element("id", "feature-value")
    assert value.tag_name == "select"
    assert value.get_attribute("value") == "c1"
    Select(value).select_by_value("c2")
    browser.find_element("css selector", "#feature-form button").click()
    _wait(browser, lambda: "goes from" in _text(browser, "what-if-words"))
    box = browser.find_element("id", "edge-to")
    box.send_keys("ann70", ENTER)
    question = {"id": "ann7", "features": {"city": "c2"}, "add_edges": ["ann70"]}
    answer = httpx.post(f"{people[0]}/explorer/data/what-if", json=question, trust_env=False, timeout=30).json()
    _wait(browser, lambda: browser.execute_script("return explorer.panel.tried()") == answer)
    curves = browser.execute_script("return document.getElementById('node-filter').curves")
    assert [curve["name"] for curve in curves][1:] == ["as it is", "what if"]
    assert curves[1]["y"] == pytest.approx(before, abs=1e-5)
    assert np.abs(np.array(curves[2]["y"]) - before).max() > 1e-6
    box.send_keys("nobody", ENTER)
    _wait(browser, lambda: _text(browser, "what-if-words") == "The graph has no node 'nobody'.")
    for _ in range(3):
        browser.find_element("css selector", "#changes button").click()
    _wait(
        browser,
        lambda: (
            browser.execute_script("return document.getElementById('node-filter').curves.at(-1).name") == "this node"
        ),
    )


def test_wild_ids_are_texts_and_links_lead_to_them(browser: Any, people: tuple[str, Service]) -> None:
    _open(browser, people[0], node="a%2Fb%20%3Ci%3E%22%C3%BC%22")
    assert _text(browser, "panel-title") == 'Node a/b <i>"ü"'
    assert browser.get_log("browser") == []


def test_the_token_is_asked_for(browser: Any, tmp_path: Any) -> None:
    with serving(make_people(tmp_path), token="secret") as (address, _):
        browser.get(f"{address}/explorer")
        _wait(browser, lambda: browser.find_element("id", "token").is_displayed())
        browser.find_element("id", "token").send_keys("secret", ENTER)
        _wait(browser, lambda: browser.execute_script("return window.explorer && explorer.state.chosen >= 0"))
        browser.get("about:blank")
    browser.get_log("browser")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_is_cut_off_and_nothing_comes_from_elsewhere(
    browser: Any, board: tuple[str, Service], width: int, dark: bool
) -> None:
    _open(browser, board[0], width, dark=dark)
    for name in ("facts-box", "features-box", "coefficients-box"):
        browser.execute_script("document.getElementById(arguments[0]).open = true", name)
    assert browser.execute_script("return document.documentElement.dataset.theme") == ("dark" if dark else "light")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    cut = browser.execute_script(
        """return [...document.querySelectorAll('header *, main *')].filter(e => {
             if (e.closest('svg, option, .hidden, [hidden], .bar .name') || !e.innerText) return false;
             const box = e.getBoundingClientRect();
             return box.width && (box.right > innerWidth + 1 || box.left < -1);
           }).map(e => e.outerHTML.slice(0, 80))"""
    )
    assert cut == []
    lines = browser.execute_script(
        """return [...document.querySelectorAll('.chart svg text')].filter(t => {
             const box = t.getBoundingClientRect(), svg = t.ownerSVGElement.getBoundingClientRect();
             return box.right > svg.right + 1 || box.left < svg.left - 1 || box.bottom > svg.bottom + 1;
           }).map(t => t.textContent)"""
    )
    assert lines == []
    browser.find_element("id", "theme").click()
    assert browser.execute_script("return document.documentElement.dataset.theme") == ("light" if dark else "dark")
    assert browser.get_log("browser") == []
    requests = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [r["params"]["request"]["url"] for r in requests if r["method"] == "Network.requestWillBeSent"]
    assert [url for url in urls if not url.startswith((board[0], "data:", "about:"))] == []


def test_every_control_has_a_name(page: Any) -> None:
    nameless = page.execute_script(
        """return [...document.querySelectorAll('button, input, select, canvas')].filter(e =>
             !(e.innerText || e.getAttribute('aria-label') || (e.labels && e.labels.length))).map(e => e.outerHTML)"""
    )
    assert nameless == []


def test_fingers_move_and_pinch_the_map(browser: Any, board: tuple[str, Service]) -> None:
    _open(browser, board[0], 390)
    box = browser.execute_script("return document.getElementById('map').getBoundingClientRect()")
    x, y = box["left"] + box["width"] / 2, box["top"] + box["height"] / 2

    def touch(kind: str, *points: tuple[float, float]) -> None:
        spots = [{"x": px, "y": py, "id": i} for i, (px, py) in enumerate(points)]
        browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": spots})

    before = browser.execute_script("return {...explorer.map.view}")
    touch("touchStart", (x, y))
    for step in range(1, 6):
        touch("touchMove", (x + 12 * step, y))
    touch("touchEnd")
    moved = browser.execute_script("return {...explorer.map.view}")
    assert moved["x"] < before["x"] - 0.05
    assert moved["zoom"] == before["zoom"]
    touch("touchStart", (x - 30, y), (x + 30, y))
    for step in range(1, 6):
        touch("touchMove", (x - 30 - 8 * step, y), (x + 30 + 8 * step, y))
    touch("touchEnd")
    time.sleep(0.1)
    assert browser.execute_script("return explorer.map.view.zoom") > 1.5 * moved["zoom"]


def test_without_webgl_all_but_the_map_works(browser: Any, board: tuple[str, Service]) -> None:
    source = "HTMLCanvasElement.prototype.getContext = () => null"
    hook = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": source})
    try:
        browser.get("about:blank")
        browser.get(f"{board[0]}/explorer#node=42")
        _title(browser, "Node 42")
        assert "shows no WebGL" in _text(browser, "no-webgl")
        assert browser.find_elements("css selector", ".neighbour button")
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", hook)
