"""The live explorer at size: 100,000 nodes pan smoothly in Chromium, a million are searched."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyformer.graph import Graph
from polyformer.server.explorer.search import Attribute, NodeSearch
from polyformer.server.names import NodeNames
from polyformer.tasks import Task
from polyformer.user_cache import PRECOMPUTED_VARIABLE
from tests.server.explorer.served import make_board, serving

pytestmark = pytest.mark.slow

LEAST_FRAMES = 20
"""Frames a second that software drawing must reach here; the goal of 30 is measured on an idle machine."""

PAN = """
const [count, frames, done] = arguments, map = explorer.map, places = new Uint16Array(2 * count);
let seed = 12345;
const random = () => (seed = (seed * 1103515245 + 12345) & 0x7fffffff) / 0x7fffffff;
for (let i = 0; i < places.length; i++) places[i] = 65535 * random();
const values = Uint16Array.from({length: count}, (_, i) => i % 8);
const table = Uint8Array.from({length: 3 * 65536}, (_, i) => (37 * i) % 255);
map.setPlaces(places, null);
map.setColours(values, table, [246, 247, 249], null);
map.reset();
const times = [];
function step(time) {
  times.push(time);
  if (times.length > frames) return done({times, drawn: map.drawn, pictures: map.pictures});
  map.move(6 * Math.cos(times.length / 8), 6 * Math.sin(times.length / 8));
  requestAnimationFrame(step);
}
setTimeout(() => requestAnimationFrame(step), 500);
"""


@pytest.fixture
def page(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv(PRECOMPUTED_VARIABLE, str(tmp_path))
    with serving(make_board(tmp_path)) as (address, _):
        size = {"width": 1440, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(f"{address}/explorer")
        deadline = time.monotonic() + 60
        while not browser.execute_script(
            "return window.explorer && explorer.map.count > 0 && explorer.state.chosen >= 0"
        ):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield browser
        browser.get("about:blank")


@pytest.mark.parametrize("count", [100_000, 1_000_000])
def test_all_nodes_pan_smoothly(page: Any, count: int) -> None:
    page.set_script_timeout(60)
    rates = []
    for _ in range(5):  # other work on the machine makes a rate lower, never higher
        result = page.execute_async_script(PAN, count, 90)
        assert result["drawn"] == count
        rates.append(1000 / np.diff(result["times"])[10:].mean())
        if max(rates) >= LEAST_FRAMES:
            break
    assert max(rates) >= LEAST_FRAMES, rates


def test_a_million_nodes_are_searched_in_tens_of_milliseconds() -> None:
    count, random = 1_000_000, np.random.default_rng(0)
    ids = np.array([f"user-{i}-{(i * 7919) % 1000003}" for i in range(count)])
    graph = Graph.from_csr(np.zeros(count + 1, np.int64), np.empty(0, np.int32))
    columns = {
        "class": Attribute("class", random.integers(0, 5, count).astype(np.int32), ["a", "b", "c", "d", "e"]),
        "confidence": Attribute("confidence", random.uniform(0, 1, count)),
    }
    search = NodeSearch(NodeNames.of(Task("many", graph, np.zeros(count, np.int64), (), ids=ids)), columns.get)
    search.prepare()
    queries = (
        "user-77",
        "9999",
        "r-123456-",
        "nobody",
        "class=b",
        "confidence<0.01",
        "class=b confidence>0.9",
        "77 class=c",
    )
    for query in queries:
        seconds = []
        for _ in range(3):
            began = time.process_time()
            found = search.find(query)
            seconds.append(time.process_time() - began)
        assert min(seconds) < 0.1, (query, seconds)
        assert (len(found.rows) == 0) == (query == "nobody")
