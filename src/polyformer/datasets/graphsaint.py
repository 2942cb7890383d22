from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.datasets.base import Counts
from polyformer.datasets.ogb import CITATION
from polyformer.datasets.public_files import Contents, PublicDataset
from polyformer.datasets.sources import RemoteFile
from polyformer.errors import InvalidParameter
from polyformer.files import GET_AGAIN, read_json, read_npz, reading
from polyformer.files.data_schemas import SAINT_CLASSES, SAINT_ROLES
from polyformer.formats.number_files import csr_from_arrays
from polyformer.graph import Graph
from polyformer.reporter import SILENT, Reporter
from polyformer.splits import Split
from polyformer.tasks import Task

__all__ = ["OGBN_ARXIV_GRAPH", "GraphSaint", "projected_adjacency"]


@dataclass(frozen=True, eq=False)
class GraphSaint(PublicDataset):
    """A graph in the layout of GraphSAINT, without its features: for tests of structure, scale and speed.

    ``adj_full.npz`` is a scipy CSR matrix, ``class_map.json`` maps node to class, ``role.json`` lists the nodes of
    the official split under ``tr``, ``va`` and ``te``. With ``projection=d`` features are made from the structure: see
    :func:`projected_adjacency`.
    """

    options = ("projection",)

    def load(self, root: Path | None, protocol: str, *, reporter: Reporter = SILENT, **options: Any) -> Task:
        columns = options.get("projection")
        if columns is not None and (type(columns) is not int or columns < 1):
            raise InvalidParameter(f"'projection' must be a number of columns, 1 or more. Got {columns}. Try 128.")
        task = super().load(root, protocol, reporter=reporter)
        if columns is None:
            return task
        return replace(task, graph=task.graph.with_features(projected_adjacency(task.graph, columns)))

    def read(self, paths: Mapping[str, Path]) -> Contents:
        path, class_map, role = (paths[file.path] for file in self.files)
        arrays = read_npz(path, ["indices", "indptr", "shape"], advice=GET_AGAIN)
        adjacency = csr_from_arrays(arrays, "", path).tocoo()
        classes, roles = read_json(class_map, SAINT_CLASSES), read_json(role, SAINT_ROLES)
        with reading(class_map, GET_AGAIN):
            labels = np.full(adjacency.shape[0], -1, np.int64)
            labels[np.fromiter(map(int, classes), np.int64)] = np.fromiter(classes.values(), np.int64)
        with reading(role, GET_AGAIN):
            split = Split(*(np.sort(np.asarray(roles[part], np.int64)) for part in ("tr", "va", "te")))
        graph = Graph(np.stack([adjacency.row, adjacency.col]), num_nodes=adjacency.shape[0])
        return Contents(graph, labels, {"fixed": [split]}, listed_edges=adjacency.nnz)


def projected_adjacency(graph: Graph, columns: int) -> np.ndarray:
    """Features made from the structure: P R with a fixed normal matrix R (N, d), scaled to variance 1."""
    scaling = 1 / np.sqrt(np.maximum(graph.degrees, 1))[:, None]
    noise = np.random.default_rng(0).standard_normal((graph.num_nodes, columns), dtype=np.float32)
    projected = scaling * (graph.adjacency() @ (scaling * noise))
    return (projected / projected.std()).astype(np.float32)


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
