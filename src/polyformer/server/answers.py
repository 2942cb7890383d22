"""What a model says of nodes of one version of a graph: from stored tokens, or from one pass over all nodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyformer.filters import filter_coefficients, frequency_grid
from polyformer.graph import Graph
from polyformer.label_input import KnownLabels
from polyformer.models import NodeModel, NodeWiseFilter, SpectralFilter, Workload
from polyformer.models.walk import node_blocks
from polyformer.objectives import Objective
from polyformer.reporter import SILENT, Reporter
from polyformer.runs.prediction import node_scores

__all__ = ["Answers", "PassAnswers", "TokenAnswers", "answers_for"]


class Answers(ABC):
    """Scores and filters of the nodes of one version of a graph.

    Attributes:
        lam: (L,) frequencies of the responses.
        shared_response: (F, L) response of a model whose filters all nodes share; None for other models.
        tokens_response: (K+1, L) g_k(λ) of a model in which every node has filters of its own; None for other models.
    """

    def __init__(self, model: NodeModel) -> None:
        self.lam = frequency_grid()
        self.exact = bool(model.exact_filter)
        self.input: str | None = None
        self.tokens_response: np.ndarray | None = None
        self.shared_response: np.ndarray | None = None
        if isinstance(model, NodeWiseFilter):
            self.input = model.filter_input(0)
            self.tokens_response = model.token_response(self.lam, model.default_channel)
        elif isinstance(model, SpectralFilter):
            self.shared_response = np.asarray(model.frequency_response(self.lam))

    @abstractmethod
    def scores(self, rows: np.ndarray) -> np.ndarray:
        """Probabilities (n, C), or values (n, 1) of a regression."""

    @abstractmethod
    def coefficients(self, rows: np.ndarray) -> np.ndarray:
        """α of the first layer, (n, H, K+1); asked only where :attr:`tokens_response` is there."""


class TokenAnswers(Answers):
    """A model that reads rows of a token directory when it is asked."""

    def __init__(self, model: NodeModel, objective: Objective) -> None:
        super().__init__(model)
        self._model, self._objective = model, objective

    def scores(self, rows: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return node_scores(self._model, self._objective, rows)

    def coefficients(self, rows: np.ndarray) -> np.ndarray:
        model: Any = self._model
        with torch.inference_mode():
            return filter_coefficients(model, rows)


class PassAnswers(Answers):
    """What one pass over all nodes gave: for a model that reads the whole graph, and where no tokens are stored."""

    def __init__(
        self, model: NodeModel, objective: Objective, graph: Graph, workload: Workload, reporter: Reporter = SILENT
    ) -> None:
        node_wise: Any = model if isinstance(model, NodeWiseFilter) else None

        def compute(rows: np.ndarray) -> tuple[np.ndarray, ...]:
            scores = node_scores(model, objective, rows)
            if node_wise is None:
                return (scores,)
            with torch.no_grad():
                return scores, filter_coefficients(node_wise, rows)

        blocks = [arrays for _, arrays in node_blocks(model, graph, compute, workload, reporter, "all nodes")]
        columns = [np.concatenate(parts) for parts in zip(*blocks, strict=True)]
        self._scores, self._coefficients = columns[0], columns[1] if len(columns) > 1 else None
        super().__init__(model)

    def scores(self, rows: np.ndarray) -> np.ndarray:
        return self._scores[rows]

    def coefficients(self, rows: np.ndarray) -> np.ndarray:
        assert self._coefficients is not None
        return self._coefficients[rows]


def answers_for(
    model: NodeModel,
    objective: Objective,
    graph: Graph,
    tokens: Path | None,
    labels: KnownLabels | None = None,
    reporter: Reporter = SILENT,
) -> Answers:
    """The answers of a model for a graph, to which the model is bound.

    Args:
        graph: as the model reads it.
        tokens: a token directory of all nodes of this graph.
        labels: those that a model which reads known labels is shown.
        reporter: hears how far the pass over all nodes is.
    """
    if tokens is None or "serve" not in model.capabilities:
        return PassAnswers(model, objective, graph, Workload(labels=labels), reporter)
    model.bind(graph, Workload(tokens=tokens, mapped=True, labels=labels), reporter)
    return TokenAnswers(model, objective)
