"""Filters against the formulas, on models that every node of a small board passes through."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from polyformer.datasets import load_dataset
from polyformer.errors import InvalidParameter
from polyformer.filters import (
    cluster_filters,
    filter_coefficients,
    filter_response,
    frequency_grid,
    local_homophily,
    pass_shares,
    write_filters,
)
from polyformer.models import MODELS, NodeModel, NodeWiseFilter, Workload

TASK = load_dataset("minefield:width=12,height=9")
NODE_WISE = {
    "polyformer": {"heads": 2, "hidden_channels": 8, "num_layers": 2, "order": 4},
    "polyattn": {"heads": 2, "hidden_channels": 8, "order": 4},
    "selfattn": {"heads": 1, "hidden_channels": 8, "order": 4},
    "dsf-gpr-r": {"order": 4},
    "dsf-bern-r": {"order": 4},
    "cascade": {"heads": 2, "hidden_channels": 8, "num_layers": 3, "order": 2},
}


def build(name: str, **settings: Any) -> NodeModel:
    torch.manual_seed(0)
    model = MODELS[name](TASK.graph.num_features, 1, MODELS[name].settings_type(**settings))
    model.eval()
    if settings.get("token_route") != "streamed":
        model.bind(TASK.graph, Workload(None, TASK.graph.num_nodes))
    return model


@pytest.mark.parametrize("name", NODE_WISE)
def test_response_is_the_coefficients_times_the_basis(name: str) -> None:
    model = cast(NodeWiseFilter, build(name, **NODE_WISE[name]))
    lam, nodes = frequency_grid(9), np.array([5, 0, 77])
    alpha = filter_coefficients(model, nodes)
    response = filter_response(model, nodes, lam)
    assert response.shape == (3, alpha.shape[1], 9)
    assert np.allclose(response, alpha @ model.token_response(lam))
    with pytest.raises(InvalidParameter, match="all channels share the basis"):
        filter_response(model, nodes, lam, channel=1)


def test_a_bare_polyattn_has_the_response_that_it_tells() -> None:
    model: Any = build("polyattn", **NODE_WISE["polyattn"])
    nodes, lam = np.arange(20), frequency_grid(7)
    told = model.frequency_response(lam, torch.from_numpy(nodes)).reshape(20, 2, 7)
    assert np.allclose(told, filter_response(model, nodes, lam))


def test_the_optimal_basis_answers_by_channel() -> None:
    model = cast(NodeWiseFilter, build("polyformer", basis="optimal", **NODE_WISE["polyformer"]))
    channel = model.default_channel
    assert channel == np.argmax(np.linalg.norm(TASK.graph.features, axis=0))
    assert filter_response(model, np.arange(3), frequency_grid(5), channel=channel).shape == (3, 2, 5)


def test_shares_and_homophily() -> None:
    lam = frequency_grid()
    low = np.exp(-20 * lam**2)
    assert pass_shares(np.stack([low, low[::-1]])[:, None], lam)[:, [0, 2]] == pytest.approx(np.eye(2), abs=1e-6)
    graph, labels = TASK.graph, TASK.labels
    found = local_homophily(graph, labels, np.array([100, 3]))
    for node, value in zip((100, 3), found, strict=True):
        around = labels[graph.indices[graph.indptr[node] : graph.indptr[node + 1]]]
        assert value == pytest.approx((around == labels[node]).mean())


def test_clusters_find_the_kinds_there_are() -> None:
    random, lam = np.random.default_rng(0), frequency_grid()
    kinds = np.stack([np.exp(-3 * lam), lam / 2, np.exp(-8 * (lam - 1) ** 2)])
    kind = random.integers(0, 3, 400)
    responses = (kinds[kind] + 0.02 * random.standard_normal((400, len(lam))))[:, None]
    clusters = cluster_filters(responses)
    assert clusters.centres.shape == (3, 1, len(lam))
    found = clusters.assign(responses)
    assert len({(int(a), int(b)) for a, b in zip(kind, found, strict=True)}) == 3
    assert (np.diff(np.bincount(found)) <= 0).all()
    assert len(cluster_filters(responses, 5).centres) == 5
    assert len(cluster_filters(np.ones((50, 1, 9))).centres) == 1
    with pytest.raises(InvalidParameter, match="'clusters' must lie in"):
        cluster_filters(responses, 0)


def test_the_table_holds_coefficients_of_every_layer_and_what_they_give(tmp_path: Path) -> None:
    model: Any = build("polyformer", **NODE_WISE["polyformer"])
    nodes = np.array([7, 3, 90])
    path = tmp_path / "f.parquet"
    assert write_filters(path, model, TASK, Workload(nodes), clusters=2, points=5) == 3
    table = pq.read_table(path).to_pydict()
    assert table["node"] == [7, 3, 90]
    assert table["class"] == [("safe", "mine")[TASK.labels[node]] for node in nodes]
    for layer in range(2):
        expected = filter_coefficients(model, nodes, layer)
        for head in range(2):
            assert np.allclose(table[f"layer{layer}_head{head}"], expected[:, head], atol=1e-6)
    assert np.allclose(table["response_head1"], filter_response(model, nodes, frequency_grid(5))[:, 1], atol=1e-5)
    assert np.allclose(np.sum([table[name] for name in ("low", "band", "high")], axis=0), 1)
    assert np.allclose(np.sum([table[f"order_{k}"] for k in range(5)], axis=0), 1)
    assert table["degree"] == np.diff(TASK.graph.indptr)[nodes].tolist()


def test_every_stage_of_a_cascade_has_a_response_relative_to_its_input(tmp_path: Path) -> None:
    model: Any = build("cascade", **NODE_WISE["cascade"])
    nodes, lam = np.array([7, 3, 90]), frequency_grid(5)
    write_filters(tmp_path / "f.parquet", model, TASK, Workload(nodes), clusters=2, points=5)
    table = pq.read_table(tmp_path / "f.parquet").to_pydict()
    assert [model.filter_input(stage) for stage in (1, 2)] == ["the output of stage 1", "the output of stage 2"]
    for stage, name in enumerate(("response", "layer1_response", "layer2_response")):
        response = filter_response(model, nodes, lam, stage)
        assert np.allclose(response, filter_coefficients(model, nodes, stage) @ model.token_response(lam))
        assert np.allclose(table[f"{name}_head1"], response[:, 1], atol=1e-5)


def test_tokens_on_disk_give_the_same_table(tmp_path: Path) -> None:
    write_filters(tmp_path / "a.parquet", build("polyformer", **NODE_WISE["polyformer"]), TASK)
    streamed = build("polyformer", token_route="streamed", **NODE_WISE["polyformer"])
    write_filters(tmp_path / "b.parquet", streamed, TASK, Workload(scratch=tmp_path))
    whole, little = (pq.read_table(tmp_path / name).to_pydict() for name in ("a.parquet", "b.parquet"))
    assert whole["node"] == little["node"] == list(range(108))
    assert np.allclose(whole["layer1_head0"], little["layer1_head0"], atol=1e-5)


def test_one_filter_for_all_is_one_row_and_none_is_refused(tmp_path: Path) -> None:
    model: Any = build("unifilter", order=4)
    assert write_filters(tmp_path / "u.parquet", model, TASK, points=9) == 1
    table = pq.read_table(tmp_path / "u.parquet").to_pydict()
    assert np.allclose(table["response"], model.frequency_response(frequency_grid(9)))
    with pytest.raises(InvalidParameter, match="no spectral filter"):
        write_filters(tmp_path / "m.parquet", build("mlp"), TASK)
