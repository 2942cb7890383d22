"""One version of the graph that is served, whole: a request reads one state from its beginning to its end."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.label_input import KnownLabels
from polyformer.metrics import predicted_classes
from polyformer.models import NodeModel
from polyformer.new_nodes import NewNodes
from polyformer.reporter import SILENT, Reporter
from polyformer.runs.application import new_nodes_of
from polyformer.runs.saved_model import ModelCard
from polyformer.server.answers import Answers, answers_for
from polyformer.server.names import NodeNames
from polyformer.tasks import Task

__all__ = ["State", "open_state"]


@dataclass(frozen=True, eq=False)
class State:
    """A version of the graph with all that answers for it; never changed once it is made.

    Attributes:
        task: graph, labels, ids and columns, features as the model reads them.
        names: the user's ids.
        answers: scores and filters of the nodes.
        beside: predicts nodes that are not in the graph.
        card: how outputs are read.
    """

    task: Task
    names: NodeNames
    answers: Answers
    beside: NewNodes
    card: ModelCard

    @property
    def version(self) -> int:
        """How many changes the graph has seen."""
        return self.task.graph.version

    @property
    def classes(self) -> list[str] | None:
        """Names of the classes, in the order of the probabilities; None where real values are predicted."""
        if self.card.objective == "regression":
            return None
        return [str(name) for name in self.card.class_names or range(self.card.num_classes)]

    def answer(self, names: Sequence[Any], scores: np.ndarray) -> dict[str, Any]:
        """Predictions of some nodes, (n,) ids and (n, C) scores, as JSON: with the classes and the version."""
        return {
            "predictions": self.predictions(names, scores),
            "classes": self.classes,
            "version": self.version,
        }

    def predictions(self, names: Sequence[Any], scores: np.ndarray) -> list[dict[str, Any]]:
        """A prediction for each id, as JSON: (n,), (n, C)."""
        classes = self.classes
        if classes is None:
            values = scores[:, 0].tolist()
            return [{"id": name, "prediction": value} for name, value in zip(names, values, strict=True)]
        best = predicted_classes(scores, self.card.threshold).tolist()
        rows = scores.tolist()
        return [
            {"id": name, "prediction": classes[place], "probabilities": row}
            for name, place, row in zip(names, best, rows, strict=True)
        ]

    def filter_of(self, coefficients: np.ndarray | None) -> dict[str, Any] | None:
        """The filter of one node for JSON, from its coefficients (H, K+1); None for a model that has no filters."""
        answers = self.answers
        if coefficients is None and answers.shared_response is None:
            return None
        if coefficients is None:
            assert answers.shared_response is not None
            response = answers.shared_response
        else:
            response = coefficients @ answers.tokens_response
        return {
            "coefficients": None if coefficients is None else np.ascontiguousarray(coefficients),
            "frequencies": answers.lam,
            "response": np.ascontiguousarray(response),
            "shared": coefficients is None,
            "exact": answers.exact,
            "input": answers.input,
        }

    def neighbours(self, row: int, limit: int, offset: int = 0) -> dict[str, Any]:
        """Ids of neighbours, from place ``offset`` on, with the weights of their edges; and how many there are."""
        graph = self.task.graph
        begin, end = int(graph.indptr[row]), int(graph.indptr[row + 1])
        first = min(begin + offset, end)
        last = min(first + limit, end)
        rows = np.asarray(graph.indices[first:last], np.int64)
        weights = None if graph.weights is None else np.asarray(graph.weights[first:last]).tolist()
        return {"count": end - begin, "offset": offset, "ids": self.names.names(rows), "weights": weights}

    def label_of(self, row: int) -> str | float | None:
        """The true class or value of a node, where it is known."""
        label = self.task.labels[row]
        if self.task.is_regression:
            return None if np.isnan(label) else float(label)
        names = self.task.class_names
        return None if label < 0 else str(int(label)) if names is None else names[int(label)]


def open_state(
    card: ModelCard,
    model: NodeModel,
    task: Task,
    tokens: Path | None,
    names: NodeNames | None = None,
    labels: KnownLabels | None = None,
    reporter: Reporter = SILENT,
) -> State:
    """All that answers for a task as it is now.

    Args:
        model: without a graph; it is copied.
        task: with features as the model reads them.
        tokens: a token directory of all nodes of this graph.
        names: the ids; read from the task by default.
        labels: those that a model which reads known labels is shown.
    """
    own = copy.deepcopy(model)
    answers = answers_for(own, card.reader, task.graph, tokens, labels, reporter)
    beside = new_nodes_of(card, own, task.graph, tokens, labels)
    return State(task, NodeNames.of(task) if names is None else names, answers, beside, card)
