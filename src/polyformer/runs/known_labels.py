"""The labels that a run keeps, and those that its model is shown in a graph.

A model with label columns is shown the labels of its training. On its own data it is also shown labels that arrived
since, but never one that was known at training and held out for validation or testing: such a label stays what the
model is judged by. The file ``labels.safetensors`` holds what is needed for that.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from polyformer.errors import DataNotFound, FileCorrupt
from polyformer.files import RUN, check_identity, read_tensors, run_identity, write_tensors
from polyformer.files.run_names import LABELS
from polyformer.files.run_schemas import LABELS as LABELS_SCHEMA
from polyformer.graph import Graph
from polyformer.label_input import KnownLabels
from polyformer.objectives import label_units
from polyformer.runs.saved_model import ModelCard
from polyformer.splits import Split
from polyformer.tasks import Task

__all__ = ["StoredLabels", "read_labels", "write_labels"]


@dataclass(frozen=True, eq=False)
class StoredLabels:
    """The labels of a training, and which nodes were held out then.

    Attributes:
        structure: fingerprint of the structure of the graph.
        num_nodes: N of that graph.
        nodes: (n,) the training nodes, in the order of their split.
        labels: (n,) their labels: classes, or real values.
        held_out: names of the nodes that had a label and were not for training; see :func:`_names`.
        units: centre and scale of real values.
        num_classes: C; 0 for real values.
    """

    structure: str
    num_nodes: int
    nodes: np.ndarray
    labels: np.ndarray
    held_out: np.ndarray
    units: tuple[float, float]
    num_classes: int

    @classmethod
    def of(cls, task: Task, split: Split) -> StoredLabels:
        """What a run on this split keeps."""
        held_out = np.setdiff1d(_labelled(task.labels), split.train)
        labels = task.labels[split.train]
        units = label_units(labels) if task.is_regression else (0.0, 1.0)
        graph = task.graph
        names = _names(task, held_out)
        return cls(graph.structure_fingerprint, graph.num_nodes, split.train, labels, names, units, task.num_classes)

    @property
    def known(self) -> KnownLabels:
        """The labels of the training nodes, in the order of the split, in the graph of the training."""
        return self._encoded(self.num_nodes, self.nodes, self.labels)

    def in_graph(self, graph: Graph) -> KnownLabels:
        """What is shown in a graph that comes without labels: those of training, if it is that graph or follows it.

        In a graph that the labels do not belong to, none is shown.
        """
        if not self._follows(graph):
            return self.none_in(graph)
        stay = (self.nodes < graph.num_nodes) & ~np.isin(self.nodes, graph.removed)
        return self._encoded(graph.num_nodes, self.nodes[stay], self.labels[stay])

    def in_task(self, task: Task, card: ModelCard, own: bool, split: Split | None) -> KnownLabels:
        """What is shown in a graph that comes with labels: all of them but those of nodes that are held out.

        Args:
            own: whether the task is the data of the training, as it is now.
            split: whose validation and test nodes are held out now; None for none.
        """
        nodes = np.setdiff1d(_labelled(task.labels), task.graph.removed)
        if own or self._follows(task.graph):
            nodes = nodes[~np.isin(_names(task, nodes), self.held_out)]
        if split is not None:
            nodes = np.setdiff1d(nodes, np.concatenate([split.val, split.test]))
        labels = task.labels[nodes]
        if self.num_classes:
            labels = _renumbered(labels, task, card)
            nodes, labels = nodes[labels >= 0], labels[labels >= 0]
        return self._encoded(task.graph.num_nodes, nodes, labels)

    def none_in(self, graph: Graph) -> KnownLabels:
        """No label is shown: what the same model says without labels."""
        return KnownLabels.none(graph.num_nodes, self.known.width)

    def _encoded(self, num_nodes: int, nodes: np.ndarray, labels: np.ndarray) -> KnownLabels:
        return KnownLabels.of(num_nodes, nodes, labels, self.num_classes, self.units)

    def _follows(self, graph: Graph) -> bool:
        """Whether the nodes of the graph are those of the training, and new ones behind them."""
        before = (change.structure_before for change in graph.unscaled.history)
        return self.structure == graph.structure_fingerprint or self.structure in before


def write_labels(folder: Path, stored: StoredLabels | None) -> None:
    """Write ``labels.safetensors`` into the directory of a run whose model is shown labels."""
    if stored is None:
        return
    arrays = {"nodes": stored.nodes, "labels": stored.labels, "held_out": stored.held_out}
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    about = {
        "format": 1,
        "structure": stored.structure,
        "num_nodes": stored.num_nodes,
        "num_classes": stored.num_classes,
        "units": list(stored.units),
        RUN: run_identity(folder),
    }
    write_tensors(folder / LABELS, tensors, about)


def read_labels(folder: Path, card: ModelCard) -> StoredLabels | None:
    """What :func:`write_labels` wrote; None for a model that is shown no labels."""
    if card.label_channels == 0:
        return None
    path = folder / LABELS
    if not path.exists():
        raise DataNotFound(f"'{folder}' lacks its {LABELS}, which its model needs. Restore it or train it again.")
    tensors, about = read_tensors(path, LABELS_SCHEMA)
    check_identity(path, about)
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    if set(arrays) != {"nodes", "labels", "held_out"} or len(arrays["nodes"]) != len(arrays["labels"]):
        raise FileCorrupt(f"'{path}' does not hold the labels of a training. Train it again.")
    stored = StoredLabels(
        about["structure"],
        about["num_nodes"],
        **arrays,
        units=(about["units"][0], about["units"][1]),
        num_classes=about["num_classes"],
    )
    _check(stored, card, path)
    return stored


def _check(stored: StoredLabels, card: ModelCard, path: Path) -> None:
    """Refuse nodes and labels that cannot be, and labels of another model."""
    nodes, labels = stored.nodes, stored.labels
    fits = stored.num_classes == card.num_classes and nodes.dtype == np.int64 and nodes.ndim == labels.ndim == 1
    fits = fits and len(np.unique(nodes)) == len(nodes) and stored.held_out.dtype == np.int64
    if fits and len(nodes):
        fits = nodes.min() >= 0 and nodes.max() < stored.num_nodes
        top = stored.num_classes
        fits = fits and bool(
            (labels.dtype.kind == "i" and labels.min() >= 0 and labels.max() < top)
            if top
            else np.isfinite(labels).all()
        )
    if not fits:
        raise FileCorrupt(f"'{path}' does not fit the model beside it. They come from different runs.")


def _labelled(labels: np.ndarray) -> np.ndarray:
    """Ids of nodes with a label."""
    return np.flatnonzero(~np.isnan(labels) if labels.dtype.kind == "f" else labels >= 0)


def _names(task: Task, nodes: np.ndarray) -> np.ndarray:
    """(n,) int64 that tell nodes apart also after removed rows were taken out: the users' ids, texts by a hash."""
    if task.ids is None:
        return nodes.astype(np.int64)
    ids = np.asarray(task.ids)[nodes]
    if ids.dtype.kind in "iu":
        return ids.astype(np.int64)
    hashes = [hashlib.blake2b(str(name).encode(), digest_size=8).digest() for name in ids]
    return np.frombuffer(b"".join(hashes), np.int64).copy()


def _renumbered(labels: np.ndarray, task: Task, card: ModelCard) -> np.ndarray:
    """Classes of a task under the numbers that the model knows them by; -1 for classes that it does not know."""
    if card.class_names is None or task.class_names is None:
        return np.where(labels < card.num_classes, labels, -1)
    numbers = {name: number for number, name in enumerate(card.class_names)}
    known = np.array([numbers.get(name, -1) for name in task.class_names], np.int64)
    return np.where(labels < len(known), known[np.minimum(labels, len(known) - 1)], -1)
