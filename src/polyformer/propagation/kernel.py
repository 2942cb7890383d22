r"""Sparse products on blocks of columns, by the native kernel or, where it was not built, by scipy.

Both compute one step of a linear recurrence, :math:`y = α\,R (B + c I) x + β\,p`, where B is a CSR matrix (a pattern of
ones if it has no values) and R a diagonal scaling, for float32 and float64 blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from polyformer.errors import KernelRefused
from polyformer.graph import Graph
from polyformer.native import call, is_available

__all__ = ["FASTEST_WIDTH", "KERNEL_WIDTHS", "SparseBlock", "column_dots", "column_subtract", "multiplies_halves"]

KERNEL_WIDTHS = (64, 32, 16, 8)
"""Column widths for which the native kernel is compiled."""

FASTEST_WIDTH = 32
"""Two cache lines a row: wider blocks leave the cache sooner, and narrower blocks read the indices more often."""


@dataclass(frozen=True, eq=False)
class SparseBlock:
    """A CSR matrix (rows, columns) that multiplies (columns, c) blocks.

    ``values`` None means a pattern of ones. ``first_row`` is the first row of a range of rows of a square matrix, so
    that the diagonal is known. Column ids must be in range: the native kernel does not check them.
    """

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray | None
    shape: tuple[int, int]
    first_row: int = 0

    @classmethod
    def of_graph(cls, graph: Graph) -> SparseBlock:
        """The adjacency A."""
        return cls(graph.indptr, graph.indices, graph.weights, (graph.num_nodes, graph.num_nodes))

    @classmethod
    def of_matrix(cls, matrix: sp.csr_matrix) -> SparseBlock:
        """Any scipy CSR matrix in float32."""
        values = np.ascontiguousarray(matrix.data, dtype=np.float32)
        indptr, indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
        return cls(indptr, indices, values, cast(tuple[int, int], matrix.shape))

    @cached_property
    def _scipy(self) -> dict[Any, sp.csr_matrix]:
        return {}

    def to_scipy(self, dtype: Any) -> sp.csr_matrix:
        """The same matrix for scipy, made once per dtype."""
        key = np.dtype(dtype)
        if key not in self._scipy:
            values = np.ones(len(self.indices), key) if self.values is None else self.values.astype(key)
            self._scipy[key] = sp.csr_matrix((values, self.indices, self.indptr), shape=self.shape)
        return self._scipy[key]

    def product(
        self,
        x: np.ndarray,
        out: np.ndarray,
        *,
        row_scale: np.ndarray | None = None,
        loop: float = 0.0,
        alpha: float = 1.0,
        previous: np.ndarray | None = None,
        beta: float = 0.0,
        emit: np.ndarray | None = None,
        emit_scale: np.ndarray | None = None,
    ) -> np.ndarray:
        """``out = alpha · row_scale · (B + loop I) x + beta · previous``; ``out`` may be ``previous`` itself.

        Args:
            x: (columns, c), C-contiguous.
            row_scale: (rows,) float64; in float32, the same rounding error would come back in every hop.
            out: (rows, c), C-contiguous, not ``x``. In float16, which needs the native kernel and emits nothing, it is
                rounded after sums in float32.
            emit: (rows, w) view, w ≤ c, contiguous in its rows, that receives ``emit_scale · out``.
        """
        width = x.shape[1]
        operands = {
            "rows": self.shape[0],
            "width": width,
            "indptr": self.indptr,
            "indices": self.indices,
            "values": self.values,
            "row_scale": row_scale,
            "loop": loop,
            "first_row": self.first_row,
            "x": x,
            "alpha": alpha,
            "previous": previous,
            "beta": beta,
            "out": out,
        }
        if x.dtype == np.float16:
            call("product_float16", **operands)
        elif width in KERNEL_WIDTHS and is_available():
            call(
                _of_dtype("product", x),
                **operands,
                emit=emit,
                emit_stride=0 if emit is None else emit.strides[0] // emit.itemsize,
                emit_width=0 if emit is None else emit.shape[1],
                emit_scale=emit_scale,
            )
        else:
            out[:] = self._scipy_product(x, row_scale, loop, alpha, previous, beta)
            if emit is not None:
                emit[:] = out[:, : emit.shape[1]] * (1.0 if emit_scale is None else emit_scale[:, None])
        return out

    def _scipy_product(
        self,
        x: np.ndarray,
        row_scale: np.ndarray | None,
        loop: float,
        alpha: float,
        previous: np.ndarray | None,
        beta: float,
    ) -> np.ndarray:
        """``alpha · row_scale · (B + loop I) x + beta · previous`` without the native kernel: (rows, c)."""
        step = self.to_scipy(x.dtype) @ x
        if loop:
            step += x.dtype.type(loop) * x[self.first_row : self.first_row + self.shape[0]]
        scaled: np.ndarray = step * (alpha if row_scale is None else alpha * row_scale[:, None])
        if previous is not None:
            scaled += beta * previous
        return scaled

    def wide_product(self, x: np.ndarray) -> np.ndarray:
        """B x for any number of columns: (columns, c) -> (rows, c), float32 or float64."""
        x = np.ascontiguousarray(x)
        if not is_available():
            return np.ascontiguousarray(self.to_scipy(x.dtype) @ x)
        out = np.empty((self.shape[0], x.shape[1]), x.dtype)
        call(
            _of_dtype("wide_product", x),
            rows=out.shape[0],
            columns=out.shape[1],
            indptr=self.indptr,
            indices=self.indices,
            values=self.values,
            x=x,
            out=out,
        )
        return out


@cache
def multiplies_halves() -> bool:
    """Whether the native kernel multiplies blocks of float16 on this processor."""
    if not is_available():
        return False
    one = SparseBlock(np.zeros(2, np.int64), np.zeros(0, np.int32), None, (1, 1))
    block = np.zeros((1, KERNEL_WIDTHS[-1]), np.float16)
    try:
        one.product(block, block.copy())
    except KernelRefused:
        return False
    return True


def _of_dtype(name: str, x: np.ndarray) -> str:
    """The name of the native function for the dtype of ``x``."""
    return f"{name}_float32" if x.dtype == np.float32 else f"{name}_float64"


def column_dots(basis: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Σ_i basis[j, i, c] x[i, c] in float64: (J, N, c), (N, c) -> (J, c). The number of threads does not change it."""
    count, rows, width = basis.shape
    dots = np.zeros((count, width))
    if is_available():
        call("column_dots", count=count, rows=rows, width=width, basis=basis, x=x, dots=dots)
        return dots
    return np.einsum("jnc,nc->jc", basis, x, out=dots)


def column_subtract(basis: np.ndarray, weights: np.ndarray, x: np.ndarray) -> None:
    """``x -= Σ_j weights[j] · basis[j]`` in place, in float64: (J, N, c), (J, c), (N, c)."""
    count, rows, width = basis.shape
    if is_available():
        call("column_subtract", count=count, rows=rows, width=width, basis=basis, weights=weights, x=x)
        return
    x -= np.einsum("jnc,jc->nc", basis, weights)
