"""Read the plain formats of public data sets; a wrong or damaged file is refused with one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyformer.errors import FileCorrupt
from polyformer.files import GET_AGAIN, check_gzip, reading
from polyformer.formats.matlab import matlab_variables
from polyformer.graph_checks import validate_sparse

__all__ = ["csr_from_arrays", "read_mat", "read_number_table", "row_normalised"]


def read_mat(path: Path, keys: Sequence[str]) -> dict[str, Any]:
    """The named variables of a MATLAB 5 file."""
    with reading(path, GET_AGAIN):
        return matlab_variables(path, list(keys))


def csr_from_arrays(arrays: Mapping[str, np.ndarray], prefix: str, path: Path) -> sp.csr_matrix:
    """The matrix stored as ``{prefix}data``, ``indices``, ``indptr`` and ``shape``; without data all entries are 1."""
    indices = arrays[f"{prefix}indices"]
    data = arrays.get(f"{prefix}data")
    values = np.ones(len(indices), np.int8) if data is None else data
    with reading(path, GET_AGAIN):
        if values.dtype.kind not in "biuf":
            raise ValueError(f"'{prefix}data' holds {values.dtype}, not real numbers")
        rows, columns = (int(size) for size in arrays[f"{prefix}shape"])
        matrix = sp.csr_matrix((values, indices, arrays[f"{prefix}indptr"]), shape=(rows, columns))
        validate_sparse(matrix)
    return matrix


def read_number_table(path: Path, dtype: Any, *, header: bool = False) -> np.ndarray:
    """A comma-separated table of numbers, gzipped if it ends in ``.gz``: (rows, columns)."""
    from pyarrow import csv

    with reading(path, GET_AGAIN):
        check_gzip(path)
        table = csv.read_csv(str(path), read_options=csv.ReadOptions(autogenerate_column_names=not header))
        result = np.empty((table.num_rows, table.num_columns), dtype)
        for i, column in enumerate(table.columns):
            values = column.to_numpy()
            if values.dtype.kind not in "iuf":
                raise ValueError(f"column {i + 1} holds {column.type}, not numbers")
            result[:, i] = values
    return result


def row_normalised(features: sp.csr_matrix) -> sp.csr_matrix:
    """Subtract the global minimum, then divide each row by max(row sum, 1), as the published runs did.

    The minimum of a sparse non-negative matrix is 0, so nothing is filled in.

    >>> row_normalised(sp.csr_matrix([[1.0, 3.0], [0.0, 0.5]])).toarray()
    array([[0.25, 0.75],
           [0.  , 0.5 ]], dtype=float32)
    """
    matrix = sp.csr_matrix(features, dtype=np.float32, copy=True)
    lowest = float(matrix.data.min(initial=0.0))
    if lowest < 0:
        raise FileCorrupt(f"Features that count words cannot be negative. Got {lowest}. Get the files again.")
    sums = np.asarray(matrix.sum(axis=1), np.float32).ravel()
    matrix.data /= np.repeat(np.maximum(sums, 1.0), np.diff(matrix.indptr))
    return matrix
