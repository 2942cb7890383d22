"""Runs to explore, and a server of each on loopback."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import uvicorn

from polyformer.importing.importer import import_graph
from polyformer.runs.run import Run
from polyformer.runs.train import train
from polyformer.server.app import make_app
from polyformer.server.service import Service

__all__ = ["BOARD", "make_board", "make_people", "serving", "wait_until_whole"]

BOARD = "minefield:width=20,height=15"
SETTINGS = {"order": 3, "hidden_channels": 16, "heads": 2, "epochs": 3}


def make_board(folder: Path) -> Run:
    """A run on a grid of 300 cells."""
    return train(BOARD, out=folder / "board", **SETTINGS)


def make_people(folder: Path) -> Run:
    """A run on a table with numbers, some of them missing, categories and dates; ids are texts, one of them wild."""
    tables = folder / "tables"
    tables.mkdir()
    names = [f"ann{i}" for i in range(79)] + ['a/b <i>"ü"']
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    edges = [(quoted[i], quoted[(7 * i + 3) % 80]) for i in range(80)] + [(quoted[0], quoted[i]) for i in range(40, 75)]
    (tables / "edges.csv").write_text("source,target\n" + "".join(f"{a},{b}\n" for a, b in edges))
    rows = [
        f"{name},{'' if i % 9 == 1 else 20 + i},c{i % 3},201{i % 10}-01-{1 + i % 20:02d},{('no', 'yes')[i % 2]}\n"
        for i, name in enumerate(quoted)
    ]
    (tables / "nodes.csv").write_text("id,age,city,since,label\n" + "".join(rows))
    import_graph(tables, folder / "people")
    return train(folder / "people", out=folder / "people-run", **SETTINGS)


@contextlib.contextmanager
def serving(run: Run, token: str | None = None) -> Iterator[tuple[str, Service]]:
    """The address of a server of a run, and its service; both end with the block."""
    service = Service(run.path)
    faults: list[BaseException] = []
    config = uvicorn.Config(make_app(service, token=token, complain=faults.append), port=0, log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}", service
    finally:
        server.should_exit = True
        thread.join(30)
        service.close()
    assert faults == []


def wait_until_whole(client: httpx.Client) -> dict[str, object]:
    """The summary, once places and predictions of all nodes are known."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        summary: dict[str, object] = client.get("/explorer/data/summary").json()
        if not summary["progress"]:
            return summary
        time.sleep(0.05)
    raise AssertionError("the overview was not made within a minute")
