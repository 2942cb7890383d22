"""A graph as matrices in one file: the npz of gnn-benchmark, and MATLAB files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyformer.errors import FileCorrupt, InvalidData
from polyformer.files import GET_AGAIN, read_npz, reading
from polyformer.formats.matlab import matlab_variables
from polyformer.formats.number_files import csr_from_arrays

__all__ = ["MAT_KEYS", "Matrices", "holds_matrices", "read_matlab", "read_matrices"]

_PARTS = ("data", "indices", "indptr", "shape")
_PREFIXES = {"adj": ("adj_", "adj_matrix."), "attr": ("attr_", "attr_matrix.")}

MAT_KEYS: dict[str, tuple[str, ...]] = {
    "adjacency": ("a", "adj", "adjacency", "network", "net", "homo", "w", "graph"),
    "edges": ("edge_index", "edges"),
    "features": ("node_feat", "features", "attributes", "attributesmatrix", "x", "attr", "feat"),
    "labels": ("label", "labels", "y", "class", "gnd", "group"),
    "profile": ("local_info",),
}
"""Names of variables in MATLAB files, in upper or lower case; the Facebook100 networks have ``local_info``."""

_GENDER = 1


@dataclass(frozen=True, eq=False)
class Matrices:
    """The matrices of a file.

    Shapes:
        ``adjacency`` (N, N) sparse; ``features`` (N, d) dense or sparse; ``labels`` (N,).

    Attributes:
        keys: the name of each matrix in the file.
        notes: sentences on what was assumed.
    """

    adjacency: Any
    features: Any = None
    labels: np.ndarray | None = None
    class_names: tuple[str, ...] | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def holds_matrices(names: list[str]) -> bool:
    """Whether :func:`read_matrices` can read a file with these arrays."""
    return any(f"{prefix}indptr" in names for prefix in _PREFIXES["adj"])


def read_matrices(path: Path) -> Matrices:
    """Read two CSR matrices from one npz file, ``adj_*`` the edges and ``attr_*`` the features, and ``labels``.

    Each is stored as ``data``, ``indices``, ``indptr`` and ``shape``; all but ``adj_indices`` and ``adj_indptr`` may
    be missing.
    """
    keys = [f"{prefix}{part}" for prefixes in _PREFIXES.values() for prefix in prefixes for part in _PARTS]
    arrays = read_npz(path, [], optional=[*keys, "attr_matrix", "labels", "class_names"], advice=GET_AGAIN)
    matrices = {}
    for matrix, prefixes in _PREFIXES.items():
        prefix = next((prefix for prefix in prefixes if f"{prefix}indptr" in arrays), None)
        with reading(path, GET_AGAIN):
            matrices[matrix] = None if prefix is None else csr_from_arrays(arrays, prefix, path)
    if matrices["adj"] is None:
        raise FileCorrupt(f"'{path}' cannot be read (it has no 'adj_indptr'). Get the file again.")
    features = arrays.get("attr_matrix") if matrices["attr"] is None else matrices["attr"]
    names = arrays.get("class_names")
    key_of_role = {"adjacency": "adj_*", "features": None if features is None else "attr_*"}
    key_of_role["labels"] = "labels" if "labels" in arrays else None
    return Matrices(
        matrices["adj"],
        features,
        arrays.get("labels"),
        None if names is None else tuple(map(str, names)),
        {role: key for role, key in key_of_role.items() if key is not None},
    )


def read_matlab(path: Path) -> Matrices:
    """Read a MATLAB 5 file with an adjacency matrix or a list of edges, and perhaps features and labels.

    ``MAT_KEYS`` lists the names, in upper or lower case. In a Facebook100 network, gender is the label (0 is unknown)
    and each other column of ``local_info`` is encoded one-hot, as in LINKX.
    """
    content, keys = _variables(path)
    notes: list[str] = []
    labels = None if "labels" not in content else _labels(content["labels"], path)
    features = content.get("features")
    if "profile" in content:
        features, labels = _profile(np.asarray(content["profile"]), path)
        notes.append("'local_info': gender is the label, each other column a category, as in LINKX.")
    if "adjacency" in content:
        adjacency = _square(content["adjacency"], path)
    else:
        described = next((values for values in (features, labels) if values is not None), None)
        count = None if described is None else int(described.shape[0])
        adjacency, more = _adjacency(np.asarray(content["edges"]), count, path)
        notes += more
    return Matrices(adjacency, features, labels, None, keys, tuple(notes))


def _square(matrix: Any, path: Path) -> sp.coo_matrix:
    """The adjacency matrix, sparse; words, cells and arrays of three axes are none."""
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise FileCorrupt(
            f"The adjacency of '{path}' must be a matrix of numbers. Got {matrix.dtype} of shape {matrix.shape}. "
            f"{GET_AGAIN}"
        )
    return sp.coo_matrix(matrix)


def _variables(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The variables by their role, and the name of each in the file."""
    with reading(path, GET_AGAIN):
        try:
            names = list(matlab_variables(path))
        except NotImplementedError:
            raise InvalidData(
                f"'{path}' is a MATLAB 7.3 file, which cannot be read. Save it again in MATLAB with the option '-v7'."
            ) from None
        keys = {
            role: next(name for name in names if name.lower() in known)
            for role, known in MAT_KEYS.items()
            if any(name.lower() in known for name in names)
        }
        if not {"adjacency", "edges"} & keys.keys():
            known = ", ".join((*MAT_KEYS["adjacency"], *MAT_KEYS["edges"]))
            raise InvalidData(
                f"'{path}' must hold an adjacency matrix or edges, named {known}, in any case. It holds: "
                f"{', '.join(names[:20]) or 'nothing'}. Rename the variable."
            )
        loaded = matlab_variables(path, list(keys.values()))
    return {role: loaded[name] for role, name in keys.items()}, keys


