"""Turn Chebyshev tokens into another fixed basis: a (K+1) × (K+1) mix of the orders, in place."""

from __future__ import annotations

import numpy as np

from polyformer.native import call, is_available

__all__ = ["mix_orders"]

_ROWS_PER_MIX = 4096
_MOST_MIXED = 64
"""Most orders that the native kernel mixes."""


def mix_orders(tokens: np.ndarray, mixing: np.ndarray) -> None:
    """tokens <- M tokens along the orders, in place: (n, K+1, d) contiguous float32."""
    count, num_tokens, width = tokens.shape
    matrix = np.ascontiguousarray(mixing, dtype=np.float32)
    if num_tokens <= _MOST_MIXED and is_available():
        call("mix", rows=count, count=num_tokens, width=width, matrix=matrix, tokens=tokens)
        return
    for start in range(0, count, _ROWS_PER_MIX):
        rows = tokens[start : start + _ROWS_PER_MIX]
        rows[:] = matrix @ rows
