from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.datasets.arrays import read_npz, reading
from polyformer.datasets.base import Counts
from polyformer.datasets.npy_stream import NpzMember
from polyformer.datasets.ogb import CITATION, SPLIT_FILES, URL, read_time_split
from polyformer.datasets.published import Contents, PublishedDataset, check_counts
from polyformer.datasets.sources import RemoteFile, processed_root
from polyformer.errors import FileCorrupt
from polyformer.graph import FORMAT, Graph
from polyformer.importing.array_files import NpyWriter
from polyformer.importing.csr_writer import write_csr
from polyformer.importing.directory import import_folder, write_manifest
from polyformer.importing.edges import EdgeBatch
from polyformer.importing.external_sort import BYTES_PER_ENTRY, EdgeSorter
from polyformer.progress import Stages
from polyformer.tasks import Task

__all__ = ["OGBN_PAPERS100M", "OgbBinary"]

_DATA, _LABELS = "raw/data.npz", "raw/node-label.npz"


@dataclass(frozen=True, eq=False)
class OgbBinary(PublishedDataset):
    """A set of the Open Graph Benchmark too large for memory: streamed once into a graph directory in the cache.

    ``data.npz`` holds ``edge_index`` (2, E) and ``node_feat`` (N, d), ``node-label.npz`` the labels, NaN where there
    is none. Features go to disk in pieces of 64 MiB and are memory-mapped from there; edges are sorted on disk in
    ``memory`` bytes.
    """

    memory: int = 2 << 30

    def read(self, paths: Mapping[str, Path]) -> Contents:
        """Open the graph directory made of these files, making it first if need be."""
        return self._contents(self._prepared(paths, None), paths)

    def load(self, root: Path | None, protocol: str, *, progress: Stages | None = None, **options: Any) -> Task:
        paths = self.fetch(root, progress)
        contents = self._contents(self._prepared(paths, progress), paths)
        check_counts(self, contents, paths[_DATA].parent)
        return Task(self.name, contents.graph, contents.labels, contents.splits[protocol], protocol, self.metric)

    def _contents(self, folder: Path, paths: Mapping[str, Path]) -> Contents:
        listed = NpzMember.open(paths[_DATA], "edge_index").shape[1]
        labels = _read_labels(paths[_LABELS])
        return Contents(Graph.load(folder), labels, {"fixed": [read_time_split(paths)]}, listed_edges=listed)

    def _prepared(self, paths: Mapping[str, Path], progress: Stages | None) -> Path:
        """The graph directory, named by the file that it is made of."""
        source = paths[_DATA].stat()
        key = hashlib.sha256(f"{source.st_size} {source.st_mtime_ns} {FORMAT}".encode()).hexdigest()[:12]
        folder = processed_root() / f"{self.name}-{key}"
        if not folder.is_dir():
            with import_folder(folder) as unfinished:
                _stream_graph(paths[_DATA], unfinished, self.memory, progress)
        return folder


def _stream_graph(path: Path, folder: Path, memory: int, progress: Stages | None) -> None:
    edges, features = NpzMember.open(path, "edge_index"), NpzMember.open(path, "node_feat")
    if len(edges.shape) != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu" or len(features.shape) != 2:
        raise FileCorrupt(
            f"'{path}' should hold edges (2, E) and features (N, d). Got {edges.shape}, {features.shape}."
        )
    num_nodes, num_features = features.shape
    num_entries = _write_edges(edges, num_nodes, folder, memory, progress)
    _write_features(features, folder, progress)
    write_manifest(folder, num_nodes, num_entries, num_features)


def _write_edges(edges: NpzMember, num_nodes: int, folder: Path, memory: int, progress: Stages | None) -> int:
    """Both directions of every edge as CSR arrays; returns how many entries there are."""
    sorter = EdgeSorter(folder / "work", memory // BYTES_PER_ENTRY[False] // 2, weighted=False)
    try:
        for source, target in edges.columns():
            _check_ids(source, target, num_nodes, edges.path)
            sorter.add(EdgeBatch(source, target, None))
            if progress is not None:
                progress("sorting edges", sorter.rows_read, edges.shape[1])
        return write_csr(folder, sorter, num_nodes, progress).num_entries
    finally:
        sorter.close()


def _check_ids(source: np.ndarray, target: np.ndarray, num_nodes: int, path: Path) -> None:
    low, high = min(int(source.min()), int(target.min())), max(int(source.max()), int(target.max()))
    if low < 0 or high >= num_nodes:
        raise FileCorrupt(
            f"Node ids in '{path}' must lie in 0..{num_nodes - 1}. Got {low}..{high}. Get the file again."
        )


def _write_features(features: NpzMember, folder: Path, progress: Stages | None) -> None:
    dtype = features.dtype if features.dtype in (np.float16, np.float32) else np.dtype(np.float32)
    with NpyWriter(folder / "features.npy", dtype, features.shape[1:]) as writer:
        for rows in features.rows():
            if not np.isfinite(rows).all():
                raise FileCorrupt(f"The features in '{features.path}' must be finite. Got others. Get the file again.")
            writer.append(rows)
            if progress is not None:
                progress("writing features", writer.length, features.shape[0])


def _read_labels(path: Path) -> np.ndarray:
    values = read_npz(path, ["node_label"])["node_label"].reshape(-1)
    with reading(path):
        return np.where(np.isnan(values), -1, values).astype(np.int64)


OGBN_PAPERS100M = OgbBinary(
    name="ogbn-papers100M",
    folder="ogbn-papers100M",
    files=(RemoteFile(_DATA), RemoteFile(_LABELS), *SPLIT_FILES),
    archive=RemoteFile("papers100M-bin.zip", f"{URL}/papers100M-bin.zip"),
    citation=CITATION,
    counts=Counts(nodes=111_059_956, edges=1_614_062_356, features=128, classes=172, listed=1_615_685_872),
    protocols=("fixed",),
    advice="It is a download of 57 GB and needs about 200 GB of disk while it is prepared.",
)
