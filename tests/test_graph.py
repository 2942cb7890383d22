from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch

from polyformer.bases import resolve_basis
from polyformer.errors import DataNotFound, FileCorrupt, InvalidData, OutputExists
from polyformer.graph import Graph
from polyformer.importing import import_graph, open_source
from polyformer.tokens import compute_tokens
from tests.edits import rewrite_json
from tests.oracles import exact_tokens


def test_edges_are_symmetrised_merged_and_loops_dropped() -> None:
    graph = Graph([[0, 1, 1, 2, 2], [1, 0, 2, 2, 1]], num_nodes=4)
    assert graph.num_edges == 2
    assert graph.adjacency().toarray().tolist() == [[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert graph.degrees.tolist() == [1, 2, 1, 0]


def test_repeated_edges_keep_the_largest_weight() -> None:
    graph = Graph([[0, 1, 0, 2], [1, 0, 1, 3]], edge_weight=[1.0, 5.0, 2.0, 0.5])
    assert graph.adjacency().toarray()[0, 1] == 5.0
    assert graph.adjacency().toarray()[3, 2] == 0.5
    assert graph.degrees.tolist() == [5.0, 5.0, 0.5, 0.5]


def test_weighted_and_unweighted_patterns_agree() -> None:
    edges = np.random.default_rng(0).integers(0, 50, (2, 300))
    plain, weighted = Graph(edges, num_nodes=60), Graph(edges, num_nodes=60, edge_weight=np.ones(300))
    assert np.array_equal(plain.indptr, weighted.indptr)
    assert np.array_equal(plain.indices, weighted.indices)
    assert np.array_equal(plain.degrees, weighted.degrees)


@pytest.mark.parametrize("kind", ["list", "numpy", "torch", "scipy"])
def test_inputs_of_every_kind(kind: str) -> None:
    edges = [[0, 1, 3], [1, 2, 2]]
    features = np.arange(8, dtype=np.float64).reshape(4, 2)
    sources = {
        "list": (edges, features.tolist()),
        "numpy": (np.array(edges, np.int32), features),
        "torch": (torch.tensor(edges), torch.from_numpy(features)),
        "scipy": (sp.coo_matrix((np.ones(3), edges), shape=(4, 4)), sp.csr_matrix(features)),
    }
    graph = Graph(*sources[kind])
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (4, 3, 2)
    dense = graph.features if isinstance(graph.features, np.ndarray) else graph.features.toarray()
    assert np.array_equal(dense, features)
    assert dense.dtype == np.float32
    assert graph.weights is None


def test_sparse_torch_features_stay_sparse() -> None:
    dense = torch.tensor([[0.0, 2.0], [0.0, 0.0]])
    for features in (dense.to_sparse(), dense.to_sparse_csr()):
        graph = Graph([[0], [1]], features)
        assert sp.issparse(graph.features)
        assert graph.features.toarray().tolist() == dense.tolist()


@pytest.mark.parametrize(
    ("edge_attr", "weighted", "note"),
    [
        (torch.tensor([2.0, 3.0]), True, "is taken as the weight"),
        (torch.tensor([[2], [3]]), True, "is taken as the weight"),
        (torch.ones(2, 4), False, "is not used: it has 4 numbers per edge"),
    ],
)
def test_edge_attr_of_pyg_is_never_ignored_in_silence(edge_attr: torch.Tensor, weighted: bool, note: str) -> None:
    from torch_geometric.data import Data

    data = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), edge_attr=edge_attr, num_nodes=3)
    with pytest.warns(UserWarning, match=note):
        graph = Graph.from_pyg(data)
    assert (graph.weights is not None) == weighted
    if weighted:
        assert graph.adjacency()[0, 1] == 2.0
    data.edge_weight = torch.tensor([5.0, 6.0])
    with pytest.warns(UserWarning, match="'edge_weight' holds the weights"):
        assert Graph.from_pyg(data).adjacency()[0, 1] == 5.0
    data = Data(edge_index=data.edge_index, edge_attr=torch.tensor([1.0, -1.0]), num_nodes=3)
    with pytest.raises(InvalidData, match=r"Got -1\.0 for edge 1\. Set edge_weight, or remove edge_attr"):
        Graph.from_pyg(data)


