"""The streamed CSR pattern equals the one that Graph builds in memory, whatever the memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from polyformer.files import NpyWriter, npy_digest
from polyformer.graph import Graph
from polyformer.importing import csr_writer
from polyformer.importing.csr_writer import CsrWriter
from polyformer.importing.edges import EdgeBatch
from polyformer.importing.external_sort import EdgeSorter


def stream(folder: Path, edges: np.ndarray, weights: np.ndarray | None, num_nodes: int, capacity: int) -> EdgeSorter:
    sorter = EdgeSorter(folder, capacity, weights is not None)
    for start in range(0, edges.shape[1], 700):
        part = slice(start, start + 700)
        sorter.add(EdgeBatch(*edges[:, part], None if weights is None else weights[part]))
    with CsrWriter(folder, weights is not None) as writer:
        for entries in sorter.merge():
            writer.add(entries)
        writer.finish(num_nodes)
    sorter.close()
    return sorter


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_equal_to_the_graph_in_memory(tmp_path: Path, seed: int, weighted: bool) -> None:
    random = np.random.default_rng(seed)
    num_nodes, count = int(random.integers(1, 300)), int(random.integers(0, 4000))
    edges = (num_nodes * random.random((2, count)) ** 3).astype(np.int64)  # a few hubs, many repeats
    weights = random.random(count).astype(np.float32) if weighted else None
    stream(tmp_path, edges, weights, num_nodes, capacity=int(random.integers(200, 6000)))
    graph = Graph(edges, num_nodes=num_nodes, edge_weight=weights)
    files = [tmp_path / "indptr.npy", tmp_path / "indices.npy", *([tmp_path / "weights.npy"] if weighted else [])]
    for path, array in zip(files, (graph.indptr, graph.indices, graph.weights), strict=False):
        found = np.load(path)
        assert array is not None
        assert found.dtype == array.dtype
        assert np.array_equal(found, array)
    assert npy_digest(*files) == graph.structure_fingerprint


def test_little_memory_means_many_runs(tmp_path: Path) -> None:
    edges = np.random.default_rng(0).integers(0, 1000, (2, 2000))
    assert len(stream(tmp_path, edges, None, 1000, capacity=600)._runs) > 15


def test_long_stretches_of_isolated_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csr_writer, "_LONGEST_REPEAT", 8)
    edges = np.array([[3, 50], [90, 51]])
    stream(tmp_path, edges, None, 200, capacity=100)
    assert np.array_equal(np.load(tmp_path / "indptr.npy"), Graph(edges, num_nodes=200).indptr)


@pytest.mark.parametrize("rows", [0, 1, 12345])
def test_a_grown_file_is_what_numpy_saves(tmp_path: Path, rows: int) -> None:
    array = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
    with NpyWriter(tmp_path / "grown.npy", np.float32, (3,)) as writer:
        writer.append(array[: rows // 2])
        writer.append(array[rows // 2 :])
    np.save(tmp_path / "saved.npy", array)
    assert (tmp_path / "grown.npy").read_bytes() == (tmp_path / "saved.npy").read_bytes()
