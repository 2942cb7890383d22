"""The training contract: what every model, PolyFormer and each baseline, is to the training loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
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
        memory: bytes that may be used, None for 80 % of what is free.
        tokens: a token directory that is to be used.
        scratch: where a token directory may be made, or is already, if tokens do not fit in memory.
        report: is told what will be kept on disk, and why.
    """

    nodes: np.ndarray | None
    rows_per_epoch: int
    passes_per_epoch: int = 1
    epochs: int = 1
    memory: int | None = None
    tokens: Path | None = None
    scratch: Path | None = None
    report: Callable[[str], None] | None = None


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

    def shuffle(self, nodes: Tensor, random: np.random.Generator) -> Iterator[Tensor]:
        """An epoch's order: positions among ``nodes``, each once, a piece at a time.

        A model that reads from disk gives one in which it reads fast. It must depend on nothing but its arguments and
        what the model is bound to, so that a run repeats.
        """
        yield torch.from_numpy(random.permutation(len(nodes)))

    def ahead(self, nodes: Tensor, batches: Iterator[Tensor]) -> Generator[Tensor]:
        """The same batches of positions among ``nodes``, which the model is then asked for in this order.

        A model that reads from disk reads those to come meanwhile; ``batches`` may be run by another thread.
        """
        yield from batches

    @property
    def by_rows(self) -> bool:
        """Whether a node's output costs the same in any company; otherwise it is best to ask for all at once."""
        return False

    def nodes_at_once(self, graph: Graph, workload: Workload) -> int:
        """How many of the workload's nodes it can be bound to at once; more are done in several turns."""
        return graph.num_nodes if workload.nodes is None else len(workload.nodes)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Groups for the optimiser; a group names ``lr`` or ``weight_decay`` only where it has its own."""
        return [{"params": list(self.parameters())}]

    def describe(self) -> dict[str, Any]:
        """What it decided when it was bound, for the run's record."""
        return {}
