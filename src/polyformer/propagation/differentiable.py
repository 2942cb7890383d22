r"""The operator P inside a model: products and polynomials of P with gradients, on the kernel that makes tokens.

P is symmetric, so a gradient goes back through the same recurrences: the adjoint of :math:`x \mapsto T_k(M) x` is
Clenshaw's recurrence, and the adjoint of Lanczos is the three-term recurrence run backwards. All functions take (N, c)
tensors of any width, in float32 or float64. The kernel computes the products on the CPU; where x is on a device that
multiplies sparse matrices, torch computes them there. Second derivatives raise an error on the CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from polyformer.arrays import aligned_empty
from polyformer.bases.optimal import Recurrence
from polyformer.devices import fits, multiplies_sparse
from polyformer.operators import Operator
from polyformer.propagation.device_products import DeviceMatrix, device_chebyshev
from polyformer.propagation.recurrences import Propagator, column_blocks, padded
from polyformer.stores.mixing import mix_orders

__all__ = ["DifferentiableOperator"]

_LANCZOS_WIDTH = 16
"""Columns in a block: on small graphs, K+1 buffers of this width stay in cache."""


class DifferentiableOperator:
    """P of a graph as a differentiable function of (N, c) tensors.

    Example:
        >>> from polyformer.graph import Graph
        >>> operator = DifferentiableOperator(Operator(Graph([[0, 1], [1, 2]])))
        >>> x = torch.tensor([[1.0], [0.0], [0.0]], requires_grad=True)
        >>> operator.product(x)[1].backward()
        >>> x.grad.squeeze().tolist() == operator.product(torch.eye(3))[1].tolist()
        True
    """

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self._propagators: dict[Any, Propagator] = {}
        self._on_devices: dict[torch.device, DeviceMatrix | None] = {}

    def product(self, x: Tensor) -> Tensor:
        """P x: (N, c) -> (N, c), in O(|E| c)."""
        matrix = self._on_device(x.device)
        if matrix is not None:
            return matrix.product(x)
        return _Product.apply(x.cpu(), self._propagator(x.dtype)).to(x.device)

    def chebyshev(self, x: Tensor, order: int, nodes: Tensor | None = None) -> Tensor:
        """T_0(L̂ - I) x, …, T_K(L̂ - I) x of all nodes or of ``nodes``: (N, c) -> (B, K+1, c), in O(K |E| c)."""
        matrix = self._on_device(x.device)
        if matrix is not None:
            return device_chebyshev(matrix, x, order, None if nodes is None else nodes.to(x.device))
        rows = torch.arange(len(x)) if nodes is None else nodes.cpu()
        if nodes is not None:
            unique, where = rows.unique(return_inverse=True)
            if len(unique) < len(rows):
                return self.chebyshev(x, order, unique)[where.to(x.device)]
        return _ChebyshevTokens.apply(x.cpu(), self._propagator(x.dtype), order, rows).to(x.device)

    def tokens(self, x: Tensor, mixing: np.ndarray) -> Tensor:
        """g_0(P) x, …, g_K(P) x of all nodes in the basis whose mixing matrix is given: (N, c) -> (N, K+1, c)."""
        matrix = self._on_device(x.device)
        if matrix is not None:
            tokens = device_chebyshev(matrix, x, len(mixing) - 1)
            return tokens if _is_identity(mixing) else torch.from_numpy(mixing).to(tokens) @ tokens
        return _Tokens.apply(x.cpu(), self._propagator(x.dtype), mixing).to(x.device)

    def filter(self, x: Tensor, coefficients: Tensor) -> Tensor:
        r"""Polynomials of P in Chebyshev form: :math:`z_i = \sum_k c_{(i)k} (T_k(\hat L - I) x)_i`.

        Args:
            x: (N, c).
            coefficients: (K+1,), one filter for all nodes, or (N, K+1), one for each. The mixing matrix of a fixed
                basis turns coefficients in that basis into Chebyshev form: ``coefficients @ mixing``.
        """
        tokens = self.chebyshev(x, coefficients.shape[-1] - 1)  # (N, K+1, c)
        pattern = "k,nkc->nc" if coefficients.dim() == 1 else "nk,nkc->nc"
        return torch.einsum(pattern, coefficients, tokens)

    def optimal(self, x: Tensor, order: int) -> Tensor:
        """Tokens of the optimal basis of each column of x: (N, c) -> (N, K+1, c), in O(K |E| c + K² N c)."""
        return _OptimalTokens.apply(x.cpu(), self._propagator(torch.float64), order).to(x.device)

    def optimal_recurrence(self, x: np.ndarray, order: int) -> Recurrence:
        """The recurrence of each column of x (N, c), from which its response is computed."""
        return _lanczos(x, self._propagator(torch.float64), order)[1]

    def _on_device(self, device: torch.device) -> DeviceMatrix | None:
        """P on a device that multiplies sparse matrices, if it fits there; asked once for each device."""
        if not multiplies_sparse(device):
            return None
        if device not in self._on_devices:
            matrix = self.operator.to_scipy()
            room = fits(DeviceMatrix.bytes_of(matrix), device)
            self._on_devices[device] = DeviceMatrix(matrix, device, symmetric=True) if room else None
        return self._on_devices[device]

    def _propagator(self, dtype: torch.dtype) -> Propagator:
        numpy_dtype = torch.empty(0, dtype=dtype).numpy().dtype
        if numpy_dtype not in self._propagators:
            self._propagators[numpy_dtype] = Propagator(self.operator, numpy_dtype)
        return self._propagators[numpy_dtype]


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, propagator: Propagator) -> Tensor:
        ctx.propagator = propagator
        return torch.from_numpy(_product(x.detach().numpy(), propagator))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return torch.from_numpy(_product(gradients[0].detach().numpy(), ctx.propagator)), None


def _product(x: np.ndarray, propagator: Propagator) -> np.ndarray:
    """P x, a block of columns at a time."""
    result = np.empty_like(x, order="C")
    for block, width in column_blocks(x.shape[1]):
        values = padded(x[:, block], width, propagator.dtype)
        values *= propagator.scaling[:, None]
        out = aligned_empty(values.shape, values.dtype)
        propagator.matrix.product(values, out, row_scale=propagator.row_scale, loop=propagator.loop)
        result[:, block] = out[:, : block.stop - block.start]
    return result


class _ChebyshevTokens(torch.autograd.Function):
    """x -> T_0(M) x, …, T_K(M) x at the given nodes, each named once: (N, c) -> (B, K+1, c)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, propagator: Propagator, order: int, nodes: Tensor) -> Tensor:
        ctx.propagator, ctx.nodes = propagator, nodes.numpy()
        return torch.from_numpy(propagator.tokens_at(ctx.nodes, x.detach().numpy(), order))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        return (
            torch.from_numpy(ctx.propagator.tokens_adjoint(ctx.nodes, gradients[0].detach().numpy())),
            None,
            None,
            None,
        )


