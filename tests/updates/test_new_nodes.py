"""Nodes that are not in the graph: predicted from frozen neighbours, or with a neighbourhood that feels them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.csv as pacsv
import pytest
import torch

from polyformer.bases import resolve_basis
from polyformer.errors import InvalidData, InvalidParameter
from polyformer.feature_scaling import FeatureScaling
from polyformer.graph import Graph
from polyformer.models import MODELS
from polyformer.new_nodes import NewNodes
from polyformer.objectives import OBJECTIVES
from polyformer.operators import Operator
from polyformer.settings import split_settings
from polyformer.stores.directory import StoredTokens
from polyformer.tokens import compute_tokens, write_tokens
from polyformer.updates import token_rows
from tests.updates.random_changes import random_graph
from tests.updates.test_command_line import EDGES, NODES, run

SETTINGS = {"order": 3, "hidden_channels": 8, "heads": 2, "basis": "bernstein"}


def predictor(graph: Graph, tokens: Path | None = None, name: str = "polyformer", **settings: object) -> NewNodes:
    kind = MODELS[name]
    torch.manual_seed(0)
    own = {key: value for key, value in (SETTINGS | settings).items() if key in kind.settings_type.__dataclass_fields__}
    model = kind(graph.num_features, 3, split_settings([kind.settings_type], own)[0])
    return NewNodes(model.eval(), OBJECTIVES["multiclass"], graph, None if tokens is None else StoredTokens(tokens))


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_full_is_what_the_larger_graph_gives(
    tmp_path: Path, weighted: bool, self_loops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_rows, "_MOST_SHARE", 1)
    random = np.random.default_rng(0)
    graph = random_graph(random, weighted)
    features, edges = random.standard_normal((3, 5)), np.array([[70, 1], [70, 2], [71, 70], [72, 9]])
    weights = random.uniform(0.5, 2, 4) if weighted else None
    write_tokens(graph, tmp_path / "t", order=3, self_loops=self_loops)
    larger = graph.updated(add_edges=edges, add_weights=weights, add_features=features)
    model = predictor(graph, self_loops=self_loops)
    tokens = compute_tokens(larger, "bernstein", 3, self_loops, nodes=[70, 71, 72])
    exact = OBJECTIVES["multiclass"].scores(model.model.encode_tokens(tokens).detach())  # type: ignore[operator]
    stored = predictor(graph, tmp_path / "t", self_loops=self_loops)
    assert np.allclose(model.predict(features, edges, "full", weights), exact, atol=1e-5)
    assert np.allclose(stored.predict(features, edges, "full", weights, tolerance=0.0), exact, atol=1e-5)
    assert np.allclose(stored.predict(features, edges, "full", weights, tolerance=1e-3), exact, atol=1e-2)


@pytest.mark.parametrize("self_loops", [False, True])
def test_frozen_is_the_recurrence_with_old_degrees(tmp_path: Path, self_loops: bool) -> None:
    """The rows of new nodes, of a matrix whose other rows do not feel them."""
    random = np.random.default_rng(1)
    graph = random_graph(random, weighted=True)
    features, edges = random.standard_normal((2, 5)).astype(np.float32), np.array([[70, 1], [3, 70], [70, 71]])
    weights = np.array([0.5, 2.0, 1.5])
    write_tokens(graph, tmp_path / "t", order=3, self_loops=self_loops)
    larger = graph.updated(add_edges=edges, add_weights=weights, add_features=features)
    adjacency = larger.adjacency(np.float64).toarray() + self_loops * np.eye(72)
    adjacency[:70, 70:] = 0
    degrees = np.concatenate([graph.degrees + self_loops, adjacency[70:].sum(axis=1)])
    scale = 1 / np.sqrt(np.where(degrees > 0, degrees, 1))
    operator = -scale[:, None] * adjacency * scale
    orders = [np.asarray(larger.features, np.float64), operator @ larger.features]
    for _ in range(2):
        orders.append(2 * operator @ orders[-1] - orders[-2])
    mixing = resolve_basis("bernstein").mixing(3)  # type: ignore[attr-defined]
    exact = torch.from_numpy(np.einsum("jk,knd->njd", mixing, np.stack(orders))[70:].astype(np.float32))
    for model in (predictor(graph, self_loops=self_loops), predictor(graph, tmp_path / "t", self_loops=self_loops)):
        expected = OBJECTIVES["multiclass"].scores(model.model.encode_tokens(exact).detach())  # type: ignore[operator]
        assert np.allclose(model.predict(features, edges, weights=weights), expected, atol=1e-5)
    assert np.allclose(Operator(graph, self_loops).scaling, scale[:70])


def test_features_are_scaled_as_in_training() -> None:
    random = np.random.default_rng(2)
    raw = Graph(random.integers(0, 40, (2, 60)), 1e3 * random.standard_normal((40, 5)) ** 3, 40)
    scaled = raw.scaled(FeatureScaling.fit(raw.features))
    assert scaled.scaling is not None
    features, edges = 1e3 * random.standard_normal((1, 5)), [[40, 3], [40, 5]]
    by_hand = predictor(raw.with_features(np.asarray(scaled.features)))
    for mode in ("frozen", "full"):
        expected = by_hand.predict(scaled.scaling.apply(features), edges, mode)
        assert np.allclose(predictor(scaled).predict(features, edges, mode), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["gcn", "mlp", "polyformer"])
def test_other_models_take_a_full_pass(name: str) -> None:
    random = np.random.default_rng(3)
    graph = random_graph(random, weighted=False)
    model = predictor(graph, None, name, **({"basis": "optimal"} if name == "polyformer" else {}))
    scores = model.predict(random.standard_normal((2, 5)), [[70, 1], [71, 2]], "full")
    assert scores.shape == (2, 3)
    with pytest.raises(InvalidParameter, match="Use the mode full"):
        model.predict(random.standard_normal((2, 5)), [[70, 1], [71, 2]])


@pytest.mark.parametrize(
    ("edges", "width", "mode", "message"),
    [
        ([[1, 2]], 5, "frozen", "Every edge must have a new node"),
        ([[70, 99]], 5, "frozen", r"must name nodes 0\.\.70"),
        ([[70, 1]], 4, "frozen", "must have 5 columns"),
        ([[70, 1]], 5, "half", "'mode' must be frozen or full"),
        ([[70, 2]], 5, "full", "names a node that was removed"),
    ],
)
def test_what_cannot_be_predicted(edges: list, width: int, mode: str, message: str) -> None:
    graph = random_graph(np.random.default_rng(4), weighted=False).updated(remove_nodes=[2])
    with pytest.raises((InvalidData, InvalidParameter), match=message):
        predictor(graph).predict(np.ones((1, width)), edges, mode)


@pytest.mark.parametrize("mode", ["frozen", "full"])
def test_command_line(tmp_path: Path, mode: str) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "nodes.csv").write_text(NODES + NODES.replace("\n", "2\n").split("\n", 1)[1][:0])
    (tmp_path / "tables" / "edges.csv").write_text(EDGES)
    settings = ["--set", "epochs=2", "--set", "hidden_channels=8", "--set", "heads=2"]
    assert run("train", tmp_path / "tables", "--order", 2, "--out", tmp_path / "run", *settings) == 0
    (tmp_path / "new.csv").write_text("id,age,colour\ngus,,green\nhal,33,red\n")  # a missing number, an unknown colour
    (tmp_path / "links.csv").write_text("source,target\ngus,ann\ngus,hal\nhal,fay\n")
    out = tmp_path / "predictions.csv"
    arguments = ("--new", tmp_path / "new.csv", "--edges", tmp_path / "links.csv", "--mode", mode, "--out", out)
    assert run("predict", tmp_path / "run", *arguments) == 0
    table = pacsv.read_csv(out)
    assert table.column("node").to_pylist() == ["gus", "hal"]
    assert table.column_names == ["node", "prediction", "probability_no", "probability_yes"]
    (tmp_path / "links.csv").write_text("source,target\ngus,zoe\n")
    assert run("predict", tmp_path / "run", *arguments) == 2


@pytest.mark.parametrize("name", MODELS)
def test_every_model_says_what_it_can_do(name: str) -> None:
    """A model that predicts new nodes by their tokens has tokens that can be updated, and serves single nodes."""
    kind = MODELS[name]
    model = kind(5, 3, kind.settings_type())
    assert model.capabilities <= {"update", "new nodes", "serve"}
    if "new nodes" in model.capabilities:
        assert {"update", "serve"} <= model.capabilities
        assert hasattr(model, "encode_tokens")
