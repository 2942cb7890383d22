"""What a caller may ask of :meth:`polyformer.Graph.updated`, checked and applied to plain arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyformer.errors import InvalidData
from polyformer.graph_changes import ChangedStructure, change_structure
from polyformer.graph_checks import check_features, check_weights, to_numpy

__all__ = ["ChangedArrays", "change_arrays"]


@dataclass(frozen=True, eq=False)
class ChangedArrays:
    """A graph's arrays after a change.

    Attributes:
        features: the same object as before where no row changed.
        rows: earlier nodes whose features changed.
        removed: all nodes that were removed, now or earlier.
    """

    structure: ChangedStructure
    features: Any
    rows: np.ndarray
    removed: np.ndarray


def change_arrays(
    indptr: np.ndarray,
    indices: np.ndarray,
    weights: np.ndarray | None,
    features: Any,
    removed: np.ndarray,
    *,
    add_edges: Any,
    add_weights: Any,
    remove_edges: Any,
    add_features: Any,
    set_features: Mapping[int, Any] | None,
    remove_nodes: Any,
) -> ChangedArrays:
    """Check what is asked for and apply it; the given arrays stay as they are."""
    num_nodes, num_features = len(indptr) - 1, 0 if features is None else int(features.shape[1])
    new = check_rows(add_features, num_features, features, "add_features")
    total = num_nodes + new.shape[0]
    if total > 2**31 - 1:
        raise InvalidData(f"A graph can have at most 2^31 - 1 nodes. Got {total}.")
    ids, values = check_set_features(set_features, num_features, features)
    check_nodes_there(ids, num_nodes, "set_features", removed)
    removed_now = _removed_nodes(remove_nodes, num_nodes, removed)
    all_removed = np.union1d(removed, removed_now)
    pairs = check_pairs(remove_edges, num_nodes, "remove_edges", removed)
    if len(removed_now):  # edges of these nodes go with them
        pairs = pairs[~np.isin(pairs, removed_now).any(axis=1)]
    added = check_pairs(add_edges, total, "add_edges", all_removed)
    if add_weights is not None and add_edges is None:
        raise InvalidData("'add_weights' must come with 'add_edges'. Got weights alone.")
    checked_weights = check_weights(add_weights, len(added))
    structure = change_structure(indptr, indices, weights, new.shape[0], removed_now, pairs, added, checked_weights)
    rows = np.union1d(ids, removed_now) if num_features else ids[:0]
    if features is not None and (len(rows) or new.shape[0]):
        features = change_features(features, new, ids, values, removed_now)
    return ChangedArrays(structure, features, rows, all_removed)


def _removed_nodes(nodes: Any, num_nodes: int, removed: np.ndarray) -> np.ndarray:
    if nodes is None:
        return np.empty(0, np.int64)
    array = to_numpy(nodes, "remove_nodes")
    if array.size and (array.ndim != 1 or array.dtype.kind not in "iu"):
        raise InvalidData(f"'remove_nodes' must be a list of node ids. Got {array.dtype} of shape {array.shape}.")
    ids = np.unique(array.astype(np.int64))
    check_nodes_there(ids, num_nodes, "remove_nodes", removed)
    return ids


def change_features(features: Any, new: Any, rows: np.ndarray, values: Any, emptied: np.ndarray) -> Any:
    """Features with rows replaced, rows emptied and new rows at the end; ``new`` and ``values`` have d columns."""
    if isinstance(features, np.ndarray):
        result = np.empty((features.shape[0] + new.shape[0], features.shape[1]), features.dtype)
        result[: len(features)] = features
        result[len(features) :] = _dense(new)
        result[rows] = _dense(values)
        result[emptied] = 0
        return result
    kept = np.ones(features.shape[0], bool)
    kept[rows] = kept[emptied] = False
    masked = sp.diags(kept.astype(np.float32)) @ features
    places = sp.csr_matrix(
        (np.ones(len(rows), np.float32), (rows, np.arange(len(rows)))), shape=(features.shape[0], len(rows))
    )
    changed = sp.csr_matrix(masked + places @ sp.csr_matrix(values))
    changed.eliminate_zeros()
    return sp.vstack([changed, sp.csr_matrix(new)], format="csr").astype(np.float32)


def _dense(rows: Any) -> np.ndarray:
    return np.asarray(rows.toarray() if sp.issparse(rows) else rows)


def check_pairs(pairs: Any, num_nodes: int, name: str, removed: np.ndarray) -> np.ndarray:
    """(e, 2) int64 pairs of nodes that are there; None is no pair."""
    if pairs is None:
        return np.empty((0, 2), np.int64)
    array = to_numpy(pairs, name)
    if array.size == 0:
        return np.empty((0, 2), np.int64)
    if array.ndim != 2 or array.shape[1] != 2:
        raise InvalidData(f"'{name}' must have shape (e, 2), a row for each edge. Got {array.shape}.")
    if array.dtype.kind not in "iu":
        raise InvalidData(f"'{name}' must hold integer node ids. Got dtype {array.dtype}. Convert the ids to int64.")
    array = array.astype(np.int64)
    check_nodes_there(array.ravel(), num_nodes, name, removed)
    return array


def check_nodes_there(nodes: np.ndarray, num_nodes: int, name: str, removed: np.ndarray) -> None:
    """Refuse ids out of range and nodes that were removed."""
    wrong = nodes[(nodes < 0) | (nodes >= num_nodes)]
    if len(wrong):
        raise InvalidData(f"'{name}' must name nodes 0..{num_nodes - 1}. Got {int(wrong[0])}. Add that node first.")
    removed_before = nodes[np.isin(nodes, removed)] if len(removed) else nodes[:0]
    if len(removed_before):
        raise InvalidData(
            f"'{name}' names node {int(removed_before[0])}, which was removed. Leave it out, or add a new node."
        )


def check_rows(rows: Any, num_features: int, like: Any, name: str) -> Any:
    """(m, d) rows of features as the graph's are stored, dense or sparse; None is no row."""
    if rows is None:
        empty = np.empty((0, num_features), np.float32)
        return sp.csr_matrix(empty) if sp.issparse(like) else empty
    if np.shape(rows)[1:] == (0,) and num_features == 0:
        return np.empty((np.shape(rows)[0], 0), np.float32)
    checked = check_features(rows)
    assert checked is not None
    if checked.shape[1] != num_features:
        raise InvalidData(f"'{name}' must have {num_features} features per node. Got {checked.shape[1]}.")
    if not sp.issparse(like):
        return _dense(checked)
    return sp.csr_matrix(checked)


def check_set_features(rows: Mapping[int, Any] | None, num_features: int, like: Any) -> tuple[np.ndarray, Any]:
    """The ids, rising, and the rows of ``set_features``."""
    if not rows:
        return np.empty(0, np.int64), check_rows(None, num_features, like, "set_features")
    ids = np.array(sorted(rows), dtype=np.int64)
    values = np.stack([_dense(to_numpy(rows[int(i)], "set_features")).reshape(-1) for i in ids])
    return ids, check_rows(values, num_features, like, "set_features")
