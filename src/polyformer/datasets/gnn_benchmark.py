from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from polyformer.datasets.base import Counts
from polyformer.datasets.public_files import Contents, PublicDataset
from polyformer.datasets.sources import RemoteFile
from polyformer.errors import FileCorrupt
from polyformer.formats.matrices import read_matrices
from polyformer.formats.number_files import row_normalised
from polyformer.graph import Graph

__all__ = ["AMAZON_COMPUTERS", "AMAZON_PHOTO", "CS", "PHYSICS", "WORDNET", "SparseNpz"]

URL = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz"


@dataclass(frozen=True, eq=False)
class SparseNpz(PublicDataset):
    """Graphs stored as two CSR matrices in one npz file: ``adj_*`` the edges, ``attr_*`` the features, and ``labels``.

    Features are sparse counts; non-zero counts are set to 1. ``normalised`` tells whether rows are then divided by
    their sum, as in the published runs on CS and Physics.
    """

    normalised: bool = False

    def read(self, paths: Mapping[str, Path]) -> Contents:
        path = paths[self.files[0].path]
        arrays = read_matrices(path)
        if arrays.features is None or arrays.labels is None:
            raise FileCorrupt(f"'{path}' has no features or no labels. Get the file again.")
        features = _binary(arrays.features)
        adjacency = arrays.adjacency.tocoo()
        graph = Graph(
            np.stack([adjacency.row, adjacency.col]),
            row_normalised(features) if self.normalised else features,
            adjacency.shape[0],
        )
        return Contents(graph, arrays.labels, class_names=arrays.class_names)


def _binary(counts: sp.csr_matrix) -> sp.csr_matrix:
    """1 where a count is positive; stored zeros are dropped."""
    matrix = sp.csr_matrix(((counts.data > 0).astype(np.float32), counts.indices, counts.indptr), shape=counts.shape)
    matrix.eliminate_zeros()
    return matrix


_SHCHUR = "Shchur et al., Pitfalls of graph neural network evaluation, 2018"

CS = SparseNpz(
    name="cs",
    folder="CS",
    files=(RemoteFile("raw/ms_academic_cs.npz", f"{URL}/ms_academic_cs.npz"),),
    citation=_SHCHUR,
    counts=Counts(nodes=18_333, edges=81_894, features=6_805, classes=15),
    protocols=("balanced", "uniform"),
    normalised=True,
)

PHYSICS = SparseNpz(
    name="physics",
    folder="Physics",
    files=(RemoteFile("raw/ms_academic_phy.npz", f"{URL}/ms_academic_phy.npz"),),
    citation=_SHCHUR,
    counts=Counts(nodes=34_493, edges=247_962, features=8_415, classes=5),
    protocols=("balanced", "uniform"),
    normalised=True,
)

AMAZON_COMPUTERS = SparseNpz(
    name="amazon-computers",
    folder="Computers",
    files=(RemoteFile("raw/amazon_electronics_computers.npz", f"{URL}/amazon_electronics_computers.npz"),),
    citation=_SHCHUR,
    counts=Counts(nodes=13_752, edges=245_861, features=767, classes=10),
    protocols=("balanced", "uniform"),
)

AMAZON_PHOTO = SparseNpz(
    name="amazon-photo",
    folder="Photo",
    files=(RemoteFile("raw/amazon_electronics_photo.npz", f"{URL}/amazon_electronics_photo.npz"),),
    citation=_SHCHUR,
    counts=Counts(nodes=7_650, edges=119_081, features=745, classes=8),
    protocols=("balanced", "uniform"),
)

# Uniform splits first: some of the 45 classes have a handful of nodes, which balanced splits would spend on training.
WORDNET = SparseNpz(
    name="wordnet",
    folder="WordNet",
    files=(RemoteFile("raw/wordnet.npz"),),
    citation="Fellbaum, WordNet: an electronic lexical database, 1998 (version 3.0; not a published benchmark)",
    counts=Counts(nodes=117_659, edges=183_789, features=3_256, classes=45),
    protocols=("uniform", "balanced"),
    advice="This graph of WordNet 3.0 was made for this project and has no public address.",
)
