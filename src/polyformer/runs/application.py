"""What can be done with the model of a run: scores of nodes and of new nodes, and filters. One function each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.errors import InvalidParameter
from polyformer.filters import Filters, describe_filters, filter_coefficients
from polyformer.graph import Graph
from polyformer.label_input import KnownLabels
from polyformer.models import NodeModel, NodeWiseFilter, Workload
from polyformer.models.walk import node_blocks
from polyformer.new_nodes import NewNodes
from polyformer.reporter import SILENT, Reporter
from polyformer.runs.prediction import predict_blocks
from polyformer.runs.saved_model import ModelCard
from polyformer.structure_features import are_structural
from polyformer.tokens import check_nodes, open_tokens

__all__ = ["describe_nodes", "new_nodes_of", "predict_nodes"]


def predict_nodes(
    place: Path,
    card: ModelCard,
    model: NodeModel,
    graph: Graph,
    nodes: Any = None,
    reporter: Reporter = SILENT,
    labels: KnownLabels | None = None,
) -> np.ndarray:
    """Probabilities (n, C), or values (n,) of a regression; NaN for nodes that were removed from the graph.

    Args:
        place: a folder for tokens that do not fit in memory, if it can be written to.
        graph: with features as the model reads them.
        nodes: node ids or a mask; all nodes by default.
        labels: those that a model which reads known labels is shown.
    """
    workload = _workload(place, graph, nodes, labels)
    scores = np.concatenate([rows for _, rows in predict_blocks(model, card.reader, graph, workload, reporter)])
    ids = np.arange(graph.num_nodes) if workload.nodes is None else workload.nodes
    scores[np.isin(ids, graph.removed)] = np.nan
    return scores[:, 0] if card.objective == "regression" else scores


def new_nodes_of(
    card: ModelCard,
    model: NodeModel,
    graph: Graph,
    tokens: Path | None = None,
    labels: KnownLabels | None = None,
) -> NewNodes:
    """What predicts nodes that are not in the graph; keep it to predict many times.

    Args:
        graph: with features as the model reads them.
        tokens: a token directory of all nodes of this graph.
        labels: those that a model which reads known labels is shown.
    """
    stored = None
    if tokens is not None:
        model.check_tokens(graph, Workload(tokens=tokens))
        stored = open_tokens(tokens)
    return NewNodes(model, card.reader, graph, stored, are_structural(card.columns), labels)


def describe_nodes(
    place: Path,
    card: ModelCard,
    model: NodeModel,
    graph: Graph,
    nodes: Any = None,
    clusters: int | None = None,
    reporter: Reporter = SILENT,
    labels: KnownLabels | None = None,
) -> Filters:
    """The filters of the nodes, by default of all that were not removed; see :func:`predict_nodes`."""
    if not isinstance(model, NodeWiseFilter):
        raise InvalidParameter(
            f"The model '{card.model}' has no filter for each node. Choose a run of another model, e.g. polyformer."
        )

    def compute(ids: np.ndarray) -> tuple[np.ndarray, ...]:
        assert isinstance(model, NodeWiseFilter)
        return (filter_coefficients(model, ids),)

    if nodes is None and len(graph.removed):
        nodes = graph.present_nodes
    workload = _workload(place, graph, nodes, labels)
    blocks: Iterator[Any] = node_blocks(model, graph, compute, workload, reporter, "filters")
    return describe_filters(model, np.concatenate([alpha for _, (alpha,) in blocks]), clusters)


def _workload(place: Path, graph: Graph, nodes: Any, labels: KnownLabels | None) -> Workload:
    ids = check_nodes(nodes, graph.num_nodes)
    if ids is not None and len(ids) == 0:
        raise InvalidParameter("'nodes' must name at least one node. Got none.")
    return Workload(ids, scratch=place if os.access(place, os.W_OK) else None, labels=labels)
