r"""Sparse products on blocks of columns: the native kernel, or scipy where it is not built.

Both compute one step of a linear recurrence, :math:`y = α\,R (B + c I) x + β\,p`, where B is a CSR matrix (a pattern of
ones if it has no values) and R a diagonal scaling, for float32 and float64 blocks.
Set ``POLYFORMER_KERNEL=scipy`` to force the fallback, ``native`` to make its absence an error.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import logging
import os
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from polyformer.errors import InvalidParameter, MissingDependency
from polyformer.graph import Graph

__all__ = ["KERNEL_WIDTHS", "SparseBlock", "column_dots", "column_subtract", "kernel_name", "num_threads"]

KERNEL_WIDTHS = (64, 32, 16, 8)
"""Column widths for which the native kernel is compiled."""

_ABI = 3
_log = logging.getLogger("polyformer")


@cache
def _native(wanted: str) -> ctypes.CDLL | None:
    if wanted not in ("auto", "native", "scipy"):
        raise InvalidParameter(f"POLYFORMER_KERNEL must be auto, native or scipy. Got '{wanted}'.")
    if wanted == "scipy":
        return None
    folder = Path(__file__).parent
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = folder / f"_kernel{suffix}"
        if path.exists():
            library = ctypes.CDLL(str(path))
            if library.polyformer_abi() == _ABI:
                return library
    if wanted == "native":
        raise MissingDependency("The native kernel is not built. Install a C++ compiler and reinstall polyformer.")
    _log.warning(
        "The native kernel is not built, so scipy is used, several times slower; install a C++ compiler and reinstall."
    )
    return None


def native_library() -> ctypes.CDLL | None:
    """The compiled kernel, or None where scipy is used."""
    return _native(os.environ.get("POLYFORMER_KERNEL", "auto"))


def kernel_name() -> str:
    """``native`` or ``scipy``: what products run on."""
    return "scipy" if native_library() is None else "native"


def num_threads() -> int:
    """Threads for the kernel: torch's setting."""
    import torch

    return torch.get_num_threads()


def _pointer(array: np.ndarray | None) -> ctypes.c_void_p | None:
    return None if array is None else ctypes.c_void_p(array.ctypes.data)


@dataclass(frozen=True, eq=False)
class SparseBlock:
    """A CSR matrix (rows, columns) that multiplies (columns, c) blocks; square where ``loop`` is not 0.

    ``values`` None means a pattern of ones. Columns ids must be in range: the native kernel does not check.
    """

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray | None
    shape: tuple[int, int]

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
            row_scale: (rows,) float64: rounded to float32, its error would be the same in every hop.
            out: (rows, c), C-contiguous, not ``x``.
            emit: (rows, w) view, w ≤ c, contiguous in its rows, that receives ``emit_scale · out``.
        """
        library = native_library()
        width = x.shape[1]
        if library is not None and width in KERNEL_WIDTHS:
            stride = 0 if emit is None else emit.strides[0] // emit.itemsize
            single = x.dtype == np.float32
            product = library.polyformer_product_float32 if single else library.polyformer_product_float64
            product(
                ctypes.c_int64(self.shape[0]),
                ctypes.c_int(width),
                _pointer(self.indptr),
                _pointer(self.indices),
                _pointer(self.values),
                _pointer(row_scale),
                ctypes.c_double(loop),
                _pointer(x),
                ctypes.c_double(alpha),
                _pointer(previous),
                ctypes.c_double(beta),
                _pointer(out),
                _pointer(emit),
                ctypes.c_int64(stride),
                ctypes.c_int64(0 if emit is None else emit.shape[1]),
                _pointer(emit_scale),
                ctypes.c_int(num_threads()),
            )
            return out
        step = self.to_scipy(x.dtype) @ x
        if loop:
            step += x.dtype.type(loop) * x
        scaled = step * (alpha if row_scale is None else alpha * row_scale[:, None])
        if previous is not None:
            scaled += beta * previous
        out[:] = scaled
        if emit is not None:
            emit[:] = out[:, : emit.shape[1]] * (1.0 if emit_scale is None else emit_scale[:, None])
        return out


def column_dots(basis: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Σ_i basis[j, i, c] x[i, c] in float64: (J, N, c), (N, c) -> (J, c). The same for any number of threads."""
    count, rows, width = basis.shape
    dots = np.zeros((count, width))
    library = native_library()
    if library is not None:
        sizes = (ctypes.c_int64(count), ctypes.c_int64(rows), ctypes.c_int64(width))
        pointers = (_pointer(basis), _pointer(x), _pointer(dots))
        library.polyformer_column_dots(*sizes, *pointers, ctypes.c_int(num_threads()))
        return dots
    return np.einsum("jnc,nc->jc", basis, x, out=dots)


def column_subtract(basis: np.ndarray, weights: np.ndarray, x: np.ndarray) -> None:
    """``x -= Σ_j weights[j] · basis[j]`` in place, in float64: (J, N, c), (J, c), (N, c)."""
    count, rows, width = basis.shape
    library = native_library()
    if library is not None:
        sizes = (ctypes.c_int64(count), ctypes.c_int64(rows), ctypes.c_int64(width))
        pointers = (_pointer(basis), _pointer(weights), _pointer(x))
        library.polyformer_column_subtract(*sizes, *pointers, ctypes.c_int(num_threads()))
        return
    x -= np.einsum("jnc,jc->nc", basis, weights)
