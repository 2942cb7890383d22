"""What several tests share: graphs of all shapes, both kernels, a data root if there is one."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polyformer.cluster import connected
from polyformer.graph import Graph
from tests.networks import loopback_only
from tests.ray_cluster import small_cluster
from tests.training.team import Team
from tests.warm import WARM


def _random(seed: int, nodes: int, edges: int, isolated: int = 0, weighted: bool = False) -> Graph:
    random = np.random.default_rng(seed)
    pairs = random.integers(0, nodes - isolated, (2, edges))
    weights = random.uniform(0.1, 3.0, edges) if weighted else None
    return Graph(pairs, random.standard_normal((nodes, 11)), nodes, weights)


def _ring(nodes: int) -> Graph:
    here = np.arange(nodes)
    features = np.random.default_rng(5).standard_normal((nodes, 9))
    return Graph(np.stack([here, (here + 1) % nodes]), features)


def _two_parts() -> Graph:
    """A star and a path that do not touch, and two isolated nodes."""
    star = [(0, i) for i in range(1, 12)]
    path = [(i, i + 1) for i in range(12, 20)]
    return Graph(np.array(star + path).T, np.random.default_rng(6).standard_normal((23, 66)))


GRAPHS: dict[str, Callable[[], Graph]] = {
    "random": lambda: _random(0, 80, 200),
    "isolated nodes": lambda: _random(1, 60, 90, isolated=7),
    "weighted": lambda: _random(2, 50, 120, isolated=3, weighted=True),
    "dense": lambda: _random(3, 30, 400),
    "ring": lambda: _ring(24),
    "two parts": _two_parts,
    "no edges": lambda: Graph(np.empty((2, 0), np.int64), np.random.default_rng(7).standard_normal((5, 3))),
}


SHARED = {"ray_cluster": "ray", "two": "team", "three": "team", "browser": "browser"}
"""Fixtures of the whole session that are costly, each with the name of the group of tests that share it."""


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share a cluster, a team of processes or a browser run in one process; all of them are slow."""
    for item in items:
        groups = [SHARED[name] for name in getattr(item, "fixturenames", ()) if name in SHARED]
        if item.get_closest_marker("ray") is not None:
            groups = ["ray"]
        if groups:
            item.add_marker(pytest.mark.xdist_group(groups[0]))
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Tests on Ray, their fixtures included, know no network but loopback."""
    if item.get_closest_marker("ray") is None:
        return (yield)
    with loopback_only():
        return (yield)


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Compute with one thread: the models of the tests are so small that a second thread would only wait."""
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes that tests start


@pytest.fixture
def warm_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the workers of a search from a process that has imported torch, so that no worker imports it again."""
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: WARM)


@pytest.fixture(params=GRAPHS)
def graph(request: pytest.FixtureRequest) -> Graph:
    return GRAPHS[request.param]()


@pytest.fixture(params=["native", "scipy"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("POLYFORMER_KERNEL", request.param)
    return str(request.param)


@pytest.fixture
def data_root() -> Path:
    """The folder of real data sets; tests that need it skip elsewhere."""
    root = os.environ.get("POLYFORMER_DATA")
    if not root or not Path(root).is_dir():
        pytest.skip("real data sets are not on this machine: POLYFORMER_DATA names no folder")
    return Path(root)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    """Two nodes of one CPU each on loopback, this process connected to them; tests marked ``ray`` share them.

    One connection for all: Ray starts new processes, which import torch, for every connection.
    """
    pytest.importorskip("ray", reason="Ray is not installed")
    with small_cluster() as cluster, connected(cluster.address):
        yield cluster


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """Two processes that train together."""
    team = Team(2, tmp_path_factory.mktemp("two"))
    yield team
    team.close()


@pytest.fixture(scope="session")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """Three processes that train together."""
    team = Team(3, tmp_path_factory.mktemp("three"))
    yield team
    team.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium that draws WebGL in software; tests skip where there is none (``make browser``)."""
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.skip("chromium and chromedriver are not both installed. Install them with: make browser")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    software = ("--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars", *software):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
    yield driver
    driver.quit()