def test_from_pyg_and_networkx() -> None:
    from torch_geometric.data import Data

    data = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1], [1, 0]]), edge_weight=torch.tensor([0.5, 0.5]))
    graph = Graph.from_pyg(data)
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (3, 1, 3)
    assert graph.weights.tolist() == [0.5, 0.5]
    other = nx.path_graph(["a", "b", "c"])
    nx.set_edge_attributes(other, {("a", "b"): 2.0}, "strength")
    assert Graph.from_networkx(other).num_edges == 2
    assert Graph.from_networkx(other, weight="strength").adjacency().toarray()[0].tolist() == [0, 2, 0]
    assert Graph.from_scipy(sp.identity(3)).num_edges == 0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Graph([[0], [5]], num_nodes=5), "Edge 0 joins nodes 0 and 5, but node ids must lie in 0..4"),
        (lambda: Graph([[0, 1], [1, 9]], num_nodes=5), "Edge 1 joins nodes 1 and 9, but node ids must lie in 0..4"),
        (lambda: Graph([[0, -1], [1, 2]]), "Edge 1 joins nodes -1 and 2"),
        (lambda: Graph([[0.5], [1.0]]), "'edge_index' must hold integer node ids. Got dtype float64"),
        (lambda: Graph([[0, 1], [1, 2], [2, 3]]), r"must have shape \(2, E\). Got \(3, 2\). Transpose"),
        (lambda: Graph([[0, 1], [1]]), "'edge_index' must be a rectangular array"),
        (lambda: Graph([[0], [1]], edge_weight=[-1.0]), "must be finite and not negative. Got -1.0 for edge 0"),
        (lambda: Graph([[0], [1]], edge_weight=[np.inf]), "must be finite and not negative. Got inf for edge 0"),
        (lambda: Graph([[0], [1]], edge_weight=[1.0, 2.0]), r"must have shape \(1,\)"),
        (lambda: Graph([[0], [1]], [[1.0, 2.0], [3.0, np.nan]]), "Got nan at row 1, column 1"),
        (lambda: Graph([[0], [1]], sp.csr_matrix([[0, 2.0], [0, np.inf]])), "Got inf at row 1, column 1"),
        (lambda: Graph([[0], [1]], [1.0, 2.0]), r"'features' must have shape \(N, d\)"),
        (lambda: Graph([[0], [1]], [["a"], ["b"]]), "'features' must hold numbers"),
        (lambda: Graph([[0], [1]], np.eye(3), num_nodes=2), "one row per node, 2 in all. Got 3 rows"),
        (lambda: Graph([[], []]), "at least one node"),
        (lambda: Graph(np.empty((2, 0), np.int64), num_nodes=0), "at least one node"),
        (lambda: Graph(sp.csr_matrix((2, 3))), "must be square"),
        (lambda: Graph.from_pyg(object()), "must have an edge_index"),
        (lambda: Graph.from_scipy([[0]]), "must be a scipy sparse matrix"),
    ],
)
def test_bad_input(build, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        build()


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ">f4"])
def test_csr_arrays_of_any_layout(dtype: Any) -> None:
    graph = Graph([[0, 1, 1], [1, 2, 3]], np.eye(4), edge_weight=[0.5, 2.0, 1.0])
    strided = [
        np.stack([array, array], 1)[:, 0] for array in (graph.indptr, graph.indices, graph.weights.astype(dtype))
    ]
    wrapped = Graph.from_csr(*strided, graph.features)
    assert wrapped.fingerprint == graph.fingerprint
    assert np.array_equal(compute_tokens(wrapped, order=3), compute_tokens(graph, order=3))


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_csr_weights_are_checked(tmp_path: Path, weight: float) -> None:
    graph = Graph([[0], [1]], edge_weight=[1.0])
    wrong = np.array([1.0, weight], np.float32)
    with pytest.raises(InvalidData, match=f"finite and not negative. Got {weight} for entry 1"):
        Graph.from_csr(graph.indptr, graph.indices, wrong)
    for values in (wrong, np.ones(2)):
        graph.save(tmp_path / values.dtype.name)
        np.save(tmp_path / values.dtype.name / "weights.npy", values)
        forget_samples(tmp_path / values.dtype.name)
        with pytest.raises(FileCorrupt, match="is damaged"):
            Graph.load(tmp_path / values.dtype.name)


