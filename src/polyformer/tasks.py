"""What a data set asks for: the labels of its graph, their metric and number of classes, and the splits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.columns import Column, columns_from_json
from polyformer.errors import FileCorrupt, InvalidData
from polyformer.files import map_npy, new_directory, read_npz, reading, write_npy, write_npz
from polyformer.graph import Graph
from polyformer.graph_checks import to_numpy
from polyformer.graph_files import graph_file, open_version, write_graph_manifest
from polyformer.metrics import METRICS, fitting_metrics
from polyformer.objectives import OBJECTIVES, Objective
from polyformer.splits import Split

__all__ = ["Task", "check_labels", "check_trainable"]

_SMALL_IDS = 32 << 20
"""Bytes of ids that are compared with each other whenever they are opened."""


@dataclass(frozen=True, eq=False)
class Task:
    """A graph, its labels and how a model on it is trained and judged.

    Attributes:
        labels: (N,) int64 classes, -1 unlabelled; or float64 values, NaN unlabelled, for regression.
        metric: name in ``METRICS`` of the metric that selects models; by default accuracy, or r2 for regression.
        splits: one or more :class:`Split`, drawn by ``protocol``.
        class_names: names of the classes in predictions.
        ids: (N,) node ids of the user, integers or strings; 0..N-1 by default.
        columns: columns of the table that the features come from; None if features come from elsewhere.
        preprocessing: a plain sentence on each change that was made to the features.
        drawn: whether the splits were drawn when the user's files were read, so that one label more draws others.
    """

    name: str
    graph: Graph
    labels: np.ndarray
    splits: Sequence[Split] = field(repr=False)
    protocol: str = "fixed"
    metric: str = ""
    class_names: tuple[str, ...] | None = None
    ids: np.ndarray | None = None
    columns: tuple[Column, ...] | None = None
    preprocessing: tuple[str, ...] = ()
    drawn: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", check_labels(self.labels, self.graph.num_nodes))
        if not self.metric:
            object.__setattr__(self, "metric", "r2" if self.is_regression else "accuracy")
        if METRICS[self.metric].labels != ("values" if self.is_regression else "classes"):
            kind = "real-valued" if self.is_regression else "class"
            fitting = ", ".join(fitting_metrics("values" if self.is_regression else "classes"))
            raise InvalidData(f"The metric '{self.metric}' does not fit {kind} labels. Use one of: {fitting}.")
        for split in self.splits:
            split.check(self.labels)

    @property
    def is_regression(self) -> bool:
        """Whether the labels are real values."""
        return self.labels.dtype.kind == "f"

    @cached_property
    def num_classes(self) -> int:
        """C; 0 for regression."""
        if self.is_regression:
            return 0
        return max(int(self.labels.max(initial=-1)) + 1, len(self.class_names or ()))

    @property
    def shown_classes(self) -> list[str]:
        """Names of the classes, or their numbers if they have no names; empty for regression."""
        return [str(name) for name in self.class_names or range(self.num_classes)]

    @property
    def objective(self) -> Objective:
        """Loss and scores: binary for two classes, multiclass for more, regression for real values."""
        if self.is_regression:
            return OBJECTIVES["regression"]
        return OBJECTIVES["binary" if self.num_classes == 2 else "multiclass"]

    def save(self, directory: str | Path) -> None:
        """Write a graph directory that also holds labels, splits and ids."""
        with new_directory(Path(directory)) as folder:
            manifest = self.graph.write_arrays(folder)
            write_graph_manifest(folder, manifest | self.write_labels(folder))

    def write_labels(self, folder: Path) -> dict[str, Any]:
        """Write labels, splits and ids into ``folder``; returns their part of the manifest."""
        write_npy(folder / "labels.npy", self.labels)
        arrays = {
            f"{part}_{i}": getattr(split, part)
            for i, split in enumerate(self.splits)
            for part in ("train", "val", "test")
        }
        write_npz(folder / "splits.npz", arrays)
        if self.ids is not None:
            write_npy(folder / "ids.npy", self.ids)
        return {
            "task": {
                "name": self.name,
                "metric": self.metric,
                "protocol": self.protocol,
                "num_splits": len(self.splits),
                "fit": any(split.fit for split in self.splits),
                "class_names": self.class_names,
                "ids": self.ids is not None,
                "columns": None if self.columns is None else [asdict(column) for column in self.columns],
                "preprocessing": list(self.preprocessing),
            }
        }

    @classmethod
    def load(cls, directory: str | Path) -> Task:
        """Open a graph directory, labels and ids memory-mapped; one without labels gives a task without splits."""
        folder = Path(directory)
        graph = Graph.load(folder)
        return open_version(folder, lambda manifest: cls._load_version(folder, graph, manifest))

    @classmethod
    def _load_version(cls, folder: Path, graph: Graph, manifest: dict[str, Any]) -> Task:
        """Open the labels that belong to a graph, or of a newer version if an update came in between."""
        if graph.version != manifest.get("version", 0):
            graph = Graph.load(folder)
        about = (graph.manifest or {}).get("task")
        if about is None:
            return cls(folder.resolve().name, graph, np.broadcast_to(np.int64(-1), graph.num_nodes), [], "none")
        assert graph.manifest is not None
        labels = map_npy(graph_file(folder, graph.manifest, "labels.npy"))
        ids = _load_ids(graph_file(folder, graph.manifest, "ids.npy"), graph) if about["ids"] else None
        parts = [[f"{part}_{i}" for part in ("train", "val", "test")] for i in range(about["num_splits"])]
        place = graph_file(folder, graph.manifest, "splits.npz")
        arrays = read_npz(place, [name for names in parts for name in names])
        splits = [Split(*(arrays[name] for name in names), fit=about.get("fit", False)) for names in parts]
        names = about["class_names"]
        try:
            return cls._from_parts(about, graph, labels, splits, ids, names)
        except InvalidData as error:
            raise FileCorrupt(f"Labels or splits of '{folder}' are damaged. {error}") from None

    @classmethod
    def _from_parts(
        cls,
        about: dict[str, Any],
        graph: Graph,
        labels: np.ndarray,
        splits: list[Split],
        ids: np.ndarray | None,
        names: list[str] | None,
    ) -> Task:
        return cls(
            about["name"],
            graph,
            labels,
            splits,
            about["protocol"],
            about["metric"],
            None if names is None else tuple(names),
            ids,
            columns_from_json(about.get("columns")),
            tuple(about.get("preprocessing", ())),
        )


def _load_ids(path: Path, graph: Graph) -> np.ndarray:
    """(N,) ids, mapped; those of a small graph are seen to be different from each other, removed nodes left out."""
    ids, num_nodes = map_npy(path), graph.num_nodes
    with reading(path):
        if ids.shape != (num_nodes,) or ids.dtype.kind not in "iuU":
            raise ValueError(f"it must hold {num_nodes:,} ids, integers or texts. Got {ids.dtype} {ids.shape}")
        if ids.nbytes <= _SMALL_IDS:
            living = np.sort(np.delete(ids, graph.removed))
            if (living[1:] == living[:-1]).any():
                raise ValueError("it must hold a different id for every node")
    return ids


def check_trainable(task: Task, split: Split) -> None:
    """Refuse a task from which nothing can be learned, or on which no epoch can be selected."""
    if task.graph.num_features == 0:
        raise InvalidData(
            f"The nodes of '{task.name}' have no features, and a model needs at least one. Add columns to the node "
            f"table, e.g. the degree."
        )
    if task.num_classes == 1:
        name = task.class_names[0] if task.class_names else 0
        raise InvalidData(
            f"All labels are of one class, '{name}', so there is nothing to tell apart. Check the label column."
        )
    labels = task.labels[split.val]
    if len(labels) == 0:
        raise InvalidData("There are no validation nodes to select the epoch by. Name some, or leave 'val' out.")
    if METRICS[task.metric].needs_variety and len(np.unique(labels)) == 1:
        raise InvalidData(
            f"All {len(labels)} validation nodes have the label {labels[0]}, so the metric '{task.metric}' is not "
            f"defined on them. Add others{'' if task.is_regression else ', or use the metric accuracy'}."
        )


def check_labels(labels: Any, num_nodes: int) -> np.ndarray:
    """Labels as (N,) int64 with -1 for unlabelled, or float64 with NaN for unlabelled."""
    array = to_numpy(labels, "labels")
    if array.shape != (num_nodes,):
        raise InvalidData(f"'labels' must have shape ({num_nodes},), one per node. Got {array.shape}.")
    if array.dtype.kind == "f":
        infinite = np.flatnonzero(np.isinf(array))
        if len(infinite):
            raise InvalidData(
                f"'labels' must be finite, or NaN for unlabelled. Got infinity at node {int(infinite[0])}."
            )
        return array.astype(np.float64, copy=False)
    if array.dtype.kind not in "iub":
        raise InvalidData(
            f"'labels' must be class numbers 0, 1, … or real values. Got dtype {array.dtype}. Number the classes first."
        )
    array = array.astype(np.int64, copy=False)
    wrong = np.flatnonzero(array < -1)
    if len(wrong):
        raise InvalidData(
            f"'labels' must be 0, 1, … or -1 for unlabelled. Got {int(array[wrong[0]])} at node {int(wrong[0])}."
        )
    return array
