from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from polyformer.datasets.base import Counts
from polyformer.datasets.public_files import Contents, PublicDataset
from polyformer.datasets.sources import RemoteFile
from polyformer.formats.number_files import read_number_table
from polyformer.graph import Graph
from polyformer.splits import Split

__all__ = ["CITATION", "OGBN_ARXIV", "SPLIT_FILES", "URL", "OgbCsv", "read_time_split"]

URL = "https://snap.stanford.edu/ogb/data/nodeproppred"
CITATION = "Hu et al., Open graph benchmark: datasets for machine learning on graphs, NeurIPS 2020"
SPLIT_FILES = tuple(RemoteFile(f"split/time/{part}.csv.gz") for part in ("train", "valid", "test"))


@dataclass(frozen=True, eq=False)
class OgbCsv(PublicDataset):
    """A node-classification set of the Open Graph Benchmark from its raw tables, without the ``ogb`` package.

    ``edge``, ``node-feat`` and ``node-label`` are gzipped tables without a header; the official split is by time.
    """

    def read(self, paths: Mapping[str, Path]) -> Contents:
        edges = read_number_table(paths["raw/edge.csv.gz"], np.int64)
        features = read_number_table(paths["raw/node-feat.csv.gz"], np.float32)
        labels = read_number_table(paths["raw/node-label.csv.gz"], np.int64)[:, 0]
        graph = Graph(edges.T, features, len(labels))
        return Contents(graph, labels, {"fixed": [read_time_split(paths)]}, listed_edges=len(edges))


def read_time_split(paths: Mapping[str, Path]) -> Split:
    """The official split: one table of node ids per part."""
    return Split(*(np.sort(read_number_table(paths[file.path], np.int64)[:, 0]) for file in SPLIT_FILES))


OGBN_ARXIV = OgbCsv(
    name="ogbn-arxiv",
    folder="ogbn-arxiv",
    files=(
        RemoteFile("raw/edge.csv.gz"),
        RemoteFile("raw/node-feat.csv.gz"),
        RemoteFile("raw/node-label.csv.gz"),
        *SPLIT_FILES,
    ),
    archive=RemoteFile("arxiv.zip", f"{URL}/arxiv.zip"),
    citation=CITATION,
    counts=Counts(nodes=169_343, edges=1_157_799, features=128, classes=40),
    protocols=("fixed", "uniform"),
    advice=(
        "It cannot be loaded without its node features, raw/node-feat.csv.gz; 'ogbn-arxiv-graph' is the same graph, "
        "labels and split without features."
    ),
)
