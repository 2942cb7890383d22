"""A trained model inside an estimator, and what can be asked of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyformer.graph import Graph
from polyformer.label_input import KnownLabels
from polyformer.models import NodeModel
from polyformer.runs.known_labels import StoredLabels, write_labels
from polyformer.runs.prediction import predict_scores
from polyformer.runs.saved_model import ModelCard, save_weights

__all__ = ["TrainedModel"]


class TrainedModel:
    """A model with its parameters and its card. Copies and pickles of it hold no part of a graph, such as tokens.

    Args:
        labels: those of the training, for a model that is shown known labels.
    """

    def __init__(self, card: ModelCard, model: NodeModel, labels: StoredLabels | None = None) -> None:
        self.card, self.model, self.labels = card, model.eval(), labels

    def __reduce__(self) -> tuple[Any, ...]:
        parameters = {name: tensor.cpu() for name, tensor in self.model.state_dict().items()}
        return _rebuild, (self.card, parameters, self.labels)

    def shown_labels(self, graph: Graph) -> KnownLabels | None:
        """The labels that the model is shown in a graph: those of the training, in the graph of the training."""
        return None if self.labels is None else self.labels.in_graph(graph)

    def scores(self, graph: Graph, nodes: np.ndarray | None = None) -> np.ndarray:
        """Probabilities (n, C), or values (n, 1), of all nodes or of ``nodes`` in their order, also repeated ones.

        Args:
            graph: prepared as the card says.
        """
        labels = self.shown_labels(graph)
        if nodes is None:
            return predict_scores(self.model, self.card.reader, graph, labels=labels)
        if len(nodes) == 0:
            return np.empty((0, max(1, self.card.num_classes)))
        distinct_nodes, places = np.unique(nodes, return_inverse=True)
        return predict_scores(self.model, self.card.reader, graph, distinct_nodes, labels)[places]

    def save(self, folder: Path) -> None:
        """Write the parameters, the calibration, and the labels that the model is shown."""
        write_labels(folder, self.labels)
        save_weights(folder, self.model.state_dict(), self.card.calibration)


def _rebuild(card: ModelCard, parameters: dict[str, torch.Tensor], labels: StoredLabels | None = None) -> TrainedModel:
    model = card.build(seed=0)
    model.load_state_dict(parameters)
    return TrainedModel(card, model, labels)
