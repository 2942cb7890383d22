"""A short version of the benchmarks, in one process: fails on gross regressions only, by ratios with wide margins."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.growth import exponent
from benchmarks.tokens import best_times, contenders
from benchmarks.training import literal_epochs, our_epochs
from polyformer.datasets import load_dataset
from polyformer.graph import Graph
from polyformer.native import kernel_name

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(kernel_name() != "native", reason="the native kernel is not built"),
]

SETTINGS = {
    "basis": "chebyshev",
    "order": 6,
    "self_loops": False,
    "hidden_channels": 64,
    "num_layers": 1,
    "heads": 8,
    "ffn_channels": 64,
    "mlp_ratio": 1.0,
    "decay": 1.0,
    "dropout": 0.3,
    "attention_dropout": 0.3,
    "lr": 1e-3,
    "weight_decay": 0.0,
    "attention_lr": 1e-3,
    "attention_weight_decay": 0.0,
    "batch_size": "full",
}


def random_graph(nodes: int, columns: int) -> Graph:
    random = np.random.default_rng(0)
    features = random.standard_normal((nodes, columns), dtype=np.float32)
    return Graph(random.integers(0, nodes, (2, 6 * nodes)), features)


def test_tokens_beat_scipy_and_torch() -> None:
    graph = random_graph(30_000, 64)
    best = best_times(contenders(graph), repeats=3, output_bytes=4 * graph.num_nodes * 11 * 64)
    assert best["scipy CSR"] / best["ours"] > 1.5
    assert best["torch COO"] / best["ours"] > 2
    assert best["bernstein"] / best["ours"] < 2.5


def test_training_beats_the_literal_implementation() -> None:
    task = load_dataset("minefield")
    sides = {"ours": next(our_epochs(task, SETTINGS)), "literal": next(literal_epochs(task, SETTINGS))}
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(3):
        for side, epoch in sides.items():
            best[side] = min(best[side], seconds(epoch))
    assert best["literal"] / best["ours"] > 2


def test_tokens_grow_linearly() -> None:
    from polyformer.tokens import compute_tokens

    sizes = [25_000, 50_000, 100_000, 200_000]
    graphs = [random_graph(nodes, 16) for nodes in sizes]
    costs = [min(seconds(lambda graph=graph: compute_tokens(graph, order=4)) for _ in range(3)) for graph in graphs]
    assert exponent(sizes, costs) < 1.6  # the caches are left on the way


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
