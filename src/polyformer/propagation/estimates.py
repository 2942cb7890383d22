"""How long computing tokens takes."""

from __future__ import annotations

import numpy as np

from polyformer.graph import Graph
from polyformer.native import num_threads

__all__ = ["seconds_of_hops"]

_LINE = 64
_LINES_PER_SECOND = 25e6  # cache lines that one thread gathers at random from large memory, with huge pages
_NEAR_LINES_PER_SECOND = 250e6  # from what the caches hold
_CACHE_BYTES = 32 << 20


def seconds_of_hops(graph: Graph, order: int, num_columns: int, fixed: bool, threads: int | None = None) -> float:
    """K sparse products over all columns: every entry gathers its columns' cache lines. Roughly, to a factor of two."""
    itemsize = np.dtype(np.float32 if fixed else np.float64).itemsize
    lines = len(graph.indices) * order * -(-num_columns * itemsize // _LINE)
    far = graph.num_nodes * _LINE > _CACHE_BYTES
    rate = (_LINES_PER_SECOND if far else _NEAR_LINES_PER_SECOND) * (threads or num_threads())
    return lines / rate * (1.0 if fixed else 1.0 + order / 4)
