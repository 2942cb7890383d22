"""Attention in linear time equals its dense form; spectral and full attention equal their formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from polyformer import machine
from polyformer.errors import InvalidParameter, OutOfResources
from polyformer.graph import Graph
from polyformer.models import MODELS, Workload
from polyformer.models.deep_convolutions import DeepGATModel, DeepGATSettings
from polyformer.models.gat import GATModel, GATSettings
from polyformer.models.goat import Codebook, sample_neighbourhood
from polyformer.models.nodeformer import kernelised_attention, orthogonal_projection, random_features
from polyformer.models.parts.layers import SelfAttention
from polyformer.models.sgformer import linear_attention
from polyformer.models.specformer import SpecformerModel, SpecformerSettings
from polyformer.models.transformer import TransformerModel, TransformerSettings
from polyformer.settings import build_settings
from polyformer.tokens import compute_tokens
from tests.oracles import dense_operator

RANDOM = np.random.default_rng(0)
GRAPH = Graph(RANDOM.integers(0, 27, (2, 60)), RANDOM.standard_normal((30, 8)), 30)


def build(name: str, **settings: Any) -> Any:
    torch.manual_seed(0)
    kind = MODELS[name]
    model: Any = kind(8, 3, build_settings(kind.settings_type, {"hidden_channels": 8, **settings}))
    model.bind(GRAPH, Workload(None, 30))
    return model.eval()


def test_sgformer_attention_equals_the_dense_form() -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(20, 2, 5, dtype=torch.float64) for _ in range(3))
    out = linear_attention(query, key, value)
    query, key = query / query.norm(), key / key.norm()
    for head in range(2):
        weights = 20 * torch.eye(20) + query[:, head] @ key[:, head].T
        denominator = 20 + (query[:, head] @ key[:, head].T).sum(dim=1, keepdim=True)
        assert torch.allclose(out[:, head], weights @ value[:, head] / denominator)


def test_sgformer_mixes_attention_with_its_input() -> None:
    """r · attended + (1 - r) · input, before the norm."""
    branches = []
    for residual in (0.0, 0.5, 1.0):
        model = build("sgformer", residual=residual, dropout=0.0)
        model.out_norm = torch.nn.Identity()
        branches.append(model._attention_branch())
    hidden = model.attention_norm(model._project(model.attention_input)).relu()
    assert torch.allclose(branches[0], hidden)
    assert torch.allclose(branches[1], (branches[0] + branches[2]) / 2, atol=1e-6)


@pytest.mark.parametrize("noisy", [False, True])
def test_nodeformer_attention_tends_to_softmax(noisy: bool) -> None:
    """With many random features; the Gumbel noise is added to every score of a key."""
    torch.manual_seed(0)
    query, key, value = (0.4 * torch.randn(12, 2, 4) for _ in range(3))
    noise = torch.randn(12, 2, 3) if noisy else torch.zeros(12, 2, 1)
    projection = orthogonal_projection(40_000, 4, torch.Generator().manual_seed(1))
    features = random_features(query, projection, True), random_features(key, projection, False)
    out, denominator = kernelised_attention(*features, value, noise)
    scores = torch.einsum("ihd,jhd->hij", query, key) / math.sqrt(4)
    exact = torch.stack([(scores + noise[:, :, s].T[:, None]).softmax(dim=-1) for s in range(noise.shape[2])]).mean(0)
    assert torch.allclose(out, torch.einsum("hij,jhc->ihc", exact, value), atol=0.01)
    attention = torch.einsum("ihm,jhm->hij", *features) / denominator.T[:, :, None]
    assert torch.allclose(attention, scores.softmax(dim=-1), atol=0.01)


def test_nodeformer_projection_is_orthogonal_in_blocks() -> None:
    projection = orthogonal_projection(10, 4)
    assert projection.shape == (10, 4)
    gram = projection[:4] @ projection[:4].T
    assert torch.allclose(gram, gram.diag().diag(), atol=1e-5)


def test_nodeformer_edge_term_is_the_mean_log_attention_over_degrees() -> None:
    model = build("nodeformer", num_layers=1, random_features=50)
    nodes = torch.arange(30)
    with torch.no_grad():
        outputs, penalty = model.outputs_and_penalty(nodes)
        assert torch.allclose(outputs, model(nodes), atol=1e-6)
        hidden = torch.nn.functional.elu(model.norms[0](model.features.linear(model.input)))
        layer, projection = model.layers[0], orthogonal_projection(50, 8, torch.Generator().manual_seed(0))
        query, key = (part(hidden).unflatten(1, (4, -1)) / 0.25**0.5 for part in (layer.query, layer.key))
        query, key = random_features(query, projection, True), random_features(key, projection, False)
        attention = torch.einsum("ihm,jhm->hij", query, key)
        attention = attention / attention.sum(dim=-1, keepdim=True)
    adjacency = torch.from_numpy(GRAPH.adjacency().toarray())
    target, source = adjacency.nonzero().T
    terms = attention[:, target, source].log() / adjacency.sum(dim=1)[target]
    assert math.isclose(float(penalty), -0.1 * float(terms.mean()), rel_tol=1e-4)


def test_specformer_filters_by_its_eigenvectors() -> None:
    model = build("specformer", num_layers=2, heads=2, eigenvalue_channels=8)
    values, vectors = np.linalg.eigh(np.eye(30) - dense_operator(GRAPH, False))
    with torch.no_grad():
        model.weights.add_(0.5 * torch.randn_like(model.weights))
        signal = model.network(model.features).double().numpy()
        filters = model.filters().double().numpy()
        weights = model.weights.double().numpy()
        outputs = model(torch.arange(30)).numpy()
    assert np.allclose(model._eigenvalues, values, atol=1e-5)
    for layer in weights:
        bases = [vectors @ np.diag(filters[:, m]) @ vectors.T @ signal for m in range(2)]
        signal = layer[0] * signal + layer[1] * bases[0] + layer[2] * bases[1]
    assert np.allclose(outputs, signal, atol=1e-3)
    assert np.allclose(model.frequency_response(values), filters.T, atol=1e-3)


def test_specformer_encodes_eigenvalues_by_sines() -> None:
    model = build("specformer", eigenvalue_channels=4, heads=1)
    captured = []
    model.encoder.register_forward_hook(lambda module, args, out: captured.append(args[0]))
    with torch.no_grad():
        model.filters()
    lam = model._eigenvalues[:, None]
    waves = torch.tensor([1.0, 0.01])
    assert torch.allclose(captured[0], torch.cat([lam, (100 * lam * waves).sin(), (100 * lam * waves).cos()], dim=1))


def test_truncated_specformer_uses_both_ends() -> None:
    model = build("specformer", num_eigenpairs=6)
    values = np.linalg.eigvalsh(np.eye(30) - dense_operator(GRAPH, False))
    assert np.allclose(model._eigenvalues, np.concatenate([values[:3], values[-3:]]), atol=1e-5)


@pytest.mark.parametrize("tokens", [7, 300])  # from 256 on, narrow heads are padded
def test_self_attention_equals_its_formula(tokens: int) -> None:
    torch.manual_seed(0)
    layer, x = SelfAttention(6, 2).double(), torch.randn(3, tokens, 6, dtype=torch.float64)
    query, key, value = (part.unflatten(-1, (2, 3)) for part in layer.query_key_value(x).chunk(3, dim=-1))
    weights = (torch.einsum("bihd,bjhd->bhij", query, key) / math.sqrt(3)).softmax(dim=-1)
    assert torch.allclose(layer(x), layer.out(torch.einsum("bhij,bjhd->bihd", weights, value).flatten(-2)))


def test_nagphormer_reads_hops_out_by_attention() -> None:
    model = build("nagphormer", order=3, positional_channels=0, heads=2)
    with torch.no_grad():
        hops = model.norm(model.blocks(model.input(compute_tokens(GRAPH, "monomial", 3, self_loops=True))))
        scores = [model.hop_attention(torch.cat([hops[:, 0], hops[:, k]], dim=1)) for k in (1, 2, 3)]
        weights = torch.cat(scores, dim=1).softmax(dim=1)
        mixed = hops[:, 0] + sum(weights[:, [k - 1]] * hops[:, k] for k in (1, 2, 3))
        assert torch.allclose(model(torch.arange(30)), model.readout(mixed), atol=1e-5)


def test_what_does_not_fit_is_refused_with_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_memory", lambda: 100_000)
    message = r"would take .* more than the 78.1 KiB that may be used\. "
    transformer = TransformerModel(8, 3, TransformerSettings(attention_dropout=0.1))
    with pytest.raises(OutOfResources, match=f"Attention of 30 nodes to each other {message}Set attention_dropout=0"):
        transformer.bind(GRAPH, Workload(None, 30))
    for attention in (GATModel(8, 3, GATSettings()), DeepGATModel(8, 3, DeepGATSettings())):
        with pytest.raises(OutOfResources, match=f"Messages along all edges {message}Lower num_layers"):
            attention.bind(GRAPH, Workload(None, 30))
    with pytest.raises(OutOfResources, match=f"The basis of OptBasisGNN {message}Lower the order"):
        build("optbasisgnn", hidden_channels=64)
    wide = Graph(np.empty((2, 0), np.int64), np.ones((200, 8)))
    with pytest.raises(OutOfResources, match=f"All eigenvectors of 200 nodes {message}Set num_eigenpairs"):
        SpecformerModel(8, 3, SpecformerSettings()).bind(wide, Workload(None, 200))
    with pytest.raises(OutOfResources, match=f"100 eigenvectors of 200 nodes {message}Lower num_eigenpairs"):
        SpecformerModel(8, 3, SpecformerSettings(num_eigenpairs=100)).bind(wide, Workload(None, 200))
    with pytest.raises(OutOfResources, match=r"more than the 9\.8 KiB that may be used"):
        SpecformerModel(8, 3, SpecformerSettings()).bind(wide, Workload(None, 200, memory=10_000))
    assert transformer.memory_needed(10_000) > 10_000**2 * 4 * 4
    assert TransformerModel(8, 3, TransformerSettings()).memory_needed(10_000) < 2 * 10_000**2


def test_goat_samples_by_distance() -> None:
    path = Graph([[0, 1, 2, 3, 0], [1, 2, 3, 4, 4]], num_nodes=6)  # a ring of five and an isolated node
    one, two = sample_neighbourhood(path, 0, 2, 10, seed=0)
    assert (one.tolist(), two.tolist()) == ([1, 4], [2, 3])
    assert [len(part) for part in sample_neighbourhood(path, 0, 2, 1, seed=0)] == [1, 1]
    assert [len(part) for part in sample_neighbourhood(path, 5, 2, 10, seed=0)] == [0, 0]
    star = Graph([[0] * 20, list(range(1, 21))])
    drawn = [sample_neighbourhood(star, 0, 1, 5, seed)[0].tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_goat_knows_the_nodes_it_was_bound_to() -> None:
    model = build("goat", positional_channels=0)
    whole = model(torch.arange(30))
    model.bind(GRAPH, Workload(np.array([3, 11, 29]), 3))
    assert torch.allclose(model(torch.tensor([29, 3])), whole[[29, 3]], atol=1e-6)
    with pytest.raises(InvalidParameter, match="There are no sampled neighbours of node 5 in memory"):
        model(torch.tensor([5]))


def test_goat_centroids_follow_the_rows() -> None:
    book = Codebook(3, 1, decay=0.5)
    rows = torch.tensor([[0.0], [0.2], [10.0]])
    book.update(rows)
    assert float(book.counts.sum()) == 3, "the first batch counts whole"
    book.centroids.copy_(torch.tensor([[1.0], [9.0], [99.0]]))
    book.counts.copy_(torch.tensor([1.0, 1.0, 0.0]))
    for _ in range(40):
        book.update(rows)
    assert torch.allclose(book.centroids[:, 0], torch.tensor([0.1, 10.0, 99.0]), atol=1e-4)
    assert torch.allclose(book.counts, torch.tensor([2.0, 1.0, 0.0]), atol=1e-4)


def test_goat_attends_by_distance_and_to_used_centroids() -> None:
    model = build("goat", positional_channels=2, num_centroids=5, heads=2, neighbours=4)
    nodes = torch.arange(30)
    with torch.no_grad():
        model.codebook.centroids.normal_()
        model.codebook.counts.copy_(torch.tensor([3.0, 0.0, 1.0, 0.0, 2.0]))
        hidden = model.input(torch.from_numpy(np.asarray(GRAPH.features))).relu()
        rows = []
        for node in range(30):
            members = [(node, 0.0)]
            for part in sample_neighbourhood(GRAPH, node, 2, 4, seed=0):
                members += [(int(other), -math.log(len(part))) for other in part]
            ids, bias = [m for m, _ in members], torch.tensor([b for _, b in members])
            query = model.local_query(hidden[node]).view(2, 4)
            keys, values = (layer(hidden[ids]).view(-1, 2, 4) for layer in (model.local_key, model.local_value))
            weights = (torch.einsum("hd,nhd->hn", query, keys) / 2 + bias).softmax(dim=-1)
            local = torch.einsum("hn,nhd->hd", weights, values).flatten() + model.skip(hidden[node])
            place = torch.cat([model.project(hidden[node]), model._encoding[node]])
            used = model.codebook.centroids[[0, 2, 4]]
            keys, values = model.global_key(used).view(-1, 2, 4), model.global_value(used[:, :8]).view(-1, 2, 4)
            scores = torch.einsum("hd,mhd->hm", model.global_query(place).view(2, 4), keys) / 2
            weights = (scores + torch.tensor([3.0, 1.0, 2.0]).log()).softmax(dim=-1)
            rows.append(torch.cat([local, torch.einsum("hm,mhd->hd", weights, values).flatten()]))
        assert torch.allclose(model(nodes), model.readout(torch.stack(rows)), atol=1e-5)
