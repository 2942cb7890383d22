"""Features made from the structure where a graph has none."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import polyformer as pf
from polyformer.structure_features import STRUCTURE_COLUMNS, structure_features
from tests.cli.test_cli import FAST, run


def hubs(seed: int = 0, weighted: bool = False) -> tuple[np.ndarray, np.ndarray | None]:
    random = np.random.default_rng(seed)
    edges = np.stack([random.integers(0, 60, 300), (60 * random.random(300) ** 3).astype(int)])
    return edges, random.random(300) if weighted else None


@pytest.mark.parametrize("weighted", [False, True])
def test_renumbering_the_nodes_renumbers_the_rows(weighted: bool) -> None:
    edges, weights = hubs(weighted=weighted)
    order = np.random.default_rng(1).permutation(62)  # two nodes have no edge
    features = structure_features(pf.Graph(edges, num_nodes=62, edge_weight=weights))
    renumbered = structure_features(pf.Graph(order[edges], num_nodes=62, edge_weight=weights))
    np.testing.assert_allclose(renumbered[order], features, rtol=1e-5, atol=1e-6)
    assert features.shape == (62, len(STRUCTURE_COLUMNS))
    assert not features[60:].any()
    assert np.isfinite(features).all()


def test_a_graph_without_features_is_trained_on_and_predicted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, seed in (("first", 0), ("second", 1)):
        edges, _ = hubs(seed)
        degrees = np.bincount(edges.ravel(), minlength=60)
        labels = ["hub" if degree > np.median(degrees) else "leaf" for degree in degrees]
        (tmp_path / name).mkdir()
        np.savetxt(tmp_path / name / "edges.csv", edges.T, "%d", ",", header="source,target", comments="")
        rows = [f"{i},{label}\n" for i, label in enumerate(labels)]
        (tmp_path / name / "nodes.csv").write_text("id,label\n" + "".join(rows))
    assert run("train", tmp_path / "first", "--out", tmp_path / "run", *FAST) == 0
    said = capsys.readouterr().out
    assert "there are no features, so 7 were made from the structure: log degree, " in said
    card = json.loads((tmp_path / "run" / "config.json").read_text())["card"]
    assert card["in_channels"] == 7
    assert {column["kind"] for column in card["columns"]} == {"structure"}
    for data in ([], [tmp_path / "second"]):
        assert run("predict", tmp_path / "run", *data, "--out", tmp_path / "p.csv") == 0
    assert run("import", tmp_path / "second", tmp_path / "like", "--like", tmp_path / "run") == 0
    assert run("predict", tmp_path / "run", tmp_path / "like", "--out", tmp_path / "p.csv") == 0
    assert run("tokens", tmp_path / "first", "--order", 3, "--out", tmp_path / "tokens") == 0
    assert run("predict", tmp_path / "run", "--tokens", tmp_path / "tokens", "--out", tmp_path / "p.csv") == 0


def test_the_estimator_makes_them_too(tmp_path: Path) -> None:
    edges, _ = hubs()
    graph = pf.Graph(edges, num_nodes=60)
    labels = (graph.degrees > np.median(graph.degrees)).astype(np.int64)
    clf = pf.PolyFormerClassifier(order=2, hidden_channels=16, epochs=40, lr=0.01).fit(graph, labels, np.arange(50))
    assert (clf.predict(graph) == labels).mean() > 0.8
    clf.save(tmp_path / "clf")
    other = pf.Graph(hubs(1)[0], num_nodes=60)
    again = pf.PolyFormerClassifier.load(tmp_path / "clf")
    np.testing.assert_array_equal(again.predict_proba(other), clf.predict_proba(other))
