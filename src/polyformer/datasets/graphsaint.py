from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from polyformer.datasets.arrays import csr_from_arrays, read_npz, reading
from polyformer.datasets.base import Counts
from polyformer.datasets.ogb import CITATION
from polyformer.datasets.published import Contents, PublishedDataset
from polyformer.datasets.sources import RemoteFile
from polyformer.files import read_json
from polyformer.graph import Graph
from polyformer.splits import Split

__all__ = ["OGBN_ARXIV_GRAPH", "GraphSaint"]


@dataclass(frozen=True, eq=False)
class GraphSaint(PublishedDataset):
    """A graph in the layout of GraphSAINT, without its features: for structure, scale and speed, not for scores.

    ``adj_full.npz`` is a scipy CSR matrix, ``class_map.json`` maps node to class, ``role.json`` lists the nodes of
    the official split under ``tr``, ``va`` and ``te``.
    """

    def read(self, paths: Mapping[str, Path]) -> Contents:
        path, class_map, role = (paths[file.path] for file in self.files)
        arrays = read_npz(path, ["indices", "indptr", "shape"])
        adjacency = csr_from_arrays(arrays, "", path).tocoo()
        classes, roles = read_json(class_map, "a GraphSAINT folder"), read_json(role, "a GraphSAINT folder")
        with reading(class_map):
            labels = np.full(adjacency.shape[0], -1, np.int64)
            labels[np.fromiter(map(int, classes), np.int64)] = np.fromiter(classes.values(), np.int64)
        with reading(role):
            split = Split(*(np.sort(np.asarray(roles[part], np.int64)) for part in ("tr", "va", "te")))
        graph = Graph(np.stack([adjacency.row, adjacency.col]), num_nodes=adjacency.shape[0])
        return Contents(graph, labels, {"fixed": [split]}, listed_edges=adjacency.nnz)


OGBN_ARXIV_GRAPH = GraphSaint(
    name="ogbn-arxiv-graph",
    folder="ogbn-arxiv",
    files=(RemoteFile("raw/adj_full.npz"), RemoteFile("raw/class_map.json"), RemoteFile("raw/role.json")),
    citation=CITATION,
    counts=Counts(nodes=169_343, edges=1_157_799, features=0, classes=40),
    protocols=("fixed", "uniform"),
    advice=(
        "These files in GraphSAINT's layout have no public address of their own; 'ogbn-arxiv' downloads the whole "
        "data set, features included."
    ),
)
