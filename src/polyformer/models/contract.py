"""The training contract: what every model, PolyFormer and each baseline, is to the training loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from polyformer.errors import InvalidData, InvalidParameter
from polyformer.graph import Graph
from polyformer.graph_checks import Features
from polyformer.progress import Share

__all__ = [
    "ROWS_PER_SLICE",
    "NodeModel",
    "NodeWiseFilter",
    "SpectralFilter",
    "Workload",
    "bound",
    "check_no_channel",
    "evaluating",
    "in_slices",
    "with_own_rates",
]

Part = TypeVar("Part")

ROWS_PER_SLICE = 1024
"""Rows that stay in cache on their way through a model."""


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
        report: is told what will be kept on disk, and why, and what takes long to prepare.
        share: ids that this process will ask for, where others ask for the rest; None for all of ``nodes``. What a
            model decides depends on ``nodes``, so that all of them decide alike.
    """

    nodes: np.ndarray | None
    rows_per_epoch: int
    passes_per_epoch: int = 1
    epochs: int = 1
    memory: int | None = None
    tokens: Path | None = None
    scratch: Path | None = None
    report: Callable[[str], None] | None = None
    share: np.ndarray | None = None

    @property
    def own_nodes(self) -> np.ndarray | None:
        """Ids that this process will ask for, None for all nodes of the graph."""
        return self.nodes if self.share is None else self.share


class NodeModel(nn.Module, ABC):
    """A module that maps node ids to outputs.

    It is made from the widths of input and output and its settings, so that its parameters do not depend on a graph;
    :meth:`bind` then gives it one. What it keeps of the graph is not part of its ``state_dict``.

    Args:
        in_channels: d, number of node features.
        out_channels: number of outputs per node.
        settings: an instance of ``settings_type``.

    Attributes:
        training_defaults: training settings that suit the model, where the user asks for no others.
        search_space: for every setting that ``tune`` searches, the values it chooses from.
        large_search_space: the same where there are a great many training nodes; what it leaves out is not searched
            there. Empty: as for few.
        compares_all_nodes: whether a pass takes O(N²): all nodes with all, or with all eigenvectors.
    """

    settings_type: ClassVar[type]
    training_defaults: ClassVar[Mapping[str, Any]] = {}
    search_space: ClassVar[Mapping[str, Sequence[Any]]] = {}
    large_search_space: ClassVar[Mapping[str, Sequence[Any]]] = {}
    compares_all_nodes: ClassVar[bool] = False

    @abstractmethod
    def __init__(self, in_channels: int, out_channels: int, settings: Any) -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels

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
        outputs, penalty = self.outputs_and_penalty(nodes)
        value = loss(outputs, slice(0, len(nodes)))
        if penalty is not None:
            value = value + penalty
        value.backward()
        return float(value.detach())

    def outputs_and_penalty(self, nodes: Tensor) -> tuple[Tensor, Tensor | None]:
        """Outputs in training, and the model's own term of the loss, a scalar, where it has one."""
        return self(nodes), None

    def features_of(self, graph: Graph) -> Features:
        """The features of a graph that the model can read: as many columns as in training."""
        if graph.features is None or graph.num_features != self.in_channels:
            raise InvalidData(
                f"The model reads {self.in_channels} features per node. This graph has {graph.num_features}. "
                f"Pass a graph with the same features as in training."
            )
        return graph.features

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

    @property
    def divisible(self) -> bool:
        """Whether several processes can share a training step: its gradient is the sum of those of its rows."""
        return self.by_rows

    @property
    def rows_per_step(self) -> int | None:
        """So many rows of a training step go through the model at once; None for all."""
        return None

    def nodes_at_once(self, graph: Graph, workload: Workload) -> int:
        """How many of the workload's nodes it can be bound to at once; more are done in several turns."""
        return graph.num_nodes if workload.nodes is None else len(workload.nodes)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Groups for the optimiser; a group names ``lr`` or ``weight_decay`` only where it has its own."""
        return [{"params": list(self.parameters())}]

    def describe(self) -> dict[str, Any]:
        """What it decided when it was bound, for the run's record."""
        return {}


@runtime_checkable
class SpectralFilter(Protocol):
    """A bound model that knows what it does to each frequency, for plots."""

    def frequency_response(self, lam: np.ndarray, nodes: Tensor | None = None) -> np.ndarray:
        """Gains on the frequencies λ in [0, 2]: (n,) -> (F, n), a row for each filter that the model has.

        Args:
            nodes: whose filters are meant, where every node has its own; all nodes by default.
        """


@runtime_checkable
class NodeWiseFilter(Protocol):
    r"""A bound model in which every node has filters of its own: :math:`h_i(λ) = \sum_k α_k^{(i)} g_k(λ)`."""

    @property
    def filter_layers(self) -> int:
        """How many layers have coefficients; only the first has a spectrum."""

    def filter_coefficients(self, nodes: Tensor, layer: int = 0) -> np.ndarray:
        """α of the nodes in a layer, head by head: (B,) -> (B, H, K+1)."""

    def token_response(self, lam: np.ndarray, channel: int | None = None) -> np.ndarray:
        """g_0(λ), …, g_K(λ), of one feature column where they differ by column: (n,) -> (K+1, n)."""

    @abstractmethod
    def check_channel(self, channel: int | None) -> None:
        """Refuse a feature column of :meth:`token_response` that there is not, or one where all share the basis."""


def check_no_channel(basis: str, channel: int | None) -> None:
    """Refuse a feature column where the basis is the same for all."""
    if channel is not None:
        raise InvalidParameter(
            f"'channel' is for the optimal basis: all channels share the basis '{basis}'. Got {channel}. Leave it out."
        )


def with_own_rates(
    model: nn.Module, own: Iterable[nn.Parameter], lr: float | None, weight_decay: float | None
) -> list[dict[str, Any]]:
    """Two groups for the optimiser: the rest, and ``own`` with its own rate and decay where they are not None."""
    own = list(own)
    ids = {id(parameter) for parameter in own}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in ids]
    rates = {"lr": lr, "weight_decay": weight_decay}
    return [{"params": rest}, {"params": own, **{name: rate for name, rate in rates.items() if rate is not None}}]


def bound(part: Part | None) -> Part:
    """What :meth:`NodeModel.bind` prepares; an error where there was no graph yet."""
    if part is None:
        raise InvalidParameter("The model has no graph yet. Bind it to one first.")
    return part


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while: no dropout, no noise."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def in_slices(compute: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """``compute(rows)`` in slices that stay in cache, for passes that keep nothing for a gradient."""
    return torch.cat([compute(part) for part in rows.split(ROWS_PER_SLICE)])
