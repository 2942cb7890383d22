"""The files of Planetoid: seven pickles and a list of test nodes for each citation network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyformer.errors import FileCorrupt
from polyformer.files import GET_AGAIN, read_small, reading
from polyformer.formats.pickles import load_pickle
from polyformer.limits import MOST_JSON_BYTES
from polyformer.splits import Split

__all__ = ["PARTS", "PlanetoidArrays", "read_planetoid"]

PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
PUBLIC_VALIDATION = 500


@dataclass(frozen=True, eq=False)
class PlanetoidArrays:
    """The content of the files.

    Shapes:
        ``edges`` (2, E); ``features`` (N, d) sparse; ``one_hot`` (N, C) sparse, an empty row where there is no label.

    Attributes:
        public: the split that comes with the files: 20 training nodes per class, 500 for validation.
    """

    edges: np.ndarray
    features: sp.csr_matrix
    one_hot: sp.csr_matrix
    public: Split


def read_planetoid(parts: Mapping[str, Path]) -> PlanetoidArrays:
    """Read the files, given by the last part of their names.

    ``x`` holds the features of the training documents, ``allx`` of all documents but the test documents, ``tx`` of the
    test documents; ``y``, ``ally`` and ``ty`` hold their one-hot labels; ``graph`` maps a node to its neighbours.
    """
    test_nodes = _test_nodes(parts["test.index"])
    ally, ty = _labels(parts["ally"]), _labels(parts["ty"])
    num_known, num_train = len(ally), len(_labels(parts["y"]))
    if test_nodes.min() < 0 or test_nodes.max() >= 16 * (num_known + len(test_nodes)):
        raise FileCorrupt(f"'{parts['test.index']}' lists nodes that are not there. {GET_AGAIN}")
    num_nodes = max(int(test_nodes.max()) + 1, num_known + len(test_nodes))
    with reading(parts["tx"], GET_AGAIN):  # files whose numbers of rows do not fit together
        features = _place(_features(parts["allx"]), _features(parts["tx"]), test_nodes, num_nodes)
        one_hot = _place(sp.csr_matrix(ally), sp.csr_matrix(ty), test_nodes, num_nodes)
    num_val = min(PUBLIC_VALIDATION, num_known - num_train)
    public = Split(np.arange(num_train), np.arange(num_train, num_train + num_val), np.sort(test_nodes))
    with reading(parts["graph"], GET_AGAIN):
        edges = _edges(load_pickle(parts["graph"]))
    return PlanetoidArrays(edges, features, one_hot, public)


def _place(known: sp.csr_matrix, test: sp.csr_matrix, test_nodes: np.ndarray, num_nodes: int) -> sp.csr_matrix:
    """The rows of the known nodes first, then the rows of the test nodes at their ids; other ids have empty rows.

    The i-th row of ``test`` belongs to the i-th id of ``test_nodes``.
    """
    rows = np.concatenate([np.arange(known.shape[0]), test_nodes])
    order = np.full(num_nodes, -1)
    order[rows] = np.arange(len(rows))
    stacked = sp.vstack([known, test, sp.csr_matrix((1, known.shape[1]), dtype=known.dtype)], format="csr")
    return sp.csr_matrix(stacked[order])  # index -1 is the empty row at the end


def _features(path: Path) -> sp.csr_matrix:
    matrix = load_pickle(path)
    with reading(path, GET_AGAIN):
        if not sp.issparse(matrix):
            raise ValueError("it should hold a sparse matrix of features")
        return sp.csr_matrix(matrix, dtype=np.float32)


def _labels(path: Path) -> np.ndarray:
    array = load_pickle(path)
    with reading(path, GET_AGAIN):
        if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "iuf":
            raise ValueError("it should hold one-hot labels")
    return array


def _test_nodes(path: Path) -> np.ndarray:
    with reading(path, GET_AGAIN):
        nodes = np.array(read_small(path, MOST_JSON_BYTES).decode("ascii").split(), dtype=np.int64)
        if len(nodes) == 0:
            raise ValueError("it lists no test nodes")
    return nodes


def _edges(neighbours: Any) -> np.ndarray:
    """(2, E) from a dictionary of neighbour lists."""
    sources = np.repeat(list(neighbours), [len(targets) for targets in neighbours.values()])
    targets = np.concatenate([np.asarray(targets, np.int64) for targets in neighbours.values()])
    return np.stack([sources, targets])
