r"""What a model would say of a node if a feature or an edge were another; the graph is not changed.

A token of node v is a row of :math:`T_k(M) X`. As M is symmetric, this row is :math:`z_k^\top X` with
:math:`z_k = T_k(M) e_v`: one vector is carried through the changed operator, K steps from the node, and then read off
the features that it has reached. So the answer is that of the changed graph to rounding, and costs K products with one
column and one product with the rows within K steps. The adjacency is not copied: the few other entries are added to
each product. Models that read the graph as a whole are asked on a changed copy.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from polyformer.bases import FixedBasis
from polyformer.errors import InvalidData
from polyformer.feature_scaling import ScaledFeatures
from polyformer.filters import filter_coefficients
from polyformer.graph import Graph
from polyformer.models import NodeModel, NodeWiseFilter, Workload
from polyformer.models.parts.token_model import TokenModel
from polyformer.new_nodes import changed_graph
from polyformer.propagation.kernel import SparseBlock
from polyformer.runs.prediction import node_scores
from polyformer.runs.saved_model import ModelCard
from polyformer.structure_features import are_structural
from polyformer.updates.token_rows import feature_rows

__all__ = ["Change", "NodeAnswer", "WhatIf"]

_ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True, eq=False)
class Change:
    """What is to be different.

    Attributes:
        add_edges: (e, 2) node ids; an edge that is there already stays as it is.
        remove_edges: (e, 2) node ids of edges that are there.
        set_features: node id to its (d,) features as they are stored, not scaled.
    """

    add_edges: np.ndarray = field(default_factory=lambda: np.empty((0, 2), np.int64))
    remove_edges: np.ndarray = field(default_factory=lambda: np.empty((0, 2), np.int64))
    set_features: Mapping[int, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class NodeAnswer:
    """What a model says of one node: ``scores`` (C,) and, of a node-wise filter, ``coefficients`` (H, K+1)."""

    scores: np.ndarray
    coefficients: np.ndarray | None


class WhatIf:
    """A trained model that is asked about a node of a graph that is not there.

    Args:
        card: how outputs are read and features are made.
        model: in evaluation mode, of no use to others: it is bound to other tokens with each question.
        graph: as the model reads it.
    """

    def __init__(self, card: ModelCard, model: NodeModel, graph: Graph) -> None:
        self.card, self.model, self.graph = card, model, graph
        self._made_features = are_structural(card.columns)
        self._lock = threading.Lock()

    def ask(self, node: int, change: Change) -> tuple[NodeAnswer, NodeAnswer]:
        """What the model says of a node of the graph as it is, and of the changed one."""
        change = self._checked(change)
        with self._lock, torch.no_grad():
            model = self.model
            if not isinstance(model, TokenModel) or "new nodes" not in model.capabilities or self._made_features:
                return self._on_graph(node, self.graph), self._on_graph(node, self._changed_graph(change))
            tokens = np.stack([self._tokens(node, Change()), self._tokens(node, change)])
            assert isinstance(model.basis, FixedBasis)
            mixed = model.basis.mixing(model.order) @ tokens
            model.bind_rows(torch.from_numpy(mixed.astype(np.float32)))
            first, second = self._answers(np.arange(2))
            return first, second

    def _answers(self, nodes: np.ndarray) -> list[NodeAnswer]:
        scores = node_scores(self.model, self.card.reader, nodes)
        if not isinstance(self.model, NodeWiseFilter):
            return [NodeAnswer(row, None) for row in scores]
        alpha = filter_coefficients(self.model, nodes)
        return [NodeAnswer(row, own) for row, own in zip(scores, alpha, strict=True)]

    def _on_graph(self, node: int, graph: Graph) -> NodeAnswer:
        nodes = np.array([node])
        self.model.bind(graph, Workload(nodes, 1))
        return self._answers(nodes)[0]

    def _changed_graph(self, change: Change) -> Graph:
        parts = {"add_edges": change.add_edges, "remove_edges": change.remove_edges}
        given = {name: pairs for name, pairs in parts.items() if len(pairs)}
        rows = {"set_features": change.set_features} if change.set_features else {}
        return changed_graph(self.graph, self._made_features, **given, **rows)

    def _checked(self, change: Change) -> Change:
        """The change without edges that are there already; refuses what cannot be changed."""
        if self.model.label_channels:
            raise InvalidData(
                "What-if questions are not asked of a model that is shown known labels. Serve one that was trained "
                "with label_input=0."
            )
        if change.set_features and self._made_features:
            raise InvalidData(
                "The features of this model are made from the structure of the graph, so they cannot be set. Change an "
                "edge instead."
            )
        for pairs in (change.add_edges, change.remove_edges):
            loops = pairs[pairs[:, 0] == pairs[:, 1]]
            if len(loops):
                raise InvalidData("An edge must join two different nodes. Choose another node.")
        for pair in change.remove_edges:
            if not self._joined(*pair):
                raise InvalidData("An edge that is to be removed is not there. Leave it out.")
        fresh = [pair for pair in _once(change.add_edges) if not self._joined(*pair)]
        pairs = np.array(fresh, np.int64).reshape(-1, 2)
        return Change(pairs, np.array(_once(change.remove_edges), np.int64).reshape(-1, 2), change.set_features)

    def _joined(self, one: int, other: int) -> bool:
        graph = self.graph
        return bool((np.asarray(graph.indices[graph.indptr[one] : graph.indptr[one + 1]]) == other).any())

    def _tokens(self, node: int, change: Change) -> np.ndarray:
        """Chebyshev tokens of a node of the changed graph: (K+1, d) float64."""
        model, features = self.model, self.graph.features
        assert isinstance(model, TokenModel)
        assert features is not None
        operator = _ChangedOperator(self.graph, 1.0 if model.settings.self_loops else 0.0, change)
        reached = np.zeros((model.order + 1, self.graph.num_nodes))  # z_0, …, z_K
        reached[0, node] = 1.0
        for k in range(1, model.order + 1):
            step = operator.product(reached[k - 1])
            reached[k] = -step if k == 1 else -2 * step - reached[k - 2]
        tokens = _weighted_rows(features, reached)
        for row, stored in change.set_features.items():
            before = feature_rows(features, np.array([row]))[0].astype(np.float64)
            tokens += np.outer(reached[:, row], _as_read(features, stored) - before)
        return tokens


class _ChangedOperator:
    """P of a graph with a few other edges."""

    def __init__(self, graph: Graph, loop: float, change: Change) -> None:
        self._block, self._loop = SparseBlock.of_graph(graph), loop
        degrees = graph.degrees
        removed = [_weight(graph, *pair) for pair in change.remove_edges]
        self._pairs = np.concatenate([change.add_edges, change.remove_edges]).astype(np.int64)
        self._added = np.concatenate([np.ones(len(change.add_edges)), -np.array(removed, np.float64)])
        for end in self._pairs.T:
            np.add.at(degrees, end, self._added)
        degrees += loop
        self._scaling = 1 / np.sqrt(np.where(degrees > 0, degrees, 1.0))

    def product(self, vector: np.ndarray) -> np.ndarray:
        """P z: (N,) -> (N,) float64."""
        scaled = self._scaling * vector
        result = self._block.wide_product(scaled[:, None])[:, 0] + self._loop * scaled
        one, other = self._pairs.T
        np.add.at(result, one, self._added * scaled[other])
        np.add.at(result, other, self._added * scaled[one])
        return np.asarray(self._scaling * result)


def _weight(graph: Graph, one: int, other: int) -> float:
    """The weight of an edge that is there."""
    if graph.weights is None:
        return 1.0
    begin, end = int(graph.indptr[one]), int(graph.indptr[one + 1])
    place = begin + int(np.flatnonzero(np.asarray(graph.indices[begin:end]) == other)[0])
    return float(graph.weights[place])


def _once(pairs: np.ndarray) -> list[tuple[int, int]]:
    """Each edge once, whatever its direction."""
    return sorted({(int(min(pair)), int(max(pair))) for pair in pairs})


def _weighted_rows(features: Any, weights: np.ndarray) -> np.ndarray:
    """Sums of feature rows, a piece at a time, without rows of weight zero: (N, d), (K+1, N) -> (K+1, d) float64."""
    rows = np.flatnonzero((weights != 0).any(axis=0))
    total = np.zeros((len(weights), features.shape[1]))
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        some = rows[start : start + _ROWS_AT_ONCE]
        if sp.issparse(features):
            total += np.asarray((features[some].T @ weights[:, some].T).T)
        else:
            total += weights[:, some].astype(np.float32) @ feature_rows(features, some)
    return total


def _as_read(features: Any, stored: np.ndarray) -> np.ndarray:
    """Features of one node as a model reads them, from features as they are stored: (d,) -> (d,)."""
    row = np.asarray(stored, np.float32)[None]
    return np.asarray((features.scaling.apply(row) if isinstance(features, ScaledFeatures) else row)[0], np.float64)
