"""Write a graph directory from arrays in an npz file that do not fit in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from polyformer.errors import FileCorrupt
from polyformer.files import GET_AGAIN, NpyWriter, NpzMember
from polyformer.importing.csr_writer import write_csr
from polyformer.importing.directory import import_folder, write_manifest
from polyformer.importing.edges import EdgeBatch
from polyformer.importing.external_sort import BYTES_PER_ENTRY, EdgeSorter
from polyformer.reporter import SILENT, Reporter

__all__ = ["stream_graph"]


def stream_graph(path: Path, directory: Path, memory: int, reporter: Reporter = SILENT) -> None:
    """Write a graph directory from the members ``edge_index`` (2, E) and ``node_feat`` (N, d) of an npz file.

    Args:
        memory: bytes for sorting edges; all other data stays on disk.
    """
    edges, features = (NpzMember.open(path, key, GET_AGAIN) for key in ("edge_index", "node_feat"))
    if len(edges.shape) != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu" or len(features.shape) != 2:
        raise FileCorrupt(
            f"'{path}' should hold edges (2, E) and features (N, d). Got {edges.shape}, {features.shape}."
        )
    num_nodes, num_features = features.shape
    with import_folder(directory) as folder:
        num_entries = _write_edges(edges, num_nodes, folder, memory, reporter)
        _write_features(features, folder, reporter)
        write_manifest(folder, num_nodes, num_entries, num_features)


def _write_edges(edges: NpzMember, num_nodes: int, folder: Path, memory: int, reporter: Reporter) -> int:
    """Write both directions of every edge as CSR arrays; returns the number of entries."""
    sorter = EdgeSorter(folder / "work", memory // BYTES_PER_ENTRY[False] // 2, weighted=False)
    try:
        for source, target in edges.columns():
            _check_ids(source, target, num_nodes, edges.path)
            sorter.add(EdgeBatch(source, target, None))
            reporter.stage("sorting edges", sorter.rows_read, edges.shape[1])
        return write_csr(folder, sorter, num_nodes, reporter).num_entries
    finally:
        sorter.close()


def _check_ids(source: np.ndarray, target: np.ndarray, num_nodes: int, path: Path) -> None:
    low, high = min(int(source.min()), int(target.min())), max(int(source.max()), int(target.max()))
    if low < 0 or high >= num_nodes:
        raise FileCorrupt(
            f"Node ids in '{path}' must lie in 0..{num_nodes - 1}. Got {low}..{high}. Get the file again."
        )


def _write_features(features: NpzMember, folder: Path, reporter: Reporter) -> None:
    dtype = features.dtype if features.dtype in (np.float16, np.float32) else np.dtype(np.float32)
    with NpyWriter(folder / "features.npy", dtype, features.shape[1:]) as writer:
        for rows in features.rows():
            if not np.isfinite(rows).all():
                raise FileCorrupt(f"The features in '{features.path}' must be finite. Got others. Get the file again.")
            writer.append(rows)
            reporter.stage("writing features", writer.length, features.shape[0])
