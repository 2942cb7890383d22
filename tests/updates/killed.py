"""Updates in a process that is killed at random moments: what is left must be the old or the new version."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from polyformer.graph import Graph
from polyformer.stores import folding
from polyformer.tasks import Task
from polyformer.tokens import compute_tokens, open_tokens, write_tokens
from polyformer.updates import token_rows
from polyformer.updates.graph_directory import compact_graph, update_graph
from polyformer.updates.task_changes import TaskChange
from polyformer.updates.tokens import update_tokens
from tests.warm import WarmProcess

__all__ = ["killed_updates"]

NODES = 60


def make(folder: Path) -> None:
    """A graph directory and its tokens."""
    random = np.random.default_rng(0)
    graph = Graph(random.integers(0, NODES, (2, 90)), random.standard_normal((NODES, 3)), NODES)
    graph.save(folder / "graph")
    write_tokens(Graph.load(folder / "graph"), folder / "tokens", order=3)


def change(task: Task) -> tuple[TaskChange, str]:
    """The next change of the graph: what it is depends on the version alone, so that it can be told afterwards."""
    version, count = task.graph.version, task.graph.num_nodes
    random = np.random.default_rng(version)
    alive = task.graph.present_nodes
    features = random.standard_normal((1, 3)).astype(np.float32)
    edges = np.array([[count, int(random.choice(alive))], [count, int(random.choice(alive))]])
    gone = random.choice(alive, 1) if version % 3 == 2 else alive[:0]
    edges = edges[~np.isin(edges, gone).any(axis=1)]
    return TaskChange(edges, add_features=features, new_ids=[count], remove_nodes=gone, first_new=count), str(version)


def keep_updating(folder: str) -> None:
    """Update graph and tokens until the process is killed."""
    token_rows._MOST_SHARE = 1
    folding.MOST_RECORDS = 4  # fold often
    place = Path(folder)
    (place / "started").touch()
    while True:
        update_graph(place / "graph", change)
        update_tokens(place / "tokens", Graph.load(place / "graph"))


def check(folder: Path) -> int:
    """See that graph and tokens are whole versions; returns the version of the graph."""
    task = Task.load(folder / "graph")
    assert Graph.load(folder / "graph", verify=True).version == task.graph.version
    stored = open_tokens(folder / "tokens")
    fingerprints = [entry.before for entry in task.graph.history] + [task.graph.fingerprint]
    assert stored.manifest["graph"] in fingerprints
    update_tokens(folder / "tokens", task.graph)  # goes on from whichever version is there
    tokens, exact = open_tokens(folder / "tokens")[:], compute_tokens(task.graph, order=3)
    assert float((tokens - exact).abs().max()) <= 1e-6 * float(exact.abs().max())
    return task.graph.version


def killed_updates(folder: Path, kills: int, seed: int = 0) -> int:
    """Kill a process that updates at so many random moments, and check after each; returns how many versions came."""
    make(folder)
    began = time.perf_counter()
    update_graph(folder / "graph", change)
    version = check(folder)
    longest = max(0.15, 4 * (time.perf_counter() - began))  # on a busy machine too, some kills come after an update
    random = np.random.default_rng(seed)
    for _ in range(kills):
        (folder / "started").unlink(missing_ok=True)
        with WarmProcess(str(folder), function=keep_updating) as process:
            process.wait_until((folder / "started").exists)
            time.sleep(float(random.uniform(0, longest)))
            os.kill(process.pid, 9)
            process.wait()
        now = check(folder)
        assert now >= version
        version = now
        if len(Graph.load(folder / "graph").removed) >= 20:  # compact now and then, too
            compact_graph(folder / "graph")
            version += 1
            for path in (folder / "tokens").iterdir():
                path.unlink()
            (folder / "tokens").rmdir()
            write_tokens(Graph.load(folder / "graph"), folder / "tokens", order=3)
    return version
