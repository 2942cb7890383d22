"""Rows that follow their neighbours within a tolerance: which rows feel a move, and how far each moves with it.

A row of T_k that left out little moves by ``2 M ΔT_{k-1} - ΔT_{k-2}``, which is read from the few neighbours that
moved; then it is as far from where its neighbours put it as it was before. A row that left out more is made from all
its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from polyformer.graph import Graph
from polyformer.graph_changes import GraphChange, entries_of_rows
from polyformer.native import call, is_available
from polyformer.updates.hop import NUMBERS_PER_THREAD, Scaling, added_up, hop_arguments, make_hop
from polyformer.updates.working_tokens import WorkingTokens

__all__ = ["UPWARDS", "Followed", "Moves", "felt_moves", "follow_rows", "token_moves"]

UPWARDS = 1 + 1e-6
"""Rounding must not make a bound smaller."""

_SUM_ERROR, _ROUNDING = 5e-6, 1.2e-7
"""As in ``token_moves.cpp``: shares of what is added, and of a token, that arithmetic may lose."""

_FOLLOWS, _MADE_ANEW = 0, 2


@dataclass(frozen=True, eq=False)
class Moves:
    """How far S T_k moved at some nodes.

    Attributes:
        graph: the changed graph.
        nodes: (n,) ids, rising.
        rows: (n, d) float32, what S T_k is now less what it was.
        norms: (n,) float64 norms of these rows.
    """

    graph: Graph
    nodes: np.ndarray
    rows: np.ndarray
    norms: np.ndarray

    @cached_property
    def entries(self) -> int:
        """How many entries of the adjacency the rows of these nodes have."""
        indptr = self.graph.indptr
        return int((np.asarray(indptr[self.nodes + 1]) - np.asarray(indptr[self.nodes])).sum())

    @cached_property
    def places(self) -> np.ndarray:
        """(N,) int32 row of :attr:`rows` plus one; 0 for nodes that did not move."""
        places = np.zeros(self.graph.num_nodes, np.int32)
        places[self.nodes] = np.arange(1, len(self.nodes) + 1)
        return places


@dataclass(frozen=True, eq=False)
class Followed:
    """What became of some rows of one order.

    Attributes:
        moved: (n,) bool: which rows got other tokens.
        rows: (m, d) float32 tokens of these m rows.
        distance: (m,) float64: how far they moved.
        left_out: (n,) float64 bounds on how far each row is from where its neighbours put it.
    """

    moved: np.ndarray
    rows: np.ndarray
    distance: np.ndarray
    left_out: np.ndarray


def token_moves(
    k: int, nodes: np.ndarray, change: GraphChange, graph: Graph, scaling: Scaling, tokens: WorkingTokens
) -> Moves:
    """How far S T_k moved at nodes; the ends of changed edges, where S moved too, must be among the nodes."""
    scale = scaling(nodes)
    stored_scale = scale.copy()
    stored_scale[np.searchsorted(nodes, change.ends)] = scaling.of_degrees(change.degrees)
    if not is_available() or tokens.rounded:
        rows = scale[:, None] * tokens.take(k, nodes) - stored_scale[:, None] * tokens.take_stored(k, nodes)
        return Moves(graph, nodes, rows.astype(np.float32), np.linalg.norm(rows, axis=1))
    stored = tokens.stored
    count, num_tokens, columns = stored.shape
    out, norms = np.empty((len(nodes), columns), np.float32), np.empty(len(nodes))
    call(
        "token_moves",
        count=len(nodes),
        stored_nodes=count,
        tokens=num_tokens,
        columns=columns,
        order=k,
        nodes=nodes,
        scale=scale,
        stored_scale=stored_scale,
        stored=stored.base,
        log=stored.log,
        log_place=stored.places[k],
        place=tokens.places[k],
        work=tokens.made[k],
        moves=out,
        norms=norms,
        threads=1 if out.size < NUMBERS_PER_THREAD else None,
    )
    return Moves(graph, nodes, out, norms)


def felt_moves(
    k: int, moves: Moves, before: np.ndarray, distance: np.ndarray, scaling: Scaling
) -> tuple[np.ndarray, np.ndarray]:
    r"""The rows of T_k that feel moves of T_{k-1} and T_{k-2}, and at least how far each moves.

    Args:
        moves: of :math:`S T_{k-1}`.
        before: (m,) ids of the nodes at which :math:`T_{k-2}` moved.
        distance: (m,) how far.

    Returns:
        (n,) ids, rising, and (n,) float64 bounds.
    """
    graph, norms = moves.graph, (1.0 if k == 1 else 2.0) * moves.norms
    unscaled = distance / scaling(before)
    if not is_available():
        offsets, positions = entries_of_rows(graph.indptr, moves.nodes)
        entry = np.repeat(norms, np.diff(offsets))
        if graph.weights is not None:
            entry *= graph.weights[positions]
        ids = [np.asarray(graph.indices[positions]), before, moves.nodes]
        nodes, sums = added_up(graph.num_nodes, ids, [entry, unscaled, scaling.loop * norms])
        return nodes, sums * scaling(nodes)
    gain, count = np.zeros(graph.num_nodes), np.zeros(1, np.int64)
    felt = np.empty(min(graph.num_nodes, moves.entries + len(moves.nodes) + len(before)), np.int64)
    call(
        "felt_moves",
        count=len(moves.nodes),
        nodes=moves.nodes,
        norms=norms,
        direct=len(before),
        direct_nodes=before,
        direct_norms=unscaled,
        indptr=graph.indptr,
        indices=graph.indices,
        weights=graph.weights,
        loop=scaling.loop,
        gain=gain,
        felt=felt,
        num_felt=count,
    )
    nodes = np.sort(felt[: int(count[0])])
    return nodes, gain[nodes] * scaling(nodes)


def follow_rows(
    k: int,
    nodes: np.ndarray,
    anew: np.ndarray,
    gain: np.ndarray,
    left_out: np.ndarray,
    threshold: float,
    moves: Moves,
    scaling: Scaling,
    tokens: WorkingTokens,
) -> Followed:
    """Have rows of T_k follow their neighbours, where what they leave out passes the threshold.

    Args:
        nodes: (n,) ids, rising.
        anew: (n,) bool: rows that are made from all neighbours whatever they left out.
        gain: (n,) at least how far each row moves.
        left_out: (n,) what each row left out before.
        moves: of S T_(k-1).
    """
    state = np.where(anew, _MADE_ANEW, _FOLLOWS).astype(np.int32)
    left = left_out.astype(np.float64)
    if not is_available() or tokens.rounded:
        return _follow_in_numpy(k, nodes, anew, gain, left, threshold, moves, scaling, tokens)
    out, moved = np.empty((len(nodes), tokens.stored.shape[2]), np.float32), np.zeros(len(nodes))
    call(
        "follow_rows",
        **hop_arguments(k, nodes, moves.graph, scaling, tokens),
        move_place=moves.places,
        moves=moves.rows,
        gain=gain,
        threshold=threshold,
        left_out=left,
        state=state,
        out=out,
        moved=moved,
        threads=1 if moves.entries * out.shape[1] < NUMBERS_PER_THREAD else None,
    )
    takes = state > 0
    return Followed(takes, out[: np.count_nonzero(takes)], moved[takes], left)


def _follow_in_numpy(
    k: int,
    nodes: np.ndarray,
    anew: np.ndarray,
    gain: np.ndarray,
    left_out: np.ndarray,
    threshold: float,
    moves: Moves,
    scaling: Scaling,
    tokens: WorkingTokens,
) -> Followed:
    old = tokens.take_stored(k, nodes)
    move = _moves_of_rows(k, nodes, moves, scaling, tokens)
    error = _SUM_ERROR * gain
    total = (left_out + np.linalg.norm(move, axis=1) + error) * UPWARDS
    stays = ~anew & (total <= threshold)
    makes = anew | (~stays & (left_out > threshold / 2))
    rows = (old + move).astype(np.float32)
    left = (left_out + _ROUNDING * np.linalg.norm(rows, axis=1) + error) * UPWARDS
    left[stays] = total[stays]
    distance = np.linalg.norm(rows - old.astype(np.float64), axis=1)
    made = np.flatnonzero(makes)
    rows[made], distance[made] = make_hop(k, nodes[made], moves.graph, scaling, tokens)
    keeps = (distance[made] <= threshold) & (nodes[made] < tokens.stored.num_rows)
    left[made] = np.where(keeps, distance[made] * UPWARDS, 0.0)
    moved = ~stays
    moved[made] = ~keeps
    return Followed(moved, rows[moved], distance[moved], left)


def _moves_of_rows(k: int, nodes: np.ndarray, moves: Moves, scaling: Scaling, tokens: WorkingTokens) -> np.ndarray:
    """How far rows of T_k move with their neighbours: (n, d) float64."""
    offsets, positions = entries_of_rows(moves.graph.indptr, nodes)
    place = moves.places[np.asarray(moves.graph.indices[positions])]
    row, known = np.repeat(np.arange(len(nodes)), np.diff(offsets)), place > 0
    weights = moves.graph.weights
    values = np.ones(len(place)) if weights is None else np.asarray(weights[positions], np.float64)
    matrix = sp.csr_matrix((values[known], (row[known], place[known] - 1)), shape=(len(nodes), len(moves.nodes)))
    sums = matrix @ moves.rows.astype(np.float64)
    own = np.flatnonzero(moves.places[nodes])
    sums[own] += scaling.loop * moves.rows[moves.places[nodes[own]] - 1]
    move = -(1.0 if k == 1 else 2.0) * scaling(nodes)[:, None] * sums
    if k > 1:
        move -= tokens.take(k - 2, nodes) - tokens.take_stored(k - 2, nodes).astype(np.float64)
    return np.asarray(move)
