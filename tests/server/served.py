"""A small graph of people with a run and tokens, and a server of it on loopback that ends with its block."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from polyformer.importing.importer import import_graph
from polyformer.runs.train import train
from polyformer.server.app import make_app
from polyformer.server.limits import Limits
from polyformer.server.listening import bind_port, make_server
from polyformer.server.service import Service
from polyformer.tasks import Task
from polyformer.tokens import write_tokens

__all__ = ["PEOPLE", "copy_of", "make_places", "serving"]

PEOPLE = 60
SETTINGS = {"order": 2, "hidden_channels": 8, "heads": 2, "num_layers": 1, "epochs": 2}


def make_places(folder: Path, model: str = "polyformer", **more: Any) -> Path:
    """``graph``, ``run`` and, for a model on tokens, ``tokens`` in a folder; ids are texts, one of them wild."""
    tables = folder / "tables"
    tables.mkdir(parents=True)
    names = [f"p{i}" for i in range(PEOPLE - 1)] + ["a/b <i>&ü"]
    pairs = [(names[i], names[(7 * i + 1) % PEOPLE]) for i in range(PEOPLE)]
    (tables / "edges.csv").write_text("source,target\n" + "".join(f"{a},{b}\n" for a, b in pairs))
    rows = [
        f"{name},{'' if i % 9 == 0 else i},c{i % 3},20{10 + i % 10}-01-{1 + i % 20:02d},{'yes' if i % 2 else 'no'}\n"
        for i, name in enumerate(names)
    ]
    (tables / "nodes.csv").write_text("id,age,city,since,label\n" + "".join(rows))
    import_graph(tables, folder / "graph")
    settings = (SETTINGS if model == "polyformer" else {"epochs": 2}) | more
    run = train(folder / "graph", model=model, out=folder / "run", **settings)
    if model == "polyformer":
        write_tokens(run.task().graph, folder / "tokens", order=2)
    return folder


def copy_of(places: Path, folder: Path) -> Path:
    """The places in another folder, to be changed there."""
    shutil.copytree(places, folder / "served")
    return folder / "served"


@contextlib.contextmanager
def serving(
    places: Path, tokens: bool = True, limits: Limits | None = None, token: str | None = None, **options: Any
) -> Iterator[httpx.Client]:
    """A client of a server of these places."""
    bounds = Limits() if limits is None else limits
    faults: list[BaseException] = []
    service = Service(places / "run", str(places / "graph"), places / "tokens" if tokens else None, **options)
    listening = bind_port("127.0.0.1", 0, token)
    server = make_server(make_app(service, bounds, token, faults.append), bounds)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with httpx.Client(base_url=address, timeout=30, trust_env=False) as client:
            client.service = service  # type: ignore[attr-defined]
            client.faults = faults  # type: ignore[attr-defined]
            yield client
    finally:
        server.should_exit = True
        thread.join(30)
        service.close()
    assert not thread.is_alive()
    assert Task.load(places / "graph") is not None
