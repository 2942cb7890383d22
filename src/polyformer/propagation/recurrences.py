r"""The recurrences that compute tokens, on one block of columns at a time.

Write :math:`M = \hat L - I = -P = -S (A + cI) S`. The Chebyshev recurrence :math:`T_{k+1} = 2 M T_k - T_{k-1}` is run
on :math:`u_k = S\,T_k(M) x`, where it reads :math:`u_{k+1} = -2 S^2 (A + cI) u_k - u_{k-1}`: the entries of A are
plain ones, the scaling is one factor per row, and :math:`u_{k+1}` may overwrite :math:`u_{k-1}`. So a block needs two
buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from polyformer.arrays import aligned_empty
from polyformer.bases.optimal import BREAKDOWN, Recurrence
from polyformer.native import call, is_available, num_threads
from polyformer.operators import Operator
from polyformer.propagation.kernel import FASTEST_WIDTH, KERNEL_WIDTHS, SparseBlock, column_dots, column_subtract

__all__ = ["Emit", "Propagator", "blocks_of", "column_blocks", "lanczos", "padded", "part_of"]

Emit = Callable[[int], np.ndarray | None]
"""A function from order k to the (N, w) view that is to receive the tokens of that order, or None."""


def column_blocks(num_columns: int, widest: int = FASTEST_WIDTH) -> Iterator[tuple[slice, int]]:
    """Cut columns into blocks of the kernel's widths; the last block is padded up to one of the widths.

    >>> [(block.start, block.stop, width) for block, width in column_blocks(100)]
    [(0, 32, 32), (32, 64, 32), (64, 96, 32), (96, 100, 8)]
    """
    start = 0
    while start < num_columns:
        left = num_columns - start
        width = next((width for width in KERNEL_WIDTHS if width <= min(left, widest)), KERNEL_WIDTHS[-1])
        yield slice(start, min(start + width, num_columns)), width
        start += width


def blocks_of(ranges: Iterable[slice], widest: int) -> Iterator[tuple[slice, int]]:
    """:func:`column_blocks` of several ranges of columns.

    >>> [(block.start, block.stop, width) for block, width in blocks_of([slice(0, 3), slice(10, 20)], 16)]
    [(0, 3, 8), (10, 18, 8), (18, 20, 8)]
    """
    for columns in ranges:
        for block, width in column_blocks(columns.stop - columns.start, widest):
            yield slice(columns.start + block.start, columns.start + block.stop), width


def part_of(recurrence: Recurrence, used: int) -> Recurrence:
    """The recurrence of the first ``used`` columns, without the zero columns that pad a block."""
    return Recurrence(recurrence.norm[:used], recurrence.gamma[:, :used], recurrence.beta[:, :used])


def padded(block: np.ndarray, width: int, dtype: Any) -> np.ndarray:
    """A fresh C-contiguous, aligned (N, width) copy of (N, w), w ≤ width, filled up with zero columns."""
    copy = aligned_empty((block.shape[0], width), dtype)
    copy[:, : block.shape[1]] = block
    copy[:, block.shape[1] :] = 0
    return copy


class Propagator:
    """The operator P, prepared for products with (N, w) blocks; w is one of the kernel's widths."""

    def __init__(self, operator: Operator, dtype: Any = np.float32) -> None:
        self.dtype = np.dtype(dtype)
        self.matrix = SparseBlock.of_graph(operator.graph)
        self.loop = 1.0 if operator.self_loops else 0.0
        self.scaling = operator.scaling.astype(self.dtype)
        self.row_scale, self.squared = operator.scaling, operator.scaling**2
        self.inverse = (1 / operator.scaling).astype(self.dtype)

    def chebyshev(self, x: np.ndarray, order: int, emit: Emit) -> Iterator[np.ndarray]:
        """Compute T_0(M) x, …, T_K(M) x; yields each u_k = S T_k(M) x, which stays valid until u_{k+2} is computed.

        Args:
            x: (N, w) block, overwritten.
            emit: gives the view into which the kernel writes T_k(M) x in the same pass.
        """
        self._emit_first(x, emit(0))
        current = x
        current *= self.scaling[:, None]
        yield current
        previous: np.ndarray | None = None
        for k in range(1, order + 1):
            alpha = -1.0 if k == 1 else -2.0
            out = aligned_empty(x.shape, x.dtype) if previous is None else previous
            self._step(current, out, alpha, previous, emit(k))
            previous, current = current, out
            yield current

    def tokens_at(self, nodes: np.ndarray, x: np.ndarray, order: int) -> np.ndarray:
        """T_0(M) x, …, T_K(M) x at some nodes, each named once: (N, c) -> (B, K+1, c).

        Each thread of the kernel computes whole blocks of columns, so that threads never wait for each other.
        """
        x = np.ascontiguousarray(x, self.dtype)
        tokens = np.empty((len(nodes), order + 1, x.shape[1]), self.dtype)
        if not self._run_blocks("chebyshev", nodes, order, x, tokens):
            for k, scaled in enumerate(self.chebyshev(x.copy(), order, emit=lambda k: None)):
                np.multiply(scaled[nodes], self.inverse[nodes, None], out=tokens[:, k])
        return tokens

    def tokens_adjoint(self, nodes: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        r"""The adjoint of :meth:`tokens_at`, Σ_k T_k(M) G_k by Clenshaw's recurrence: (B, K+1, c) -> (N, c).

        M is symmetric, so a gradient goes back through the same products.
        """
        gradient = np.ascontiguousarray(gradient, self.dtype)
        order, result = gradient.shape[1] - 1, np.zeros((len(self.scaling), gradient.shape[2]), self.dtype)
        if self._run_blocks("chebyshev_adjoint", nodes, order, gradient, result):
            return result
        scaled = gradient * self.scaling[nodes, None, None]
        later, last = result, np.zeros_like(result)
        later[nodes] += scaled[:, order]
        for k in range(order - 1, -1, -1):
            self._step(later, last, -2.0 if k else -1.0, last, None)
            later, last = last, later
            later[nodes] += scaled[:, k]
        later *= self.inverse[:, None]
        return later

    def _run_blocks(self, name: str, nodes: np.ndarray, order: int, x: np.ndarray, out: np.ndarray) -> bool:
        """Run the native kernel in the widest blocks of which every thread gets one; False if there is no kernel."""
        if not is_available():
            return False
        place = np.full(len(self.scaling), -1, np.int32)
        place[nodes] = np.arange(len(nodes))
        columns = x.shape[-1]
        fitting = (width for width in KERNEL_WIDTHS if width <= FASTEST_WIDTH and columns >= width * num_threads())
        width = next(fitting, KERNEL_WIDTHS[-1])
        threads = min(num_threads(), -(-columns // width))
        room = aligned_empty((threads, 2, len(place), width), self.dtype)
        matrix = self.matrix
        call(
            f"{name}_{self.dtype.name}",
            nodes=len(place),
            columns=columns,
            order=order,
            indptr=matrix.indptr,
            indices=matrix.indices,
            values=matrix.values,
            squared=self.squared,
            loop=self.loop,
            scaling=self.scaling,
            inverse=self.inverse,
            place=place,
            input=x,
            output=out,
            room=room,
            width=width,
            threads=threads,
        )
        return True

    def lanczos(self, x: np.ndarray, order: int) -> tuple[np.ndarray, Recurrence]:
        """:func:`lanczos` with this operator."""

        def multiply(scaled: np.ndarray, out: np.ndarray) -> None:
            self.matrix.product(scaled, out, row_scale=self.row_scale, loop=self.loop)

        return lanczos(multiply, self.scaling, x, order)

    def _step(
        self, x: np.ndarray, out: np.ndarray, alpha: float, previous: np.ndarray | None, emit: np.ndarray | None
    ) -> None:
        self.matrix.product(
            x,
            out,
            row_scale=self.squared,
            loop=self.loop,
            alpha=alpha,
            previous=previous,
            beta=-1.0,
            emit=emit,
            emit_scale=None if emit is None else self.inverse,
        )

    @staticmethod
    def _emit_first(x: np.ndarray, emit: np.ndarray | None) -> None:
        if emit is not None:
            emit[:] = x[:, : emit.shape[1]]


def lanczos(
    multiply: Callable[[np.ndarray, np.ndarray], None], scaling: np.ndarray, x: np.ndarray, order: int
) -> tuple[np.ndarray, Recurrence]:
    """Tokens of the optimal basis, re-orthogonalised against all earlier ones: (N, w) -> (K+1, N, w), all float64.

    Each step divides by β, so rounding errors in the tokens grow by the product of 1/β; in float32 they would hide
    where a column's Krylov space ends. Two passes of orthogonalisation are enough: the first removes the two terms of
    the recurrence and what rounding left along earlier tokens, the second removes the rounding errors of the first.

    Args:
        multiply: ``multiply(z, out)`` writes S (A + cI) z.
        scaling: (N,) float64, the diagonal of S.
    """
    rows, width = x.shape
    basis = aligned_empty((order + 1, rows, width), np.float64)
    gamma, beta = np.zeros((order, width)), np.zeros((order, width))
    norm = np.sqrt(column_dots(x[None], x)[0])
    _scale_columns(x, norm, basis[0])
    step, scaled = aligned_empty(x.shape, x.dtype), x  # x was copied, so its memory can be used
    for k in range(order):
        np.multiply(basis[k], scaling[:, None], out=scaled)
        multiply(scaled, step)
        for _ in range(2):
            overlap = column_dots(basis[: k + 1], step)
            gamma[k] += overlap[k]
            column_subtract(basis[: k + 1], overlap, step)
        residual = np.sqrt(column_dots(step[None], step)[0])
        beta[k] = np.where(residual > BREAKDOWN, residual, 0.0)
        _scale_columns(step, beta[k], basis[k + 1])
    return basis, Recurrence(norm, gamma, beta)


def _scale_columns(x: np.ndarray, norm: np.ndarray, out: np.ndarray) -> None:
    """Write x / norm into ``out``; zero columns where the norm is zero."""
    np.multiply(x, np.divide(1.0, norm, out=np.zeros_like(norm), where=norm > 0), out=out)