class _Tokens(torch.autograd.Function):
    """x -> Σ_j M_kj T_j(L̂ - I) x for k = 0..K: (N, c) -> (N, K+1, c)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, propagator: Propagator, mixing: np.ndarray) -> Tensor:
        ctx.propagator, ctx.mixing, ctx.nodes = propagator, mixing, np.arange(len(x))
        tokens = propagator.tokens_at(ctx.nodes, x.detach().numpy(), len(mixing) - 1)
        _mix(tokens, mixing)
        return torch.from_numpy(tokens)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        gradient = gradients[0].detach().contiguous().numpy()
        if not _is_identity(ctx.mixing):
            gradient = gradient.copy()
            _mix(gradient, ctx.mixing.T)
        return torch.from_numpy(ctx.propagator.tokens_adjoint(ctx.nodes, gradient)), None, None


def _is_identity(mixing: np.ndarray) -> bool:
    return np.array_equal(mixing, np.eye(len(mixing)))


def _mix(tokens: np.ndarray, mixing: np.ndarray) -> None:
    """tokens <- M tokens along the orders, in place: (N, K+1, c)."""
    if _is_identity(mixing):
        return
    if tokens.dtype == np.float32:
        mix_orders(tokens, mixing)
    else:
        tokens[:] = np.matmul(mixing, tokens)


class _OptimalTokens(torch.autograd.Function):
    r"""x -> h_0, …, h_K with :math:`β_{k+1} h_{k+1} = r_k = P h_k - γ_k h_k - β_k h_{k-1}` per column."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, propagator: Propagator, order: int) -> Tensor:
        basis, recurrence = _lanczos(x.detach().numpy(), propagator, order)
        ctx.propagator, ctx.basis, ctx.recurrence = propagator, basis, recurrence
        ctx.save_for_backward(x)
        return torch.from_numpy(basis.transpose(1, 0, 2)).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        # The input is an argument so that torch sees that the result depends on it, and refuses a second derivative.
        return _OptimalTokens._gradients(ctx, gradients[0], *ctx.saved_tensors)

    @staticmethod
    @once_differentiable
    def _gradients(ctx: Any, of_tokens: Tensor, x: Tensor) -> tuple[Tensor, None, None]:
        basis, recurrence = ctx.basis, ctx.recurrence
        gradient = of_tokens.detach().numpy().transpose(1, 0, 2).astype(np.float64)  # (K+1, N, c)
        of_beta = np.zeros(basis.shape[2])  # gradient of β_{k+1}, which the next step also uses
        for k in range(len(recurrence.beta) - 1, -1, -1):
            here, beta, gamma = basis[k], recurrence.beta[k], recurrence.gamma[k]
            of_step = _of_unnormalised(gradient[k + 1], basis[k + 1], beta, of_beta)  # of r_k
            of_gamma = -(here * of_step).sum(axis=0)
            # γ_k = h_kᵀ P h_k, where P h_k is known from the recurrence itself.
            gradient[k] += _product(of_step, ctx.propagator) - gamma * of_step
            moved = beta * basis[k + 1] + gamma * here
            if k:
                moved += recurrence.beta[k - 1] * basis[k - 1]
                gradient[k - 1] -= recurrence.beta[k - 1] * of_step
                of_beta = -(basis[k - 1] * of_step).sum(axis=0)
            gradient[k] += 2 * of_gamma * moved
        of_x = _of_unnormalised(gradient[0], basis[0], recurrence.norm, np.zeros_like(of_beta))
        return torch.from_numpy(of_x).to(x.dtype), None, None


