"""How time and memory grow with nodes, edges, columns and order, on random graphs: exponents fitted and plotted.

``python -m benchmarks.growth [--threads 1] [--json FILE] [--plot FILE.svg]``. One quantity is doubled at a time (edges
grow with nodes, as in graphs of one kind), from a size that has left the caches. Each point is a process of its own,
best of three; memory is its peak above what the bare imports hold. Tokens are computed for all nodes; an epoch trains
on half of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

LIMIT = 1.1
"""The largest exponent that passes as linear."""

QUANTITIES = ("nodes", "edges", "columns", "order")


@dataclass(frozen=True)
class Size:
    """A random graph and the tokens to make of it."""

    nodes: int = 400_000
    edges: int = 2_000_000
    columns: int = 32
    order: int = 4

    def grown(self, quantity: str, factor: int) -> Size:
        """The size with one quantity multiplied; edges grow with nodes."""
        size = replace(self, **{quantity: getattr(self, quantity) * factor})
        return replace(size, edges=self.edges * factor) if quantity == "nodes" else size


def write_graph(size: Size, folder: Path) -> None:
    """A graph with uniformly random edges and normal features."""
    from polyformer.graph import Graph

    random = np.random.default_rng(0)
    edges = random.integers(0, size.nodes, (2, size.edges))
    Graph(edges, random.standard_normal((size.nodes, size.columns), dtype=np.float32)).save(folder)


def measure(folder: Path, size: Size, threads: int) -> dict[str, float]:
    """Seconds of the tokens and of an epoch, and the process's peak memory after each."""
    import torch

    from polyformer.graph import Graph
    from polyformer.machine import peak_memory, resident_bytes
    from polyformer.models.polyformer import PolyFormerModel, PolyFormerSettings
    from polyformer.objectives import OBJECTIVES
    from polyformer.splits import Split
    from polyformer.tokens import compute_tokens
    from polyformer.training.loop import Trainer
    from polyformer.training.settings import TrainingSettings
    from polyformer.training.workload import workload_of

    torch.set_num_threads(threads)
    bare = resident_bytes()
    graph = Graph.load(folder)

    def best(function: Any) -> float:
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            function()
            seconds.append(time.perf_counter() - start)
        return min(seconds)

    tokens = best(lambda: compute_tokens(graph, "chebyshev", size.order))
    token_memory = peak_memory() - bare
    nodes = np.random.default_rng(1).permutation(size.nodes)
    split = Split(nodes[: size.nodes // 2], nodes[-1000:], nodes[-1000:])
    settings = PolyFormerSettings(order=size.order, hidden_channels=16, heads=2, token_route="stored")
    training = TrainingSettings(batch_size=1024)
    model = PolyFormerModel(size.columns, 2, settings)
    model.bind(graph, workload_of(split, training))
    trainer = Trainer(model, OBJECTIVES["multiclass"], "accuracy", nodes % 2, split, training)
    epoch = best(trainer._run_epoch)
    return {"tokens": tokens, "token_memory": token_memory, "epoch": epoch, "epoch_memory": peak_memory() - bare}


def points(quantity: str, steps: int, threads: int) -> Iterator[tuple[int, dict[str, float]]]:
    """The quantity and what it costs, doubled ``steps`` times."""
    for step in range(steps + 1):
        size = Size().grown(quantity, 2**step)
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "graph"
            write_graph(size, place)
            child = json.dumps({"folder": str(place), "size": asdict(size)})
            command = [sys.executable, "-m", "benchmarks.growth", "--threads", str(threads), "--child", child]
            done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=True)
        yield getattr(size, quantity), json.loads(done.stdout.splitlines()[-1])


def exponent(sizes: list[int], costs: list[float]) -> float:
    """The slope of log cost over log size.

    >>> exponent([1, 2, 4], [3.0, 6.0, 12.0])
    1.0
    """
    return round(float(np.polyfit(np.log(sizes), np.log(costs), 1)[0]), 3)


def plot(curves: dict[str, dict[str, list[float]]], path: Path) -> None:
    """One panel a cost, one line a quantity; both axes logarithmic, relative to the first point."""
    colours = dict(zip(QUANTITIES, ("#0072b2", "#d55e00", "#009e73", "#cc79a7"), strict=True))
    width, panels = 300, ("tokens", "token_memory", "epoch", "epoch_memory")
    parts = []
    for i, cost in enumerate(panels):
        left = 40 + i * width
        parts.append(f'<text x="{left}" y="20">{cost.replace("_", " ")}, relative to the first point</text>')
        parts.append(f'<rect x="{left}" y="30" width="220" height="220" fill="none" stroke="#999"/>')
        parts.append(f'<line x1="{left}" y1="250" x2="{left + 220}" y2="30" stroke="#ccc" stroke-dasharray="4"/>')
        for quantity, curve in curves.items():
            x = left + 55 * np.log2(np.array(curve["sizes"]) / curve["sizes"][0])
            y = 250 - 55 * np.log2(np.array(curve[cost]) / curve[cost][0])
            line = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colours[quantity]}" stroke-width="2"/>')
    for i, (quantity, colour) in enumerate(colours.items()):
        parts.append(f'<text x="{40 + 110 * i}" y="280" fill="{colour}">{quantity}</text>')
    parts.append('<text x="500" y="280" fill="#777">dashed: linear; the frame is a factor of 16</text>')
    size = f'width="{width * len(panels)}" height="290" font-family="sans-serif" font-size="12"'
    path.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n' + "\n".join(parts) + "\n</svg>\n")


def main() -> int:
    """Print a Markdown table of exponents; fails if growth in N, E or d is more than linear."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child = json.loads(arguments.child)
        print(json.dumps(measure(Path(child["folder"]), Size(**child["size"]), arguments.threads)))
        return 0
    print(f"threads {arguments.threads}, from {Size()} by doubling\n")
    print("| grows | from, to | tokens: time | memory | epoch: time | memory |\n|---|---|---|---|---|---|")
    curves, steep = {}, []
    for quantity in QUANTITIES:
        sizes, costs = zip(*points(quantity, arguments.steps, arguments.threads), strict=True)
        curve = {name: [cost[name] for cost in costs] for name in costs[0]}
        exponents = {name: exponent(list(sizes), values) for name, values in curve.items()}
        curves[quantity] = {"sizes": list(sizes), **curve, "exponents": exponents}
        cells = " | ".join(f"{exponents[name]:.2f}" for name in ("tokens", "token_memory", "epoch", "epoch_memory"))
        print(f"| {quantity} | {sizes[0]:,}, {sizes[-1]:,} | {cells} |", flush=True)
        if quantity != "order":
            steep += [f"{name} in {quantity}: {value}" for name, value in exponents.items() if value > LIMIT]
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"threads": arguments.threads, "curves": curves}, indent=2) + "\n")
    if arguments.plot is not None:
        plot(curves, arguments.plot)
    if steep:
        print("\nmore than linear: " + "; ".join(steep))
    return 1 if steep else 0


if __name__ == "__main__":
    sys.exit(main())
