"""The facts about the data of a run: what its ``config.json`` keeps of them, and how they read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from polyformer.files import array_digest
from polyformer.splits import Split
from polyformer.tasks import Task

__all__ = ["DataFacts"]


@dataclass(frozen=True, kw_only=True)
class DataFacts:
    """Counts and hashes of the data and of the split that a run was trained on.

    Attributes:
        fingerprint: hash of the graph.
        labels: hash of the split and of the labels of its nodes; None in runs of versions that did not keep it.
        features: number of feature columns; ``classes`` is 0 where real values are predicted.
        train: number of training nodes; ``val`` and ``test`` alike.
        version: how many changes the graph directory had seen; 0 for other graphs, and in runs of earlier versions.
        preprocessing: a sentence on each thing that was done to the features.

    Example:
        >>> sizes = {"nodes": 10_000, "edges": 19_800, "features": 1, "classes": 0}
        >>> parts = {"train": 1, "val": 1, "test": 1}
        >>> DataFacts(name="grid", protocol="fixed", fingerprint="", **sizes, **parts).sentence
        'grid: 10,000 nodes, 19,800 edges, 1 feature, real values to predict'
    """

    name: str
    protocol: str
    fingerprint: str
    labels: str | None = None
    nodes: int
    edges: int
    features: int
    classes: int
    train: int
    val: int
    test: int
    preprocessing: tuple[str, ...] = ()
    version: int = 0

    @classmethod
    def of(cls, task: Task, split: Split) -> DataFacts:
        """The facts about a task and one of its splits."""
        parts = split.train, split.val, split.test
        return cls(
            name=task.name,
            protocol=task.protocol,
            fingerprint=task.graph.fingerprint,
            labels=array_digest(*parts, task.labels[np.concatenate(parts)]),
            nodes=len(task.graph.present_nodes),
            edges=task.graph.num_edges,
            features=task.graph.num_features,
            classes=task.num_classes,
            train=len(split.train),
            val=len(split.val),
            test=len(split.test),
            preprocessing=tuple(task.preprocessing),
            version=task.graph.version,
        )

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> DataFacts:
        """From the part ``task`` of a ``config.json``."""
        known = {field.name: content[field.name] for field in fields(cls) if field.name in content}
        return cls(**known | {"preprocessing": tuple(content.get("preprocessing") or ())})

    def to_json(self) -> dict[str, Any]:
        """For the part ``task`` of a ``config.json``."""
        return asdict(self) | {"preprocessing": list(self.preprocessing)}

    @property
    def sentence(self) -> str:
        """The counts, for people."""
        counts = [
            f"{count:,} {name if count != 1 else name[:-1]}"
            for name, count in (("nodes", self.nodes), ("edges", self.edges), ("features", self.features))
        ]
        labels = f"{self.classes} classes" if self.classes else "real values to predict"
        return f"{self.name}: {', '.join([*counts, labels])}"

    def differs(self, before: DataFacts) -> bool:
        """Whether the data has changed since ``before`` was written."""
        return self.fingerprint != before.fingerprint or before.labels not in (None, self.labels)
