"""Random graphs and random changes of them, for laws that must hold whatever changes."""

from __future__ import annotations

import numpy as np

from polyformer.graph import Graph

__all__ = ["random_change", "random_graph"]


def random_graph(random: np.random.Generator, weighted: bool, nodes: int = 70) -> Graph:
    """Some nodes without an edge, some in small parts of their own."""
    pairs = random.integers(0, nodes - 5, (2, 2 * nodes // 2))
    weights = random.uniform(0.1, 3.0, pairs.shape[1]) if weighted else None
    return Graph(pairs, random.standard_normal((nodes, 5)), nodes, weights)


def random_change(graph: Graph, random: np.random.Generator, growing: bool = True) -> Graph:
    """Add, remove and re-weight edges, add and remove nodes, and change features, a few of each."""
    alive = np.setdiff1d(np.arange(graph.num_nodes), graph.removed)
    gone = random.choice(alive, 1) if growing and random.random() < 0.2 else alive[:0]
    new = int(random.integers(3)) if growing else 0
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    edges = np.stack([rows, graph.indices], axis=1)[rows < graph.indices]
    lost = edges[random.choice(len(edges), min(len(edges), int(random.integers(3))), replace=False)]
    ends = np.concatenate([np.setdiff1d(alive, gone), np.arange(graph.num_nodes, graph.num_nodes + new)])
    added = random.choice(ends, (int(random.integers(4)), 2))
    kept = np.setdiff1d(alive, gone)
    return graph.updated(
        add_edges=added,
        add_weights=None if graph.weights is None else random.uniform(0.1, 3.0, len(added)),
        remove_edges=lost,
        add_features=random.standard_normal((new, graph.num_features)),
        set_features={int(i): random.standard_normal(graph.num_features) for i in random.choice(kept, 1)},
        remove_nodes=gone,
    )
