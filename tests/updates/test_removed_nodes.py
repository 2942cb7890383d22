"""Nodes that were removed: rows that stay, but are in no split, no statistic, no prediction and no report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import polyformer as pf
from polyformer.errors import InvalidData
from polyformer.feature_scaling import FeatureScaling
from polyformer.graph import Graph
from polyformer.reports.explorer import explorer_data
from polyformer.reports.findings import gather, learned_filters
from polyformer.runs.run import Run

SMALL = {"order": 2, "hidden_channels": 8, "heads": 2, "epochs": 2}
NODES = 60
GONE = np.array([0, 7, 33, 59])


@pytest.fixture(scope="module")
def graph() -> Graph:
    """A graph that lost some nodes."""
    random = np.random.default_rng(0)
    ring = np.stack([np.arange(NODES), (np.arange(NODES) + 1) % NODES])
    whole = Graph(np.hstack([ring, random.integers(0, NODES, (2, 60))]), 5 + random.standard_normal((NODES, 3)))
    return whole.updated(remove_nodes=GONE)


@pytest.fixture(scope="module")
def run(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Trained with labels for all nodes, those that were removed too."""
    labels = np.random.default_rng(1).integers(0, 2, NODES)
    return pf.train(graph, out=tmp_path_factory.mktemp("runs") / "run", labels=labels, **SMALL)


def test_a_saved_graph_remembers_them(graph: Graph, tmp_path: Path) -> None:
    graph.save(tmp_path / "graph")
    loaded = Graph.load(tmp_path / "graph", verify=True)
    assert loaded.removed.tolist() == GONE.tolist()
    assert loaded.present_nodes.tolist() == np.setdiff1d(np.arange(NODES), GONE).tolist()


def test_scaling_does_not_see_their_zeros(graph: Graph) -> None:
    assert isinstance(graph.features, np.ndarray)
    expected = FeatureScaling.fit(np.ascontiguousarray(graph.features[graph.present_nodes]))
    assert FeatureScaling.fit(graph.features, None, graph.removed) == expected
    assert FeatureScaling.fit(graph.features) != expected


def test_no_split_has_them_and_no_count_counts_them(run: Run) -> None:
    for split in run.task().splits:
        assert not np.isin(np.concatenate([split.train, split.val, split.test]), GONE).any()
    assert run.facts.nodes == NODES - len(GONE)


def test_they_are_not_predicted_and_have_no_filter(run: Run) -> None:
    scores = run.predict()
    assert np.flatnonzero(np.isnan(scores).any(axis=1)).tolist() == GONE.tolist()
    assert len(run.filters().coefficients) == NODES - len(GONE)
    assert not np.isin(learned_filters(run.path).nodes, GONE).any()


def test_the_report_leaves_them_out(run: Run) -> None:
    outcome = gather(run.path, importance=False).outcome
    assert outcome is not None
    assert not np.isin(outcome.nodes, GONE).any()
    assert not np.isin(outcome.shown, GONE).any()
    assert len(outcome.shown) == NODES - len(GONE)
    assert (outcome.degrees > 0).all()  # none of them is shown as an isolated node
    assert explorer_data(outcome)["total"] == NODES - len(GONE)
    assert all(np.isfinite(density).all() for density in outcome.spectra.values())


def test_estimators_refuse_them(graph: Graph) -> None:
    labels = np.random.default_rng(1).integers(0, 2, NODES)
    estimator = pf.PolyFormerClassifier(**SMALL)
    estimator.fit(graph, labels, train=graph.present_nodes[:30], val=graph.present_nodes[30:])
    assert len(estimator.predict(graph, nodes=graph.present_nodes)) == NODES - len(GONE)
    with pytest.raises(InvalidData, match="Node 0 was removed from the graph"):
        estimator.predict(graph)
