"""The operator with gradients against dense formulas and finite differences: products, filters, the optimal basis."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from polyformer.bases import BASES, FixedBasis, resolve_basis
from polyformer.graph import Graph
from polyformer.operators import Operator
from polyformer.propagation.differentiable import DifferentiableOperator
from tests.oracles import dense_features, dense_operator, exact_optimal, exact_tokens

FIXED = [name for name in BASES if BASES[name].fixed]


def small() -> Graph:
    """Seven nodes, one of them isolated."""
    return Graph([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 5, 3]], num_nodes=7)


@pytest.mark.parametrize("self_loops", [False, True])
def test_product_equals_the_dense_operator(graph: Graph, kernel: str, self_loops: bool) -> None:
    operator = DifferentiableOperator(Operator(graph, self_loops))
    x = torch.randn(graph.num_nodes, 21)
    expected = dense_operator(graph, self_loops) @ x.double().numpy()
    assert np.allclose(operator.product(x), expected, atol=1e-5)


@pytest.mark.parametrize("basis", FIXED)
def test_filters_equal_the_exact_spectrum(graph: Graph, basis: str) -> None:
    resolved = resolve_basis(basis)
    assert isinstance(resolved, FixedBasis)
    operator, mixing = DifferentiableOperator(Operator(graph)), torch.from_numpy(resolved.mixing(5))
    x = torch.from_numpy(dense_features(graph))
    tokens = exact_tokens(graph, resolved, 5)
    for coefficients in (torch.randn(6).double(), torch.randn(graph.num_nodes, 6).double()):
        pattern = "k,nkc->nc" if coefficients.dim() == 1 else "nk,nkc->nc"
        expected = np.einsum(pattern, coefficients.numpy(), tokens)
        assert np.allclose(operator.filter(x, coefficients @ mixing), expected, atol=1e-6)


def test_optimal_tokens_equal_lanczos(graph: Graph, kernel: str) -> None:
    operator = DifferentiableOperator(Operator(graph))
    tokens = operator.optimal(torch.from_numpy(dense_features(graph)), 6)
    assert np.allclose(tokens, exact_optimal(graph, 6), atol=1e-6)


@pytest.mark.parametrize("self_loops", [False, True])
def test_gradients_agree_with_finite_differences(self_loops: bool) -> None:
    operator = DifferentiableOperator(Operator(small(), self_loops))
    torch.manual_seed(0)
    x = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    shared, own = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((4,), (7, 4)))
    assert torch.autograd.gradcheck(operator.product, (x,))
    assert torch.autograd.gradcheck(operator.filter, (x, shared))
    assert torch.autograd.gradcheck(operator.filter, (x, own))
    assert torch.autograd.gradcheck(lambda x: operator.optimal(x, 3), (x,))


def test_gradients_of_the_optimal_basis_are_finite_after_its_end() -> None:
    """Three nodes span three dimensions; a zero column spans none."""
    operator = DifferentiableOperator(Operator(Graph([[0, 1], [1, 2]])))
    x = torch.tensor([[1.0, 0.0], [0.2, 0.0], [-0.4, 0.0]], requires_grad=True)
    operator.optimal(x, 6).sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()
    assert not x.grad[:, 1].any()


def test_gradients_of_chosen_nodes_agree_with_finite_differences() -> None:
    operator = DifferentiableOperator(Operator(small()))
    x = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    for nodes in ([5, 0, 3], [2, 6, 2, 2], [1]):
        for order in (0, 1, 3):
            chosen = torch.tensor(nodes)
            tokens = operator.chebyshev(x, order, chosen)
            assert torch.allclose(tokens, operator.chebyshev(x, order)[chosen])
            assert torch.autograd.gradcheck(lambda x, n=chosen, k=order: operator.chebyshev(x, k, n), (x,))


@pytest.mark.parametrize("columns", [8, 100])
def test_threads_do_not_change_a_bit(graph: Graph, columns: int) -> None:
    operator, nodes = DifferentiableOperator(Operator(graph)), torch.randperm(graph.num_nodes)[: graph.num_nodes // 2]
    x, threads, results = torch.randn(graph.num_nodes, columns), torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            leaf = x.clone().requires_grad_()
            tokens = operator.chebyshev(leaf, 4, nodes)
            tokens.backward(torch.ones_like(tokens))
            results.append((tokens.detach(), leaf.grad, operator.product(x)))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, two) for one, two in zip(*results, strict=True))


@pytest.mark.parametrize("name", ["product", "chebyshev", "optimal"])
def test_second_derivatives_are_refused(name: str) -> None:
    operator = DifferentiableOperator(Operator(small()))
    x = torch.randn(7, 3, requires_grad=True)
    loss = {
        "product": lambda: (operator.product(x) ** 2).sum(),
        "chebyshev": lambda: (operator.chebyshev(x, 3) ** 2).sum(),
        "optimal": lambda: operator.optimal(x, 3).sum(),
    }[name]()
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        (gradient**2).sum().backward()
