"""npz, .pt, raw pairs and OGB folders: the graph that was written is the graph that is read."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from polyformer.errors import InvalidData
from polyformer.graph import Graph
from polyformer.importing import ImportOptions, import_graph, open_source
from polyformer.tasks import Task

RANDOM = np.random.default_rng(3)
EDGES = RANDOM.integers(0, 30, (2, 80))
FEATURES = RANDOM.normal(size=(30, 4)).astype(np.float32)
LABELS = np.arange(30) % 3
MASKS = np.arange(30) % 2 == 0, np.arange(30) % 4 == 1, np.arange(30) % 4 == 3
GRAPH = Graph(EDGES, FEATURES)


def both_ways(source: Path, folder: Path, options: ImportOptions | None = None) -> Task:
    """The imported task, after a check that the task opened in memory is the same."""
    import_graph(source, folder / "graph", options)
    task, held = Task.load(folder / "graph"), open_source(source, options)
    assert task.graph.fingerprint == held.graph.fingerprint
    assert task.labels.tolist() == held.labels.tolist()
    return task


def test_npz_of_heterophilous_graphs(tmp_path: Path) -> None:
    masks = {
        f"{part}_masks": np.stack([mask, mask]) for part, mask in zip(("train", "val", "test"), MASKS, strict=True)
    }
    np.savez(tmp_path / "a.npz", edges=EDGES.T, node_features=FEATURES, node_labels=LABELS, **masks)
    task = both_ways(tmp_path / "a.npz", tmp_path)
    assert task.graph.fingerprint == GRAPH.fingerprint
    assert len(task.splits) == 2
    assert task.splits[1].val.tolist() == np.flatnonzero(MASKS[1]).tolist()


def test_a_published_npz(data_root: Path, tmp_path: Path) -> None:
    path = data_root / "minesweeper" / "raw" / "minesweeper.npz"
    if not path.exists():
        pytest.skip("minesweeper.npz is not in the data root")
    task = both_ways(path, tmp_path)
    assert (task.graph.num_nodes, task.graph.num_edges, len(task.splits)) == (10_000, 39_402, 10)


@pytest.mark.parametrize("weighted", [False, True])
def test_scipy_adjacency(tmp_path: Path, weighted: bool) -> None:
    matrix = sp.random(30, 30, 0.1, "csr", random_state=0)
    if not weighted:
        matrix.data[:] = 1
    sp.save_npz(tmp_path / "a.npz", matrix)
    task = both_ways(tmp_path / "a.npz", tmp_path)
    assert task.graph.fingerprint == Graph.from_scipy(matrix).fingerprint


def tensors() -> dict[str, torch.Tensor]:
    names = ("train_mask", "val_mask", "test_mask")
    masks = {name: torch.from_numpy(mask) for name, mask in zip(names, MASKS, strict=True)}
    return {
        "edge_index": torch.from_numpy(EDGES),
        "x": torch.from_numpy(FEATURES),
        "y": torch.from_numpy(LABELS),
    } | masks


@pytest.mark.parametrize("form", ["dict", "data", "processed"])
def test_pyg_files(tmp_path: Path, form: str) -> None:
    from torch_geometric.data import Data

    content = {
        "dict": tensors(),
        "data": Data(**tensors()),
        "processed": (Data(**tensors()).to_dict(), None, Data),
    }[form]
    torch.save(content, tmp_path / "a.pt")
    task = both_ways(tmp_path / "a.pt", tmp_path)
    assert task.graph.fingerprint == GRAPH.fingerprint
    assert task.splits[0].test.tolist() == np.flatnonzero(MASKS[2]).tolist()


def test_pyg_weights_sparse_features_and_values(tmp_path: Path) -> None:
    weights = torch.from_numpy(RANDOM.random(80).astype(np.float32))
    content = {
        "edge_index": torch.from_numpy(EDGES),
        "edge_weight": weights,
        "x": torch.from_numpy(FEATURES).relu().to_sparse(),
        "y": torch.rand(30, 1),
        "num_nodes": 30,
    }
    torch.save(content, tmp_path / "a.pt")
    task = both_ways(tmp_path / "a.pt", tmp_path)
    assert isinstance(task.graph.features, sp.csr_matrix)
    assert task.graph.weights is not None
    assert (task.metric, task.protocol) == ("r2", "uniform")


@pytest.mark.parametrize("form", ["edges.bin", "edges.i32", "rows.npy", "columns.npy", "fortran.npy", "rows.NPY"])
def test_raw_pairs(tmp_path: Path, form: str) -> None:
    pairs = EDGES.astype(np.int32)
    path = tmp_path / form
    if path.suffix.lower() == ".npy":
        with path.open("wb") as file:
            np.save(file, {"rows": pairs, "columns": np.ascontiguousarray(pairs.T), "fortran": pairs.T}[path.stem])
    else:
        np.ascontiguousarray(pairs.T).tofile(path)
    task = both_ways(path, tmp_path)
    assert task.graph.fingerprint == Graph(EDGES).fingerprint


def test_raw_pairs_with_a_node_table(tmp_path: Path) -> None:
    np.ascontiguousarray(EDGES.astype(np.int32).T).tofile(tmp_path / "edges.i32")
    order = RANDOM.permutation(30)
    (tmp_path / "nodes.csv").write_text("id,label\n" + "".join(f"{i},c{i % 2}\n" for i in order))
    task = both_ways(tmp_path, tmp_path / "out")
    place = np.argsort(order)
    assert task.graph.fingerprint == Graph(place[EDGES]).fingerprint


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_unsigned_pairs(tmp_path: Path, dtype: type[np.unsignedinteger]) -> None:
    largest = min(int(np.iinfo(dtype).max), 2**60 + 1)
    ids = np.append(np.arange(29), largest).astype(dtype)
    np.save(tmp_path / "edges.npy", ids[EDGES])
    (tmp_path / "nodes.csv").write_text("id,label\n" + "".join(f"{i},c{i % 2}\n" for i in ids))
    assert both_ways(tmp_path, tmp_path / "out").graph.fingerprint == Graph(EDGES).fingerprint
    (tmp_path / "nodes.csv").write_text("id,label\n" + "".join(f"{i},c{i % 2}\n" for i in range(29)))
    with pytest.raises(InvalidData, match=rf"ids that no node has; the first of these ids: '{largest}'"):
        import_graph(tmp_path, tmp_path / "refused")


def write_ogb(root: Path) -> None:
    def put(name: str, array: np.ndarray, form: str = "%d") -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt") as file:
            np.savetxt(file, array, form, delimiter=",")

    put("raw/edge.csv.gz", EDGES.T)
    put("raw/num-node-list.csv.gz", np.array([30]))
    put("raw/num-edge-list.csv.gz", np.array([80]))
    put("raw/node-feat.csv.gz", FEATURES, "%.9g")
    labels = LABELS.astype(float)
    labels[29] = np.nan
    put("raw/node-label.csv.gz", labels, "%g")
    for part, mask in zip(("train", "valid", "test"), MASKS, strict=True):
        put(f"split/time/{part}.csv.gz", np.flatnonzero(mask))


def test_ogb_raw_folder(tmp_path: Path) -> None:
    write_ogb(tmp_path / "ogbn-mine")
    task = both_ways(tmp_path / "ogbn-mine", tmp_path)
    assert task.graph.fingerprint == GRAPH.fingerprint
    assert task.name == "ogbn-mine"
    assert task.labels.tolist() == [*LABELS[:29], -1]
    assert task.splits[0].train.tolist() == np.flatnonzero(MASKS[0]).tolist()
    (tmp_path / "ogbn-mine" / "raw" / "node-feat.csv.gz").unlink()
    summary = import_graph(tmp_path / "ogbn-mine", tmp_path / "bare")
    assert any("node-feat.csv.gz" in note for note in summary.notes)
