"""New nodes and changes of the graph as a request describes them, by the user's ids, made into node numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyformer.errors import InvalidData, UnknownName
from polyformer.server.features import FeatureReader
from polyformer.server.names import NodeNames, shown
from polyformer.tasks import Task
from polyformer.updates.task_changes import TaskChange, label_number, split_part
from polyformer.updates.token_rows import feature_rows

__all__ = ["NewNodesRequest", "read_change", "read_new_nodes"]


@dataclass(frozen=True, eq=False)
class NewNodesRequest:
    """Nodes that are not in the graph: their ids, features (m, d), edges (e, 2) and weights (e,) or None."""

    ids: list[Any]
    features: np.ndarray
    edges: np.ndarray
    weights: np.ndarray | None


def read_new_nodes(body: Mapping[str, Any], task: Task, names: NodeNames) -> NewNodesRequest:
    """The new nodes of a request, which has ``nodes`` and may have ``edges``, each with at least one new node."""
    nodes, edges = body["nodes"], body.get("edges", [])
    reader = _Reader(task, names)
    reader.add_ids([node["id"] for node in nodes])
    features = FeatureReader(task).rows(nodes)
    pairs, weights = reader.pairs(edges, "edges")
    old = np.flatnonzero((pairs < task.graph.num_nodes).all(axis=1))
    if len(old):
        raise InvalidData(f"Every edge must have a new node. Got {shown(edges[int(old[0])])}, whose nodes are old.")
    return NewNodesRequest(list(reader.new), features, pairs, weights)


def read_change(body: Mapping[str, Any], task: Task, names: NodeNames) -> TaskChange:
    """The change of a request for a task as it is stored; parts and their order are those of ``polyformer update``."""
    reader = _Reader(task, names)
    reader.remove_nodes(body.get("remove_nodes", []))
    reader.add_ids([node["id"] for node in body.get("add_nodes", [])])
    change, graph = reader.change, task.graph
    features = FeatureReader(task)
    if body.get("add_nodes"):
        change.add_features = features.rows(body["add_nodes"])
        change.new_ids = list(reader.new)
    for node in body.get("change_nodes", []):
        row = reader.row(node["id"], "change_nodes")
        if "features" in node:
            old = np.empty((1, 0)) if graph.features is None else feature_rows(graph.features, np.array([row]))
            change.set_features[row] = features.changed(node, old[0])
    reader.labels([*body.get("add_nodes", []), *body.get("change_nodes", [])])
    change.remove_edges = reader.pairs(body.get("remove_edges", []), "remove_edges", there=True)[0]
    change.add_edges, change.add_weights = reader.added_edges(body.get("add_edges", []), body.get("change_edges", []))
    return change


class _Reader:
    """Finds node numbers, of old nodes and of the new ones of a request, and gathers a change."""

    def __init__(self, task: Task, names: NodeNames) -> None:
        self.task, self.names = task, names
        self.first = task.graph.num_nodes
        self.new: dict[Any, int] = {}
        self.gone: set[int] = set()
        self.change = TaskChange(first_new=self.first)

    def add_ids(self, ids: Sequence[Any]) -> None:
        rows = self.names.find(ids)
        for name, row in zip(ids, rows.tolist(), strict=True):
            if row >= 0 and row not in self.gone:
                raise InvalidData(f"The node {shown(name)} is in the graph already. Give new nodes other ids.")
            if name in self.new:
                raise InvalidData(f"The new node {shown(name)} is given twice. Give it once.")
            self.new[name] = self.first + len(self.new)

    def remove_nodes(self, ids: Sequence[Any]) -> None:
        rows = self.names.rows(ids)
        self.gone = set(rows.tolist())
        self.change.remove_nodes = np.unique(rows)

    def row(self, name: Any, what: str) -> int:
        """The number of a node that is there after the removals of this change."""
        if isinstance(name, int | str) and name in self.new:
            return self.new[name]
        row = self.names.row(name)
        if row in self.gone:
            raise InvalidData(f"'{what}' names the node {shown(name)}, which the same change removes. Leave one out.")
        return row

    def pairs(
        self, edges: Sequence[Any], what: str, there: bool = False, weighted: bool | None = None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """(e, 2) node numbers and, if an edge has one, (e,) weights, 1 where an edge has none.

        Args:
            there: refuse edges that are not in the graph.
            weighted: True if every edge must have a weight.
        """
        pairs = np.empty((len(edges), 2), np.int64)
        weights = np.ones(len(edges), np.float32)
        for place, edge in enumerate(edges):
            if len(edge) not in ((3,) if weighted else (2,) if there else (2, 3)):
                wanted = "[id, id, weight]" if weighted else "[id, id]" if there else "[id, id] or [id, id, weight]"
                raise InvalidData(f"An entry of '{what}' must be {wanted}. Got {shown(edge)}.")
            if len(edge) == 3:
                weights[place] = _weight(edge, what)
            pairs[place] = [self.row(name, what) for name in edge[:2]]
            if (there or weighted) and not self._has_edge(*pairs[place].tolist()):
                raise UnknownName(f"The graph has no edge {shown(edge[:2])}, which '{what}' names.")
        return pairs, weights if any(len(edge) == 3 for edge in edges) else None

    def added_edges(self, added: Sequence[Any], changed: Sequence[Any]) -> tuple[np.ndarray, np.ndarray | None]:
        pairs, weights = self.pairs(added, "add_edges")
        others, values = self.pairs(changed, "change_edges", weighted=True)
        if values is None:
            return pairs, weights
        before = np.ones(len(pairs), np.float32) if weights is None else weights
        return np.concatenate([pairs, others]), np.concatenate([before, values])

    def _has_edge(self, one: int, other: int) -> bool:
        graph = self.task.graph
        if max(one, other) >= self.first:
            return False
        begin, end = graph.indptr[one : one + 2]
        return bool((graph.indices[begin:end] == other).any())

    def labels(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        """Labels and parts of splits of nodes that have them."""
        classes = None if self.task.class_names is None else list(self.task.class_names)
        for node in nodes:
            row, place = self.row(node["id"], "change_nodes"), f"the node {shown(node['id'])}"
            if "label" in node:
                given = node["label"]
                label = None if given is None else label_number(str(given), self.task, classes, place)
                if label is not None and not np.isfinite(label):
                    raise InvalidData(f"The label in {place} must be a finite number. Got {shown(given)}.")
                if label is not None and not self.task.is_regression and not 0 <= label < _MOST_CLASSES:
                    raise InvalidData(
                        f"The label in {place} must be a class number from 0 to {_MOST_CLASSES - 1:,}. Got {label}."
                    )
                self.change.labels[row] = label
            if node.get("split") is not None:
                self.change.parts[row] = split_part(node["split"], place)
        if classes is not None:
            self.change.class_names = tuple(classes)


_MOST_CLASSES = 1 << 16


def _weight(edge: Sequence[Any], what: str) -> float:
    weight = edge[2]
    if type(weight) not in (int, float) or not 0 <= weight <= float(np.finfo(np.float32).max):
        raise InvalidData(f"The weight of the edge {shown(list(edge))} in '{what}' must be 0 or a positive number.")
    return float(weight)
