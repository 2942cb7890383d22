"""Where nodes stand on the map: the grid itself if the graph is one, else a plane in which like filters are close."""

from __future__ import annotations

import numpy as np

from polyformer.graph import Graph

__all__ = ["grid_width", "plane", "sample_nodes"]


def sample_nodes(num_nodes: int, count: int, seed: int = 0) -> np.ndarray:
    """All nodes, or ``count`` drawn at random, in order."""
    if num_nodes <= count:
        return np.arange(num_nodes)
    return np.sort(np.random.default_rng(seed).choice(num_nodes, count, replace=False))


def grid_width(graph: Graph) -> int | None:
    """W if the nodes are the cells of a grid of width W, row after row, joined to their four or eight neighbours.

    >>> cell = np.arange(6).reshape(2, 3)
    >>> right, down = (cell[:, :-1], cell[:, 1:]), (cell[:-1], cell[1:])
    >>> edges = np.stack([np.concatenate([pair[end].ravel() for pair in (right, down)]) for end in range(2)])
    >>> grid_width(Graph(edges))
    3
    """
    first = graph.indices[graph.indptr[0] : graph.indptr[1]]
    if len(first) not in (2, 3):
        return None
    width = int(first.max()) - (len(first) == 3)
    if width < 2 or graph.num_nodes % width:
        return None
    height = graph.num_nodes // width
    straight = height * (width - 1) + (height - 1) * width
    diagonal = 2 * (height - 1) * (width - 1) if len(first) == 3 else 0
    if graph.num_edges != straight + diagonal:
        return None
    source = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    down, right = (np.abs(graph.indices // width - source // width), np.abs(graph.indices % width - source % width))
    steps = np.maximum(down, right) if diagonal else down + right
    return width if (steps == 1).all() else None


def plane(rows: np.ndarray) -> np.ndarray:
    """The two principal components of the rows, each cut to its middle 98 % and scaled to [0, 1]: (n, D) -> (n, 2)."""
    centred = rows.reshape(len(rows), -1).astype(np.float64)
    centred -= centred.mean(axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    places = np.zeros((len(rows), 2))
    components = centred @ vectors[:, ::-1][:, :2]
    places[:, : components.shape[1]] = components
    least, most = np.quantile(places, [0.01, 0.99], axis=0)
    span = np.where(most > least, most - least, 1.0)
    return np.clip((places - least) / span, -0.05, 1.05) * 0.9 + 0.05
