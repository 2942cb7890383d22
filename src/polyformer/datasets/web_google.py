from __future__ import annotations

import gzip
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from polyformer.datasets.base import Counts
from polyformer.datasets.public_files import Contents, PublicDataset
from polyformer.datasets.sources import RemoteFile
from polyformer.files import GET_AGAIN, read_npz, reading
from polyformer.formats.number_files import csr_from_arrays
from polyformer.graph import Graph

__all__ = ["WEB_GOOGLE", "BareGraph"]


@dataclass(frozen=True, eq=False)
class BareGraph(PublicDataset):
    """A graph without features, labels and splits: for tokens of features of your own, and for tests of speed.

    Read from SNAP's edge list (two ids a line, ``#`` before comments) or from the same graph as CSR arrays in an
    npz file. Nodes are numbered in the order of their ids, which are kept in ``task.ids``.
    """

    def read(self, paths: Mapping[str, Path]) -> Contents:
        path = paths[self.files[0].path]
        edges, ids = _read_arrays(path) if path.suffix == ".npz" else _read_edge_list(path)
        graph = Graph(edges, num_nodes=len(ids))
        return Contents(graph, np.full(len(ids), -1, np.int64), ids=ids, listed_edges=edges.shape[1])


def _read_arrays(path: Path) -> tuple[np.ndarray, np.ndarray]:
    arrays = read_npz(path, ["adj_indices", "adj_indptr", "adj_shape"], optional=["node_ids"], advice=GET_AGAIN)
    adjacency = csr_from_arrays(arrays, "adj_", path).tocoo()
    ids = arrays.get("node_ids", np.arange(adjacency.shape[0]))
    return np.stack([adjacency.row, adjacency.col]), ids.astype(np.int64)


def _read_edge_list(path: Path) -> tuple[np.ndarray, np.ndarray]:
    from pyarrow import csv

    with reading(path, GET_AGAIN):
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            comments = sum(1 for _ in itertools.takewhile(lambda line: line.startswith("#"), file))
        table = csv.read_csv(
            str(path),
            read_options=csv.ReadOptions(column_names=["source", "target"], skip_rows=comments),
            parse_options=csv.ParseOptions(delimiter="\t"),
            convert_options=csv.ConvertOptions(column_types={"source": "int64", "target": "int64"}),
        )
        pairs = np.stack([table[name].to_numpy() for name in ("source", "target")])
    ids, numbers = np.unique(pairs, return_inverse=True)
    return numbers.reshape(pairs.shape), ids


WEB_GOOGLE = BareGraph(
    name="web-google",
    folder="web-Google",
    files=(
        RemoteFile(
            "raw/web-Google.txt.gz", "https://snap.stanford.edu/data/web-Google.txt.gz", also=("raw/web-Google.npz",)
        ),
    ),
    citation="Leskovec et al., Community structure in large networks, Internet Mathematics 2009",
    counts=Counts(nodes=875_713, edges=4_322_051, features=0, classes=0),
    protocols=("none",),
    metric="",
)
