"""Edges as people list them made into the pattern of an undirected graph."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

__all__ = ["symmetric_csr"]


def symmetric_csr(
    source: np.ndarray, target: np.ndarray, weights: np.ndarray | None, num_nodes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Both directions of every edge, sorted by row and column, without loops and repeats."""
    keep = source != target
    source, target = source[keep].astype(np.int32), target[keep].astype(np.int32)
    rows, columns = np.concatenate([source, target]), np.concatenate([target, source])
    if weights is None:
        # scipy's conversion is a counting sort that merges repeats; only the pattern is kept.
        pattern = sp.coo_matrix((np.ones(len(rows), np.int8), (rows, columns)), shape=(num_nodes, num_nodes)).tocsr()
        pattern.sort_indices()
        return pattern.indptr.astype(np.int64), pattern.indices.astype(np.int32), None
    weights = np.tile(weights[keep], 2)
    order = np.lexsort((-weights, columns, rows))
    rows, columns, weights = rows[order], columns[order], weights[order]
    first = np.ones(len(rows), bool)
    first[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
    indptr = np.zeros(num_nodes + 1, np.int64)
    np.cumsum(np.bincount(rows[first], minlength=num_nodes), out=indptr[1:])
    return indptr, columns[first], weights[first]
