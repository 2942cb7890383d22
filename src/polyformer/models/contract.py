"""The training contract: what every model, PolyFormer and each baseline, is to the training loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn

from polyformer.graph import Graph
from polyformer.progress import Share

__all__ = ["NodeModel", "Workload"]


@dataclass(frozen=True, eq=False)
class Workload:
    """What a model will be asked for, so that it can choose how to prepare.

    Attributes:
        nodes: ids whose outputs are wanted, None for all.
        rows_per_epoch: rows that pass through the model in an epoch.
        passes_per_epoch: calls of the model in an epoch.
        epochs: how many epochs there may be.
    """

    nodes: np.ndarray | None
    rows_per_epoch: int
    passes_per_epoch: int = 1
    epochs: int = 1


class NodeModel(nn.Module, ABC):
    """A module that maps node ids to outputs.

    It is made from the widths of input and output and its settings, so that its parameters do not depend on a graph;
    :meth:`bind` then gives it one. What it keeps of the graph is not part of its ``state_dict``.

    Args:
        in_channels: d, number of node features.
        out_channels: number of outputs per node.
        settings: an instance of ``settings_type``.
    """

    settings_type: ClassVar[type]

    @abstractmethod
    def __init__(self, in_channels: int, out_channels: int, settings: Any) -> None:
        super().__init__()

    @abstractmethod
    def bind(self, graph: Graph, workload: Workload, progress: Share | None = None) -> None:
        """Attach a graph and precompute what the workload needs."""

    @abstractmethod
    def forward(self, nodes: Tensor) -> Tensor:
        """Outputs of the nodes: (B,) int64 -> (B, out_channels)."""

    def accumulate(self, nodes: Tensor, loss: Callable[[Tensor, slice], Tensor]) -> float:
        """Add the gradient of the nodes' loss to the parameters; returns the loss.

        Args:
            loss: ``loss(outputs, rows)`` is the loss of ``nodes[rows]``; it adds up over slices, so that a model may
                work through a large batch in slices that stay in cache.
        """
        value = loss(self(nodes), slice(0, len(nodes)))
        value.backward()
        return float(value.detach())

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Groups for the optimiser; a group names ``lr`` or ``weight_decay`` only where it has its own."""
        return [{"params": list(self.parameters())}]

    def describe(self) -> dict[str, Any]:
        """What it decided when it was bound, for the run's record."""
        return {}
