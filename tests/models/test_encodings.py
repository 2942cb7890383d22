"""Precomputed encodings: right, repeatable, computed once, safe against damage."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from polyformer.errors import InvalidParameter, OutOfResources
from polyformer.graph import Graph
from polyformer.models.contract import Workload
from polyformer.models.parts import encodings
from polyformer.models.parts.encodings import eigenpairs, laplacian_encoding, return_probabilities
from polyformer.models.parts.node2vec import node2vec_encoding, random_walks
from polyformer.models.parts.precomputed import Effort, precomputed
from tests.listener import Listener
from tests.oracles import dense_operator

ROOM = Workload(None, 1, memory=1 << 60)
QUICK = Effort("Numbers", 0.0, 0.0, "", ROOM)


def laplacian(graph: Graph) -> np.ndarray:
    return np.eye(graph.num_nodes) - dense_operator(graph, False)


def test_all_eigenpairs(graph: Graph) -> None:
    values, vectors = eigenpairs(graph, None, ROOM)
    assert np.all(np.diff(values) >= -1e-6)
    assert np.allclose(vectors @ np.diag(values) @ vectors.T, laplacian(graph), atol=1e-4)


@pytest.mark.parametrize("dense_nodes", [500, 10])
def test_eigenpairs_of_both_ends(dense_nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encodings, "_DENSE_NODES", dense_nodes)
    graph = Graph(np.random.default_rng(0).integers(0, 60, (2, 200)), num_nodes=60)
    values, vectors = eigenpairs(graph, 7, ROOM)
    exact = np.linalg.eigvalsh(laplacian(graph))
    assert np.allclose(values, np.concatenate([exact[:4], exact[-3:]]), atol=1e-4)
    assert np.allclose(laplacian(graph) @ vectors, vectors * values, atol=1e-3)


def test_what_was_computed_needs_less_memory(graph: Graph) -> None:
    """LAPACK needs memory for three matrices; reading a stored result needs one."""
    scarce = Workload(None, 1, memory=6 * graph.num_nodes**2)
    with pytest.raises(OutOfResources, match="All eigenvectors of"):
        eigenpairs(graph, None, scarce)
    first = eigenpairs(graph, None, ROOM)
    assert all(np.array_equal(a, b) for a, b in zip(eigenpairs(graph, None, scarce), first, strict=True))


def test_eigenvectors_that_do_not_converge(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **options: object) -> None:
        raise encodings.ArpackNoConvergence("no", np.empty(0), np.empty((0, 0)))

    monkeypatch.setattr(encodings, "_DENSE_NODES", 1)
    monkeypatch.setattr(encodings, "eigsh", fail)
    with pytest.raises(InvalidParameter, match="did not converge on this graph"):
        laplacian_encoding(Graph([[0, 1], [1, 2]], num_nodes=40), 3, ROOM)


def test_laplacian_encoding(graph: Graph) -> None:
    encoding = laplacian_encoding(graph, 4, ROOM)
    assert encoding.shape == (graph.num_nodes, 4)
    assert encoding.dtype == np.float32
    values = np.linalg.eigvalsh(laplacian(graph))[1:5]
    assert np.allclose((laplacian(graph) @ encoding), encoding * values, atol=1e-3)
    assert (encoding.max(axis=0) >= -encoding.min(axis=0) - 1e-6).all()
    assert laplacian_encoding(graph, 0, ROOM).shape == (graph.num_nodes, 0)


def test_laplacian_encoding_wider_than_the_graph() -> None:
    encoding = laplacian_encoding(Graph([[0], [1]]), 4, ROOM)
    assert encoding[:, 0].any()
    assert not encoding[:, 1:].any()


@pytest.mark.parametrize("steps", [2, 3, 8])
def test_return_probabilities(graph: Graph, kernel: str, steps: int) -> None:
    adjacency = graph.adjacency(np.float64).toarray()
    degrees = adjacency.sum(axis=1, keepdims=True)
    walk = np.divide(adjacency, degrees, out=np.zeros_like(adjacency), where=degrees > 0)
    exact = np.stack([np.diag(np.linalg.matrix_power(walk, s)) for s in range(2, steps + 1)], axis=1)
    told: list[float] = []
    assert np.allclose(return_probabilities(graph, steps, ROOM, Listener(on_share=told.append)), exact, atol=1e-5)
    assert told[-1] == 1.0


def test_computed_once_and_again_after_damage(tmp_path: Path) -> None:
    graph, calls = Graph([[0, 1], [1, 2]]), []

    def compute() -> dict[str, np.ndarray]:
        calls.append(1)
        return {"x": np.arange(5)}

    def ask(**parameters: int) -> np.ndarray:
        return precomputed("kind", graph, parameters, compute, QUICK)["x"]

    for expected in (1, 1):
        assert np.array_equal(ask(a=1), np.arange(5))
        assert len(calls) == expected
    ask(a=2)
    precomputed("other", graph, {"a": 1}, compute, QUICK)
    precomputed("kind", Graph([[0], [1]]), {"a": 1}, compute, QUICK)
    assert len(calls) == 4
    folder = tmp_path / "cache" / "polyformer" / "precomputed"
    assert len(list(folder.iterdir())) == 4
    for file in folder.iterdir():
        os.truncate(file, 40)
    assert np.array_equal(ask(a=1), np.arange(5))
    assert len(calls) == 5


def test_features_do_not_matter(tmp_path: Path) -> None:
    graph = Graph([[0, 1], [1, 2]], np.ones((3, 1)))
    laplacian_encoding(graph, 2, ROOM)
    laplacian_encoding(graph.with_features(np.zeros((3, 1))), 2, ROOM)
    assert len(list((tmp_path / "cache" / "polyformer" / "precomputed").iterdir())) == 1


def test_walks_follow_edges() -> None:
    graph = Graph([[0, 1, 2, 0], [1, 2, 3, 3]], num_nodes=5)
    walks = random_walks(graph, np.arange(5), 6, np.random.default_rng(0))
    adjacency = graph.adjacency().toarray()
    adjacency[4, 4] = 1  # a node without neighbours stays
    assert (adjacency[walks[:, :-1], walks[:, 1:]] == 1).all()


def test_node2vec_puts_neighbours_together(tmp_path: Path) -> None:
    """Two cliques joined by one edge; and the same seed gives the same vectors."""
    pairs = [(u, v) for part in (range(8), range(8, 16)) for u in part for v in part if u < v]
    graph = Graph(np.array([*pairs, (0, 8)]).T)
    vectors = node2vec_encoding(graph, 8, ROOM)
    assert vectors.shape == (16, 8)
    for file in (tmp_path / "cache" / "polyformer" / "precomputed").iterdir():
        file.unlink()
    assert np.array_equal(node2vec_encoding(graph, 8, ROOM), vectors)
    assert not np.array_equal(node2vec_encoding(graph, 8, ROOM, seed=1), vectors)
    similarity = vectors @ vectors.T
    inside = similarity[:8, :8][~np.eye(8, dtype=bool)].mean()
    assert inside > similarity[:8, 8:].mean()


def test_what_takes_long_is_told_and_what_takes_hours_refused() -> None:
    sizes = {"eigenvectors": 40_000, "walks": 500_000}
    ring = {name: Graph(np.stack([np.arange(n), np.roll(np.arange(n), 1)])) for name, n in sizes.items()}
    with pytest.raises(
        OutOfResources, match=r"All eigenvectors of 40,000 nodes would take about 2\.2 h to compute.*Set"
    ):
        eigenpairs(ring["eigenvectors"], None, ROOM)
    with pytest.raises(
        OutOfResources, match=r"9,000 eigenvectors of 40,000 nodes .* h to compute.*Lower num_eigenpairs"
    ):
        eigenpairs(ring["eigenvectors"], 9_000, ROOM)
    with pytest.raises(
        OutOfResources, match=r"Return probabilities of 500,000 nodes .* h to compute.*Lower walk_steps"
    ):
        return_probabilities(ring["walks"], 32, ROOM)
    with pytest.raises(OutOfResources, match=r"node2vec vectors of 10,000,000 nodes .* h to compute.*Set positional"):
        node2vec_encoding(Graph(np.empty((2, 0), np.int64), num_nodes=10_000_000), 16, ROOM)
    with pytest.raises(OutOfResources, match=r"16 eigenvectors of 40,000 nodes would take .* of memory.*Lower pos"):
        laplacian_encoding(ring["eigenvectors"], 16, Workload(None, 1, memory=1 << 20))
    said: list[str] = []
    listener = Listener(on_say=said.append)

    def compute() -> dict[str, np.ndarray]:
        return {"x": np.ones(1)}

    for _ in range(2):  # the second time from disk
        precomputed("long", ring["eigenvectors"], {}, compute, Effort("Vectors", 600.0, 1.0, "", ROOM), listener)
    precomputed("short", ring["eigenvectors"], {}, compute, Effort("Vectors", 1.0, 1.0, "", ROOM), listener)
    assert said == ["Vectors: computed once for this graph, in about 10 min"]
