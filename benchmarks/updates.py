"""Tokens that follow a changed graph, against computing and writing the whole directory, in one process.

``python -m benchmarks.updates [--repeats 100] [--only NAME] [--json FILE]`` prints a row for each target: the time of
``update_tokens`` with its durable write, the graph already updated, against ``write_tokens`` with the memory engine;
median and 95th percentile over so many random changes, and the graph's own update apart. Each row is written to the
file as soon as it is measured, and rows that are in the file are not measured again: a run that was stopped goes on.
``--new`` tells how far frozen and full predictions of new nodes are apart, ``--one-new-node`` how long a frozen one of
a node with ten edges takes beyond the model's own pass, ``--changes 10000`` makes so many random changes in a row and
checks the end, ``--kills 200`` kills a process that updates at so many random moments; what they find is added to the
same file.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyformer.datasets import load_dataset
from polyformer.graph import Graph
from polyformer.tokens import compute_tokens, open_tokens, write_tokens
from polyformer.updates.tokens import update_tokens


@dataclass(eq=False)
class Results:
    """What was measured so far: content by section, in a JSON file if a path is given."""

    path: Path | None
    content: dict[str, Any]

    @classmethod
    def open(cls, path: Path | None) -> Results:
        there = path is not None and path.exists()
        return cls(path, json.loads(path.read_text(encoding="utf-8")) if there and path is not None else {})

    def add(self, section: str, rows: dict[str, Any]) -> None:
        """Keep some rows of a section; rows of the same name are replaced."""
        self.content = Results.open(self.path).content if self.path is not None else self.content
        self.content[section] = self.content.get(section, {}) | rows
        if self.path is not None:
            self.path.write_text(json.dumps(self.content, indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Target:
    """One row of the table.

    Attributes:
        width: number of random feature columns; 0 takes those of the data set.
        edges: edges of one change.
        least: how many times quicker than computing everything the update shall be.
    """

    data: str
    width: int
    order: int
    tolerance: float
    edges: int
    least: float


TARGETS = {
    f"{short} {name}": Target(data, width, *target)
    for short, data, width in (("arxiv", "ogbn-arxiv-graph", 128), ("google", "web-google", 64))
    for name, target in {
        "one edge, K=4, 1e-3": (4, 1e-3, 1, 50.0),
        "one edge, K=10, 1e-3": (10, 1e-3, 1, 10.0),
        "100 edges, K=4, 1e-3": (4, 1e-3, 100, 5.0),
        "one edge, K=2, exact": (2, 0.0, 1, 10.0),
    }.items()
} | {"minefield one edge, K=10, exact": Target("minefield:width=1000,height=1000", 0, 10, 0.0, 1, 50.0)}


def graph_of(target: Target) -> Graph:
    """The graph of a target, its hash known."""
    graph = load_dataset(target.data).graph
    if target.width:
        random = np.random.default_rng(0)
        graph = graph.with_features(random.standard_normal((graph.num_nodes, target.width), dtype=np.float32))
    assert graph.fingerprint
    return graph


def random_pairs(graph: Graph, count: int, random: np.random.Generator) -> np.ndarray:
    """Pairs of nodes drawn at random; on a board, of cells that lie near each other."""
    first = random.integers(0, graph.num_nodes, count)
    return np.stack([first, random.integers(0, graph.num_nodes, count)], axis=1)


def measure(target: Target, repeats: int, folder: Path) -> dict[str, Any]:
    """Times of one target."""
    graph, random = graph_of(target), np.random.default_rng(1)
    whole = [_write_whole(graph, folder / "tokens", target.order) for _ in range(2)]
    updates, graphs, rows, recomputed = [], [], [], 0
    for _ in range(repeats):
        start = time.perf_counter()
        graph = graph.updated(add_edges=random_pairs(graph, target.edges, random))
        assert graph.fingerprint
        graphs.append(time.perf_counter() - start)
        start = time.perf_counter()
        report = update_tokens(folder / "tokens", graph, target.tolerance)
        updates.append(time.perf_counter() - start)
        rows.append(report.rows_written)
        recomputed += report.recomputed
    error = _error(folder / "tokens", graph, target.order)
    whole.append(_write_whole(graph, folder / "tokens", target.order))  # the machine may have got busier or idler
    best, median, late = min(whole), statistics.median(updates), float(np.percentile(updates, 95))
    return {
        "whole_seconds": best,
        "median_seconds": median,
        "p95_seconds": late,
        "graph_seconds": statistics.median(graphs),
        "ratio": best / median,
        "p95_ratio": best / late,
        "rows": statistics.median(rows),
        "error": error,
        "error_bound": report.error_bound,
        "repeats": repeats,
        "recomputed": recomputed,
        "all_whole_seconds": whole,
        "threads": torch.get_num_threads(),
        "load_average": os.getloadavg()[0],
    }


def _write_whole(graph: Graph, place: Path, order: int) -> float:
    """Seconds that computing and writing all tokens takes."""
    shutil.rmtree(place, ignore_errors=True)
    start = time.perf_counter()
    write_tokens(graph, place, order=order)
    return time.perf_counter() - start


def _error(directory: Path, graph: Graph, order: int) -> float:
    """The norm of the error of the last order; it must lie below the bound."""
    exact, stored = compute_tokens(graph, order=order), open_tokens(directory)
    total = 0.0
    for start in range(0, graph.num_nodes, 1 << 15):
        rows = slice(start, min(graph.num_nodes, start + (1 << 15)))
        total += float((stored[rows][:, order] - exact[rows, order]).double().square().sum())
    return total**0.5


def table(repeats: int, only: str, folder: Path, results: Results) -> None:
    """Print the table of the targets, and keep each row."""
    print(
        "| | whole | update, median | 95th percentile | times quicker (95th) | target | graph | rows | error ≤ bound |"
    )
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for name, target in TARGETS.items():
        if only not in name:
            continue
        if name not in results.content.get("table", {}):
            results.add("table", {name: asdict(target) | measure(target, repeats, folder)})
        row = results.content["table"][name]
        print(
            f"| {name} | {row['whole_seconds']:.2f} s | {1e3 * row['median_seconds']:.0f} ms | "
            f"{1e3 * row['p95_seconds']:.0f} ms | {row['ratio']:.0f} ({row['p95_ratio']:.0f}) | {target.least:.0f} | "
            f"{1e3 * row['graph_seconds']:.0f} ms | {row['rows']:,.0f} | "
            f"{row['error']:.2g} ≤ {row['error_bound']:.2g} |",
            flush=True,
        )


def new_nodes(folder: Path, names: list[str]) -> dict[str, Any]:
    """How far frozen and full predictions of new nodes are apart, and how long a frozen one takes.

    Of each graph 100 nodes are taken out; each is then predicted as a new node beside the others.
    """
    from polyformer.new_nodes import NewNodes
    from polyformer.runs.train import train
    from polyformer.stores.directory import StoredTokens

    results = {}
    print("| | same class | largest change of a probability: median, 95th percentile | model's pass | frozen | full |")
    print("|---|---|---|---|---|---|", flush=True)
    for name in names:
        run = train(name, out=folder / name, epochs=20, order=6)
        card, model = run.load()
        graph = load_dataset(name).graph
        out = np.sort(np.random.default_rng(0).choice(graph.num_nodes, 100, replace=False))
        smaller = graph.updated(remove_nodes=out)
        settings = model.settings
        write_tokens(smaller, folder / f"{name}-tokens", order=6, self_loops=settings.self_loops)  # type: ignore
        predictor = NewNodes(model, card.reader, smaller, StoredTokens(folder / f"{name}-tokens"))
        moved, same, seconds = [], [], {"pass": [], "frozen": [], "full": []}
        for node in out:
            around = np.asarray(graph.indices[graph.indptr[node] : graph.indptr[node + 1]])
            around = around[~np.isin(around, out)]
            edges = np.stack([np.full(len(around), graph.num_nodes), around], axis=1)
            row = graph.features[[node]]  # type: ignore[index]
            scores = {}
            for mode in ("frozen", "full"):
                start = time.perf_counter()
                scores[mode] = predictor.predict(row, edges, mode, tolerance=1e-3)
                seconds[mode].append(time.perf_counter() - start)
            tokens = torch.zeros(1, 7, graph.num_features)
            start = time.perf_counter()
            with torch.no_grad():
                card.reader.scores(model.encode_tokens(tokens))  # type: ignore[operator]
            seconds["pass"].append(time.perf_counter() - start)
            moved.append(float(np.abs(scores["frozen"] - scores["full"]).max()))
            same.append(scores["frozen"].argmax() == scores["full"].argmax())
        times = {mode: 1e3 * statistics.median(values) for mode, values in seconds.items()}
        results[name] = {"same": float(np.mean(same)), "moved": moved, "milliseconds": times}
        print(
            f"| {name} | {np.mean(same):.0%} | {np.median(moved):.4f}, {np.percentile(moved, 95):.4f} | "
            f"{times['pass']:.2f} ms | {times['frozen']:.2f} ms | {times['full']:.2f} ms |",
            flush=True,
        )
    return results


def seconds_of_a_new_node(folder: Path, repeats: int) -> dict[str, Any]:
    """How long a frozen prediction of one new node with ten random edges takes beyond the model's own pass."""
    from polyformer.models import MODELS
    from polyformer.new_nodes import NewNodes
    from polyformer.objectives import OBJECTIVES
    from polyformer.settings import split_settings
    from polyformer.stores.directory import StoredTokens

    graph, random = graph_of(TARGETS["arxiv one edge, K=10, 1e-3"]), np.random.default_rng(2)
    kind = MODELS["polyformer"]
    settings = split_settings([kind.settings_type], {"order": 10})[0]
    model = kind(graph.num_features, 40, settings).eval()  # type: ignore[arg-type]
    write_tokens(graph, folder / "tokens", order=10, self_loops=settings.self_loops)  # type: ignore[attr-defined]
    predictor = NewNodes(model, OBJECTIVES["multiclass"], graph, StoredTokens(folder / "tokens"))
    tokens, seconds = torch.zeros(1, 11, graph.num_features), []
    for _ in range(repeats):
        row = random.standard_normal((1, graph.num_features), dtype=np.float32)
        edges = np.stack([np.full(10, graph.num_nodes), random.integers(0, graph.num_nodes, 10)], axis=1)
        start = time.perf_counter()
        predictor.predict(row, edges)
        middle = time.perf_counter()
        with torch.no_grad():
            predictor.objective.scores(model.encode_tokens(tokens))  # type: ignore[operator]
        seconds.append((middle - start, time.perf_counter() - middle))
    frozen, own = np.array(seconds[len(seconds) // 10 :]).T  # the first are slow: pages and code are not in memory yet
    result = {
        "frozen_milliseconds": 1e3 * float(np.median(frozen)),
        "pass_milliseconds": 1e3 * float(np.median(own)),
        "beyond_the_pass_milliseconds": 1e3 * float(np.median(frozen - own)),
        "beyond_the_pass_p95_milliseconds": 1e3 * float(np.percentile(frozen - own, 95)),
        "repeats": repeats,
        "load_average": os.getloadavg()[0],
    }
    print(f"a new node with ten edges, frozen: {result}", flush=True)
    return result


def changes_in_a_row(count: int, folder: Path, tolerances: list[float]) -> dict[str, Any]:
    """So many random changes of a graph, tokens following each, checked at the end; nothing is flushed."""
    from tests.updates.random_changes import random_change

    os.fdatasync = lambda _: None  # type: ignore[assignment]
    results = {}
    for tolerance in tolerances:
        random = np.random.default_rng(0)
        pairs = np.stack([np.arange(3000), (np.arange(3000) + 1) % 3000])
        graph = Graph(np.hstack([pairs, random.integers(0, 3000, (2, 300))]), random.standard_normal((3000, 4)))
        shutil.rmtree(folder / "many", ignore_errors=True)
        write_tokens(graph, folder / "many", order=4)
        bound = 0.0
        for _ in range(count):
            graph = random_change(graph, random, growing=random.random() < 0.1)
            bound = update_tokens(folder / "many", graph, tolerance).error_bound
        exact = compute_tokens(graph, order=4)
        error = open_tokens(folder / "many")[:] - exact
        results[str(tolerance)] = {
            "largest": float(error.abs().max() / exact.abs().max()),
            "error": float(error[:, 4].double().norm()),
            "error_bound": bound,
            "changes": count,
        }
        assert results[str(tolerance)]["error"] <= bound + 1e-5
        print(f"{count:,} changes, tolerance {tolerance:g}: {results[str(tolerance)]}", flush=True)
    return results


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--new", nargs="*", default=None, metavar="DATASET")
    parser.add_argument("--one-new-node", action="store_true")
    parser.add_argument("--changes", type=int, default=0)
    parser.add_argument("--tolerances", type=float, nargs="*", default=[0.0, 1e-3])
    parser.add_argument("--kills", type=int, default=0)
    options = parser.parse_args()
    results = Results.open(options.json)
    with tempfile.TemporaryDirectory(prefix="updates-") as scratch:
        if options.new is not None:
            names = options.new or ["cora", "chameleon_filtered", "minesweeper", "tolokers"]
            results.add("new_nodes", new_nodes(Path(scratch), names))
        elif options.one_new_node:
            row = seconds_of_a_new_node(Path(scratch), 3 * options.repeats)
            results.add("one_new_node", {"arxiv, 128 columns, K=10": row})
        elif options.changes:
            results.add("changes", changes_in_a_row(options.changes, Path(scratch), options.tolerances))
        elif options.kills:
            from tests.updates.killed import killed_updates

            versions = killed_updates(Path(scratch), options.kills)
            results.add("kills", {"kills": options.kills, "last_version": versions})
            print(f"{options.kills} kills: every time a whole version was left")
        else:
            table(options.repeats, options.only, Path(scratch), results)


if __name__ == "__main__":
    main()
