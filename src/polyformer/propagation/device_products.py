"""Sparse matrices on a device that multiplies them by dense ones, in the CSR layout of torch, with gradients."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

__all__ = ["DeviceMatrix", "device_chebyshev"]


class DeviceMatrix:
    """A sparse matrix and its transpose on a device: :meth:`product` differentiates by the dense factor.

    Args:
        matrix: (rows, columns) in the CSR layout.
        symmetric: the matrix is its own transpose, so that one copy serves both.
    """

    def __init__(self, matrix: sp.csr_matrix, device: torch.device, symmetric: bool = False) -> None:
        self.shape, self.device = matrix.shape, device
        self.values = self._place(matrix.data)
        self._forward = self._place(matrix.indptr), self._place(matrix.indices)
        self._backward, self._positions = self._forward, None
        if not symmetric:
            # The transpose holds the position of each entry, so that other values fit both.
            entries = sp.csr_matrix((np.arange(matrix.nnz), matrix.indices, matrix.indptr), matrix.shape).T.tocsr()
            self._backward = self._place(entries.indptr), self._place(entries.indices)
            self._positions = self._place(entries.data)
        with warnings.catch_warnings():  # torch says once that the layout is in beta state
            warnings.simplefilter("ignore", UserWarning)
            self._matrix(self._forward, self.values, self.shape)

    @staticmethod
    def bytes_of(matrix: sp.csr_matrix) -> int:
        """Bytes that the matrix and its transpose take at most."""
        return 2 * int(matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes) + 8 * int(matrix.nnz)

    def product(self, x: Tensor, values: Tensor | None = None) -> Tensor:
        """B x with a gradient for x: (columns, c) -> (rows, c).

        Args:
            values: (nnz,) other entries of B, in the order of its rows.
        """
        return _Product.apply(x, self, self.values.to(x.dtype) if values is None else values)

    def multiply(self, x: Tensor, values: Tensor, transposed: bool = False) -> Tensor:
        """B x, or Bᵀ x, without a gradient."""
        layout = self._backward if transposed else self._forward
        if transposed and self._positions is not None:
            values = values[self._positions]
        return torch.mm(self._matrix(layout, values, self.shape[::-1] if transposed else self.shape), x)

    @staticmethod
    def _matrix(layout: tuple[Tensor, Tensor], values: Tensor, shape: tuple[int, ...]) -> Tensor:
        return torch.sparse_csr_tensor(*layout, values, size=shape, check_invariants=False)

    def _place(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: DeviceMatrix, values: Tensor) -> Tensor:
        ctx.matrix, ctx.values = matrix, values.detach()
        return matrix.multiply(x, ctx.values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return ctx.matrix.multiply(gradients[0], ctx.values, transposed=True), None, None


def device_chebyshev(operator: DeviceMatrix, x: Tensor, order: int, nodes: Tensor | None = None) -> Tensor:
    """T_0(-P) x, …, T_K(-P) x of all nodes or of ``nodes``: (N, c) -> (B, K+1, c)."""
    previous, current = x, x
    tokens = [x if nodes is None else x[nodes]]
    for k in range(order):
        step = -operator.product(current)
        previous, current = current, step if k == 0 else 2 * step - previous
        tokens.append(current if nodes is None else current[nodes])
    return torch.stack(tokens, dim=1)
