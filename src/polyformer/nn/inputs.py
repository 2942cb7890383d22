r"""Two ways for tokens to reach the model's input layer :math:`\mathrm{token}_k W + b`, equal to rounding.

*Stored*: tokens :math:`g_k(P) X` are computed once and their rows are multiplied by W. *Projected*: X W is computed
first, the narrow result is propagated, mixed into the basis, and only then b is added (inside the propagation the bias
would be wrong). The first suits narrow features and many small batches, the second wide sparse features and few large
batches; :func:`choose_route` estimates both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from polyformer.arrays import aligned_empty
from polyformer.bases import FixedBasis
from polyformer.graph_checks import Features
from polyformer.operators import Operator
from polyformer.propagation.kernel import KERNEL_WIDTHS, SparseBlock
from polyformer.propagation.recurrences import Propagator, column_blocks, padded
from polyformer.stores.rows import RowIndex
from polyformer.tokens import token_bytes

__all__ = ["ProjectedInput", "RouteCosts", "StoredInput", "TokenInput", "choose_route"]


class TokenInput(ABC):
    """Gives the input layer's output for any nodes."""

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


class StoredInput(TokenInput):
    """Rows of tokens that are in memory.

    Args:
        tokens: (n, K+1, d).
        nodes: the node of each row, if the rows are not all nodes in order.
    """

    def __init__(self, tokens: Tensor, nodes: np.ndarray | None = None) -> None:
        self.tokens = tokens
        self._index = RowIndex(nodes, len(tokens), "memory")

    def embed(self, nodes: Tensor, linear: nn.Linear) -> Tensor:
        rows = torch.from_numpy(self._index(nodes.cpu().numpy()))
        return linear(self.tokens[rows].to(linear.weight.device, linear.weight.dtype))


class ProjectedInput(TokenInput):
    """Features multiplied by W, then propagated by the operator in the given fixed basis."""

    def __init__(self, operator: Operator, features: Features, basis: FixedBasis, order: int) -> None:
        self.order = order
        self.mixing = torch.from_numpy(basis.mixing(order))
        self.features = _FeatureProduct(features)
        self.operator = operator
        self._propagators: dict[Any, Propagator] = {}

    def embed(self, nodes: Tensor, linear: nn.Linear) -> Tensor:
        weight = linear.weight
        projected = self.features(weight.cpu().t())  # (N, hidden)
        propagator = self._propagator(projected.dtype)
        chebyshev = _ChebyshevTokens.apply(projected, propagator, self.order, nodes.cpu())  # (B, K+1, hidden)
        tokens = torch.matmul(self.mixing.to(chebyshev.dtype), chebyshev).to(weight.device)
        return tokens if linear.bias is None else tokens + linear.bias

    def _propagator(self, dtype: torch.dtype) -> Propagator:
        numpy_dtype = torch.empty(0, dtype=dtype).numpy().dtype
        if numpy_dtype not in self._propagators:
            self._propagators[numpy_dtype] = Propagator(self.operator, numpy_dtype)
        return self._propagators[numpy_dtype]


