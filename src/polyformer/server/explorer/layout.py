r"""Places of all nodes of a graph in the plane, in seconds for 100,000 nodes: neighbours are close, crowds spread out.

A node of degree :math:`d_i` has the mass :math:`m_i = d_i + 1`. The layout is near a minimum of

.. math:: \tfrac12 \sum_{i<j} A_{ij} \|x_i - x_j\|^2 + \tfrac g2 \sum_i m_i \|x_i\|^2
          - \sum_{i<j} \frac{m_i m_j}{\sum_k m_k} \log \|x_i - x_j\|:

neighbours pull, all nodes push each other away, and a weak pull to the middle keeps separate parts on the map. Nodes
are merged in pairs again and again until a few are left; these are laid out first, then every pair is taken apart where
it stands and moves on. The push of all nodes on all nodes is a convolution of their density on a grid, so that a step
takes :math:`O(|E| + N + G^2 \log G)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.fft
import scipy.sparse as sp

from polyformer.graph import Graph
from polyformer.propagation.kernel import SparseBlock
from polyformer.reports.node_map import grid_width

__all__ = ["lay_out"]

_LARGEST_GRID = 256
_GRAVITY = 0.1
"""g: how strongly nodes are pulled to the middle."""
_FEWEST = 50
"""Nodes that are not merged any more."""
_STEPS = 24
"""Steps with each number of nodes."""


def lay_out(graph: Graph, seed: int = 0, share: Callable[[float], None] = lambda done: None) -> np.ndarray:
    """Places of all nodes: (N, 2) float32 in [0, 1]; the same for the same graph and seed.

    The cells of a grid stand where they are, row after row.

    Args:
        share: hears which share of the work is done.

    >>> ring = Graph([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])
    >>> places = lay_out(ring)
    >>> places.shape, bool((places >= 0).all() and (places <= 1).all())
    ((6, 2), True)
    """
    width = grid_width(graph) if graph.num_edges else None
    if width is not None:
        cells = np.arange(graph.num_nodes)
        height = graph.num_nodes // width
        return np.stack([(cells % width + 0.5) / width, (cells // width + 0.5) / height], axis=1).astype(np.float32)
    random = np.random.default_rng(seed)
    levels = _levels(graph, random)
    share(0.3)
    places = random.standard_normal((len(levels[-1].mass), 2)).astype(np.float32)
    total = sum(len(level.mass) for level in levels)
    done = 0
    for level in reversed(levels):
        places = _relax(level, places)
        done += len(level.mass)
        share(0.3 + 0.7 * done / total)
        if level.finer is not None:
            spacing = 0.3 * float(places.std()) / np.sqrt(len(places))
            places = places[level.finer] + random.normal(0, spacing, (len(level.finer), 2)).astype(np.float32)
    return _inside(places)


@dataclass(frozen=True, eq=False)
class _Level:
    """A graph in which nodes have been merged.

    Attributes:
        adjacency: (n, n) float32, without a diagonal.
        mass: (n,) float32, the sum over the nodes that were merged.
        finer: the node of this level into which each node of the finer level was merged; None for the finest.
    """

    adjacency: Any
    mass: np.ndarray
    finer: np.ndarray | None = None


def _levels(graph: Graph, random: np.random.Generator) -> list[_Level]:
    """The graph, then ever smaller ones."""
    levels = [_Level(graph.adjacency(), (graph.degrees + 1).astype(np.float32))]
    while len(levels[-1].mass) > _FEWEST:
        last = levels[-1]
        pairs = _pairs(last, random)
        count = int(pairs.max()) + 1
        merge = sp.csr_matrix((np.ones(len(pairs), np.float32), pairs, np.arange(len(pairs) + 1)), (len(pairs), count))
        adjacency = (merge.T @ last.adjacency @ merge).tocsr()
        adjacency.setdiag(0)
        adjacency.eliminate_zeros()
        mass = np.bincount(pairs, last.mass, count).astype(np.float32)
        levels.append(_Level(adjacency, mass, pairs))
    return levels


def _pairs(level: _Level, random: np.random.Generator) -> np.ndarray:
    """The pair of each node: its favourite neighbour, or a node that has the same favourite; else it is alone."""
    matrix, count = level.adjacency, len(level.mass)
    rows = np.repeat(np.arange(count), np.diff(matrix.indptr))
    liking = matrix.data / level.mass[matrix.indices] * random.uniform(0.9, 1.1, len(rows)).astype(np.float32)
    favourite, here = np.full(count, -1), np.arange(count)
    joined = np.diff(matrix.indptr) > 0
    most = np.maximum.reduceat(liking, matrix.indptr[:-1][joined]) if joined.any() else liking
    is_most = liking == np.repeat(most, np.diff(matrix.indptr)[joined])
    favourite[rows[is_most]] = matrix.indices[is_most]
    partner = np.where((favourite >= 0) & (favourite[favourite] == here), favourite, -1)
    # Leaves of one hub cannot all be merged with it, so they are merged with each other; nodes without edges too.
    alone = np.flatnonzero(partner < 0)
    alone = alone[np.argsort(favourite[alone], kind="stable")]
    groups = favourite[alone]
    begins = np.searchsorted(groups, groups)  # where the group of each begins
    first = np.flatnonzero(((np.arange(len(alone)) - begins)[:-1] % 2 == 0) & (groups[:-1] == groups[1:]))
    partner[alone[first]], partner[alone[first + 1]] = alone[first + 1], alone[first]
    partner = np.where(partner < 0, here, partner)
    return np.unique(np.minimum(here, partner), return_inverse=True)[1]


def _relax(level: _Level, places: np.ndarray) -> np.ndarray:
    """Move every node half of the way to where its neighbours, the crowd and the middle would have it."""
    degrees = np.asarray(level.adjacency.sum(axis=1)).ravel()
    stiffness = (degrees + _GRAVITY * level.mass)[:, None].astype(np.float32)
    weight = (level.mass / level.mass.sum())[:, None]
    block = SparseBlock.of_matrix(level.adjacency)
    for _ in range(_STEPS):
        goal = (block.wide_product(places) + weight * crowd_push(places, level.mass)) / stiffness
        places = places + np.float32(0.5) * (goal - places)
    return places


@lru_cache(maxsize=8)
def _kernels(cells: int) -> tuple[np.ndarray, np.ndarray]:
    """Transforms of x / r² and y / r² on a doubled grid, softened within a cell."""
    offsets = np.fft.fftfreq(2 * cells, 1 / (2 * cells)).astype(np.float32)
    down, right = np.meshgrid(offsets, offsets, indexing="ij")
    square = down**2 + right**2 + np.float32(0.5)
    return scipy.fft.rfft2(right / square), scipy.fft.rfft2(down / square)


def crowd_push(places: np.ndarray, mass: np.ndarray) -> np.ndarray:
    r"""The push on every node, smoothed within a cell of a grid: (N, 2), (N,) -> (N, 2).

    It is near :math:`\sum_j m_j (x_i - x_j) / \|x_i - x_j\|^2`.
    """
    cells = min(max(32, 1 << int(np.sqrt(len(places))).bit_length()), _LARGEST_GRID)
    least, most = places.min(axis=0), places.max(axis=0)
    cell = np.float32(max(float((most - least).max()), 1e-9) / (cells - 2))
    on_grid = (places - least) / cell + np.float32(0.5)
    corner = on_grid.astype(np.int32)
    part = on_grid - corner
    index = corner[:, 1] * cells + corner[:, 0]
    corners = (
        (index, (1 - part[:, 0]) * (1 - part[:, 1])),
        (index + 1, part[:, 0] * (1 - part[:, 1])),
        (index + cells, (1 - part[:, 0]) * part[:, 1]),
        (index + cells + 1, part[:, 0] * part[:, 1]),
    )
    density = np.zeros(cells * cells)
    for place, share in corners:
        density += np.bincount(place, mass * share, cells * cells)
    transform = scipy.fft.rfft2(density.astype(np.float32).reshape(cells, cells), s=(2 * cells, 2 * cells))
    push = np.empty_like(places)
    for axis, kernel in enumerate(_kernels(cells)):
        field = scipy.fft.irfft2(transform * kernel, s=(2 * cells, 2 * cells))[:cells, :cells].ravel()
        push[:, axis] = sum(field[place] * share for place, share in corners)
    return push / cell


def _inside(places: np.ndarray) -> np.ndarray:
    """The places scaled to [0, 1]."""
    least, most = places.min(axis=0), places.max(axis=0)
    span = max(float((most - least).max()), 1e-9)
    middle = (least + most) / 2
    return (0.5 + 0.96 * (places - middle) / span).astype(np.float32)
