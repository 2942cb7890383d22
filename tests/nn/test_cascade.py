"""The cascade against its formulas, in double precision and on the fused path."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from polyformer.bases import FixedBasis, resolve_basis
from polyformer.graph import Graph
from polyformer.nn.cascade import Cascade
from polyformer.operators import Operator
from polyformer.propagation.differentiable import DifferentiableOperator
from tests.oracles import dense_operator

GRAPH = Graph(np.random.default_rng(0).integers(0, 30, (2, 60)), num_nodes=30)


def cascade(**changes: Any) -> Cascade:
    torch.manual_seed(0)
    settings = {"order": 2, "num_layers": 2, "heads": 2, **changes}
    model = Cascade(5, 16, 3, **settings).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape)
    return model


def mixing_of(basis: str, order: int) -> np.ndarray:
    resolved = resolve_basis(basis)
    assert isinstance(resolved, FixedBasis)
    return resolved.mixing(order)


@pytest.mark.parametrize("basis", ["monomial", "chebyshev", "bernstein"])
def test_tokens_of_a_hidden_representation_and_their_gradient(basis: str) -> None:
    """g_k(P) H for any H, and the gradient through it, equal those of dense powers of P."""
    resolved = resolve_basis(basis)
    assert isinstance(resolved, FixedBasis)
    lam, vectors = np.linalg.eigh(np.eye(30) - dense_operator(GRAPH, True))
    response = resolved.response(lam, 3)  # (K+1, N)
    exact = torch.from_numpy(np.einsum("in,kn,jn->kij", vectors, response, vectors))
    operator = DifferentiableOperator(Operator(GRAPH, self_loops=True))
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
        hidden = torch.randn(30, 7, dtype=dtype, requires_grad=True)
        tokens = operator.tokens(hidden, mixing_of(basis, 3))
        assert torch.allclose(tokens, torch.einsum("kij,jc->ikc", exact.to(dtype), hidden), atol=tolerance)
        weights = torch.randn(30, 4, 7, dtype=dtype)
        (tokens * weights).sum().backward()
        assert hidden.grad is not None
        assert torch.allclose(hidden.grad, torch.einsum("kij,ikc->jc", exact.to(dtype), weights), atol=10 * tolerance)


@pytest.mark.parametrize("form", ["id", "none"])
@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
@pytest.mark.parametrize("coefficient", ["tanh", "none", "polyattn"])
def test_a_stage_is_its_formula(form: str, norm: str, coefficient: str) -> None:
    """H' = [H +] ReLU(norm(Σ_k (α_k ⊙ T_k) W_k + b)) with the α that the model tells."""
    model = cascade(form=form, norm=norm, coefficient=coefficient, num_layers=1)
    operator = DifferentiableOperator(Operator(GRAPH))
    projected = torch.randn(30, 16)
    with torch.no_grad():
        alpha = model.filter_coefficients(projected, lambda hidden: operator.tokens(hidden, np.eye(3)))  # (N, H, K+1)
        outputs = model(projected, lambda hidden: operator.tokens(hidden, np.eye(3)))
        hidden, stage = projected.relu(), model.stages[0]
        tokens = operator.tokens(hidden, np.eye(3))
        weights = stage.mixing.weight.view(16, 3, 16)  # (C, K+1, C)
        mixed = sum((alpha[:, :, k].repeat_interleave(8, dim=1) * tokens[:, k]) @ weights[:, k].T for k in range(3))
        mixed = mixed if stage.mixing.bias is None else mixed + stage.mixing.bias
        after = stage.norm(mixed).relu() + (hidden if form == "id" else 0)
        assert torch.allclose(outputs, model.output(after), atol=1e-4)


def test_coefficients_start_at_one_and_differ_by_node_once_trained() -> None:
    torch.manual_seed(0)
    tokens = torch.randn(9, 3, 16)
    fresh = Cascade(5, 16, 3, order=2).stages[0].filter_coefficients(tokens)
    assert torch.allclose(fresh, torch.ones_like(fresh))
    trained = cascade().stages[0].filter_coefficients(tokens)
    assert float(trained.detach().std(dim=0).min()) > 1e-3


@pytest.mark.parametrize("change", [{"form": "sum"}, {"norm": "group"}, {"coefficient": "relu"}, {"heads": 5}])
def test_what_there_is_not_is_refused(change: dict[str, Any]) -> None:
    [name] = change
    with pytest.raises(ValueError, match=f"{name}"):
        cascade(**change)