class _FeatureProduct:
    """X W with gradients for W; sparse X by the kernel, in both directions."""

    def __init__(self, features: Features) -> None:
        self.dense = torch.from_numpy(np.asarray(features, np.float32)) if isinstance(features, np.ndarray) else None
        if self.dense is None:
            self.matrix = SparseBlock.of_matrix(features)
            self.transposed = SparseBlock.of_matrix(sp.csr_matrix(features.T))

    def __call__(self, weight: Tensor) -> Tensor:
        if self.dense is not None:
            return self.dense.to(weight.dtype) @ weight
        return _SparseProduct.apply(weight, self.matrix, self.transposed)


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, matrix: SparseBlock, transposed: SparseBlock) -> Tensor:
        ctx.transposed = transposed
        return _block_product(matrix, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _block_product(ctx.transposed, gradients[0]), None, None


def _block_product(matrix: SparseBlock, dense: Tensor) -> Tensor:
    """B x, a block of columns at a time: (columns, c) -> (rows, c)."""
    x = dense.detach().numpy()
    out = np.empty((matrix.shape[0], x.shape[1]), x.dtype)
    for block, width in column_blocks(x.shape[1]):
        step = aligned_empty((matrix.shape[0], width), x.dtype)
        matrix.product(padded(x[:, block], width, x.dtype), step)
        out[:, block] = step[:, : block.stop - block.start]
    return torch.from_numpy(out)


class _ChebyshevTokens(torch.autograd.Function):
    """x -> T_0(M) x, …, T_K(M) x at the given nodes: (N, c) -> (B, K+1, c)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, propagator: Propagator, order: int, nodes: Tensor) -> Tensor:
        ctx.propagator, ctx.order, ctx.nodes, ctx.shape = propagator, order, nodes, x.shape
        values, rows = x.detach().numpy(), nodes.numpy()
        out = np.empty((len(rows), order + 1, values.shape[1]), values.dtype)
        inverse = propagator.inverse[rows, None]
        for block, width in column_blocks(values.shape[1]):
            used = block.stop - block.start
            hops = propagator.chebyshev(padded(values[:, block], width, values.dtype), order, emit=lambda k: None)
            for k, scaled in enumerate(hops):
                np.multiply(scaled[rows, :used], inverse, out=out[:, k, block])
        return torch.from_numpy(out)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        gradient, propagator = gradients[0], ctx.propagator
        scaling = torch.from_numpy(propagator.scaling)[ctx.nodes, None]
        result = np.empty(tuple(ctx.shape), propagator.dtype)
        for block, width in column_blocks(ctx.shape[1]):
            used = block.stop - block.start

            def add(k: int, buffer: np.ndarray, block: slice = block, used: int = used) -> None:
                torch.from_numpy(buffer)[:, :used].index_add_(0, ctx.nodes, gradient[:, k, block] * scaling)

            result[:, block] = propagator.chebyshev_adjoint(add, width, ctx.order)[:, :used]
        return torch.from_numpy(result), None, None, None


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
        epochs: over which the one propagation of the stored route is spread.
        memory_bytes: stored tokens beyond this are not considered, unless they may be kept on disk.
        num_rows: how many nodes' tokens are stored; all by default.
        on_disk: stored tokens may be kept on disk; then a projection that needs more memory is not considered.
    """
    dense_rate, sparse_rate = 3e10, 3e9  # multiply-adds per second of two ordinary cores
    disk_rate = 1e9  # bytes per second
    num_nodes, width = features.shape
    entries = len(operator.graph.indices) + num_nodes
    nonzeros = features.size if isinstance(features, np.ndarray) else features.nnz
    feature_rate = dense_rate if isinstance(features, np.ndarray) else sparse_rate
    stored_bytes = token_bytes(num_nodes if num_rows is None else num_rows, order, width)
    stored = 2.0 * rows_per_epoch * (order + 1) * width * hidden_channels / dense_rate
    stored += order * entries * width / sparse_rate / max(1, epochs)
    if stored_bytes > memory_bytes:  # written once, read every epoch
        stored += (token_bytes(rows_per_epoch, order, width) + stored_bytes / max(1, epochs)) / disk_rate
    one_pass = nonzeros * hidden_channels / feature_rate + order * entries * hidden_channels / sparse_rate
    # X W, its gradient and the buffers of a column block; the rows that are asked for; features that lie on disk.
    projected_bytes = 4 * num_nodes * (2 * hidden_channels + 3 * KERNEL_WIDTHS[0])
    projected_bytes += 2 * token_bytes(-(-rows_per_epoch // max(1, passes_per_epoch)), order, hidden_channels)
    projected_bytes += features.nbytes if isinstance(features, np.memmap) else 0
    costs = RouteCosts(stored, 2.0 * one_pass * passes_per_epoch, stored_bytes, projected_bytes)
    if on_disk and projected_bytes > memory_bytes:
        return "stored", costs
    fits = on_disk or stored_bytes <= memory_bytes
    return ("stored" if fits and costs.stored <= costs.projected else "projected"), costs
