"""Every polynomial model equals its formula in dense matrices on a small graph."""

from __future__ import annotations

from math import comb
from typing import Any

import numpy as np
import pytest
import torch

from polyformer.graph import Graph
from polyformer.models import MODELS, Workload
from polyformer.settings import build_settings
from tests.oracles import dense_operator, exact_optimal

ORDER = 5
RANDOM = np.random.default_rng(0)
GRAPH = Graph(RANDOM.integers(0, 27, (2, 60)), RANDOM.standard_normal((30, 8)), 30)
LAM = np.linspace(0, 2, 9)


def build(name: str, **settings: Any) -> Any:
    """A model in evaluation mode whose filter differs from its initial filter."""
    torch.manual_seed(0)
    kind = MODELS[name]
    model: Any = kind(8, 3, build_settings(kind.settings_type, {"order": ORDER, "hidden_channels": 8, **settings}))
    with torch.no_grad():
        weights = model.coefficients if name == "unifilter" else model.filter_weights
        weights.add_(0.3 * torch.randn_like(weights))
    model.bind(GRAPH, Workload(None, 30))
    return model.eval()


def outputs(model: Any) -> np.ndarray:
    with torch.no_grad():
        return model(torch.arange(30)).double().numpy()


def signal(model: Any) -> np.ndarray:
    with torch.no_grad():
        return model.network(torch.from_numpy(np.asarray(GRAPH.features))).double().numpy()


def spectrum(self_loops: bool) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = np.linalg.eigh(np.eye(30) - dense_operator(GRAPH, self_loops))
    return values, vectors


def powers(matrix: np.ndarray) -> list[np.ndarray]:
    return [np.linalg.matrix_power(matrix, k) for k in range(ORDER + 1)]


def bernstein_terms() -> list[np.ndarray]:
    laplacian = np.eye(30) - dense_operator(GRAPH, False)
    low, high = powers(2 * np.eye(30) - laplacian), powers(laplacian)
    return [comb(ORDER, k) / 2**ORDER * low[ORDER - k] @ high[k] for k in range(ORDER + 1)]


def chebyshev_terms(matrix: np.ndarray) -> list[np.ndarray]:
    terms = [np.eye(len(matrix)), matrix]
    for _ in range(2, ORDER + 1):
        terms.append(2 * matrix @ terms[-1] - terms[-2])
    return terms


def test_gprgnn() -> None:
    model = build("gprgnn", restart=0.2)
    gamma = model.filter_weights.detach().double().numpy()
    expected = sum(g * p for g, p in zip(gamma, powers(dense_operator(GRAPH, True)), strict=True)) @ signal(model)
    assert np.allclose(outputs(model), expected, atol=1e-5)


def test_bernnet() -> None:
    model = build("bernnet")
    theta = model.filter_weights.detach().double().numpy().clip(0)
    expected = sum(t * term for t, term in zip(theta, bernstein_terms(), strict=True)) @ signal(model)
    assert np.allclose(outputs(model), expected, atol=1e-5)


def test_chebnetii() -> None:
    model = build("chebnetii")
    gamma = model.filter_weights.detach().double().numpy().clip(0)
    j = np.arange(ORDER + 1)
    points = np.cos((ORDER - j + 0.5) * np.pi / (ORDER + 1))
    c = [2 / (ORDER + 1) * (gamma * np.cos(i * np.arccos(points))).sum() for i in j]
    c[0] /= 2
    terms = chebyshev_terms(-dense_operator(GRAPH, False))
    expected = sum(weight * term for weight, term in zip(c, terms, strict=True)) @ signal(model)
    assert np.allclose(outputs(model), expected, atol=1e-5)
    assert np.allclose(model.frequency_response(1 + points), gamma, atol=1e-5), "it interpolates its own weights"


@pytest.mark.parametrize("name", ["gprgnn", "bernnet", "chebnetii"])
def test_responses_are_what_the_filters_do(name: str) -> None:
    model = build(name)
    values, vectors = spectrum(model.self_loops)
    expected = vectors @ (model.frequency_response(values).T * (vectors.T @ signal(model)))
    assert np.allclose(outputs(model), expected, atol=1e-5)


