r"""Predictions of nodes that are not in the graph, which is not changed.

Two ways. *Frozen*: the neighbours keep their stored tokens and their degrees, so that only the new rows are computed,
in O(degree · K · d); edges among the new nodes count. *Full*: the neighbourhood feels the new nodes; touched rows are
computed anew in memory, within a tolerance. Models that read the graph as a whole know the second way alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from polyformer.errors import InvalidData, InvalidParameter
from polyformer.feature_scaling import ScaledFeatures
from polyformer.graph import Graph
from polyformer.graph_changes import row_degrees
from polyformer.graph_checks import check_features, check_weights, to_numpy
from polyformer.label_input import KnownLabels
from polyformer.models import NodeModel, Workload
from polyformer.models.token_function import TokenFunction
from polyformer.objectives import Objective
from polyformer.stores.directory import StoredTokens
from polyformer.structure_features import structure_features
from polyformer.tokens import compute_tokens
from polyformer.updates.bounds import root_mean_squares, token_thresholds
from polyformer.updates.hop import inverse_root
from polyformer.updates.token_rows import TokenRowMaker, TouchedTooMuch

__all__ = ["MODES", "NewNodes", "changed_graph"]

MODES = ("frozen", "full")

_MOST_DENSE = 1 << 16


@dataclass(eq=False)
class NewNodes:
    """A trained model that predicts nodes beside those of a graph.

    Args:
        model: in evaluation mode.
        objective: how outputs become scores.
        graph: as the model reads it: its features scaled as in training.
        tokens: an open token directory of all nodes of this graph; without one, tokens are computed.
        made_features: the model's features are made from the structure, also those of new nodes.
        labels: those that a model which reads known labels is shown; new nodes have none.
    """

    model: NodeModel
    objective: Objective
    graph: Graph
    tokens: StoredTokens | None = None
    made_features: bool = False
    labels: KnownLabels | None = None

    def predict(
        self, features: Any, edges: Any, mode: str = "frozen", weights: Any = None, tolerance: float = 1e-3
    ) -> np.ndarray:
        """Probabilities (m, C), or values (m, 1) of a regression, of m new nodes.

        Args:
            features: (m, d) as they are stored, not scaled; (m, 0) where features are made from the structure.
            edges: (e, 2) node ids; N, N+1, … are the new nodes, and every edge has at least one of them.
            mode: ``frozen`` or ``full``.
            weights: (e,) weights of the edges; 1 by default.
            tolerance: of the full way, where a token directory is given; see :func:`polyformer.update_tokens`.
        """
        if mode not in MODES:
            raise InvalidParameter(f"'mode' must be frozen or full. Got '{mode}'.")
        rows = self._rows(features)
        pairs, values = self._pairs(edges, weights, len(rows))
        model = self.model
        if mode == "frozen" and "new nodes" not in model.capabilities:
            raise InvalidParameter(
                "This model reads the graph as a whole, or a basis that depends on all nodes, so its neighbours cannot "
                "stay as they are. Use the mode full."
            )
        if model.training:
            model.eval()
        with torch.no_grad():
            if "new nodes" not in model.capabilities:
                return self._whole_pass(rows, pairs, values)
            chebyshev = self._chebyshev(rows, pairs, values, mode, tolerance)
            tokens = torch.from_numpy(chebyshev if self._mixing is None else self._mixing @ chebyshev)
            return self.objective.scores(self._function.outputs(tokens.to(next(model.parameters()).device)))

    @cached_property
    def _function(self) -> TokenFunction:
        """The model as a function of tokens, which a model with the capability ``new nodes`` is."""
        return self.model.on_tokens("of this run")

    def _chebyshev(
        self, rows: np.ndarray, pairs: np.ndarray, weights: np.ndarray | None, mode: str, tolerance: float
    ) -> np.ndarray:
        """Chebyshev tokens of new nodes, those of known labels behind those of features: (m, K+1, d + L)."""
        own = self._frozen(rows, pairs, weights) if mode == "frozen" else self._full(rows, pairs, weights, tolerance)
        if self._of_labels is None:
            return own
        blank = np.zeros((len(rows), self._of_labels.graph.num_features), np.float32)
        return np.concatenate([own, self._of_labels._chebyshev(blank, pairs, weights, mode, tolerance)], axis=-1)

    @cached_property
    def _of_labels(self) -> NewNodes | None:
        """The same with the columns of known labels for features."""
        if self.labels is None:
            return None
        return NewNodes(self.model, self.objective, self.graph.with_features(self.labels.matrix()))

    @cached_property
    def _mixing(self) -> np.ndarray | None:
        """What mixes Chebyshev tokens into the model's basis; None where they are its basis."""
        mixing = self._function.basis.mixing(self._function.order).astype(np.float32)
        return None if np.array_equal(mixing, np.eye(len(mixing))) else mixing

    def _rows(self, features: Any) -> np.ndarray:
        """Features of the new nodes as they are stored: (m, d)."""
        if self.made_features:
            return np.empty((np.shape(features)[0], 0), np.float32)
        checked: Any = check_features(features)
        width = self.graph.num_features
        if checked.shape[1] != width:
            raise InvalidData(f"'features' must have {width} columns, as in training. Got {checked.shape[1]}.")
        return np.asarray(checked.toarray() if sp.issparse(checked) else checked)

    def _pairs(self, edges: Any, weights: Any, count: int) -> tuple[np.ndarray, np.ndarray | None]:
        pairs = to_numpy(edges, "edges")
        pairs = pairs.reshape(-1, 2).astype(np.int64) if pairs.size else np.empty((0, 2), np.int64)
        total = self.graph.num_nodes + count
        wrong = np.flatnonzero(((pairs < 0) | (pairs >= total)).any(axis=1))
        if len(wrong):
            raise InvalidData(f"'edges' must name nodes 0..{total - 1}. Got {pairs[wrong[0]].tolist()}.")
        old = np.flatnonzero((pairs < self.graph.num_nodes).all(axis=1))
        if len(old):
            raise InvalidData(
                f"Every edge must have a new node, {self.graph.num_nodes} or above. Got {pairs[old[0]].tolist()}. "
                f"Change the graph with: polyformer update."
            )
        of_removed = np.flatnonzero(np.isin(pairs, self.graph.removed).any(axis=1)) if len(self.graph.removed) else old
        if len(of_removed):
            raise InvalidData(f"The edge {pairs[of_removed[0]].tolist()} names a node that was removed. Leave it out.")
        return pairs, check_weights(weights, len(pairs))

    def _larger_graph(self, rows: np.ndarray, pairs: np.ndarray, weights: np.ndarray | None) -> Graph:
        """The graph with the new nodes, in memory."""
        return changed_graph(self.graph, self.made_features, add_edges=pairs, add_weights=weights, add_features=rows)

    def _whole_pass(self, rows: np.ndarray, pairs: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        larger = self._larger_graph(rows, pairs, weights)
        nodes = np.arange(self.graph.num_nodes, larger.num_nodes)
        labels = None if self.labels is None else self.labels.on(larger.num_nodes)
        self.model.bind(larger, Workload(nodes, len(nodes), labels=labels))
        return self.objective.scores(self.model(torch.from_numpy(nodes)))

    def _full(self, rows: np.ndarray, pairs: np.ndarray, weights: np.ndarray | None, tolerance: float) -> np.ndarray:
        """Chebyshev tokens (m, K+1, d) of new nodes whose neighbourhood feels them."""
        larger, reads = self._larger_graph(rows, pairs, weights), self._function
        nodes = np.arange(self.graph.num_nodes, larger.num_nodes)
        if self.tokens is not None and not self.made_features and larger.unscaled.history:
            layers = self.tokens.layers
            thresholds = token_thresholds(root_mean_squares(self.tokens), tolerance)
            left_out = None if thresholds is None else layers.left_out(larger.num_nodes)
            change = larger.unscaled.history[-1]
            maker = TokenRowMaker(larger, layers, change, self.tokens.self_loops, left_out, thresholds)
            try:
                maker.run()
                return maker.rows(nodes).astype(np.float32)[:, : reads.order + 1]
            except TouchedTooMuch:
                pass
        return compute_tokens(larger, "chebyshev", reads.order, reads.self_loops, nodes).numpy()

    def _frozen(self, rows: np.ndarray, pairs: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        """Chebyshev tokens (m, K+1, d) of new nodes beside neighbours that stay as they are."""
        first, order = self.graph.num_nodes, self._function.order
        if self.made_features:
            larger = self._larger_graph(rows, pairs, weights)
            assert larger.features is not None
            scaled = np.asarray(larger.features)[first:]
        elif isinstance(self.graph.features, ScaledFeatures):
            scaled = self.graph.features.scaling.apply(rows)
        else:
            scaled = rows.astype(np.float32)
        count, loop = len(rows), 1.0 if self._function.self_loops else 0.0
        entries = _both_ways(pairs, weights, first)  # row, neighbour, weight
        degrees = np.bincount(entries[0], entries[2], count) + loop
        scale = inverse_root(degrees)
        old = entries[1] < first
        neighbours, place = np.unique(entries[1][old], return_inverse=True)
        stored = self._stored_tokens(neighbours)
        old_degrees = row_degrees(self.graph.indptr, self.graph.weights, neighbours) + loop
        old_scale = inverse_root(old_degrees)
        row, other, value = entries[0], entries[1], entries[2] * scale[entries[0]]
        from_old = _matrix(row[old], place, value[old] * old_scale[place], (count, len(neighbours)))
        sums = _product(from_old, stored.reshape(len(neighbours), -1)).reshape(count, order + 1, scaled.shape[1])
        fresh = other[~old] - first
        from_new = _matrix(row[~old], fresh, value[~old] * scale[fresh], (count, count)) if len(fresh) else None
        own = (loop * scale[:, None] ** 2).astype(np.float32)
        tokens = np.empty(sums.shape, np.float32)
        tokens[:, 0] = scaled
        for k in range(1, order + 1):
            last = tokens[:, k - 1]
            step = sums[:, k - 1] + own * last
            if from_new is not None:
                step += _product(from_new, last)
            tokens[:, k] = -step if k == 1 else -2 * step - tokens[:, k - 2]
        return tokens

    def _stored_tokens(self, nodes: np.ndarray) -> np.ndarray:
        """Chebyshev tokens of nodes of the graph: (n,) -> (n, K+1, d)."""
        reads = self._function
        if self.tokens is not None:
            return self.tokens.layers.take(nodes, reads.order + 1).astype(np.float32, copy=False)
        if len(nodes) == 0:
            return np.empty((0, reads.order + 1, self.graph.num_features), np.float32)
        return compute_tokens(self.graph, "chebyshev", reads.order, reads.self_loops, nodes).numpy()


def changed_graph(graph: Graph, made_features: bool, **change: Any) -> Graph:
    """The graph after a change, with features as a model reads them.

    Args:
        made_features: the features are made from the structure, and so are those of the changed graph.
        change: as :meth:`polyformer.Graph.updated` takes it.
    """
    if not made_features:
        return graph.updated(**change)
    bare = Graph.from_csr(graph.indptr, graph.indices, graph.weights).updated(**change)
    return bare.with_features(structure_features(bare)).scaled(graph.scaling)


def _both_ways(pairs: np.ndarray, weights: np.ndarray | None, first: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges seen from the new nodes, each once, without loops: rows 0..m-1, neighbours, weights."""
    values = np.ones(len(pairs)) if weights is None else weights.astype(np.float64)
    both = np.concatenate([pairs, pairs[:, ::-1]])
    values = np.concatenate([values, values])
    keep = (both[:, 0] >= first) & (both[:, 0] != both[:, 1])
    both, values = both[keep], values[keep]
    order = np.lexsort((-values, both[:, 1], both[:, 0]))  # of an edge that is given twice, the largest weight
    both, values = both[order], values[order]
    once = np.ones(len(both), bool)
    once[1:] = (both[1:] != both[:-1]).any(axis=1)
    return both[once, 0] - first, both[once, 1], values[once]


def _matrix(rows: np.ndarray, columns: np.ndarray, values: np.ndarray, shape: tuple[int, int]) -> Any:
    """A matrix that multiplies tokens: dense where it is small, which is quicker."""
    if shape[0] * shape[1] > _MOST_DENSE:
        return sp.csr_matrix((values.astype(np.float32), (rows, columns)), shape=shape)
    matrix = np.zeros(shape, np.float32)
    matrix[rows, columns] = values
    return torch.from_numpy(matrix)


def _product(matrix: Any, tokens: np.ndarray) -> np.ndarray:
    """A matrix times tokens: (m, n), (n, w) -> (m, w), by as many threads as torch has; numpy's own take all cores."""
    if isinstance(matrix, torch.Tensor):
        return torch.mm(matrix, torch.from_numpy(tokens)).numpy()
    return np.asarray(matrix @ tokens)