@pytest.mark.parametrize("weight", [1e-39, 1e-44])
def test_degrees_too_small_to_divide_by(tmp_path: Path, weight: float) -> None:
    message = "must sum to 0 or to at least 1.18e-38. Got .* for node 0. Multiply all weights"
    with pytest.raises(InvalidData, match=message):
        Graph([[0], [1]], edge_weight=[weight])
    graph = Graph([[0], [1]], edge_weight=[1.0])
    with pytest.raises(InvalidData, match=message):
        Graph.from_csr(graph.indptr, graph.indices, np.float32([weight, weight]))
    (tmp_path / "edges.csv").write_text(f"source,target,weight\n0,1,{weight}\n")
    for read in (lambda path: import_graph(path, tmp_path / "graph"), open_source):
        with pytest.raises(InvalidData, match=message):
            read(tmp_path / "edges.csv")


def test_small_weights_and_degrees(kernel: str) -> None:
    """The smallest degree that is allowed, a tiny weight beside large ones, and a weight of zero."""
    least = float(np.finfo(np.float32).tiny)
    weights = [least, 1e-44, 1.0, 1.0, 0.0]
    graph = Graph([[0, 2, 2, 3, 5], [1, 3, 4, 4, 6]], np.eye(7), edge_weight=weights)
    for self_loops in (False, True):
        tokens = compute_tokens(graph, order=4, self_loops=self_loops).numpy()
        assert np.isfinite(tokens).all()
        assert np.allclose(tokens, exact_tokens(graph, resolve_basis("chebyshev"), 4, self_loops), atol=1e-5)


def forget_samples(folder: Path) -> None:
    """Change the manifest so that a changed file passes the check of samples."""
    rewrite_json(folder / "manifest.json", files={})


def damaged_matrix(form: str) -> Any:
    """A matrix of shape (3, 3) with an index or a pointer far outside it."""
    matrix = sp.csr_matrix(np.eye(3, dtype=np.float32)).asformat(form.split()[0])
    (matrix.col if form == "coo" else matrix.indptr if form == "csr pointers" else matrix.indices)[1] = 10**8
    return matrix


@pytest.mark.parametrize("form", ["csr", "csr pointers", "csc", "coo", "bsr"])
def test_sparse_matrices_that_point_out_of_themselves(tmp_path: Path, form: str) -> None:
    with pytest.raises(InvalidData, match="'adjacency' must be a valid sparse matrix"):
        Graph(damaged_matrix(form))
    with pytest.raises(InvalidData, match="'features' must be a valid sparse matrix"):
        Graph([[0], [1]], damaged_matrix(form))
    with pytest.raises(InvalidData, match="'features' must be a valid sparse matrix"):
        Graph.from_csr(np.array([0, 1, 2, 2]), np.array([1, 0], np.int32), features=damaged_matrix("csr"))
    graph = Graph([[0], [1]], sp.csr_matrix(np.eye(3)))
    graph.save(tmp_path / "graph")
    sp.save_npz(tmp_path / "graph" / "features.npz", damaged_matrix(form))
    forget_samples(tmp_path / "graph")
    with pytest.raises(FileCorrupt, match=r"features\.npz' cannot be read"):
        Graph.load(tmp_path / "graph")


