"""The map of all nodes: the same for the same seed, inside its square, neighbours close, no two parts of it equal."""

from __future__ import annotations

import numpy as np
import pytest

from polyformer.graph import Graph
from polyformer.server.explorer.layout import crowd_push, lay_out


def _communities(groups: int = 6, size: int = 80, seed: int = 0) -> tuple[Graph, np.ndarray]:
    random = np.random.default_rng(seed)
    member = np.repeat(np.arange(groups), size)
    inside = random.integers(0, size, (2, groups * size * 4)) + np.repeat(np.arange(groups), size * 4) * size
    across = random.integers(0, groups * size, (2, groups * size // 8))
    return Graph(np.concatenate([inside, across], axis=1), num_nodes=groups * size), member


def test_places_lie_in_the_square_and_repeat(graph: Graph) -> None:
    places = lay_out(graph, seed=3)
    assert places.shape == (graph.num_nodes, 2)
    assert places.dtype == np.float32
    assert (places >= 0).all()
    assert (places <= 1).all()
    assert np.array_equal(places, lay_out(graph, seed=3))
    assert len(np.unique(places, axis=0)) == graph.num_nodes


def test_neighbours_and_communities_stand_together() -> None:
    graph, member = _communities()
    places = lay_out(graph)
    source = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    joined = np.linalg.norm(places[source] - places[graph.indices], axis=1).mean()
    random = np.random.default_rng(1).permutation(graph.num_nodes)
    anyone = np.linalg.norm(places - places[random], axis=1).mean()
    assert joined < 0.5 * anyone
    centres = np.stack([places[member == group].mean(axis=0) for group in range(6)])
    nearest = np.linalg.norm(places[:, None] - centres, axis=2).argmin(axis=1)
    assert (nearest == member).mean() > 0.9


def test_cells_of_a_grid_stand_where_they_are() -> None:
    cell = np.arange(12).reshape(3, 4)
    pairs = [(cell[:, :-1], cell[:, 1:]), (cell[:-1], cell[1:])]
    edges = np.stack([np.concatenate([pair[end].ravel() for pair in pairs]) for end in range(2)])
    places = lay_out(Graph(edges))
    assert np.allclose(places[0], [1 / 8, 1 / 6])
    assert np.allclose(places[11], [7 / 8, 5 / 6])


def test_the_push_of_the_crowd_is_the_sum_over_all_pairs() -> None:
    random = np.random.default_rng(0)
    places, mass = random.uniform(0, 1, (400, 2)).astype(np.float32), random.uniform(1, 5, 400).astype(np.float32)
    apart = places[:, None] - places
    square = (apart**2).sum(axis=2)
    np.fill_diagonal(square, 1.0)
    exact = (mass[None, :, None] * apart / square[:, :, None]).sum(axis=1)
    error = np.linalg.norm(crowd_push(places, mass) - exact, axis=1) / np.linalg.norm(exact, axis=1)
    assert np.median(error) < 0.15  # within a cell the push is smoothed


@pytest.mark.parametrize("count", [1, 2])
def test_hardly_any_nodes(count: int) -> None:
    places = lay_out(Graph(np.empty((2, 0), np.int64), num_nodes=count))
    assert places.shape == (count, 2)
    assert np.isfinite(places).all()


def test_progress_rises_to_one() -> None:
    shares: list[float] = []
    lay_out(_communities()[0], share=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)
