"""One hop of the token recurrence on some rows, and sets of rows with a number each."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from polyformer.graph import Graph
from polyformer.graph_changes import entries_of_rows
from polyformer.native import call, is_available
from polyformer.updates.working_tokens import WorkingTokens

__all__ = ["NUMBERS_PER_THREAD", "Scaling", "added_up", "hop_arguments", "inverse_root", "make_hop", "union_of"]

NUMBERS_PER_THREAD = 1 << 23
"""Less work than this is done before a second thread has woken up."""

_DENSE_SHARE = 32
"""From one in so many nodes on, an array of all nodes is quicker than sorting."""


class Scaling:
    """S of the operator :math:`P = S (A + cI) S` at some nodes, from degrees that are summed anew, never adjusted.

    Args:
        graph: the changed graph.
        self_loops: c is 1, else 0.
    """

    def __init__(self, graph: Graph, self_loops: bool) -> None:
        self.loop = 1.0 if self_loops else 0.0
        self._indptr = graph.indptr
        self.degrees = None if graph.weights is None else graph.degrees
        """(N,) float64 of a weighted graph; None where rows of the pattern tell the degrees."""

    def __call__(self, nodes: np.ndarray) -> np.ndarray:
        """(n,) float64."""
        if self.degrees is not None:
            return self.of_degrees(self.degrees[nodes])
        return self.of_degrees(np.asarray(self._indptr[nodes + 1]) - np.asarray(self._indptr[nodes]))

    def of_degrees(self, degrees: np.ndarray) -> np.ndarray:
        """S at nodes of such degrees, loops not counted."""
        return inverse_root(degrees + self.loop)


def inverse_root(degrees: np.ndarray) -> np.ndarray:
    """S of degrees; 1 where the degree is 0, as in :class:`polyformer.operators.Operator`."""
    return 1 / np.sqrt(np.where(degrees > 0, degrees, 1.0))


def make_hop(
    k: int, nodes: np.ndarray, graph: Graph, scaling: Scaling, tokens: WorkingTokens
) -> tuple[np.ndarray, np.ndarray]:
    r"""Rows of :math:`T_k = 2 M T_{k-1} - T_{k-2}` (:math:`T_1 = M T_0`), M = -P, sums in double.

    Returns:
        the rows, (n, d) float32, and the distance of each to the stored row, (n,) float64.
    """
    if not is_available() or tokens.rounded:
        return _make_hop_in_numpy(k, nodes, graph, scaling, tokens)
    out, moved = np.empty((len(nodes), tokens.stored.shape[2]), np.float32), np.empty(len(nodes))
    entries = int((np.asarray(graph.indptr[nodes + 1]) - np.asarray(graph.indptr[nodes])).sum())
    call(
        "token_rows",
        **hop_arguments(k, nodes, graph, scaling, tokens),
        out=out,
        moved=moved,
        threads=1 if entries * out.shape[1] < NUMBERS_PER_THREAD else None,
    )
    return out, moved


def hop_arguments(k: int, nodes: np.ndarray, graph: Graph, scaling: Scaling, tokens: WorkingTokens) -> dict[str, Any]:
    """What compiled functions read for rows of T_k: the graph, and where the tokens of three orders are."""
    stored = tokens.stored
    count, num_tokens, columns = stored.shape
    return {
        "rows": len(nodes),
        "stored_nodes": count,
        "tokens": num_tokens,
        "columns": columns,
        "order": k,
        "nodes": nodes,
        "indptr": graph.indptr,
        "indices": graph.indices,
        "weights": graph.weights,
        "degrees": scaling.degrees,
        "loop": scaling.loop,
        "stored": stored.base,
        "log": stored.log,
        "log_now": stored.places[k],
        "log_last": stored.places[k - 1],
        "log_previous": stored.places[k - 2] if k > 1 else None,
        "place_last": tokens.places[k - 1],
        "work_last": tokens.made[k - 1],
        "place_previous": tokens.places[k - 2] if k > 1 else None,
        "work_previous": tokens.made[k - 2] if k > 1 else None,
    }


def _make_hop_in_numpy(
    k: int, nodes: np.ndarray, graph: Graph, scaling: Scaling, tokens: WorkingTokens
) -> tuple[np.ndarray, np.ndarray]:
    offsets, positions = entries_of_rows(graph.indptr, nodes)
    neighbours, column = np.unique(np.asarray(graph.indices[positions], np.int64), return_inverse=True)
    own = scaling(nodes)
    coefficient = scaling(neighbours)[column] * np.repeat(own, np.diff(offsets))
    if graph.weights is not None:
        coefficient *= graph.weights[positions]
    matrix = sp.csr_matrix((coefficient, column, offsets), shape=(len(nodes), len(neighbours)))
    product = matrix @ tokens.take(k - 1, neighbours).astype(np.float64)
    product += (scaling.loop * own**2)[:, None] * tokens.take(k - 1, nodes)
    row = -product if k == 1 else -2 * product - tokens.take(k - 2, nodes)
    out = np.asarray(row, np.float32)
    return out, np.linalg.norm(out - tokens.take_stored(k, nodes).astype(np.float64), axis=1)


def union_of(num_nodes: int, *sets: np.ndarray) -> np.ndarray:
    """The ids of all sets, rising."""
    total = sum(len(part) for part in sets)
    if total < num_nodes // _DENSE_SHARE:
        return np.unique(np.concatenate(sets).astype(np.int64))
    mask = np.zeros(num_nodes, bool)
    for part in sets:
        mask[part] = True
    return np.flatnonzero(mask)


def added_up(num_nodes: int, ids: list[np.ndarray], values: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Positive numbers at ids, those at the same id added up: the ids, rising, and their sums.

    >>> nodes, sums = added_up(9, [np.array([7, 3]), np.array([7])], [np.array([1.0, 0.5]), np.array([2.0])])
    >>> nodes.tolist(), sums.tolist()
    ([3, 7], [0.5, 3.0])
    """
    all_ids, all_values = np.concatenate(ids), np.concatenate(values)
    if len(all_ids) < num_nodes // _DENSE_SHARE:
        nodes, place = np.unique(all_ids, return_inverse=True)
        return nodes.astype(np.int64), np.bincount(place, all_values, len(nodes))
    sums = np.bincount(all_ids, all_values, num_nodes)
    nodes = np.flatnonzero(sums)
    return nodes, sums[nodes]