def test_sparse_tensors_that_point_out_of_themselves() -> None:
    values = torch.ones(2)
    csr = torch.sparse_csr_tensor(torch.tensor([0, 1, 2]), torch.tensor([0, 1]), values, (2, 2))
    csr.crow_indices()[1] = 10**8
    coo = torch.sparse_coo_tensor(torch.tensor([[0, 1], [0, 1]]), values, (2, 2))
    coo._indices()[1, 1] = 10**8
    for tensor in (csr, coo):
        with pytest.raises(InvalidData, match="'features' must be a valid sparse matrix"):
            Graph([[0], [1]], tensor)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_save_and_load(tmp_path, sparse: bool, weighted: bool) -> None:
    random = np.random.default_rng(0)
    features = sp.random(20, 6, 0.3, random_state=random) if sparse else random.standard_normal((20, 6))
    graph = Graph(random.integers(0, 20, (2, 40)), features, edge_weight=random.random(40) if weighted else None)
    graph.save(tmp_path / "graph")
    loaded = Graph.load(tmp_path / "graph", verify=True)
    assert loaded.fingerprint == graph.fingerprint
    assert np.array_equal(loaded.indices, graph.indices)
    assert isinstance(loaded.indices, np.memmap)
    difference = loaded.features - graph.features
    assert abs(difference).max() == 0
    with pytest.raises(OutputExists, match="already exists"):
        graph.save(tmp_path / "graph")


def test_fingerprints_tell_graphs_apart() -> None:
    base = Graph([[0, 1], [1, 2]], np.eye(3))
    others = [
        Graph([[0, 0], [1, 2]], np.eye(3)),
        Graph([[0, 1], [1, 2]], 2 * np.eye(3)),
        Graph([[0, 1], [1, 2]], np.eye(3), edge_weight=[1.0, 2.0]),
    ]
    assert len({graph.fingerprint for graph in [base, *others]}) == 4
    assert base.fingerprint == Graph([[1, 2], [0, 1]], np.eye(3)).fingerprint


@pytest.mark.parametrize(
    "damage", ["truncated", "missing", "swapped", "features", "manifest", "version", "out of range", "flipped"]
)
def test_damaged_directory(tmp_path, damage: str) -> None:
    folder = tmp_path / "graph"
    Graph([[0, 1], [1, 2]], np.eye(3)).save(folder)
    verify = False
    if damage == "truncated":
        content = (folder / "indices.npy").read_bytes()
        (folder / "indices.npy").write_bytes(content[:-4])
    elif damage == "missing":
        (folder / "indptr.npy").unlink()
    elif damage == "swapped":
        Graph([[0, 1, 2], [1, 2, 3]], np.eye(4)).save(tmp_path / "other")
        (tmp_path / "other" / "indices.npy").replace(folder / "indices.npy")
    elif damage == "features":  # of the same shape
        Graph([[0, 1], [1, 2]], 2 * np.eye(3)).save(tmp_path / "other")
        (tmp_path / "other" / "features.npy").replace(folder / "features.npy")
    elif damage == "manifest":
        (folder / "manifest.json").write_text("{")
    elif damage == "version":
        manifest = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))
    elif damage == "out of range":
        np.save(folder / "indices.npy", np.array([1, 0, 2, 7], np.int32))
    else:  # a byte that no sample covers: only the whole hash tells
        np.save(folder / "features.npy", np.full((3, 3), 2.0, np.float32))
        forget_samples(folder)
        verify = True
    with pytest.raises(FileCorrupt):
        Graph.load(folder, verify=verify)


@pytest.mark.parametrize("key", ["weighted", "features", "num_nodes", "fingerprint"])
def test_a_manifest_without_a_key(tmp_path: Path, key: str) -> None:
    Graph([[0, 1], [1, 2]], np.eye(3)).save(tmp_path / "graph")
    manifest = json.loads((tmp_path / "graph" / "manifest.json").read_text())
    del manifest[key]
    (tmp_path / "graph" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(FileCorrupt, match=f"is damaged: it has no '{key}'"):
        Graph.load(tmp_path / "graph")


def test_no_directory(tmp_path) -> None:
    with pytest.raises(DataNotFound, match="no graph directory"):
        Graph.load(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataNotFound, match=r"is not a graph directory: it has no manifest\.json"):
        Graph.load(tmp_path / "empty")
