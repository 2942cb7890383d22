"""Graphs as matrices: scipy's npz, Matrix Market, the npz of gnn-benchmark, MATLAB files, folders of Planetoid."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from polyformer.errors import DataNotFound, InvalidData
from polyformer.files import read_sparse, reading, source_bytes
from polyformer.formats.market import read_market
from polyformer.formats.matrices import Matrices, read_matlab, read_matrices
from polyformer.formats.planetoid import PARTS, read_planetoid
from polyformer.graph_checks import validate_sparse
from polyformer.importing.edges import ArrayEdges
from polyformer.importing.features import ArrayFeatures
from polyformer.importing.identifiers import DenseIds
from polyformer.importing.labels import Labels, encode_labels
from polyformer.importing.options import ColumnMatch, ImportOptions
from polyformer.importing.source import Source
from polyformer.limits import check_claimed_nodes
from polyformer.splits import Split

__all__ = [
    "MATRIX_READERS",
    "is_planetoid",
    "read_matlab_file",
    "read_matrix_market",
    "read_matrix_npz",
    "read_planetoid_folder",
    "read_scipy_npz",
]


def read_scipy_npz(path: Path, options: ImportOptions) -> Source:
    """Read an adjacency matrix that ``scipy.sparse.save_npz`` wrote."""
    matrix = read_sparse(path)
    with reading(path):
        validate_sparse(matrix)
    return _source("scipy npz", path, Matrices(matrix), options)


def read_matrix_market(path: Path, options: ImportOptions) -> Source:
    """An adjacency matrix in the format of the SuiteSparse collection, plain or gzipped."""
    return _source("Matrix Market", path, Matrices(read_market(path)), options)


def read_matrix_npz(path: Path, options: ImportOptions) -> Source:
    """Read arrays ``adj_*``, ``attr_*`` and ``labels``, as in gnn-benchmark; features stay as they are."""
    return _source("gnn-benchmark npz", path, read_matrices(path), options)


def read_matlab_file(path: Path, options: ImportOptions) -> Source:
    """Read an adjacency matrix or edges, features and labels from a MATLAB 5 file."""
    return _source("MATLAB", path, read_matlab(path), options)


MATRIX_READERS = {".mat": read_matlab_file, ".mtx": read_matrix_market, ".mtx.gz": read_matrix_market}
"""Readers by the ending of the file's name."""


def is_planetoid(folder: Path) -> bool:
    """Whether a folder, or its ``raw`` folder, holds Planetoid's files."""
    return any(any(place.glob("ind.*.graph")) for place in (folder, folder / "raw"))


def read_planetoid_folder(folder: Path, options: ImportOptions) -> Source:
    """Read ``ind.NAME.x`` … ``ind.NAME.test.index``: features as they are, and the public split."""
    raw = folder if any(folder.glob("ind.*.graph")) else folder / "raw"
    names = sorted(path.name.split(".")[1] for path in raw.glob("ind.*.graph"))
    if len(names) > 1:
        raise InvalidData(
            f"'{raw}' holds the files of {' and '.join(names)}. Move the files of one data set to a folder of its own."
        )
    parts = {part: raw / f"ind.{names[0]}.{part}" for part in PARTS}
    for path in parts.values():
        if not path.is_file():
            raise DataNotFound(f"There is no file '{path}'. Put it beside the others of '{names[0]}'.")
    arrays = read_planetoid(parts)
    labelled = np.diff(arrays.one_hot.indptr) > 0
    labels = np.where(labelled, arrays.one_hot.toarray().argmax(axis=1), -1)
    count = arrays.features.shape[0]
    adjacency = sp.coo_matrix((np.ones(arrays.edges.shape[1], np.float32), tuple(arrays.edges)), (count, count))
    keys = {"adjacency": "graph", "features": "allx, tx", "labels": "ally, ty", "split": "y, test.index"}
    matrices = Matrices(adjacency, arrays.features, labels, None, keys)
    public = Split(*(part[labelled[part]] for part in (arrays.public.train, arrays.public.val, arrays.public.test)))
    return _source("Planetoid", raw / f"ind.{names[0]}", matrices, options, (public,), names[0])


_ROLES = {
    "adjacency": "adjacency matrix",
    "edges": "edge list",
    "features": "feature matrix",
    "labels": "label",
    "profile": "label and categories",
    "split": "split",
}


def _source(
    kind: str,
    path: Path,
    matrices: Matrices,
    options: ImportOptions,
    splits: tuple[Split, ...] | None = None,
    name: str | None = None,
) -> Source:
    matrix = matrices.adjacency.tocoo()
    count = int(matrix.shape[0])
    if matrix.shape[0] != matrix.shape[1]:
        raise InvalidData(f"The adjacency matrix in '{path}' must be square. Got shape {matrix.shape}.")
    check_claimed_nodes(count, source_bytes(path), str(path))
    weights = None if options.weight_column == "" or np.all(matrix.data == 1) else matrix.data
    edges = ArrayEdges(np.stack([matrix.row, matrix.col]), weights, path.name)
    features = None if matrices.features is None or options.features == () else ArrayFeatures(matrices.features)
    labels = None if matrices.labels is None or options.label_column == "" else _labels(matrices, path, options)
    for what, rows in (
        ("features", None if features is None else features.values.shape[0]),
        ("labels", None if labels is None else len(labels.values)),
    ):
        if rows not in (None, count):
            raise InvalidData(f"'{path}' must hold {what} of {count:,} nodes, a row for each. Got {rows:,}.")
    keys = matrices.keys or {"adjacency": f"{count} × {count}"}
    matched = tuple(ColumnMatch(path.name, _ROLES[role], key) for role, key in keys.items())
    return Source(
        kind,
        name or path.name.split(".")[0],
        edges,
        DenseIds(count),
        features,
        labels,
        splits if labels is not None else None,
        matched=matched,
        notes=matrices.notes,
    )


def _labels(matrices: Matrices, path: Path, options: ImportOptions) -> Labels:
    values: Any = matrices.labels
    if values.ndim != 1 or values.dtype.kind not in "biufU":
        raise InvalidData(
            f"Labels of '{path}' must be one class or number per node. Got {values.dtype} {values.shape}."
        )
    labels = encode_labels(pa.array(values), options)
    if matrices.class_names is not None and labels.class_names is None and labels.values.dtype.kind == "i":
        largest = int(labels.values.max(initial=-1))
        if largest < len(matrices.class_names):
            return replace(labels, class_names=matrices.class_names)
    return labels
