"""Laws of tokens, over every basis, both kernels and graphs of all shapes."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from polyformer.bases import BASES, FixedBasis, resolve_basis
from polyformer.graph import Graph
from polyformer.propagation.disk import DiskEngine
from polyformer.propagation.engine import ENGINES
from polyformer.tokens import compute_tokens, open_tokens, write_tokens
from tests import recipes
from tests.conftest import GRAPHS
from tests.oracles import dense_operator, exact_optimal, exact_tokens

ALL_BASES = recipes.BASIS.added_to(BASES)
"""The table, and the basis that CONTRIBUTING.md tells a newcomer to add to it."""

ALL_ENGINES = recipes.ENGINE.added_to(ENGINES)
"""The table, and the engine that the page on extending tells a newcomer to add to it."""

FIXED = [name for name in ALL_BASES if ALL_BASES[name].fixed]
SPECS = [*FIXED, "jacobi:a=-0.5,b=2", "jacobi:a=0,b=0"]


@pytest.fixture(autouse=True)
def _with_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    recipes.BASIS.register(BASES, monkeypatch)
    recipes.ENGINE.register(ENGINES, monkeypatch)


def relative_error(tokens: torch.Tensor, exact: np.ndarray) -> float:
    assert not torch.isnan(tokens).any()
    return float(np.abs(tokens.numpy() - exact).max() / np.abs(exact).max())


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("order", [0, 1, 20])
def test_chebyshev_tokens_equal_exact_spectrum(graph: Graph, kernel: str, order: int, self_loops: bool) -> None:
    """The Chebyshev recurrence is the only one that propagates; every other fixed basis mixes its tokens."""
    check_exact_spectrum(graph, "chebyshev", order, self_loops)


@pytest.mark.parametrize("order", [0, 1, 5, 20])
@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec != "chebyshev"])
def test_every_mix_of_them_equals_exact_spectrum(spec: str, order: int) -> None:
    for name in ("weighted", "isolated nodes"):
        check_exact_spectrum(GRAPHS[name](), spec, order, self_loops=name == "weighted")


def check_exact_spectrum(graph: Graph, spec: str, order: int, self_loops: bool) -> None:
    basis = resolve_basis(spec)
    assert isinstance(basis, FixedBasis)
    tokens = compute_tokens(graph, basis, order, self_loops)
    assert tokens.shape == (graph.num_nodes, order + 1, graph.num_features)
    assert tokens.dtype == torch.float32
    assert tokens.is_contiguous()
    assert relative_error(tokens, exact_tokens(graph, basis, order, self_loops)) < 1e-5


@pytest.mark.parametrize("order", [0, 1, 14])
@pytest.mark.parametrize("self_loops", [False, True])
def test_optimal_tokens_are_orthonormal_and_equal_lanczos(
    graph: Graph, kernel: str, order: int, self_loops: bool
) -> None:
    tokens = compute_tokens(graph, "optimal", order, self_loops)
    exact = exact_optimal(graph, order, self_loops)
    alive = (np.abs(exact) > 0).any(axis=0)  # (K+1, d): before the breakdown
    gram = np.einsum("nkd,njd->dkj", tokens.double().numpy(), tokens.double().numpy())
    expected = np.einsum("kd,kj->dkj", alive.astype(float), np.eye(order + 1))
    assert np.abs(gram - expected).max() < 1e-4
    assert not tokens.numpy()[:, ~alive].any()
    assert relative_error(tokens, exact) < 1e-4


@pytest.mark.parametrize("kind", ["zero", "constant on a regular graph", "eigenvector", "more orders than nodes"])
def test_optimal_breakdown_gives_zero_tokens(kernel: str, kind: str) -> None:
    here = np.arange(10)
    ring = Graph(np.stack([here, (here + 1) % 10]), np.ones((10, 1)))
    if kind == "zero":
        graph, alive = ring.with_features(np.zeros((10, 1))), 0
    elif kind == "constant on a regular graph":
        graph, alive = ring, 1
    elif kind == "eigenvector":
        star = Graph([[0, 0, 0, 0], [1, 2, 3, 4]], np.ones((5, 1)))
        values, vectors = np.linalg.eigh(dense_operator(star, False))
        graph, alive = star.with_features(vectors[:, [int(np.argmax(values))]]), 1
    else:
        graph, alive = Graph([[0, 1], [1, 2]], [[1.0], [0.2], [-0.4]]), 3
    tokens = compute_tokens(graph, "optimal", order=6).numpy()
    norms = np.linalg.norm(tokens[:, :, 0], axis=0)
    assert np.allclose(norms[:alive], 1, atol=1e-5)
    assert not norms[alive:].any()


@pytest.mark.parametrize("spec", [*SPECS, "optimal"])
def test_optimal_and_fixed_responses_give_the_tokens(spec: str) -> None:
    """The recorded recurrence serves as a response like a formula: g_k(L̂) x gives the tokens."""
    from polyformer.tokens import compute_tokens_and_recurrence

    graph = Graph(np.random.default_rng(0).integers(0, 40, (2, 100)), np.random.default_rng(1).random((40, 3)))
    tokens, recurrence = compute_tokens_and_recurrence(graph, spec, order=6)
    eigenvalues, vectors = np.linalg.eigh(np.eye(40) - dense_operator(graph, False))
    basis = resolve_basis(spec)
    for channel in range(3):
        response = basis.response(eigenvalues, 6) if isinstance(basis, FixedBasis) else None
        if recurrence is not None:
            response = recurrence.response(eigenvalues, channel)
        assert response is not None
        spectrum = vectors.T @ np.asarray(graph.features)[:, channel]
        assert np.allclose((vectors @ (response * spectrum).T), tokens[:, :, channel], atol=1e-4)


@pytest.mark.parametrize("basis", ALL_BASES)
def test_native_and_scipy_agree(graph: Graph, basis: str, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for name in ("native", "scipy"):
        monkeypatch.setenv("POLYFORMER_KERNEL", name)
        results.append(compute_tokens(graph, basis, 8))
    assert torch.allclose(*results, atol=2e-5 * float(results[0].abs().max()))


@pytest.mark.parametrize("basis", ALL_BASES)
def test_results_do_not_depend_on_the_number_of_threads(basis: str) -> None:
    random = np.random.default_rng(3)
    graph = Graph(random.integers(0, 3000, (2, 9000)), random.standard_normal((3000, 20)))
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append(compute_tokens(graph, basis, 6))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("basis", ALL_BASES)
def test_chosen_nodes_are_rows_of_all(graph: Graph, kernel: str, basis: str) -> None:
    everything = compute_tokens(graph, basis, 4)
    nodes = np.random.default_rng(0).permutation(graph.num_nodes)[:4]
    assert torch.allclose(compute_tokens(graph, basis, 4, nodes=nodes), everything[nodes], atol=1e-6)
    mask = np.zeros(graph.num_nodes, bool)
    mask[nodes] = True
    assert torch.allclose(compute_tokens(graph, basis, 4, nodes=mask), everything[np.sort(nodes)], atol=1e-6)


@pytest.mark.parametrize("basis", ALL_BASES)
def test_permuting_nodes_permutes_tokens(graph: Graph, basis: str) -> None:
    order = np.random.default_rng(1).permutation(graph.num_nodes)
    adjacency = graph.adjacency()[order][:, order]
    permuted = Graph(adjacency, np.asarray(graph.features)[order], graph.num_nodes)
    tokens = compute_tokens(graph, basis, 5)
    assert torch.allclose(compute_tokens(permuted, basis, 5), tokens[order], atol=2e-5 * float(tokens.abs().max()))


@pytest.mark.parametrize("basis", ALL_BASES)
def test_sparse_features_give_the_same_tokens(graph: Graph, kernel: str, basis: str) -> None:
    dense = np.where(np.random.default_rng(2).random((graph.num_nodes, 70)) < 0.2, 1.5, 0.0)
    from_dense = compute_tokens(graph.with_features(dense), basis, 4)
    from_sparse = compute_tokens(graph.with_features(sp.csr_matrix(dense)), basis, 4)
    assert torch.equal(from_dense, from_sparse)


@pytest.mark.parametrize("basis", ALL_BASES)
def test_stored_tokens_equal_computed_ones(graph: Graph, basis: str, tmp_path) -> None:
    write_tokens(graph, tmp_path / "tokens", basis, 7)
    stored = open_tokens(tmp_path / "tokens")
    assert stored.shape == (graph.num_nodes, 8, graph.num_features)
    assert stored.basis.name == basis
    assert torch.allclose(stored[:], compute_tokens(graph, basis, 7), atol=1e-5)
    rows = np.arange(graph.num_nodes)[::-2].copy()
    assert torch.equal(stored[rows], stored[:][rows])


@pytest.mark.parametrize(
    "engine", [pytest.param(name, marks=[pytest.mark.ray] * (name == "ray")) for name in ALL_ENGINES]
)
@pytest.mark.parametrize("basis", ["chebyshev", "optimal"])
def test_engines_agree(graph: Graph, basis: str, engine: str, tmp_path, request) -> None:
    """Memory-mapped files give the same tokens: all nodes or some in any order, with and without self-loops."""
    if engine == "ray":
        request.getfixturevalue("ray_cluster")
    graph.save(tmp_path / "graph")
    mapped = Graph.load(tmp_path / "graph")
    nodes = np.random.default_rng(0).permutation(graph.num_nodes)[:4]
    for name, chosen, self_loops in (("all", None, False), ("some", nodes, True)):
        write_tokens(mapped, tmp_path / name, basis, 5, self_loops, chosen, engine)
        exact = compute_tokens(graph, basis, 5, self_loops)
        expected = exact if chosen is None else exact[chosen]
        assert torch.allclose(open_tokens(tmp_path / name)[:], expected, atol=2e-6 * float(exact.abs().max()))


@pytest.mark.parametrize("basis", ["chebyshev", "optimal"])
@pytest.mark.parametrize("sparse", [False, True])
def test_disk_engine_does_not_depend_on_memory(basis: str, sparse: bool, tmp_path) -> None:
    random = np.random.default_rng(5)
    dense = random.standard_normal((3000, 70)).astype(np.float32) * (random.random((3000, 70)) < 0.1)
    Graph(random.integers(0, 3000, (2, 9000)), sp.csr_matrix(dense) if sparse else dense).save(tmp_path / "graph")
    graph = Graph.load(tmp_path / "graph")
    files = []
    for memory in (8 << 20, 9 << 20, 64 << 20, None):
        write_tokens(graph, tmp_path / str(memory), basis, 4, engine=DiskEngine(memory))
        files.append((tmp_path / str(memory) / "tokens.npy").read_bytes())
    assert files[0] == files[1] == files[2] == files[3]


@pytest.mark.parametrize("basis", FIXED)
def test_stored_tokens_serve_every_fixed_basis_and_lower_order(graph: Graph, basis: str, tmp_path) -> None:
    write_tokens(graph, tmp_path / "tokens", "monomial", 7)
    view = open_tokens(tmp_path / "tokens", basis=basis, order=4)
    exact = exact_tokens(graph, resolve_basis(basis), 4)  # type: ignore[arg-type]
    assert relative_error(view[:], exact) < 1e-5
