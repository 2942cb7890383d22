"""What if: the answer for the changed graph, as if it were computed anew, and the graph as it was."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyformer.errors import InvalidData
from polyformer.graph import Graph
from polyformer.runs.run import Run
from polyformer.runs.train import train
from polyformer.server.explorer.what_if import Change, WhatIf

MODELS: dict[str, dict[str, Any]] = {
    "polyformer": {"order": 4, "hidden_channels": 8, "heads": 2},
    "polyformer with loops": {"order": 3, "hidden_channels": 8, "heads": 2, "self_loops": True, "basis": "bernstein"},
    "optimal basis": {"order": 3, "hidden_channels": 8, "heads": 2, "basis": "optimal"},
    "cascade": {"num_layers": 2, "hidden_channels": 8, "heads": 2},
    "gcn": {"hidden_channels": 8},
}
NODE = 17


def _graph(kind: str) -> Graph:
    random = np.random.default_rng(4)
    edges, features = random.integers(0, 60, (2, 150)), random.lognormal(0, 1, (64, 5)).astype(np.float32)
    weights = random.uniform(0.5, 2.0, 150) if kind == "weighted" else None
    return Graph(edges, None if kind == "no features" else features, 64, weights)


def _run(folder: Path, graph: Graph, model: str) -> Run:
    labels = np.random.default_rng(0).integers(0, 3, graph.num_nodes)
    name = model if model in ("cascade", "gcn") else "polyformer"
    return train(graph, labels=labels, model=name, out=folder / "run", epochs=2, **MODELS[model])


def _change(graph: Graph) -> dict[str, Any]:
    neighbour = int(graph.indices[graph.indptr[NODE]])
    strangers = np.setdiff1d(np.arange(60), [NODE, *graph.indices[graph.indptr[NODE] : graph.indptr[NODE + 1]]])
    change = {"add_edges": np.array([[NODE, strangers[3]], [NODE, 62]]), "remove_edges": np.array([[neighbour, NODE]])}
    if graph.features is not None:
        change["set_features"] = {NODE: np.array([3.0, 0.1, 9.0, 0.0, 1.0], np.float32)}
    return change


def _asked(run: Run, graph: Graph, **change: Any) -> Any:
    card, model = run.load()
    return WhatIf(card, copy.deepcopy(model), card.prepare(graph)).ask(NODE, Change(**change))


OF_TOKENS = ("polyformer", "polyformer with loops")


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        *((model, "plain") for model in MODELS),
        *((model, kind) for model in OF_TOKENS for kind in ("weighted", "no features")),
    ],
)
def test_equals_the_changed_graph_computed_anew(tmp_path: Path, model: str, kind: str) -> None:
    graph = _graph(kind)
    run, change = _run(tmp_path, graph, model), _change(graph)
    before, after = _asked(run, graph, **change)
    changed = graph.updated(**change)
    assert np.allclose(before.scores, run.predict([NODE], graph=graph)[0], atol=2e-6)
    assert np.allclose(after.scores, run.predict([NODE], graph=changed)[0], atol=2e-6)
    assert np.abs(after.scores - before.scores).max() > 1e-4
    if model != "gcn":
        alpha = run.filters(graph=changed).coefficients[NODE]
        assert np.allclose(after.coefficients, alpha, atol=1e-5 * np.abs(alpha).max())


@pytest.mark.parametrize("parts", [("add_edges",), ("remove_edges",), ("set_features",)])
def test_each_change_alone(tmp_path: Path, parts: tuple[str, ...]) -> None:
    graph = _graph("weighted")
    run = _run(tmp_path, graph, "polyformer")
    change = {name: value for name, value in _change(graph).items() if name in parts}
    _, after = _asked(run, graph, **change)
    assert np.allclose(after.scores, run.predict([NODE], graph=graph.updated(**change))[0], atol=2e-6)


def test_an_edge_that_is_there_changes_nothing_and_others_are_refused(tmp_path: Path) -> None:
    graph = _graph("plain")
    run = _run(tmp_path, graph, "polyformer")
    neighbour = int(graph.indices[graph.indptr[NODE]])
    before, after = _asked(run, graph, add_edges=np.array([[neighbour, NODE]]))
    assert np.allclose(before.scores, after.scores, rtol=0, atol=1e-6)  # two sums in different orders
    with pytest.raises(InvalidData, match="two different nodes"):
        _asked(run, graph, add_edges=np.array([[NODE, NODE]]))
    with pytest.raises(InvalidData, match="is not there"):
        _asked(run, graph, remove_edges=np.array([[NODE, 63]]))


def test_features_made_from_the_structure_cannot_be_set(tmp_path: Path) -> None:
    graph = _graph("no features")
    run = _run(tmp_path, graph, "polyformer")
    with pytest.raises(InvalidData, match="made from the structure"):
        _asked(run, graph, set_features={NODE: np.zeros(5, np.float32)})
