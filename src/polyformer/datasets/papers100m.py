from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.datasets.base import Counts
from polyformer.datasets.ogb import CITATION, SPLIT_FILES, URL, read_time_split
from polyformer.datasets.public_files import Contents, PublicDataset, check_counts
from polyformer.datasets.sources import RemoteFile
from polyformer.files import GET_AGAIN, NpzMember, read_npz, reading
from polyformer.graph import Graph
from polyformer.graph_files import FORMAT
from polyformer.reporter import SILENT, Reporter
from polyformer.tasks import Task
from polyformer.user_cache import processed_root

__all__ = ["OGBN_PAPERS100M", "OgbBinary"]

_DATA, _LABELS = "raw/data.npz", "raw/node-label.npz"


@dataclass(frozen=True, eq=False)
class OgbBinary(PublicDataset):
    """A data set of the Open Graph Benchmark that exceeds memory: it is written once to a graph directory in the cache.

    ``data.npz`` holds ``edge_index`` (2, E) and ``node_feat`` (N, d), ``node-label.npz`` the labels, NaN where there
    is none. Features go to disk in pieces of 64 MiB and are memory-mapped from there; edges are sorted on disk in
    ``memory`` bytes.
    """

    memory: int = 2 << 30

    def read(self, paths: Mapping[str, Path]) -> Contents:
        """Open the graph directory made from these files; make it first if it is not there."""
        return self._contents(self._prepared(paths, SILENT), paths)

    def load(self, root: Path | None, protocol: str, *, reporter: Reporter = SILENT, **options: Any) -> Task:
        paths = self.fetch(root, reporter)
        contents = self._contents(self._prepared(paths, reporter), paths)
        check_counts(self, contents, paths[_DATA].parent)
        return Task(self.name, contents.graph, contents.labels, contents.splits[protocol], protocol, self.metric)

    def _contents(self, folder: Path, paths: Mapping[str, Path]) -> Contents:
        listed = NpzMember.open(paths[_DATA], "edge_index", GET_AGAIN).shape[1]
        labels = _read_labels(paths[_LABELS])
        return Contents(Graph.load(folder), labels, {"fixed": [read_time_split(paths)]}, listed_edges=listed)

    def _prepared(self, paths: Mapping[str, Path], reporter: Reporter) -> Path:
        """The graph directory, whose name depends on the file that it is made from."""
        source = paths[_DATA].stat()
        key = hashlib.sha256(f"{source.st_size} {source.st_mtime_ns} {FORMAT}".encode()).hexdigest()[:12]
        folder = processed_root() / f"{self.name}-{key}"
        if not folder.is_dir():
            from polyformer.datasets.streamed_graph import stream_graph

            stream_graph(paths[_DATA], folder, self.memory, reporter)
        return folder


def _read_labels(path: Path) -> np.ndarray:
    values = read_npz(path, ["node_label"], advice=GET_AGAIN)["node_label"].reshape(-1)
    with reading(path, GET_AGAIN):
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
