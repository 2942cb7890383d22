"""Models that need the whole graph for any output: they compute the outputs of all nodes at once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from polyformer.graph import Graph
from polyformer.inputs.feature_matrix import FeatureMatrix
from polyformer.label_input import LabelMask
from polyformer.machine import require_memory
from polyformer.models.contract import NodeModel, Workload, bound
from polyformer.parameter_checks import check_dropout, check_positive
from polyformer.reporter import SILENT, Reporter
from polyformer.settings import setting

__all__ = [
    "COMMON_SPACE",
    "FULL_BATCH",
    "BaselineSettings",
    "FullGraphModel",
    "edge_tensor",
    "require_message_memory",
]

FULL_BATCH: Mapping[str, Any] = {
    "batch_size": "full",
    "lr": 0.01,
    "weight_decay": 5e-4,
    "epochs": 1000,
    "patience": 100,
}
"""An epoch is one optimiser step, so it takes larger steps, more epochs and more patience than with mini-batches."""

COMMON_SPACE: Mapping[str, tuple[Any, ...]] = {
    "lr": (1e-3, 5e-3, 1e-2, 5e-2),
    "weight_decay": (0.0, 5e-5, 5e-4, 5e-3),
    "dropout": (0.0, 0.2, 0.5, 0.7, 0.8),
    "hidden_channels": (32, 64, 128, 256),
}
"""The search space that all baselines share. It is ours, as the paper gives no search spaces for baselines."""


@dataclass(frozen=True)
class BaselineSettings:
    """Settings that every baseline has."""

    hidden_channels: int = setting(64, "width inside the model")
    dropout: float = setting(0.5, "dropout on features and hidden layers")

    def __post_init__(self) -> None:
        check_positive(hidden_channels=self.hidden_channels)
        check_dropout("dropout", self.dropout)


class FullGraphModel(NodeModel):
    """A model whose outputs depend on all nodes: one pass computes the outputs of all nodes.

    A subclass writes :meth:`encode`, and :meth:`prepare` if it needs more of the graph than the features.
    """

    training_defaults: ClassVar[Mapping[str, Any]] = FULL_BATCH
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = COMMON_SPACE

    def __init__(self, in_channels: int, out_channels: int, settings: Any) -> None:
        super().__init__(in_channels, out_channels, settings)
        self._features: FeatureMatrix | None = None

    def bind(self, graph: Graph, workload: Workload, reporter: Reporter = SILENT) -> None:
        features = self.features_of(graph)
        self.prepare(graph, workload, reporter)
        self._features = FeatureMatrix(features, self.labels_of(graph, workload))

    def show_labels(self, mask: LabelMask | None) -> None:
        self.features.show_labels(mask)

    def prepare(self, graph: Graph, workload: Workload, reporter: Reporter) -> None:
        """Precompute what the model needs of the graph, within the workload's memory."""

    @abstractmethod
    def encode(self) -> Tensor:
        """Outputs of all nodes: (N, out)."""

    @property
    def features(self) -> FeatureMatrix:
        """The features X of the graph, with the columns of known labels behind them if the model is shown any."""
        return bound(self._features)

    def forward(self, nodes: Tensor) -> Tensor:
        return self.encode()[nodes]

    def drop(self, probability: float) -> float:
        """The probability in training, 0 in evaluation."""
        return probability if self.training else 0.0


def edge_tensor(graph: Graph) -> Tensor:
    """Edges in both directions, in the layout of PyTorch Geometric: (2, 2|E|)."""
    adjacency = graph.adjacency().tocoo()
    return torch.from_numpy(np.stack([adjacency.row, adjacency.col]).astype(np.int64, copy=False))


def require_message_memory(graph: Graph, num_layers: int, channels: int, workload: Workload) -> None:
    """Refuse layers that hold a row, its weighted copy and its gradient for every edge, if these exceed the memory."""
    messages = len(graph.indices) + graph.num_nodes
    size = 12.0 * num_layers * messages * channels
    require_memory("Messages along all edges", size, "Lower num_layers or hidden_channels.", workload.memory)
