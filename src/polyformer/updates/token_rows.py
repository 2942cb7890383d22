r"""Tokens of the rows that a change of the graph touches, from the stored tokens of all others.

A row of :math:`T_k = 2 M T_{k-1} - T_{k-2}`, M = -S (A + cI) S, is read from rows of T_{k-1} at its neighbours and from
its own row of T_{k-2}. So a row has to be made anew only where one of these changed, or S did.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from polyformer.errors import InvalidData
from polyformer.feature_scaling import ScaledFeatures
from polyformer.graph import Graph
from polyformer.graph_changes import GraphChange, entries_of_rows
from polyformer.graph_checks import Features
from polyformer.stores.layers import TokenLayers
from polyformer.updates.hop import inverse_root, joined_sums, make_hop, union_of

__all__ = ["TokenRowMaker", "TouchedTooMuch", "feature_rows"]

_MOST_SHARE = 3
"""If more than a third of all rows is touched, computing all is quicker."""


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
    """Rows of one order that got other values: ids, values before and after, (n, d) each."""

    nodes: np.ndarray
    before: np.ndarray
    after: np.ndarray

    @classmethod
    def none(cls, width: int) -> _Changed:
        return cls(np.empty(0, np.int64), np.empty((0, width), np.float32), np.empty((0, width), np.float32))


class TokenRowMaker:
    """Makes touched rows anew, order after order; :attr:`nodes` and :meth:`rows` are then what is to be written.

    Args:
        graph: the changed graph.
        stored: tokens of the graph before the change.
        change: what lies between the two.
        self_loops: whether the operator is that of A + I.
        left_out: (N, K+1) float32 bounds on what was left out of stored rows, brought up to date in place; None
            where nothing was and nothing will be.
        thresholds: (K+1,) rows whose bound stays at or below it keep their tokens; None: all touched rows are made.
        most_rows: how many rows may be held.
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
        self.graph, self.stored, self.loop = graph, stored, 1.0 if self_loops else 0.0
        self.left_out, self.thresholds = left_out, thresholds
        self.num_nodes = graph.num_nodes
        share = self.num_nodes // _MOST_SHARE + 64
        self._most_rows = share if most_rows is None else min(share, max(64, most_rows))
        self.new = np.arange(change.num_nodes, self.num_nodes)
        self.ends, self.change = change.ends, change
        self.always = np.union1d(self.ends, self.new)  # rows of A that differ: never judged by what moved
        self._half = stored.base.dtype != np.float32
        self._degrees = None if graph.weights is None else graph.degrees
        self._place = np.full(self.num_nodes, -1, np.int32)
        self._held = 0
        self._work = np.empty((0, *stored.shape[1:]), np.float32)
        self._begins, self._log = stored.begins, stored.log[: len(stored.log) // 4 * 4].view(np.float32)
        self._touched = np.zeros(self.num_nodes, bool)
        self.touched_left = np.zeros(self.num_nodes, bool)
        self.rows_touched: list[int] = []

    @property
    def nodes(self) -> np.ndarray:
        """Rows that changed in any order, rising."""
        return np.flatnonzero(self._touched)

    def rows(self, nodes: np.ndarray) -> np.ndarray:
        """Tokens of rows that were made anew, as they are stored: (n,) -> (n, K+1, d)."""
        return self._work[self._place[nodes]].astype(self.stored.base.dtype, copy=False)

    def run(self) -> None:
        """Make all orders; raises :class:`TouchedTooMuch` where that is not worth while."""
        order, width = self.stored.shape[1] - 1, self.stored.shape[2]
        before = _Changed.none(width)
        last = self._set_features()
        for k in range(1, order + 1):
            targets = self._targets(k, last, before)
            if len(targets) > self._most_rows:
                raise TouchedTooMuch
            before, last = last, self._make(k, targets)
            self.rows_touched.append(len(last.nodes))

    def _set_features(self) -> _Changed:
        """Order 0: new nodes and nodes whose features changed."""
        nodes = np.union1d(self.change.rows, self.new)
        if len(nodes) > self._most_rows:
            raise TouchedTooMuch
        self._hold(np.union1d(nodes, self.ends))
        assert self.graph.features is not None
        at = self._place[nodes]
        before = self._work[at, 0]
        exact = feature_rows(self.graph.features, nodes)
        self._keep(0, nodes, exact)
        self.rows_touched.append(len(nodes))
        return _Changed(nodes, before, self._work[at, 0])

    def _keep(self, k: int, nodes: np.ndarray, exact: np.ndarray) -> None:
        """Take over tokens; what rounding to float16 leaves out is counted."""
        stored = self._rounded(k, exact) if self._half else exact
        self._work[self._place[nodes], k] = stored
        self._touched[nodes] = True
        if self.left_out is None:
            return
        lost = np.linalg.norm(stored - exact, axis=1) * (1 + 1e-6) if self._half else np.zeros(len(nodes))
        changed = self.left_out[nodes, k] != lost
        self.touched_left[nodes[changed]] = True
        self.left_out[nodes, k] = lost

    def _rounded(self, k: int, exact: np.ndarray) -> np.ndarray:
        """What float16 keeps of tokens; those that it cannot hold are refused."""
        largest = float(np.finfo(np.float16).max)
        if np.abs(exact).max(initial=0.0) > largest:
            raise InvalidData(
                f"A token of order {k} is {np.abs(exact).max():.6g}, but float16 holds at most {largest:.0f}. Make the "
                f"tokens again with --dtype float32, or scale the features down."
            )
        return exact.astype(np.float16).astype(np.float32)

    def _targets(self, k: int, last: _Changed, before: _Changed) -> np.ndarray:
        """Rows of order k that are to be made: all that are touched, or those whose bound passes the threshold."""
        sources = np.union1d(self.ends, last.nodes)
        offsets, positions = entries_of_rows(self.graph.indptr, sources)
        around = np.asarray(self.graph.indices[positions])
        if self.thresholds is None:
            own = last.nodes if self.loop else last.nodes[:0]
            earlier = np.empty(0, np.int64) if self.left_out is None else np.flatnonzero(self.left_out[:, k] > 0)
            return union_of(self.num_nodes, self.always, around, own, before.nodes, earlier)
        assert self.left_out is not None
        factor = 1.0 if k == 1 else 2.0
        moved = self._moved(k - 1, sources, last)
        entry = np.repeat(moved, np.diff(offsets))
        if self.graph.weights is not None:
            entry *= self.graph.weights[positions]
        nodes, place = np.unique(around, return_inverse=True)
        gain = factor * np.bincount(place, entry, len(nodes)) * self._scaling(nodes)
        nodes, gain = joined_sums(nodes, gain, before.nodes, np.linalg.norm(before.after - before.before, axis=1))
        if self.loop:
            nodes, gain = joined_sums(nodes, gain, sources, factor * moved * self._scaling(sources))
        total = self.left_out[nodes, k] + gain
        over = (total > self.thresholds[k]) | np.isin(nodes, self.always)
        stays = nodes[~over & (gain > 0)]
        self.left_out[stays, k] = total[~over & (gain > 0)] * (1 + 1e-6)  # rounding must not make a bound smaller
        self.touched_left[stays] = True
        return np.union1d(nodes[over], self.always)

    def _moved(self, k: int, sources: np.ndarray, last: _Changed) -> np.ndarray:
        """How far S T_k moved at the sources: (n,) norms."""
        before = self._work[self._place[sources], k].astype(np.float64)
        after = before.copy()
        at = np.searchsorted(sources, last.nodes)
        before[at], after[at] = last.before, last.after
        before *= self._scaling_before(sources)[:, None]
        after *= self._scaling(sources)[:, None]
        return np.asarray(np.linalg.norm(after - before, axis=1))

    def _scaling_before(self, nodes: np.ndarray) -> np.ndarray:
        """S of the graph before the change; 0 for new nodes, which gave nothing to anyone."""
        scaling = self._scaling(nodes)
        at = np.searchsorted(nodes, self.ends)
        scaling[at] = inverse_root(self.change.degrees + self.loop)
        scaling[nodes >= self.change.num_nodes] = 0.0
        return scaling

    def _scaling(self, nodes: np.ndarray) -> np.ndarray:
        """S at some nodes, float64, from degrees that are summed anew."""
        if self._degrees is not None:
            return inverse_root(self._degrees[nodes] + self.loop)
        degrees = np.asarray(self.graph.indptr[nodes + 1]) - np.asarray(self.graph.indptr[nodes])
        return inverse_root(degrees + self.loop)

    def _make(self, k: int, targets: np.ndarray) -> _Changed:
        self._hold(targets)
        at = self._place[targets].astype(np.int64)
        before = self._work[at, k]
        offsets, positions = entries_of_rows(self.graph.indptr, targets)
        around = np.asarray(self.graph.indices[positions], np.int64)
        coefficient = self._scaling(around) * np.repeat(self._scaling(targets), np.diff(offsets))
        if self.graph.weights is not None:
            coefficient *= self.graph.weights[positions]
        source = self._sources(around)
        diagonal = self.loop * self._scaling(targets) ** 2
        arrays = (self._work, None if self._half else self.stored.base, None if self._half else self._log)
        exact = make_hop(k, at, offsets, source, coefficient, diagonal, arrays)
        moved = self._really_moved(k, targets, exact, before)
        nodes, at = targets[moved], at[moved]
        self._keep(k, nodes, exact[moved])
        return _Changed(nodes, before[moved], self._work[at, k])

    def _really_moved(self, k: int, targets: np.ndarray, exact: np.ndarray, before: np.ndarray) -> np.ndarray:
        """Which rows take over what was made; of the others, what they leave out is known exactly now.

        What neighbours moved adds up to more than a row does, so many rows turn out to stay below the threshold.
        """
        if self.thresholds is None or self.left_out is None:
            return np.ones(len(targets), bool)
        residual = np.linalg.norm(exact.astype(np.float64) - before, axis=1)
        moved = (residual > self.thresholds[k]) | (targets >= self.change.num_nodes)
        self.left_out[targets[~moved], k] = residual[~moved] * (1 + 1e-6)
        self.touched_left[targets[~moved]] = True
        return np.asarray(moved)

    def _sources(self, nodes: np.ndarray) -> np.ndarray:
        """Where the tokens of nodes begin: 4 × the number's place in its array, plus 0, 1 or 2: work, array or log."""
        if self._half:
            self._hold(np.unique(nodes))
        row = self.stored.shape[1] * self.stored.shape[2]
        place = self._place[nodes].astype(np.int64)
        source = np.where(place >= 0, 4 * row * place, 4 * row * nodes + 1)
        if len(self.stored.ids):
            layered = self.stored.find(np.minimum(nodes, self.stored.num_rows - 1))
            inside = (place < 0) & (layered >= 0)
            source[inside] = self._begins[layered[inside]] + 2  # bytes: 4 × the place of a float32
        return source

    def _hold(self, nodes: np.ndarray) -> None:
        """Have the stored tokens of some nodes in the working array, zeros for new nodes."""
        fresh = nodes[self._place[nodes] < 0]
        if len(fresh) == 0:
            return
        needed = self._held + len(fresh)
        if needed > len(self._work):
            if needed > 2 * self._most_rows:
                raise TouchedTooMuch
            grown = np.empty((max(needed, 2 * len(self._work)), *self._work.shape[1:]), np.float32)
            grown[: self._held] = self._work[: self._held]
            self._work = grown
        at = np.arange(self._held, needed)
        self._place[fresh] = at
        old = fresh < self.stored.num_rows
        self._work[at[old]] = self.stored.take(fresh[old])
        self._work[at[~old]] = 0
        self._held = needed
