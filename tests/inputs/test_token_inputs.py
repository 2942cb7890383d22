"""Stored tokens and projected features are the same function of the input layer, values and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from polyformer.bases import BASES, FixedBasis, resolve_basis
from polyformer.graph import Graph
from polyformer.inputs.token_inputs import ProjectedInput, StoredInput, choose_route
from polyformer.operators import Operator
from polyformer.tokens import compute_tokens
from tests.conftest import GRAPHS

FIXED = [name for name in BASES if BASES[name].fixed]


def sparse_features(num_nodes: int, width: int) -> sp.csr_matrix:
    return sp.csr_matrix(sp.random(num_nodes, width, 0.2, random_state=np.random.default_rng(0), dtype=np.float32))


@pytest.mark.parametrize("sparse", [True, False])
def test_routes_agree(graph: Graph, kernel: str, sparse: bool) -> None:
    check_routes(graph, "chebyshev", self_loops=False, sparse=sparse)


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("basis", FIXED)
def test_routes_agree_in_every_basis(basis: str, self_loops: bool) -> None:
    check_routes(GRAPHS["weighted"](), basis, self_loops, sparse=True)


def check_routes(graph: Graph, basis: str, self_loops: bool, sparse: bool) -> None:
    """The same values and gradients from stored tokens and from projected features."""
    features = sparse_features(graph.num_nodes, 30)
    graph = graph.with_features(features if sparse else features.toarray())
    resolved = resolve_basis(basis)
    assert isinstance(resolved, FixedBasis)
    stored = StoredInput(compute_tokens(graph, basis, 6, self_loops))
    projected = ProjectedInput(Operator(graph, self_loops), graph.features, resolved, 6)
    nodes = torch.from_numpy(np.random.default_rng(1).permutation(graph.num_nodes)[: max(1, graph.num_nodes // 2)])
    weights = torch.randn(len(nodes), 7, 20)
    results = []
    for route in (stored, projected):
        torch.manual_seed(0)
        linear = torch.nn.Linear(30, 20)
        embedded = route.embed(nodes, linear)
        (embedded * weights).sum().backward()
        results.append((embedded.detach(), linear.weight.grad, linear.bias.grad))
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, atol=2e-5 * float(one.abs().max()) + 1e-6)


@pytest.mark.parametrize("basis", FIXED)
@pytest.mark.parametrize("repeated", [False, True])
def test_projected_gradient_agrees_with_finite_differences(basis: str, repeated: bool) -> None:
    """In double precision, also where a batch names a node twice."""
    graph = Graph([[0, 1, 2, 3], [1, 2, 3, 0]], sparse_features(6, 5), num_nodes=6)  # two isolated nodes
    resolved = resolve_basis(basis)
    assert isinstance(resolved, FixedBasis)
    route = ProjectedInput(Operator(graph), graph.features, resolved, 4)
    linear = torch.nn.Linear(5, 3).double()
    nodes = torch.tensor([4, 1, 1, 0]) if repeated else torch.tensor([4, 1, 0])

    def run(weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        layer = torch.nn.Linear(5, 3).double()
        del layer.weight, layer.bias
        layer.weight, layer.bias = weight, bias
        return route.embed(nodes, layer)

    values = (linear.weight.detach().requires_grad_(), linear.bias.detach().requires_grad_())
    assert torch.autograd.gradcheck(run, values, atol=1e-6)


def test_stored_rows_of_some_nodes_only(graph: Graph) -> None:
    nodes = np.arange(graph.num_nodes)[::2].copy()
    part = StoredInput(compute_tokens(graph, "chebyshev", 3, nodes=nodes), nodes)
    whole = StoredInput(compute_tokens(graph, "chebyshev", 3))
    linear = torch.nn.Linear(graph.num_features, 4)
    wanted = torch.from_numpy(nodes[::-1].copy())
    assert torch.allclose(part.embed(wanted, linear), whole.embed(wanted, linear), atol=1e-6)


def test_wide_sparse_features_in_full_batches_are_projected_and_narrow_ones_stored() -> None:
    random = np.random.default_rng(0)
    edges = random.integers(0, 2000, (2, 6000))
    wide = Graph(edges, sparse_features(2000, 3000), 2000)
    narrow = Graph(edges, random.standard_normal((2000, 8)), 2000)
    arguments = {"order": 6, "hidden_channels": 64, "rows_per_epoch": 1500, "epochs": 100, "memory_bytes": 1 << 34}
    assert choose_route(Operator(wide), wide.features, passes_per_epoch=2, **arguments)[0] == "projected"
    assert choose_route(Operator(narrow), narrow.features, passes_per_epoch=30, **arguments)[0] == "stored"


@pytest.mark.parametrize(
    ("memory", "passes", "on_disk", "route"),
    [
        (1 << 34, 10_000, False, "stored"),  # both fit, and a propagation for each of so many passes costs more
        (1 << 23, 10_000, False, "projected"),  # stored tokens do not fit
        (1 << 23, 10_000, True, "stored"),  # but on disk
        (1 << 23, 2, True, "projected"),
        (1 << 20, 2, True, "stored"),  # the projection does not fit
        (1 << 20, 2, False, "stored"),  # nor does anything else: the tokens are then refused with their estimate
    ],
)
def test_a_route_must_fit(memory: int, passes: int, on_disk: bool, route: str) -> None:
    graph = Graph(np.random.default_rng(0).integers(0, 2000, (2, 6000)), sparse_features(2000, 3000), 2000)
    sizes = {"order": 6, "hidden_channels": 64, "rows_per_epoch": 1500, "epochs": 100}
    arguments = {"passes_per_epoch": passes, "memory_bytes": memory, "on_disk": on_disk}
    assert choose_route(Operator(graph), graph.features, **sizes, **arguments)[0] == route
