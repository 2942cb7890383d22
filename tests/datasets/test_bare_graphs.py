"""Graphs without labels: there, saved and opened again, with nothing to train on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from polyformer.datasets import load_dataset
from polyformer.datasets.graphsaint import projected_adjacency
from polyformer.errors import InvalidParameter
from polyformer.graph import Graph
from polyformer.tasks import Task
from tests.oracles import dense_operator


@pytest.mark.usefixtures("cache")
def test_web_google(real_root: Path, tmp_path: Path) -> None:
    task = load_dataset("web-google", real_root)
    assert (task.num_classes, len(task.splits), task.graph.features) == (0, 0, None)
    assert task.labels.max() == -1
    assert task.ids is not None
    assert np.all(np.diff(task.ids) > 0)
    task.save(tmp_path / "saved")
    again = Task.load(tmp_path / "saved")
    assert again.graph.num_edges == task.graph.num_edges
    assert (len(again.splits), again.protocol) == (0, "none")


@pytest.mark.usefixtures("cache")
def test_wordnet_says_that_it_has_no_address(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"has no public address\. Put 'raw/wordnet\.npz' in"):
        load_dataset("wordnet", tmp_path)


def test_a_projection_of_the_adjacency_stands_in_for_features() -> None:
    graph = Graph([[0, 1, 2], [1, 2, 3]], num_nodes=5)
    features = projected_adjacency(graph, 2000)
    assert features.dtype == np.float32
    assert np.isclose(features.std(), 1)
    assert not features[4].any()  # isolated
    dense = dense_operator(graph, False)
    likeness, expected = features @ features.T, dense @ dense.T
    assert np.allclose(likeness / likeness[0, 0], expected / expected[0, 0], atol=0.2)
    assert np.array_equal(features, projected_adjacency(graph, 2000))


@pytest.mark.usefixtures("cache")
def test_a_projection_needs_columns(tmp_path: Path) -> None:
    for columns in ("0", "many"):
        with pytest.raises(InvalidParameter, match=f"1 or more. Got {columns}. Try 128"):
            load_dataset(f"ogbn-arxiv-graph:projection={columns}", tmp_path)


@pytest.mark.usefixtures("cache")
def test_ogbn_arxiv_graph_with_projections(real_root: Path) -> None:
    task = load_dataset("ogbn-arxiv-graph:projection=8", real_root)
    assert task.graph.num_features == 8
    assert task.num_classes == 40
