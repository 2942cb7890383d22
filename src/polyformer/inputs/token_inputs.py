r"""Two ways to compute the model's input layer :math:`\mathrm{token}_k W + b`, which agree to rounding.

*Stored*: tokens :math:`g_k(P) X` are computed once, and their rows are multiplied by W. *Projected*: X W is computed
first, propagated and mixed into the basis; b is added last, as it must not be propagated. The stored route suits narrow
features and many small batches, the projected route wide sparse features and few large batches; :func:`choose_route`
estimates the cost of both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from polyformer.bases import FixedBasis
from polyformer.devices import fits, multiplies_sparse, to_device
from polyformer.feature_scaling import ScaledFeatures
from polyformer.graph_checks import Features
from polyformer.inputs.feature_matrix import FeatureMatrix
from polyformer.label_input import KnownLabels, LabelMask
from polyformer.machine_speed import DENSE_PRODUCTS_PER_SECOND, DISK_BYTES_PER_SECOND, SPARSE_PRODUCTS_PER_SECOND
from polyformer.operators import Operator
from polyformer.propagation.differentiable import DifferentiableOperator
from polyformer.propagation.kernel import KERNEL_WIDTHS
from polyformer.stores.rows import RowIndex
from polyformer.tokens import token_bytes

__all__ = ["ProjectedInput", "RouteCosts", "RowInput", "StoredInput", "TokenInput", "choose_route"]


class TokenInput(ABC):
    """Computes the output of the input layer for any nodes.

    Attributes:
        route: how tokens reach the model: ``stored``, ``streamed`` or ``projected``.
    """

    route: str = "stored"

    @abstractmethod
    def embed(self, nodes: Tensor, linear: nn.Linear) -> Tensor:
        """``linear`` applied to the tokens of ``nodes``: (B,) -> (B, K+1, hidden), on the layer's device."""

    def shuffle(self, nodes: Tensor, random: np.random.Generator) -> Iterator[Tensor]:
        """Positions among ``nodes``, each once, in a random order that suits the input; a piece at a time."""
        yield torch.from_numpy(random.permutation(len(nodes)))

    def sort(self, nodes: Tensor) -> Tensor:
        """Positions among ``nodes`` in the order that suits the input best."""
        return torch.arange(len(nodes))

    def ahead(self, nodes: Tensor, batches: Iterator[Tensor]) -> Generator[Tensor]:
        """The same batches of positions; :meth:`embed` will be called for their nodes in this order."""
        yield from batches

    def show_labels(self, mask: LabelMask | None) -> None:
        """Hide the labels that the mask names; None shows all known labels. For an input that has label columns."""
        raise AssertionError("there are no label columns")

    def describe(self) -> dict[str, Any]:
        """What is to be recorded of the input beside its route."""
        return {}


class RowInput(TokenInput):
    """Tokens that are rows of a table, in memory or on disk.

    Attributes:
        norms: (d,) factors of the feature columns of every token; None for no factors.
    """

    norms: Tensor | None = None

    @abstractmethod
    def rows(self, nodes: Tensor, like: Tensor) -> Tensor:
        """The tokens of ``nodes`` on the device and in the dtype of ``like``: (B,) -> (B, K+1, d)."""

    def scaled_rows(self, nodes: Tensor, like: Tensor) -> Tensor:
        """The tokens of ``nodes`` as the first layer reads them: multiplied by :attr:`norms`, if there are any."""
        rows = self.rows(nodes, like)
        return rows if self.norms is None else rows * self.norms.to(rows)

    def embed(self, nodes: Tensor, linear: nn.Linear) -> Tensor:
        return linear(self.scaled_rows(nodes, linear.weight))


class StoredInput(RowInput):
    """Rows of tokens that are in memory; on a GPU, where they fit, from the first time that they are asked for there.

    Args:
        tokens: (n, K+1, d).
        nodes: the node of each row, if the rows are not all nodes in order.
    """

    def __init__(self, tokens: Tensor, nodes: np.ndarray | None = None) -> None:
        self.tokens = tokens
        self._index = RowIndex(nodes, len(tokens))
        self._kept_on: torch.device | None = None

    def rows(self, nodes: Tensor, like: Tensor) -> Tensor:
        self._keep_on(like.device)
        rows = torch.from_numpy(self._index(nodes.cpu().numpy()))
        return to_device(self.tokens[rows.to(self.tokens.device)], like)

    def _keep_on(self, device: torch.device) -> None:
        """Move all tokens to the device of the model, if they fit there; asked once for each device."""
        if device == self._kept_on:
            return
        self._kept_on = device
        if device.type == "cpu" or fits(self.tokens.nbytes, device):
            self.tokens = self.tokens.to(device)


