r"""Tokens of the rows that a change of the graph touches, from the stored tokens of all others.

A row of :math:`T_k = 2 M T_{k-1} - T_{k-2}`, M = -S (A + cI) S, is read from rows of T_{k-1} at its neighbours and from
its own row of T_{k-2}. So a row has to be made anew only where one of these changed, or S did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyformer.errors import InvalidData
from polyformer.feature_scaling import ScaledFeatures
from polyformer.graph import Graph
from polyformer.graph_changes import GraphChange, entries_of_rows
from polyformer.graph_checks import Features
from polyformer.stores.change_log import Record
from polyformer.stores.layers import TokenLayers
from polyformer.updates.hop import Scaling, make_hop, union_of
from polyformer.updates.moves import UPWARDS, felt_moves, follow_rows, token_moves
from polyformer.updates.working_tokens import WorkingTokens

__all__ = ["TokenRowMaker", "TouchedTooMuch", "feature_rows"]

_MOST_SHARE = 0.5
"""If more than this share of all rows of an order is touched, computing all is quicker."""


class TouchedTooMuch(Exception):
    """So many rows are touched that all are best computed anew."""


def feature_rows(features: Features, nodes: np.ndarray) -> np.ndarray:
    """Features of some nodes as tokens of order 0 hold them: (n,) -> (n, d) float32."""
    if isinstance(features, ScaledFeatures):
        return features.scaling.apply(np.asarray(features.raw[nodes]))
    rows = features[nodes]
    return np.asarray(rows.toarray() if sp.issparse(rows) else rows, np.float32)


@dataclass(eq=False)
class _Changed:
    """Rows of one order that got other tokens: (n,) ids, rising, and how far each moved, (n,) norms."""

    nodes: np.ndarray
    distance: np.ndarray


class TokenRowMaker:
    """Makes touched rows anew, order after order; :meth:`record` is then what is to be written.

    Args:
        graph: the changed graph.
        stored: tokens of the graph before the change.
        change: what lies between the two.
        self_loops: whether the operator is that of A + I.
        left_out: (K+1, N) float32 bounds on what was left out of stored rows, brought up to date in place; None
            where nothing was and nothing will be.
        thresholds: (K+1,) rows whose bound stays at or below it keep their tokens; None: all touched rows are made.
        most_rows: how many rows of each order may be held.
    """

    def __init__(
        self,
        graph: Graph,
        stored: TokenLayers,
        change: GraphChange,
        self_loops: bool,
        left_out: np.ndarray | None,
        thresholds: np.ndarray | None,
        most_rows: int | None = None,
    ) -> None:
        self.graph, self.change = graph, change
        self.left_out, self.thresholds = left_out, thresholds
        self.num_nodes = graph.num_nodes
        share = int(self.num_nodes * _MOST_SHARE) + 64
        self._most_rows = share if most_rows is None else min(share, max(64, most_rows))
        self.new = np.arange(change.num_nodes, self.num_nodes)
        self.always = np.union1d(change.ends, self.new)  # rows of A that differ: never judged by what moved
        self.tokens = WorkingTokens(stored, self.num_nodes)
        self._scaling = Scaling(graph, self_loops)
        self._bounds_changed: list[list[np.ndarray]] = [[] for _ in range(stored.shape[1])]

    @property
    def rows_touched(self) -> tuple[int, ...]:
        """How many rows of each order got other tokens."""
        return tuple(len(nodes) for nodes in self.tokens.nodes)

    def count_nodes(self) -> int:
        """How many nodes got other tokens in any order."""
        return len(union_of(self.num_nodes, *self.tokens.nodes))

    def rows(self, nodes: np.ndarray) -> np.ndarray:
        """Tokens of some nodes as they are now: (n,) -> (n, K+1, d) float32."""
        return np.stack([self.tokens.take(k, nodes) for k in range(self.tokens.stored.shape[1])], axis=1)

    def record(self, about: dict[str, Any], all_bounds: bool = False) -> Record:
        """What is appended to the log; with all bounds, or with those alone that this update changed."""
        made = [tokens.astype(self.tokens.stored.base.dtype, copy=False) for tokens in self.tokens.made]
        left_ids = [np.concatenate([np.empty(0, np.int64), *parts]) for parts in self._bounds_changed]
        left = [np.empty(0, np.float32) for _ in made]
        if self.left_out is not None:
            left_ids = [np.flatnonzero(bounds) for bounds in self.left_out] if all_bounds else left_ids
            left = [bounds[ids] for bounds, ids in zip(self.left_out, left_ids, strict=True)]
        return Record(about, self.tokens.nodes, made, left_ids, left)

    def run(self) -> None:
        """Make all orders; raises :class:`TouchedTooMuch` where that is not worth while."""
        before, last = _Changed(np.empty(0, np.int64), np.empty(0)), self._set_features()
        for k in range(1, self.tokens.stored.shape[1]):
            make = self._make_touched if self.thresholds is None else self._follow
            before, last = last, make(k, last, before)

    def _check_count(self, nodes: np.ndarray) -> None:
        if len(nodes) > self._most_rows:
            raise TouchedTooMuch

    def _set_features(self) -> _Changed:
        """Order 0: new nodes and nodes whose features changed."""
        nodes = np.union1d(self.change.rows, self.new)
        self._check_count(nodes)
        assert self.graph.features is not None
        exact = feature_rows(self.graph.features, nodes)
        distance = np.linalg.norm(exact - self.tokens.take_stored(0, nodes).astype(np.float64), axis=1)
        return self._keep(0, nodes, exact, distance)

    def _keep(
        self, k: int, nodes: np.ndarray, exact: np.ndarray, distance: np.ndarray, left_out: np.ndarray | float = 0.0
    ) -> _Changed:
        """Take over tokens that leave out so much; what rounding to float16 leaves out is added."""
        kept = self._rounded(k, exact) if self.tokens.rounded else exact
        self.tokens.put(k, nodes, kept)
        if self.tokens.rounded:
            distance = np.linalg.norm(kept - self.tokens.take_stored(k, nodes).astype(np.float64), axis=1)
            left_out = left_out + np.linalg.norm(kept - exact, axis=1)
        if self.left_out is not None:
            self._set_left_out(k, nodes, np.broadcast_to(left_out, nodes.shape))
        return _Changed(nodes, distance)

    def _set_left_out(self, k: int, nodes: np.ndarray, left_out: np.ndarray) -> None:
        assert self.left_out is not None
        bounds = (left_out * UPWARDS).astype(np.float32)
        differs = self.left_out[k, nodes] != bounds
        self._bounds_changed[k].append(nodes[differs])
        self.left_out[k, nodes[differs]] = bounds[differs]

    def _rounded(self, k: int, exact: np.ndarray) -> np.ndarray:
        """What float16 keeps of tokens; those that it cannot hold are refused."""
        largest = float(np.finfo(np.float16).max)
        if np.abs(exact).max(initial=0.0) > largest:
            raise InvalidData(
                f"A token of order {k} is {np.abs(exact).max():.6g}, but float16 holds at most {largest:.0f}. Make the "
                f"tokens again with --dtype float32, or scale the features down."
            )
        return exact.astype(np.float16).astype(np.float32)

    def _make_touched(self, k: int, last: _Changed, before: _Changed) -> _Changed:
        """Make all rows of order k whose inputs changed, and those that left something out."""
        sources = union_of(self.num_nodes, self.change.ends, last.nodes)
        around = np.asarray(self.graph.indices[entries_of_rows(self.graph.indptr, sources)[1]])
        own = last.nodes if self._scaling.loop else last.nodes[:0]
        earlier = last.nodes[:0] if self.left_out is None else np.flatnonzero(self.left_out[k])
        targets = union_of(self.num_nodes, self.always, around, own, before.nodes, earlier)
        self._check_count(targets)
        return self._keep(k, targets, *make_hop(k, targets, self.graph, self._scaling, self.tokens))

    def _follow(self, k: int, last: _Changed, before: _Changed) -> _Changed:
        """Have rows of order k follow, where what they leave out would pass the threshold.

        What neighbours moved adds up to more than a row moves, so some of these rows turn out to stay within it.
        """
        assert self.left_out is not None
        assert self.thresholds is not None
        threshold = float(self.thresholds[k])
        sources = union_of(self.num_nodes, self.change.ends, last.nodes)
        moves = token_moves(k - 1, sources, self.change, self.graph, self._scaling, self.tokens)
        felt, gain = felt_moves(k, moves, before.nodes, before.distance, self._scaling)
        total = (self.left_out[k, felt] + gain) * UPWARDS
        stays = total <= threshold
        self._set_left_out(k, felt[stays], total[stays])
        nodes = union_of(self.num_nodes, felt[~stays], self.always)
        self._check_count(nodes)
        anew, gains = np.zeros(len(nodes), bool), np.zeros(len(nodes))
        anew[np.searchsorted(nodes, self.always)] = True
        gains[np.searchsorted(nodes, felt[~stays])] = gain[~stays]
        followed = follow_rows(
            k, nodes, anew, gains, self.left_out[k, nodes], threshold, moves, self._scaling, self.tokens
        )
        moved, kept = followed.moved, ~followed.moved
        self._set_left_out(k, nodes[kept], followed.left_out[kept])
        return self._keep(k, nodes[moved], followed.rows, followed.distance, followed.left_out[moved])