@pytest.mark.parametrize("basis", ["monomial", "bernstein", "chebyshev", "jacobi", "optimal"])
@pytest.mark.parametrize("route", ["stored", "projected"])
def test_unifilter(basis: str, route: str) -> None:
    if basis == "optimal" and route == "projected":
        pytest.skip("the optimal basis depends on the features")
    model = build("unifilter", basis=basis, token_route=route)
    values, vectors = spectrum(False)
    features = np.asarray(GRAPH.features, np.float64)
    response = model.frequency_response(values)  # (1 or d, N)
    filtered = torch.from_numpy(vectors @ (response.T * (vectors.T @ features))).float()
    with torch.no_grad():
        gain = model.coefficients.sum()  # the first layer's bias is added to every token
        hidden = filtered @ model.input.weight.T + gain * model.input.bias
        expected = model.readout(hidden).numpy()
    assert np.allclose(outputs(model), expected, atol=1e-4)


@pytest.mark.parametrize("name", ["polyattn", "selfattn"])
def test_polyattn_filters_every_node_by_its_response(name: str) -> None:
    torch.manual_seed(0)
    kind = MODELS[name]
    model: Any = kind(8, 3, build_settings(kind.settings_type, {"order": ORDER, "hidden_channels": 8}))
    torch.nn.init.zeros_(model.input.bias)
    model.bind(GRAPH, Workload(None, 30))
    model.eval()
    values, vectors = spectrum(False)
    response = model.frequency_response(values)  # (N, N): one filter a node
    features = np.asarray(GRAPH.features, np.float64)
    filtered = np.einsum("nm,nm,md->nd", vectors, response, vectors.T @ features)
    with torch.no_grad():
        expected = model.readout(torch.from_numpy(filtered).float() @ model.input.weight.T).numpy()
    assert np.allclose(outputs(model), expected, atol=1e-4)
    assert (name == "selfattn") == bool((model.attention.scores(model.embed(torch.arange(30))) >= 0).all())


def test_optbasisgnn() -> None:
    model = build("optbasisgnn")
    with torch.no_grad():
        hidden = model.features.linear(model.input).relu().double().numpy()
        tokens = exact_optimal(GRAPH.with_features(hidden), ORDER)
        weights = model.filter_weights.double().numpy()
        mixed = torch.from_numpy(np.einsum("kc,nkc->nc", weights, tokens) * model.scale).float()
        expected = model.output(mixed).numpy()
    assert np.allclose(outputs(model), expected, atol=1e-4)
    values, vectors = spectrum(False)
    by_response = vectors @ (model.frequency_response(values).T * (vectors.T @ hidden))
    assert np.allclose(by_response, mixed, atol=1e-4)


@pytest.mark.parametrize("name", ["dsf-gpr-r", "dsf-bern-r"])
def test_dsf(name: str) -> None:
    model = build(name, walk_steps=6, encoding_channels=4, restart=0.3)
    adjacency = GRAPH.adjacency(np.float64).toarray()
    walk = adjacency / np.maximum(adjacency.sum(axis=1, keepdims=True), 1)
    returns = np.stack([np.diag(np.linalg.matrix_power(walk, s)) for s in range(2, 7)], axis=1)
    state = {key: value.double().numpy() for key, value in model.state_dict().items()}
    first = np.tanh(returns @ state["encoder.weight"].T + state["encoder.bias"])
    encodings = [first]
    for _ in range(ORDER):
        encodings.append(np.tanh(0.3 * first + 0.7 * dense_operator(GRAPH, True) @ encodings[-1]))
    gates = np.stack([p @ state["gate"][k] + state["gate_bias"][k] for k, p in enumerate(encodings)], axis=1)
    theta = state["filter_weights"]
    if name == "dsf-gpr-r":
        alpha, terms = theta * np.tanh(gates), powers(dense_operator(GRAPH, True))
    else:
        alpha, terms = theta.clip(0) / (1 + np.exp(-gates)), bernstein_terms()
    x = signal(model)
    expected = sum(alpha[:, [k]] * (term @ x) for k, term in enumerate(terms))
    assert np.allclose(outputs(model), expected, atol=1e-5)
    last = encodings[-1] - encodings[-1].mean(axis=0)
    unit = last / np.linalg.norm(last, axis=0)
    with torch.no_grad():
        both, penalty = model.outputs_and_penalty(torch.arange(30))
    gap = np.square(unit.T @ unit - np.eye(4)).sum() / 4
    assert np.allclose(both, expected, atol=1e-5)
    assert np.isclose(float(penalty), model.settings.orthogonality * gap, rtol=1e-4)
    values, vectors = spectrum(name == "dsf-gpr-r")
    by_response = np.einsum("nm,nm,mc->nc", vectors, model.frequency_response(values), vectors.T @ x)
    assert np.allclose(by_response, expected, atol=1e-5)