class ProjectedInput(TokenInput):
    """Features, and label columns if there are any, multiplied by W, then propagated in the given fixed basis."""

    route = "projected"

    def __init__(
        self,
        operator: Operator,
        features: Features,
        basis: FixedBasis,
        order: int,
        labels: KnownLabels | None = None,
    ) -> None:
        self.order = order
        mixing = basis.mixing(order)
        self.mixing = None if np.array_equal(mixing, np.eye(order + 1)) else torch.from_numpy(mixing)
        self.features = FeatureMatrix(features, labels)
        self.operator = DifferentiableOperator(operator)

    def show_labels(self, mask: LabelMask | None) -> None:
        self.features.show_labels(mask)

    def embed(self, nodes: Tensor, linear: nn.Linear) -> Tensor:
        weight = linear.weight if multiplies_sparse(linear.weight.device) else linear.weight.cpu()
        projected = self.features.product(weight.t())  # (N, hidden)
        tokens = self.operator.chebyshev(projected, self.order, nodes)  # (B, K+1, hidden)
        if self.mixing is not None:
            tokens = torch.matmul(self.mixing.to(tokens), tokens)
        tokens = tokens.to(linear.weight.device)
        return tokens if linear.bias is None else tokens + linear.bias


@dataclass(frozen=True)
class RouteCosts:
    """Estimated seconds per epoch of both routes, and the bytes that each keeps in memory."""

    stored: float
    projected: float
    stored_bytes: int
    projected_bytes: int


def choose_route(
    operator: Operator,
    features: Features,
    order: int,
    hidden_channels: int,
    rows_per_epoch: int,
    passes_per_epoch: int,
    epochs: int,
    memory_bytes: int,
    num_rows: int | None = None,
    on_disk: bool = False,
) -> tuple[str, RouteCosts]:
    """``stored`` or ``projected``, whichever is cheaper by a rough count of multiply-adds.

    Args:
        rows_per_epoch: node rows that go through the input layer in an epoch, training and validation.
        passes_per_epoch: calls of the model in an epoch; each costs the projected route a whole propagation.
        epochs: how many epochs share the one propagation of the stored route.
        memory_bytes: bytes that may be used. A projection that needs more is not considered, nor are larger stored
            tokens, unless they may lie on disk. If neither fits, the answer is ``stored``, whose estimate is then
            refused.
        num_rows: how many nodes' tokens are stored; all by default.
        on_disk: stored tokens may be kept on disk.
    """
    dense_rate, sparse_rate = DENSE_PRODUCTS_PER_SECOND, SPARSE_PRODUCTS_PER_SECOND
    num_nodes, width = features.shape
    entries = len(operator.graph.indices) + num_nodes
    nonzeros = features.size if isinstance(features, np.ndarray | ScaledFeatures) else features.nnz
    feature_rate = dense_rate if isinstance(features, np.ndarray | ScaledFeatures) else sparse_rate
    stored_bytes = token_bytes(num_nodes if num_rows is None else num_rows, order, width)
    stored = 2.0 * rows_per_epoch * (order + 1) * width * hidden_channels / dense_rate
    stored += order * entries * width / sparse_rate / max(1, epochs)
    if stored_bytes > memory_bytes:  # written once, read every epoch
        stored += (token_bytes(rows_per_epoch, order, width) + stored_bytes / max(1, epochs)) / DISK_BYTES_PER_SECOND
    one_pass = nonzeros * hidden_channels / feature_rate + order * entries * hidden_channels / sparse_rate
    # X W, its gradient and the buffers of a column block; the rows of a batch; features that lie on disk.
    projected_bytes = 4 * num_nodes * (2 * hidden_channels + 3 * KERNEL_WIDTHS[0])
    projected_bytes += 2 * token_bytes(-(-rows_per_epoch // max(1, passes_per_epoch)), order, hidden_channels)
    projected_bytes += features.nbytes if isinstance(features, np.memmap | ScaledFeatures) else 0
    costs = RouteCosts(stored, 2.0 * one_pass * passes_per_epoch, stored_bytes, projected_bytes)
    if projected_bytes > memory_bytes:
        return "stored", costs
    fits = on_disk or stored_bytes <= memory_bytes
    return ("stored" if fits and costs.stored <= costs.projected else "projected"), costs
