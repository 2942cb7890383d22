"""A change of a graph with its labels, splits and node ids, applied to a task; and removed rows taken out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyformer.errors import InvalidData
from polyformer.graph import Graph
from polyformer.graph_changes import entries_of_rows
from polyformer.splits import Split, has_label
from polyformer.tasks import Task

__all__ = ["TaskChange", "change_task", "compact_task", "label_number", "split_part"]

PARTS = ("train", "val", "test")
_SPLIT_WORDS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


@dataclass(eq=False)
class TaskChange:
    """What :meth:`polyformer.Graph.updated` takes, with node numbers, and what belongs to the task.

    Attributes:
        new_ids: the user's ids of new nodes, in their order.
        labels: node number to label: a class number or a value; None takes the label away.
        parts: node number to ``train``, ``val`` or ``test``; None takes the node out of all splits.
        class_names: all classes, where labels brought new ones.
    """

    add_edges: np.ndarray = field(default_factory=lambda: np.empty((0, 2), np.int64))
    add_weights: np.ndarray | None = None
    remove_edges: np.ndarray = field(default_factory=lambda: np.empty((0, 2), np.int64))
    add_features: Any = None
    set_features: dict[int, np.ndarray] = field(default_factory=dict)
    remove_nodes: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    new_ids: list[Any] = field(default_factory=list)
    labels: dict[int, float | int | None] = field(default_factory=dict)
    parts: dict[int, str | None] = field(default_factory=dict)
    class_names: tuple[str, ...] | None = None

    @property
    def counts(self) -> dict[str, int]:
        """How much is added, removed and changed, for the journal."""
        return {
            "nodes added": len(self.new_ids),
            "nodes removed": len(self.remove_nodes),
            "edges added or re-weighted": len(self.add_edges),
            "edges removed": len(self.remove_edges),
            "features changed": len(self.set_features),
            "labels changed": sum(number < self.first_new for number in self.labels),
        }

    first_new: int = 0
    """The number of the first new node: N before the change."""


def change_task(task: Task, change: TaskChange) -> Task:
    """The task after a change; the given one stays as it is.

    A new node with a label joins the training part of every split unless the change names another part. Removed nodes
    lose their labels and leave all splits.
    """
    graph = task.graph.updated(
        change.add_edges,
        change.add_weights,
        change.remove_edges,
        change.add_features,
        change.set_features,
        change.remove_nodes,
    )
    labels = np.full(graph.num_nodes, np.nan if task.is_regression else -1, task.labels.dtype)
    labels[: len(task.labels)] = task.labels
    for node, label in change.labels.items():
        labels[node] = (np.nan if task.is_regression else -1) if label is None else label
    labels[change.remove_nodes] = np.nan if task.is_regression else -1
    known = has_label(labels)
    splits = [_changed_split(split, change, known, task.graph.num_nodes) for split in task.splits]
    return replace(
        task,
        graph=graph,
        labels=labels,
        splits=splits,
        ids=_longer_ids(task, change.new_ids),
        class_names=change.class_names or task.class_names,
    )


def label_number(text: str, task: Task, classes: list[str] | None, place: str) -> float | int:
    """A value, or the number of a class; a name that is new becomes a new class of ``classes``.

    Args:
        classes: names of all classes, to which a new one is added; None where classes have no names.
        place: where the label stands, for messages.
    """
    try:
        if task.is_regression:
            return float(text)
        if classes is None:
            return int(text)
    except ValueError:
        kind = "a number" if task.is_regression else "a class number 0, 1, …"
        raise InvalidData(f"The label in {place} must be {kind}. Got '{text}'.") from None
    if text not in classes:
        classes.append(text)
    return classes.index(text)


def split_part(text: str, place: str) -> str:
    """The part of a split that a text names; ``place`` says where it stands, for messages."""
    part = _SPLIT_WORDS.get(text.strip().lower())
    if part is None:
        raise InvalidData(f"The split of {place} must be {', '.join(PARTS[:2])} or {PARTS[2]}. Got '{text}'.")
    return part


def _changed_split(split: Split, change: TaskChange, known: np.ndarray, first_new: int) -> Split:
    moved = np.array(sorted(change.parts), np.int64)
    fresh = [node for node in change.labels if node >= first_new and node not in change.parts and known[node]]
    parts = []
    for name in PARTS:
        stay = np.setdiff1d(getattr(split, name), moved)
        joined = [node for node, part in change.parts.items() if part == name]
        if name == "train" or split.fit:
            joined += fresh
        nodes = np.union1d(stay, np.array(joined, np.int64)) if joined else getattr(split, name)
        if len(moved) and not joined:
            nodes = getattr(split, name)[~np.isin(getattr(split, name), moved)]
        parts.append(nodes[known[nodes]])
    return Split(*parts, fit=split.fit)


def _longer_ids(task: Task, new: list[Any]) -> np.ndarray | None:
    """The ids of all nodes; None while ids and node numbers are the same."""
    count = task.graph.num_nodes
    if not new:
        return task.ids
    if task.ids is None and list(new) == list(range(count, count + len(new))):
        return None
    old = np.arange(count) if task.ids is None else np.asarray(task.ids)
    return np.concatenate([old, np.array(new, None if old.dtype.kind == "U" else np.int64)])


def compact_task(task: Task) -> Task:
    """The task without the rows of removed nodes: the nodes that stay are numbered anew and keep their ids."""
    graph = task.graph
    if len(graph.removed) == 0:
        raise InvalidData("There are no removed nodes, so there is nothing to compact.")
    alive = graph.present_nodes
    if len(alive) == 0:
        raise InvalidData("All nodes were removed, and a graph must have at least one. Add nodes before compacting.")
    number = np.full(graph.num_nodes, -1, np.int64)
    number[alive] = np.arange(len(alive))
    offsets, positions = entries_of_rows(graph.indptr, alive)
    indices = number[np.asarray(graph.indices[positions])].astype(np.int32)
    weights = None if graph.weights is None else np.asarray(graph.weights[positions])
    features: Any = graph.features
    if features is not None:
        features = sp.csr_matrix(features[alive]) if sp.issparse(features) else np.asarray(features[alive])
    splits = [Split(*(number[getattr(split, name)] for name in PARTS), fit=split.fit) for split in task.splits]
    return replace(
        task,
        graph=Graph.from_csr(offsets, indices, weights, features),
        labels=np.asarray(task.labels)[alive],
        splits=splits,
        ids=alive if task.ids is None else np.asarray(task.ids)[alive],
    )
