"""Matrices in files of other projects: the graph, features and labels that were written are those that are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
import torch

from polyformer.datasets import load_dataset
from polyformer.errors import DataNotFound, InvalidData
from polyformer.graph import Graph
from polyformer.importing import ImportOptions, open_source
from tests.importing.test_array_sources import EDGES, FEATURES, GRAPH, LABELS, both_ways
from tests.listener import Listener

ADJACENCY = sp.csr_matrix((np.ones(EDGES.shape[1]), tuple(EDGES)), (30, 30))
ADJACENCY.data[:] = 1


def parts(matrix: sp.csr_matrix, prefix: str) -> dict[str, Any]:
    names = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": matrix.shape}
    return {f"{prefix}{name}": value for name, value in names.items()}


@pytest.mark.parametrize("prefixes", [("adj_", "attr_"), ("adj_matrix.", "attr_matrix.")])
def test_npz_of_gnn_benchmark(prefixes: tuple[str, str], tmp_path: Path) -> None:
    arrays = parts(ADJACENCY, prefixes[0]) | parts(sp.csr_matrix(FEATURES), prefixes[1])
    names = np.array(["cat", "dog", "owl"])
    np.savez(tmp_path / "a.npz", labels=LABELS, class_names=names, node_names=np.array([{}], object), **arrays)
    task = both_ways(tmp_path / "a.npz", tmp_path)
    assert task.graph.structure_fingerprint == GRAPH.structure_fingerprint
    assert np.array_equal(task.graph.features.toarray(), FEATURES)  # type: ignore[union-attr]
    assert (task.labels.tolist(), task.class_names) == (LABELS.tolist(), ("cat", "dog", "owl"))


@pytest.mark.parametrize(
    "variables",
    [
        {"A": ADJACENCY, "X": FEATURES, "Label": LABELS[:, None]},
        {"Network": ADJACENCY, "Attributes": sp.csc_matrix(FEATURES), "group": sp.csc_matrix(np.eye(3)[LABELS])},
        {"adj": ADJACENCY.toarray(), "features": FEATURES, "y": LABELS.astype(float)},
        {"edge_index": EDGES, "node_feat": FEATURES, "label": LABELS, "num_nodes": 30},
        {"edges": np.concatenate([EDGES + 1, [[30], [1]]], axis=1).T, "x": FEATURES, "labels": LABELS},
    ],
    ids=["column", "one-hot", "doubles", "LINKX", "from one"],
)
def test_matlab_files(variables: dict[str, Any], tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "a.mat", variables)
    task = both_ways(tmp_path / "a.mat", tmp_path)
    expected = GRAPH if "edges" not in variables else Graph(np.append(EDGES, [[29], [0]], axis=1), FEATURES)
    assert task.graph.structure_fingerprint == expected.structure_fingerprint
    features = task.graph.features
    assert np.array_equal(features.toarray() if sp.issparse(features) else features, FEATURES)  # type: ignore[union-attr]
    assert task.labels.tolist() == LABELS.tolist()


def test_a_facebook_network(tmp_path: Path) -> None:
    """Gender 0 is unknown; the other columns are categories."""
    info = np.stack([np.arange(30) % 2, np.arange(30) % 3, np.arange(30) % 5], axis=1)
    scipy.io.savemat(tmp_path / "Reed98.mat", {"A": ADJACENCY, "local_info": info})
    task = both_ways(tmp_path / "Reed98.mat", tmp_path)
    assert task.labels.tolist() == (np.arange(30) % 3 - 1).tolist()
    assert task.graph.num_features == 2 + 5
    assert np.asarray(task.graph.features.sum(axis=1)).ravel().tolist() == [2.0] * 30  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"M": ADJACENCY}, r"must hold an adjacency matrix or edges, named a, adj, .* It holds: M\. Rename"),
        ({"A": ADJACENCY[:5]}, r"must be square\. Got shape \(5, 30\)"),
        ({"A": ADJACENCY, "X": FEATURES[:7]}, r"must hold features of 30 nodes, a row for each\. Got 7"),
        ({"A": ADJACENCY, "label": LABELS[:7]}, r"must hold labels of 30 nodes, a row for each\. Got 7"),
        ({"A": ADJACENCY, "group": np.ones((30, 2))}, r"labels of .* must be one per node\. Got several for node 0"),
        ({"edges": EDGES + 1, "X": FEATURES[:20]}, r"name node \d+, but there are 20 nodes"),
    ],
)
def test_matlab_files_that_do_not_fit(variables: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "a.mat", variables)
    with pytest.raises(InvalidData, match=sentence):
        open_source(tmp_path / "a.mat")


def test_matrix_market(tmp_path: Path) -> None:
    scipy.io.mmwrite(tmp_path / "a.mtx", 2.0 * ADJACENCY)
    assert both_ways(tmp_path / "a.mtx", tmp_path).graph.fingerprint == Graph.from_scipy(2.0 * ADJACENCY).fingerprint
    unweighted = open_source(tmp_path / "a.mtx", ImportOptions(weight_column=""))
    assert unweighted.graph.structure_fingerprint == GRAPH.structure_fingerprint


@pytest.mark.parametrize("place", ["Cora", "Cora/raw"])
def test_a_folder_of_planetoid_is_the_data_set(place: str, data_root: Path, tmp_path: Path) -> None:
    if not (data_root / "Cora").is_dir():
        pytest.skip("Cora is not in the data root")
    task, published = open_source(data_root / place), load_dataset("cora", data_root, "public")
    assert task.graph.fingerprint == published.graph.fingerprint
    assert task.labels.tolist() == published.labels.tolist()
    assert [len(part) for part in (task.splits[0].train, task.splits[0].val, task.splits[0].test)] == [140, 500, 1000]


def test_planetoid_folders_that_are_not_whole(tmp_path: Path) -> None:
    (tmp_path / "ind.a.graph").write_bytes(b"")
    with pytest.raises(DataNotFound, match=r"There is no file '.*ind\.a\.x'\. Put it beside the others of 'a'"):
        open_source(tmp_path)
    (tmp_path / "ind.b.graph").write_bytes(b"")
    with pytest.raises(InvalidData, match=r"holds the files of a and b\. Move the files of one"):
        open_source(tmp_path)


def test_a_folder_with_a_file_of_a_graph_says_to_name_it(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "cs.npz").write_bytes(b"")
    with pytest.raises(DataNotFound, match=r"If 'raw/cs\.npz' is the graph, name that file: '.*raw/cs\.npz'"):
        open_source(tmp_path)
    (tmp_path / "raw" / "cs.npz").rename(tmp_path / "people.xlsx")
    with pytest.raises(DataNotFound, match=r"Of 'people\.xlsx': Save the sheet of edges as edges\.csv"):
        open_source(tmp_path)


@pytest.mark.parametrize(
    ("edge_attr", "note"),
    [(torch.ones(80) * 2, "is taken as the weight"), (torch.ones(80, 3), "is not used: it has 3 numbers per edge")],
)
def test_edge_attr_of_a_pyg_file_is_told(edge_attr: torch.Tensor, note: str, tmp_path: Path) -> None:
    torch.save({"edge_index": torch.from_numpy(EDGES), "edge_attr": edge_attr}, tmp_path / "a.pt")
    lines: list[str] = []
    task = open_source(tmp_path / "a.pt", reporter=Listener(on_say=lines.append))
    assert any(note in line for line in lines)
    assert (task.graph.weights is not None) == (edge_attr.ndim == 1)
