"""The explorer's side of a service: the overview that is shown now, and all about one node. No HTTP."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyformer.errors import InvalidParameter, UnknownName
from polyformer.graph import Graph
from polyformer.graph_changes import entries_of_rows
from polyformer.reports.charts import PALETTE
from polyformer.reports.node_map import grid_width
from polyformer.server.batching import RowAnswers
from polyformer.server.explorer.overview import Overview
from polyformer.server.explorer.what_if import Change, NodeAnswer, WhatIf
from polyformer.server.features import FeatureReader, feature_number
from polyformer.server.names import NodeId
from polyformer.server.service import Service
from polyformer.server.state import State
from polyformer.splits import Split, has_label

__all__ = ["LiveExplorer"]

NEIGHBOURS = 60
"""Neighbours that are listed at a time."""
_FEATURES = 400
"""Features of a node that are listed."""
_LISTED = 30
"""Results of a search that are listed at a time."""
_DRAWN_EDGES = 1500


class LiveExplorer:
    """What the explorer shows of a service.

    The overview is made in the background, beginning with the first request. After a change of the graph the earlier
    overview is shown until the next one has begun; rows keep their meaning, as nodes are only ever added behind them.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._overview: Overview | None = None
        self._what_if: WhatIf | None = None

    @property
    def overview(self) -> Overview:
        """The overview of the current version of the graph, or of an earlier one that is still being made."""
        state = self._service.state
        with self._lock:
            last = self._overview
            if last is None or (last.state is not state and not last.progress):
                self._overview = Overview(state, self._asker(state), self._split(state), last)
                threading.Thread(target=self._overview.fill, name="polyformer-overview", daemon=True).start()
            assert self._overview is not None
            return self._overview

    def _asker(self, state: State) -> Any:
        def ask(rows: np.ndarray) -> RowAnswers:
            return self._service.batcher.ask(state, rows, filters=True).result()

        return ask

    def _split(self, state: State) -> Split | None:
        """The split of the run, where its own data are served."""
        run = self._service.run
        if run.data is None or state.task.name != run.facts.name:
            return None
        place = run.request.split
        return state.task.splits[place] if place < len(state.task.splits) else None

    def summary(self) -> dict[str, Any]:
        """All that the page needs to know before it asks for arrays."""
        overview = self.overview
        state, graph, answers = overview.state, overview.state.task.graph, overview.state.answers
        width = grid_width(graph) if graph.num_edges else None
        return {
            "name": state.task.name,
            "model": self._service.card.model,
            "nodes": graph.num_nodes,
            "edges": graph.num_edges,
            "version": state.version,
            "current": self._service.state.version,
            "classes": state.classes,
            "palette": PALETTE,
            "grid": None if width is None else [width, graph.num_nodes // width],
            "mapped": overview.places is not None,
            "progress": overview.progress,
            "failure": overview.failure,
            "columns": {key: column.describe() for key, column in overview.columns.items()},
            "features": _described_fields(overview),
            "settable": overview.settable,
            "first": _first_node(overview),
            "frequencies": answers.lam.round(5).tolist(),
            "tokens": None if answers.tokens_response is None else answers.tokens_response.round(7).tolist(),
            "filter": {"exact": answers.exact, "input": answers.input},
            "kinds": overview.kinds,
        }

    def places(self) -> bytes:
        """(N, 2) uint16 places, little-endian."""
        places = self.overview.places
        if places is None:
            raise InvalidParameter("The map is still being drawn. Ask again in a moment.")
        return places.astype("<u2").tobytes()

    def column(self, key: str) -> tuple[dict[str, Any], bytes]:
        """A column described, and its (N,) uint16 steps, little-endian."""
        column = self.overview.column(key)
        if column is None:
            raise UnknownName(f"There is no column '{key[:60]}' to colour by.")
        return column.describe(), column.steps.astype("<u2").tobytes()

    def search(self, query: str, offset: int = 0) -> dict[str, Any]:
        """Nodes that fit a query, some of them with what is known of them."""
        overview = self.overview
        matches = overview.search.find(query)
        rows = matches.rows[offset : offset + _LISTED]
        known = [key for key in ("class", "prediction", "confidence") if key in overview.columns]
        names = overview.state.names.names(rows)
        steps = {key: overview.columns[key].steps[rows].tolist() for key in known}
        listed = [
            {"row": row, "name": name, **{key: steps[key][place] for key in known}}
            for place, (row, name) in enumerate(zip(rows.tolist(), names, strict=True))
        ]
        return {"count": len(matches.rows), "complete": matches.complete, "nodes": listed}

    def matches(self, query: str) -> bytes:
        """A bit for each node, the first in the highest bit of the first byte: whether it fits a query."""
        overview = self.overview
        mask = np.zeros(overview.state.task.graph.num_nodes, bool)
        mask[overview.search.find(query).rows] = True
        return np.packbits(mask).tobytes()

    def row_of(self, text: str) -> int:
        """The row of the node whose id is a text in an address."""
        names = self._service.state.names
        return names.row(names.parse(text))

    def _row(self, state: State, row: int) -> int:
        if not 0 <= row < state.task.graph.num_nodes or row in state.task.graph.removed:
            raise UnknownName(f"The graph has no node in row {row}.")
        return row

    def node(self, row: int, answer: RowAnswers) -> dict[str, Any]:
        """All about one node, from what the model says of it."""
        overview, state = self.overview, self._service.state
        self._row(state, row)
        [name] = state.names.names(np.array([row]))
        inside = row < overview.state.task.graph.num_nodes
        return {
            "row": row,
            "name": name,
            **_said(state, answer.scores[0], None if answer.coefficients is None else answer.coefficients[0]),
            "facts": {key: int(column.steps[row]) for key, column in overview.columns.items()} if inside else {},
            "neighbours": self.neighbours(row),
            **self._features(overview, state.task.graph, row),
        }

    async def ask(self, row: int) -> Any:
        """What the model says of one node of the current version."""
        import asyncio

        state = self._service.state
        self._row(state, row)
        return await asyncio.wrap_future(self._service.batcher.ask(state, np.array([row]), filters=True))

    def neighbours(self, row: int, offset: int = 0) -> dict[str, Any]:
        """Neighbours of a node, from place ``offset`` on."""
        state = self._service.state
        self._row(state, row)
        graph = state.task.graph
        begin, end = int(graph.indptr[row]) + offset, int(graph.indptr[row + 1])
        rows = np.asarray(graph.indices[begin : min(begin + NEIGHBOURS, end)], np.int64)
        count = end - int(graph.indptr[row])
        return {"count": count, "offset": offset, "rows": rows.tolist(), "names": state.names.names(rows)}

    def around(self, row: int) -> bytes:
        """Edges to draw around a node, its own first, then those of its neighbours: (e, 2) uint32 rows."""
        state = self._service.state
        graph = state.task.graph
        own = np.asarray(graph.indices[graph.indptr[row] : graph.indptr[self._row(state, row) + 1]], np.int64)
        edges = [np.stack([np.full(len(own), row), own], axis=1)[:_DRAWN_EDGES]]
        left = _DRAWN_EDGES - len(edges[0])
        if left > 0 and len(own):
            offsets, positions = entries_of_rows(graph.indptr, own)
            second = np.stack([np.repeat(own, np.diff(offsets)), np.asarray(graph.indices[positions])], axis=1)
            edges.append(second[second[:, 1] != row][:left])
        return np.concatenate(edges).astype("<u4").tobytes()

    def _features(self, overview: Overview, graph: Graph, row: int) -> dict[str, Any]:
        """Features as they are stored; of very many, those that are not zero."""
        stored = _stored_row(graph, row)
        values = {name: field.read(stored) for name, field in overview.fields.items()} if stored.size else {}
        if len(values) > _FEATURES:
            values = {name: value for name, value in values.items() if value not in (0.0, None)}
        listed = dict(list(values.items())[:_FEATURES])
        return {"features": listed, "all_features": len(listed) == len(overview.fields)}

    def what_if(
        self, name: NodeId, features: Mapping[str, Any], add: Sequence[NodeId], remove: Sequence[NodeId]
    ) -> dict[str, Any]:
        """What the model says of a node as it is, and with other features and edges.

        Args:
            features: name of a field to its other value.
            add: ids to which the node gets an edge.
            remove: ids to which the node loses its edge.
        """
        state = self._service.state
        row = state.names.row(name)
        change = Change(
            _edges(row, state.names.rows(list(add))),
            _edges(row, state.names.rows(list(remove))),
            {row: self._changed_row(state, row, features)} if features else {},
        )
        before, after = self._asked(state).ask(row, change)
        return {"before": self._told(state, before), "after": self._told(state, after)}

    def _changed_row(self, state: State, row: int, features: Mapping[str, Any]) -> np.ndarray:
        """The stored features of a node with other values in some fields."""
        fields, stored = self.overview.fields, _stored_row(state.task.graph, row)
        for name in features:
            if name not in fields:
                raise InvalidParameter(f"There is no feature '{name[:60]}' to change.")
        columns = {name: value for name, value in features.items() if fields[name].whole}
        if columns:
            node = {"id": state.names.names(np.array([row]))[0], "features": columns}
            stored = FeatureReader(state.task).changed(node, stored)
        for name in features.keys() - columns.keys():
            stored[fields[name].first] = feature_number(features[name], f"'{name}'")
        return stored

    def _asked(self, state: State) -> WhatIf:
        with self._lock:
            if self._what_if is None or self._what_if.graph is not state.task.graph:
                model = copy.deepcopy(self._service.model).eval()
                self._what_if = WhatIf(self._service.card, model, state.task.graph)
            return self._what_if

    def _told(self, state: State, answer: NodeAnswer) -> dict[str, Any]:
        told = _said(state, answer.scores, answer.coefficients)
        clusters = self.overview.clusters
        if answer.coefficients is not None and clusters is not None:
            assert state.answers.tokens_response is not None
            responses = (answer.coefficients @ state.answers.tokens_response)[None]
            told["kind"] = int(clusters.assign(responses)[0])
        return told


def _said(state: State, scores: np.ndarray, coefficients: np.ndarray | None) -> dict[str, Any]:
    """Scores (C,) and coefficients (H, K+1) of one node as JSON."""
    [prediction] = state.predictions([0], scores[None])
    del prediction["id"]
    return {**prediction, "filter": state.filter_of(coefficients)}


def _edges(row: int, others: np.ndarray) -> np.ndarray:
    """Edges from one node to others: (e, 2)."""
    return np.stack([np.full(len(others), row), others], axis=1)


def _stored_row(graph: Graph, row: int) -> np.ndarray:
    """Features of a node as they are stored, to be changed: (d,) float32; empty where there are none."""
    features: Any = graph.unscaled.features
    if features is None:
        return np.empty(0, np.float32)
    part = features[row]
    return np.array(part.toarray()[0] if sp.issparse(part) else part, np.float32)


def _described_fields(overview: Overview) -> list[dict[str, Any]]:
    """Features as the page offers them: their names, categories and kinds."""
    return [
        {"name": field.name, "categories": list(field.categories), "date": field.date, "optional": field.optional}
        for field in overview.fields.values()
    ]


def _first_node(overview: Overview) -> int:
    """The row of the node that is shown first: one of those on which the model was tested, else one with a label."""
    state = overview.state
    labelled = has_label(state.task.labels)
    rows = np.flatnonzero(labelled) if labelled.any() else np.arange(len(labelled))
    if overview.split is not None and len(overview.split.test):
        rows = overview.split.test
    return int(rows[0])