def _of_unnormalised(gradient: np.ndarray, unit: np.ndarray, norm: np.ndarray, of_norm: np.ndarray) -> np.ndarray:
    """The gradient of r from the gradients of r / ‖r‖ and ‖r‖; zero where the column is zero."""
    inverse = np.divide(1.0, norm, out=np.zeros_like(norm), where=norm > 0)
    return (gradient - unit * (unit * gradient).sum(axis=0)) * inverse + unit * of_norm


def _lanczos(x: np.ndarray, propagator: Propagator, order: int) -> tuple[np.ndarray, Recurrence]:
    """(K+1, N, c) float64 tokens of every column, a narrow block at a time."""
    count, width = x.shape
    basis = np.empty((order + 1, count, width))
    norm, gamma, beta = np.empty(width), np.empty((order, width)), np.empty((order, width))
    for block, block_width in column_blocks(width, widest=_LANCZOS_WIDTH):
        used = block.stop - block.start
        tokens, recurrence = propagator.lanczos(padded(x[:, block], block_width, np.float64), order)
        basis[:, :, block] = tokens[:, :, :used]
        norm[block] = recurrence.norm[:used]
        gamma[:, block], beta[:, block] = recurrence.gamma[:, :used], recurrence.beta[:, :used]
    return basis, Recurrence(norm, gamma, beta)
