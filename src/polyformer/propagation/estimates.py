"""How long computing tokens takes."""

from __future__ import annotations

import numpy as np

from polyformer.graph import Graph
from polyformer.machine_speed import CACHE_BYTES, CACHE_LINE, FAR_LINES_PER_SECOND, NEAR_LINES_PER_SECOND
from polyformer.native import num_threads

__all__ = ["seconds_of_hops"]


def seconds_of_hops(
    graph: Graph, order: int, num_columns: int, fixed: bool, threads: int | None = None, itemsize: int = 4
) -> float:
    """What K sparse products take, to a factor of two: every entry gathers the cache lines of its columns.

    Args:
        itemsize: bytes of a number in the buffers of a fixed basis.
    """
    itemsize = itemsize if fixed else np.dtype(np.float64).itemsize
    lines = len(graph.indices) * order * -(-num_columns * itemsize // CACHE_LINE)
    far = graph.num_nodes * CACHE_LINE > CACHE_BYTES
    rate = (FAR_LINES_PER_SECOND if far else NEAR_LINES_PER_SECOND) * (threads or num_threads())
    return lines / rate * (1.0 if fixed else 1.0 + order / 4)
