"""The training contract: what every model, PolyFormer and each baseline, is to the training loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from polyformer.devices import rows_per_slice
from polyformer.errors import InvalidData, InvalidParameter
from polyformer.graph import Graph
from polyformer.graph_checks import Features
from polyformer.label_input import KnownLabels, LabelMask
from polyformer.models.token_function import TokenFunction
from polyformer.reporter import SILENT, Reporter

__all__ = [
    "NodeModel",
    "Workload",
    "bound",
    "evaluating",
    "in_slices",
    "with_own_rates",
]

Part = TypeVar("Part")


@dataclass(frozen=True, eq=False)
class Workload:
    """What a model will be asked for, and what it may use for that, so that it can choose how to prepare.

    Attributes:
        nodes: ids of the nodes whose outputs will be asked for; None for all nodes.
        rows_per_epoch: rows that pass through the model in an epoch; a walk over the nodes sets it.
        passes_per_epoch: calls of the model in an epoch.
        epochs: how many epochs there may be.
        memory: bytes that may be used; None for 80 % of the free memory.
        tokens: a token directory to read; None to compute tokens.
        scratch: path for a token directory, if tokens do not fit in memory; an existing one is used. For a walk over
            the nodes, an existing folder in which a token directory may be made for the time being.
        mapped: leave the token directory where it is and read rows when they are asked for: for a process that answers
            for a few nodes at a time, many times.
        share: ids of the nodes that this process asks for, where other processes ask for the rest; None for all of
            ``nodes``. A model decides by ``nodes``, so that all processes decide alike.
        labels: the known labels that a model with label columns is shown; None for a model without such columns.
        label_masks: the masks that a model which stores tokens of labels will be asked to hide labels by.
    """

    nodes: np.ndarray | None = None
    rows_per_epoch: int = 1
    passes_per_epoch: int = 1
    epochs: int = 1
    memory: int | None = None
    tokens: Path | None = None
    scratch: Path | None = None
    mapped: bool = False
    share: np.ndarray | None = None
    labels: KnownLabels | None = None
    label_masks: tuple[LabelMask, ...] = ()

    @property
    def own_nodes(self) -> np.ndarray | None:
        """Ids that this process will ask for, None for all nodes of the graph."""
        return self.nodes if self.share is None else self.share


class NodeModel(nn.Module, ABC):
    """A module that maps node ids to outputs.

    A model is made from the widths of input and output and its settings, so that its parameters do not depend on a
    graph; :meth:`bind` then attaches a graph. What a model keeps of the graph is not part of its ``state_dict``.

    Args:
        in_channels: number of input columns: d node features, and L columns of known labels if the model is shown any.
        out_channels: number of outputs per node.
        settings: an instance of ``settings_type``.

    Attributes:
        label_channels: L, how many of the input columns, the last ones, are those of known labels; 0 for none.
        reads_labels: whether known labels of other nodes can tell the model anything.
        stores_label_tokens: whether a mask of known labels costs a propagation, so that training draws a few masks once
            and names them in :attr:`Workload.label_masks`; other models take another mask in every step.
        training_defaults: training settings that suit the model, where the user asks for no others.
        few_label_defaults: settings of the model and of its training that suit few training nodes, in place of the
            defaults; :mod:`polyformer.runs.default_settings` says how many are few.
        alternatives: other settings that a run tries beside its defaults, if the user asks for no settings.
        few_label_alternatives: the same for few training nodes, each beside ``few_label_defaults``.
        search_space: for every setting that ``tune`` searches, the values it chooses from.
        large_search_space: the search space for a great many training nodes; settings that it leaves out are not
            searched there. If it is empty, ``search_space`` is used.
        compares_all_nodes: whether a pass takes O(N²), as it compares all nodes with all nodes or all eigenvectors.
        reads_tokens: whether the model sees the graph through the tokens of its nodes alone.
        carries_outputs: whether the graph carries the outputs of nodes, a column for each class, and no hidden rows.
        exact_filter: whether a filter that the model tells is all that it does to the spectrum before its read-out.
    """

    settings_type: ClassVar[type]
    training_defaults: ClassVar[Mapping[str, Any]] = {}
    few_label_defaults: ClassVar[Mapping[str, Any]] = {}
    alternatives: ClassVar[Sequence[Mapping[str, Any]]] = ()
    few_label_alternatives: ClassVar[Sequence[Mapping[str, Any]]] = ()
    search_space: ClassVar[Mapping[str, Sequence[Any]]] = {}
    large_search_space: ClassVar[Mapping[str, Sequence[Any]]] = {}
    compares_all_nodes: ClassVar[bool] = False
    reads_tokens: ClassVar[bool] = False
    carries_outputs: ClassVar[bool] = False
    reads_labels: ClassVar[bool] = True
    stores_label_tokens: ClassVar[bool] = False
    exact_filter: ClassVar[bool] = True

    @abstractmethod
    def __init__(self, in_channels: int, out_channels: int, settings: Any) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.label_channels = in_channels, out_channels, 0
        self.settings = settings

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw all parameters and fill all buffers anew, as the constructor does; a graph stays bound.

        A second model is made for that, so that a model gives its initial values at one place only.
        """
        with torch.device("cpu"):
            fresh = type(self)(self.in_channels, self.out_channels, self.settings)
        initial = dict(chain(fresh.named_parameters(), fresh.named_buffers()))
        for name, tensor in chain(self.named_parameters(), self.named_buffers()):
            tensor.copy_(initial[name])

    @abstractmethod
    def bind(self, graph: Graph, workload: Workload, reporter: Reporter = SILENT) -> None:
        """Attach a graph and precompute what the workload needs.

        Args:
            reporter: hears how far the preparation is, what will be kept on disk and why, and what takes long.
        """

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
        """Outputs in training, and the model's own term of the loss, a scalar; None if the model has no such term."""
        return self(nodes), None

    @property
    def capabilities(self) -> frozenset[str]:
        """What the model can do on a graph that changes, some of:

        - ``update``: its stored tokens follow a change of the graph (:func:`polyformer.update_tokens`);
        - ``new nodes``: it predicts a node from the node's own tokens (:mod:`polyformer.new_nodes`), where other models
          read the whole graph again;
        - ``serve``: it answers for single nodes without a pass over the graph.
        """
        return frozenset()

    def features_of(self, graph: Graph) -> Features:
        """The features of a graph; refuses a graph with another number of columns than in training."""
        expected = self.in_channels - self.label_channels
        if graph.features is None or graph.num_features != expected:
            raise InvalidData(
                f"The model reads {expected} features per node. This graph has {graph.num_features}. "
                f"Pass a graph with the same features as in training."
            )
        return graph.features

    def label_refusal(self, name: str) -> str | None:
        """Why this model, whose name is given, cannot be shown known labels; None if it can."""
        if self.reads_labels:
            return None
        return (
            f"The model '{name}' sees no neighbours, so known labels would tell it nothing. Leave label_input out, or "
            f"choose a model that reads the graph, such as polyformer or cascade."
        )

    def labels_of(self, graph: Graph, workload: Workload) -> KnownLabels | None:
        """The labels that the model is shown in a graph; None for a model without label columns."""
        if self.label_channels == 0:
            return None
        labels = workload.labels
        if labels is None or labels.width != self.label_channels or labels.num_nodes != graph.num_nodes:
            raise InvalidParameter(
                f"The model reads known labels in {self.label_channels} columns beside the features of "
                f"{graph.num_nodes} nodes. Got {'none' if labels is None else (labels.num_nodes, labels.width)}. Pass "
                f"KnownLabels of this graph as the labels of the workload."
            )
        return labels

    def show_labels(self, mask: LabelMask | None) -> None:
        """Set the columns of the labels that the mask hides to zero, for all nodes; None shows all known labels.

        A model that reads labels through a :class:`~polyformer.inputs.feature_matrix.FeatureMatrix` or through tokens
        hands this on to it.
        """
        raise AssertionError(f"{type(self).__name__} does not say how it hides labels")

    @contextmanager
    def hiding(self, mask: LabelMask | None) -> Iterator[None]:
        """Within the context no input of the model tells of a label that the mask hides; None changes nothing."""
        if mask is None:
            yield
            return
        self.show_labels(mask)
        try:
            yield
        finally:
            self.show_labels(None)

    def shuffle(self, nodes: Tensor, random: np.random.Generator) -> Iterator[Tensor]:
        """The order of an epoch: every position among ``nodes`` once, a piece at a time.

        A model that reads from disk gives an order in which it reads fast. The order must depend only on the arguments
        and on what the model is bound to, so that a run can be repeated.
        """
        yield torch.from_numpy(random.permutation(len(nodes)))

    def ahead(self, nodes: Tensor, batches: Iterator[Tensor]) -> Generator[Tensor]:
        """The same batches of positions among ``nodes``; the caller then asks the model for them in this order.

        A model that reads from disk reads the next batches meanwhile; another thread may run ``batches``.
        """
        yield from batches

    @property
    def by_rows(self) -> bool:
        """Whether a node's output costs the same in any batch; otherwise it is best to ask for all nodes at once."""
        return False

    @property
    def divisible(self) -> bool:
        """Whether processes can share a training step, as its gradient is the sum of the gradients of its rows."""
        return self.by_rows

    def indivisible_reason(self, name: str, workers: int) -> str:
        """Why so many workers cannot share a training step of this model, whose name is given, and what to do."""
        return (
            f"The model '{name}' needs the whole graph, or the whole batch, in every step, so {workers} workers cannot "
            f"share it. Train it with one, or choose a model on tokens, such as polyformer."
        )

    @classmethod
    def tells_filters(cls) -> bool:
        """Whether a trained model is a spectral or a node-wise filter; see :mod:`polyformer.models.filter_contract`."""
        return hasattr(cls, "frequency_response") or hasattr(cls, "filter_coefficients")

    def check_tokens(self, graph: Graph, workload: Workload) -> None:
        """Refuse a token directory of the workload that is not of this graph, or not what the model reads."""

    def on_tokens(self, name: str) -> TokenFunction:
        """The model as a function of tokens alone, for an export; a model that is none refuses under its name."""
        raise InvalidParameter(
            f"The model '{name}' is no function of the tokens of a node, so it cannot be exported. Export a run of a "
            f"model on tokens, such as polyformer."
        )

    @property
    def rows_per_step(self) -> int | None:
        """How many rows of a training step go through the model at once; None for all rows."""
        return None

    def nodes_at_once(self, graph: Graph, workload: Workload, reporter: Reporter = SILENT) -> int:
        """How many of the workload's nodes the model can be bound to at once; the caller takes turns for more."""
        return graph.num_nodes if workload.nodes is None else len(workload.nodes)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Groups for the optimiser; a group has ``lr`` or ``weight_decay`` only if it does not use the run's."""
        return [{"params": list(self.parameters())}]

    def describe(self) -> dict[str, Any]:
        """What the model decided when it was bound, for the record of the run."""
        return {}


def with_own_rates(
    model: nn.Module, own: Iterable[nn.Parameter], lr: float | None, weight_decay: float | None
) -> list[dict[str, Any]]:
    """Two groups for the optimiser: ``own``, with rate and decay unless they are None, and all other parameters."""
    own = list(own)
    ids = {id(parameter) for parameter in own}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in ids]
    rates = {"lr": lr, "weight_decay": weight_decay}
    return [{"params": rest}, {"params": own, **{name: rate for name, rate in rates.items() if rate is not None}}]


def bound(part: Part | None) -> Part:
    """A part that :meth:`NodeModel.bind` prepared; an error if the model was not bound yet."""
    if part is None:
        raise InvalidParameter("The model has no graph yet. Bind it to one first.")
    return part


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model into evaluation mode inside the context: no dropout, no noise."""
    training = model.training
    changes = any(part.training for part in model.modules())  # to set the mode of every part takes longer than to look
    if changes:
        model.eval()
    try:
        yield
    finally:
        if changes:
            model.train(training)


def in_slices(compute: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """``compute(rows)`` in slices that suit the device, for passes that keep nothing for a gradient."""
    return torch.cat([compute(part) for part in rows.split(rows_per_slice(rows.device))])
