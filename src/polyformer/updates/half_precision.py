"""What rounding to float16 left out of stored tokens, bounded row by row from the stored numbers alone."""

from __future__ import annotations

import numpy as np

from polyformer.graph import Graph
from polyformer.operators import Operator
from polyformer.stores.layers import TokenLayers

__all__ = ["rounding_left_out"]

_ROWS_AT_ONCE = 1 << 14
_RELATIVE = 2.0**-11
_SMALLEST = 2.0**-25


def rounding_left_out(layers: TokenLayers, graph: Graph, self_loops: bool) -> np.ndarray:
    r"""(K+1, N) float32 bounds on the residuals of tokens that were rounded to float16.

    A stored row :math:`\tilde T_k(i)` is off by at most
    :math:`r_k(i) = 2^{-11} \|\tilde T_k(i)\| + 2^{-25} \sqrt d`, so the norm of
    :math:`\tilde T_k - 2 M \tilde T_{k-1} + \tilde T_{k-2}` at a row is at most
    :math:`r_k + 2 |M| r_{k-1} + r_{k-2}`. The operator may be that of the changed graph: rows whose operator differs
    are made anew.
    """
    count, num_tokens, width = layers.shape
    rounding = np.zeros((graph.num_nodes, num_tokens))
    start = 0
    for piece in layers.pieces(_ROWS_AT_ONCE):
        norms = np.linalg.norm(piece.astype(np.float64), axis=2)
        rounding[start : start + len(piece)] = _RELATIVE * norms * (1 + 1e-2) + _SMALLEST * np.sqrt(width)
        start += len(piece)
    operator = Operator(graph.unscaled, self_loops).to_scipy(np.float64)
    left_out = rounding.copy()
    left_out[:, 1:] += (1 + (np.arange(1, num_tokens) > 1)) * (operator @ rounding[:, :-1])
    left_out[:, 2:] += rounding[:, :-2]
    left_out[count:] = 0
    return np.ascontiguousarray(left_out.T, np.float32) * np.float32(1 + 1e-6)
