"""What nodes on a map are coloured by and told as, in the report and on the server: columns of 16-bit steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyformer.filters import BANDS, local_homophily
from polyformer.metrics import predicted_classes
from polyformer.splits import Split
from polyformer.tasks import Task

__all__ = [
    "MISSING",
    "NodeColumn",
    "category_column",
    "filter_columns",
    "kind_names",
    "number_column",
    "part_column",
    "prediction_columns",
    "structure_columns",
]

MISSING = 65535
"""Stands for a value that is not known."""

_WRONG, _CORRECT = "#D55E00", "#0072B2"
"""Vermilion and blue, which colour-blind readers can tell apart."""


@dataclass(frozen=True, eq=False)
class NodeColumn:
    """A value of each of n nodes: one of several labels, or a number.

    Attributes:
        title: what a reader calls it.
        steps: (n,) uint16, ``MISSING`` where nothing is known: the place of the label, or the number
            ``least + step · steps``.
        labels: names of the categories; None for numbers.
        colours: of the categories; those of the palette by default.
        digits: how many digits of a number are shown after its point.
    """

    title: str
    steps: np.ndarray
    labels: list[str] | None = None
    colours: Sequence[str] | None = None
    least: float = 0.0
    most: float = 0.0
    step: float = 1.0
    digits: int = 3

    def describe(self) -> dict[str, Any]:
        """All but the values, as JSON."""
        if self.labels is not None:
            return {"title": self.title, "labels": self.labels, "colours": self.colours}
        scale = {"least": self.least, "most": self.most, "step": self.step}
        return {"title": self.title, **scale, "digits": self.digits}

    @property
    def numbers(self) -> np.ndarray:
        """(n,) float64, NaN where nothing is known."""
        return np.where(self.steps == MISSING, np.nan, self.least + self.step * self.steps)


def category_column(
    title: str, values: np.ndarray, labels: list[str], colours: Sequence[str] | None = None
) -> NodeColumn:
    """Values 0, 1, … with names; -1 for none.

    >>> category_column("class", np.array([1, -1]), ["safe", "mine"]).steps
    array([    1, 65535], dtype=uint16)
    """
    return NodeColumn(title, np.where(values < 0, MISSING, values).astype(np.uint16), labels, colours)


def number_column(title: str, values: np.ndarray, digits: int = 3) -> NodeColumn:
    """Numbers as 16-bit steps between the least and the most.

    >>> number_column("degree", np.array([2.0, 9.0]), digits=0).numbers
    array([2., 9.])
    """
    finite = np.isfinite(values)
    least = float(values[finite].min()) if finite.any() else 0.0
    most = float(values[finite].max()) if finite.any() else 0.0
    span = (most - least) or 1.0
    # Whole numbers stay whole where they fit in 16 bits.
    span = float(MISSING - 1) if digits == 0 and span < MISSING else span
    steps = np.full(len(values), float(MISSING))
    steps[finite] = np.round((values[finite] - least) / span * (MISSING - 1))
    return NodeColumn(title, steps.astype(np.uint16), least=least, most=most, step=span / (MISSING - 1), digits=digits)


def prediction_columns(
    task: Task, nodes: np.ndarray, scores: np.ndarray, threshold: float | None, classes: list[str] | None = None
) -> dict[str, NodeColumn]:
    """What the nodes are, what was predicted, and how far these agree.

    Args:
        scores: (n, C) probabilities, or (n, 1) values of a regression; NaN for nodes without a prediction.
        threshold: of two classes; see :func:`polyformer.metrics.predicted_classes`.
        classes: names of the classes that the model knows; those of the task by default.
    """
    labels = task.labels[nodes]
    if task.is_regression:
        return {
            "class": number_column("value", labels),
            "prediction": number_column("prediction", scores[:, 0]),
            "error": number_column("absolute error", np.abs(scores[:, 0] - labels)),
        }
    known = np.isfinite(scores[:, 0])
    names, best = classes or task.shown_classes, predicted_classes(np.where(known[:, None], scores, 0.0), threshold)
    correct = np.where((labels < 0) | ~known, -1, best == labels)
    return {
        "class": category_column("class", labels, names),
        "prediction": category_column("prediction", np.where(known, best, -1), names),
        "correct": category_column("correctness", correct, ["wrong", "correct"], [_WRONG, _CORRECT]),
        "confidence": number_column("probability of the prediction", scores[np.arange(len(best)), best]),
    }


def part_column(split: Split, nodes: np.ndarray) -> NodeColumn:
    """The part of the split that each node belongs to."""
    part = np.full(len(nodes), -1)
    for i, ids in enumerate((split.train, split.val, split.test)):
        part[np.isin(nodes, ids)] = i
    return category_column("part of the split", part, ["train", "validation", "test"])


def kind_names(count: int) -> list[str]:
    """What kinds of filters are called: kind 1, kind 2, …"""
    return [f"kind {c + 1}" for c in range(count)]


def filter_columns(bands: np.ndarray, mean_order: np.ndarray) -> dict[str, NodeColumn]:
    """Where on the spectrum the filters let through, (n, 3), and their mean order, (n,)."""
    columns = {name: number_column(f"{name}-pass share", bands[:, i]) for i, name in enumerate(BANDS)}
    return columns | {"order": number_column("mean order", mean_order)}


def structure_columns(task: Task, nodes: np.ndarray) -> dict[str, NodeColumn]:
    """Degree and, where there are classes, local homophily."""
    indptr = task.graph.indptr
    degrees = np.asarray(indptr[nodes + 1] - indptr[nodes], np.float64)
    columns = {"degree": number_column("degree", degrees, digits=0)}
    if not task.is_regression:
        columns["homophily"] = number_column("local homophily", local_homophily(task.graph, task.labels, nodes))
    return columns
