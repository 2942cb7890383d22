"""All nodes of one version of the graph at a glance: places on the map and columns, made in the background."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyformer.errors import PolyformerError, WriteFailed
from polyformer.filters import cluster_filters, order_contributions, pass_shares
from polyformer.filters.clusters import CLUSTERED_NODES, FilterClusters
from polyformer.graph import Graph
from polyformer.models import Workload
from polyformer.models.parts.precomputed import Effort, precomputed
from polyformer.reports.charts import kind_curves
from polyformer.reports.node_columns import (
    MISSING,
    NodeColumn,
    category_column,
    filter_columns,
    kind_names,
    number_column,
    part_column,
    prediction_columns,
    structure_columns,
)
from polyformer.reports.node_map import sample_nodes
from polyformer.server.batching import RowAnswers
from polyformer.server.explorer.feature_fields import FeatureField, fields_of
from polyformer.server.explorer.layout import lay_out
from polyformer.server.explorer.search import Attribute, NodeSearch
from polyformer.server.state import State
from polyformer.splits import Split
from polyformer.structure_features import are_structural

__all__ = ["Overview"]

_ROWS_AT_ONCE = 1024
"""Rows that the model is asked for at a time, so that other requests do not wait long."""
_MOST_CLASSES = 12
"""Classes whose probabilities are columns of their own."""
_ALIASES = {"kind": "cluster", "predicted": "prediction", "label": "class", "value": "class"}

Ask = Callable[[np.ndarray], RowAnswers]


class Overview:
    """Places and columns of all nodes of one state.

    Columns of labels, structure and features are there at once; :meth:`fill` adds places and what the model says.

    Args:
        state: the version of the graph.
        ask: asks the model for some rows, coefficients included.
        split: training, validation and test nodes, where they are known.
        last: the overview of an earlier version of the graph, whose nodes keep their places.

    Attributes:
        places: (N, 2) uint16 on a square map of 65,535 steps; None until they are known.
        columns: by key.
        kinds: mean and spread of the responses of each kind of filter, as JSON; None until they are known.
        clusters: the kinds themselves.
        progress: the share that is done of each part that is not complete.
        failure: a sentence on what could not be made; empty for none.
    """

    def __init__(self, state: State, ask: Ask, split: Split | None = None, last: Overview | None = None) -> None:
        self.state, self.split, self._ask = state, split, ask
        self.places: np.ndarray | None = (
            None if last is None or last.places is None else _joined_places(last.places, state.task.graph)
        )
        self.kinds: dict[str, Any] | None = None
        self.clusters: FilterClusters | None = None
        self.progress = {"map": 0.0, "predictions": 0.0}
        self.failure = ""
        graph = state.task.graph
        self.fields: dict[str, FeatureField] = {
            field.name: field for field in fields_of(state.task.columns or state.card.columns, graph.num_features)
        }
        self.columns: dict[str, NodeColumn] = {}
        self._add_known()
        self.search = NodeSearch(state.names, self.attribute)

    def _add_known(self) -> None:
        task, everyone = self.state.task, np.arange(self.state.task.graph.num_nodes)
        if task.is_regression:
            self.columns["class"] = number_column("value", task.labels)
        else:
            names = self.state.classes or task.shown_classes
            self.columns["class"] = category_column("class", task.labels, names)
        if self.split is not None:
            self.columns["part"] = part_column(self.split, everyone)
        self.columns |= structure_columns(task, everyone)

    def fill(self) -> None:
        """Make places, then what the model says of all nodes; for a thread of its own."""
        try:
            self.search.prepare()
            if self.places is None:
                self.places = self._find_places()
            self.progress.pop("map")
            self._add_predictions()
        except PolyformerError as error:
            self.failure = str(error)
        except Exception as error:  # a thread of its own has nobody to tell
            self.failure = f"The overview could not be made, because of a fault of this program: {error!r}."
        finally:
            self.progress.clear()

    def _find_places(self) -> np.ndarray:
        graph = self.state.task.graph
        made: dict[str, np.ndarray] = {}

        def compute() -> dict[str, np.ndarray]:
            made["places"] = np.round(lay_out(graph, share=self._tell_map) * MISSING).astype(np.uint16)
            return made

        entries = graph.num_nodes + len(graph.indices)
        advice = "Serve a smaller graph to see its map."
        effort = Effort("The map of all nodes", 5e-6 * entries, 60.0 * entries, advice, Workload())
        try:
            return precomputed("map", graph, {"layout": 1}, compute, effort)["places"]
        except WriteFailed:
            return made["places"]

    def _tell_map(self, done: float) -> None:
        self.progress["map"] = done

    def _add_predictions(self) -> None:
        state, count = self.state, self.state.task.graph.num_nodes
        clusters = self._find_kinds()
        scores = np.full((count, max(1, len(state.classes or ()))), np.nan, np.float32)
        tokens = state.answers.tokens_response
        filters = None if tokens is None else _FilterArrays(count, tokens, state.answers.lam)
        for start in range(0, count, _ROWS_AT_ONCE):
            rows = np.arange(start, min(start + _ROWS_AT_ONCE, count))
            answer = self._ask(rows)
            scores[rows] = answer.scores
            if filters is not None and clusters is not None and answer.coefficients is not None:
                filters.add(rows, answer.coefficients, clusters)
            self.progress["predictions"] = (start + len(rows)) / count
        scores[state.task.graph.removed] = np.nan
        everyone = np.arange(count)
        columns = prediction_columns(state.task, everyone, scores, state.card.threshold, state.classes)
        if state.classes is not None and len(state.classes) <= _MOST_CLASSES:
            for place, name in enumerate(state.classes):
                columns[f"p:{name}"] = number_column(f"probability of {name}", scores[:, place])
        if filters is not None and clusters is not None:
            columns |= filters.columns(len(clusters.centres))
        self.columns = {**columns, **{key: column for key, column in self.columns.items() if key not in columns}}

    def _find_kinds(self) -> FilterClusters | None:
        """Kinds of filters, from a sample of the nodes."""
        answers = self.state.answers
        if answers.tokens_response is None:
            return None
        rows = sample_nodes(self.state.task.graph.num_nodes, CLUSTERED_NODES)
        parts = [self._ask(rows[i : i + _ROWS_AT_ONCE]).coefficients for i in range(0, len(rows), _ROWS_AT_ONCE)]
        alpha = np.concatenate([part for part in parts if part is not None])
        responses = alpha @ answers.tokens_response
        clusters = self.clusters = cluster_filters(responses)
        names = kind_names(len(clusters.centres))
        mean, spread = kind_curves(responses, clusters.assign(responses), len(names))
        self.kinds = {"names": names, "mean": mean.round(5).tolist(), "spread": spread.round(5).tolist()}
        return clusters

    # What is asked of it.

    @property
    def settable(self) -> bool:
        """Whether features can be other than they are: those that are made from the structure cannot."""
        return not are_structural(self.state.card.columns)

    def column(self, key: str) -> NodeColumn | None:
        """The column of a key: one of :attr:`columns`, or ``feature:`` and the name of a field."""
        if key in self.columns:
            return self.columns[key]
        field = self.fields.get(key.removeprefix("feature:")) if key.startswith("feature:") else None
        if field is None:
            return None
        values = self._field_values(field)
        if field.categories:
            return category_column(field.name, values, list(field.categories))
        return number_column(field.name, values)

    def attribute(self, name: str) -> Attribute | None:
        """What a name in a search stands for, whatever its case: a key, a title or a feature."""
        wanted = name.lower()
        wanted = _ALIASES.get(wanted, wanted)
        for key, column in self.columns.items():
            if wanted in (key.lower(), column.title.lower()):
                if column.labels is None:
                    return Attribute(column.title, column.numbers)
                steps = column.steps.astype(np.int32)
                return Attribute(column.title, np.where(steps == MISSING, -1, steps), column.labels)
        for field in self.fields.values():
            if wanted in (field.name.lower(), f"feature:{field.name.lower()}"):
                return Attribute(field.name, self._field_values(field), list(field.categories) or None)
        return None

    def _field_values(self, field: FeatureField) -> np.ndarray:
        features = self.state.task.graph.unscaled.features
        assert features is not None
        return field.column(features)


def _joined_places(places: np.ndarray, graph: Graph) -> np.ndarray:
    """Places of earlier nodes, and new nodes in the middle of those of their neighbours that have a place."""
    joined = np.full((graph.num_nodes, 2), MISSING // 2, np.uint16)
    joined[: len(places)] = places
    for row in range(len(places), graph.num_nodes):
        around = np.asarray(graph.indices[graph.indptr[row] : graph.indptr[row + 1]])
        around = around[around < row]
        if len(around):
            joined[row] = joined[around].mean(axis=0)
    return joined


class _FilterArrays:
    """What columns tell of the filters of all nodes, gathered block by block."""

    def __init__(self, count: int, tokens: np.ndarray, lam: np.ndarray) -> None:
        self._tokens, self._lam = tokens, lam
        self._cluster = np.full(count, -1, np.int16)
        self._bands = np.full((count, 3), np.nan, np.float32)
        self._order = np.full(count, np.nan, np.float32)
        self._alpha = np.full((count, len(tokens)), np.nan, np.float32)

    def add(self, rows: np.ndarray, alpha: np.ndarray, clusters: FilterClusters) -> None:
        """Take the coefficients (n, H, K+1) of some nodes."""
        responses = alpha @ self._tokens
        self._cluster[rows] = clusters.assign(responses)
        self._bands[rows] = pass_shares(responses, self._lam)
        self._order[rows] = order_contributions(alpha, self._tokens) @ np.arange(alpha.shape[2])
        self._alpha[rows] = alpha.mean(axis=1)

    def columns(self, kinds: int) -> dict[str, NodeColumn]:
        """Kind, shares of the spectrum, mean order and coefficients of every node."""
        columns = {"cluster": category_column("kind of filter", self._cluster, kind_names(kinds))}
        columns |= filter_columns(self._bands, self._order)
        for k in range(self._alpha.shape[1]):
            columns[f"alpha{k}"] = number_column(f"coefficient α_{k}, mean of heads", self._alpha[:, k])
        return columns