def _labels(values: Any, path: Path) -> np.ndarray:
    """(N,) from a row, a column, or a matrix with one 1 in each row."""
    array = np.asarray(values.toarray() if sp.issparse(values) else values)
    if array.ndim == 2 and min(array.shape) > 1:
        ones = (array != 0).sum(axis=1)
        if ones.max(initial=0) > 1:
            raise InvalidData(
                f"The labels of '{path}' must be one per node. Got several for node {int(np.argmax(ones > 1))}. "
                f"Choose one of them."
            )
        return np.where(ones == 1, (array != 0).argmax(axis=1), -1)
    array = array.ravel()
    if array.dtype.kind == "O" and all(getattr(value, "size", 0) == 1 for value in array):  # a cell array of words
        array = np.array([str(value.item()) for value in array])
    if array.dtype.kind == "f" and bool(np.all(np.isnan(array) | (array == np.round(array)))):
        return np.where(np.isnan(array), -1, array).astype(np.int64)  # MATLAB stores all numbers as doubles
    return array


def _profile(table: np.ndarray, path: Path) -> tuple[sp.csr_matrix, np.ndarray]:
    """Features and labels of a Facebook100 network: gender is 1 or 2, or 0 where it is unknown."""
    if table.ndim != 2 or table.shape[1] <= _GENDER + 1:
        raise InvalidData(f"'local_info' of '{path}' must be a table of people. Got shape {table.shape}.")
    columns = [np.unique(table[:, i], return_inverse=True) for i in range(table.shape[1]) if i != _GENDER]
    rows = np.arange(len(table))
    parts = [
        sp.csr_matrix((np.ones(len(rows), np.float32), (rows, code.ravel())), (len(rows), len(values)))
        for values, code in columns
    ]
    return sp.csr_matrix(sp.hstack(parts)), table[:, _GENDER].astype(np.int64) - 1


def _adjacency(edges: np.ndarray, num_nodes: int | None, path: Path) -> tuple[sp.coo_matrix, list[str]]:
    """The matrix of a list of edges, (2, E) or (E, 2); MATLAB counts nodes from 1."""
    edges = edges.T if edges.ndim == 2 and edges.shape[1] == 2 and edges.shape[0] != 2 else edges
    if edges.ndim != 2 or edges.shape[0] != 2 or not np.array_equal(edges, np.round(edges)):
        raise InvalidData(f"The edges of '{path}' must be pairs of whole numbers. Got {edges.dtype} {edges.shape}.")
    edges, notes = edges.astype(np.int64), []
    if edges.size and edges.min() == 1 and edges.max() == num_nodes:
        edges, notes = edges - 1, [f"Nodes of '{path.name}' are numbered from 1."]
    count = int(edges.max(initial=-1)) + 1 if num_nodes is None else num_nodes
    if edges.size and (edges.min() < 0 or edges.max() >= count):
        raise InvalidData(
            f"The edges of '{path}' name node {int(edges.max())}, but there are {count:,} nodes. Correct the edges."
        )
    return sp.coo_matrix((np.ones(edges.shape[1], np.float32), (edges[0], edges[1])), (count, count)), notes
