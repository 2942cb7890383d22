"""Memory laid out for the kernels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["aligned_empty"]

_CACHE_LINE = 64


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An uninitialised C-contiguous array that begins at a cache line.

    The kernels read whole rows at random; a row that straddles cache lines costs one line more, which for rows of one
    line is twice the traffic. numpy aligns to 16 bytes only (and asks for huge pages where the system offers them).
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + _CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % _CACHE_LINE
    return memory[start : start + size].view(dtype).reshape(shape)
