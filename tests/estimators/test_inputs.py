"""Graphs of other libraries, optional splits, and objects that are no graphs."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

import polyformer as pf
from polyformer.datasets import load_dataset
from polyformer.errors import InvalidParameter
from polyformer.estimators.inputs import read_classes, read_values

TASK = load_dataset("minefield:width=15,height=12")
NODES = np.arange(TASK.graph.num_nodes)
QUICK = {"model": "mlp", "hidden_channels": 8, "epochs": 2}
EDGES = np.array(TASK.graph.adjacency().nonzero())
FEATURES = np.asarray(TASK.graph.features)


def _data(**parts: Any) -> Data:
    return Data(torch.from_numpy(FEATURES), torch.from_numpy(EDGES.astype(np.int64)), **parts)


def _networkx() -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from(NODES.tolist())
    graph.add_edges_from(EDGES.T.tolist())
    return graph


@pytest.mark.parametrize(
    ("given", "same"),
    [
        (_data(), pf.Graph(EDGES, FEATURES)),
        (_networkx(), pf.Graph(EDGES, num_nodes=180)),
        (sp.csr_matrix(TASK.graph.adjacency()), pf.Graph(EDGES, num_nodes=180)),
        (sp.coo_array(TASK.graph.adjacency()), pf.Graph(EDGES, num_nodes=180)),
    ],
    ids=["pyg", "networkx", "scipy", "scipy array"],
)
def test_a_graph_of_another_library_is_as_good(given: Any, same: pf.Graph) -> None:
    ours = pf.PolyFormerClassifier(**QUICK).fit(same, TASK.labels)
    theirs = pf.PolyFormerClassifier(**QUICK).fit(given, TASK.labels)
    assert np.array_equal(theirs.predict_proba(given), ours.predict_proba(same))
    held = pf.PolyFormerClassifier(graph=given, **QUICK).fit(NODES, TASK.labels)
    assert np.array_equal(held.predict_proba(NODES), ours.predict_proba(same))


def test_labels_and_masks_of_a_data_object_are_used() -> None:
    train, val = (torch.zeros(180, dtype=torch.bool) for _ in range(2))
    train[:100], val[100:140] = True, True
    data = _data(y=torch.from_numpy(TASK.labels), train_mask=train, val_mask=val)
    ours = pf.PolyFormerClassifier(**QUICK).fit(data, TASK.labels, train=NODES[:100], val=NODES[100:140])
    assert np.array_equal(pf.PolyFormerClassifier(**QUICK).fit(data).predict_proba(), ours.predict_proba())
    data.train_mask = train[:, None].repeat(1, 2)
    with pytest.raises(InvalidParameter, match=r"Got shape \(180, 2\)\. Name one: train=data\.train_mask\[:, 0\]"):
        pf.PolyFormerClassifier(**QUICK).fit(data)
    assert pf.PolyFormerClassifier(**QUICK).fit(data, train=NODES[:50]).best_epoch_ >= 1


def test_nodes_with_a_label_train_if_none_are_named() -> None:
    labels = np.array(["safe", "mine", ""], object)[TASK.labels]
    labels[120:] = None
    whole = pf.PolyFormerClassifier(**QUICK).fit(TASK.graph, labels)
    named = pf.PolyFormerClassifier(**QUICK).fit(TASK.graph, labels, train=NODES[:120])
    assert np.array_equal(whole.predict_proba(), named.predict_proba())
    val = NODES[:30]
    rest = pf.PolyFormerClassifier(**QUICK).fit(TASK.graph, labels, val=val)
    both = pf.PolyFormerClassifier(**QUICK).fit(TASK.graph, labels, train=NODES[30:120], val=val)
    assert np.array_equal(rest.predict_proba(), both.predict_proba())
    ids = pf.PolyFormerClassifier(graph=TASK.graph, **QUICK).fit(NODES[:120], labels[:120], val=val)
    assert np.array_equal(rest.predict_proba(), ids.predict_proba())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("cora", r"Got str\. Open it first: pf\.load_dataset\('cora'\)\.graph"),
        (TASK, r"Got Task\. Pass its attribute graph"),
        (FEATURES, r"Got ndarray of shape \(180, 7\)\. To pass node ids, give the graph to the estimator first"),
        ([0, 1, 2], r"Got list\. To pass node ids"),
        (None, "Got NoneType"),
        (7, "Got int"),
        (Data(torch.ones(3, 1)), "'data' must have an edge_index"),
    ],
)
def test_a_wrong_object_gets_one_sentence(wrong: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        pf.PolyFormerClassifier().fit(wrong, TASK.labels)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="'graph' must be" if wrong is None else message):
        pf.PolyFormerRegressor(graph=wrong).fit([0], [1.0])


@pytest.mark.parametrize(
    ("labels", "classes", "codes"),
    [
        ([3, 1, -1, 3], [1, 3], [1, 0, -1, 1]),
        ([2.0, np.nan, 1.0], [1.0, 2.0], [1, -1, 0]),
        (["b", "", "a"], ["a", "b"], [1, -1, 0]),
        ([None, True, False], [False, True], [-1, 1, 0]),
        (pd.Series(["x", None, "y"]), ["x", "y"], [0, -1, 1]),
        (pd.Series(["x", pd.NA, "y"], dtype="string"), ["x", "y"], [0, -1, 1]),
        (pd.Categorical(["x", "y", None]), ["x", "y"], [0, 1, -1]),
        (torch.tensor([5, 5, -1]), [5], [0, 0, -1]),
        (np.array([[2], [1]]), [1, 2], [1, 0]),
    ],
)
def test_labels_of_any_kind(labels: Any, classes: list[Any], codes: list[int]) -> None:
    read = read_classes(labels, unlabelled=True)
    assert read.classes is not None
    assert (read.classes.tolist(), read.values.tolist()) == (classes, codes)


def test_values_are_read_as_floats() -> None:
    assert read_values([1, 2], unlabelled=False).values.dtype == np.float64
    assert np.isnan(read_values([1, None], unlabelled=True).values[1])
    with pytest.raises(ValueError, match="'labels' must be finite"):
        read_values([1, np.nan], unlabelled=False)
    with pytest.raises(ValueError, match="Use PolyFormerClassifier for classes"):
        read_values(["a"], unlabelled=False)
