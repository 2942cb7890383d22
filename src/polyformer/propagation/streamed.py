"""The adjacency of a graph, read from disk for every product in sequence, one chunk ahead of the computation."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np

from polyformer.arrays import RowReader, row_ranges
from polyformer.graph import Graph
from polyformer.propagation.kernel import SparseBlock
from polyformer.reporter import SILENT, Reporter

__all__ = ["StreamedAdjacency"]

_BYTES_PER_ROW = 8


class StreamedAdjacency:
    """The adjacency A as ranges of rows, each a :class:`SparseBlock`; the next range is read while one is multiplied.

    Args:
        graph: a memory-mapped graph, or one in memory, of which nothing is copied.
        chunk_bytes: about the memory for one of the two chunks; a single row that is longer takes more.
    """

    def __init__(self, graph: Graph, chunk_bytes: int) -> None:
        self.graph = graph
        per_entry = 4 if graph.weights is None else 8
        entries, rows = max(1, chunk_bytes // per_entry), max(1, chunk_bytes // _BYTES_PER_ROW // 4)
        self.ranges = list(row_ranges(graph.indptr, entries, rows))
        self._most_rows = max(stop - start for start, stop in self.ranges)
        self._most_entries = max(int(graph.indptr[stop] - graph.indptr[start]) for start, stop in self.ranges)

    def chunks(self) -> Iterator[tuple[int, int, SparseBlock]]:
        """Yield (begin, end, rows begin..end-1 of A) in order; each block is valid until the next one."""
        graph, num_nodes = self.graph, self.graph.num_nodes
        entry_arrays = [graph.indices] if graph.weights is None else [graph.indices, graph.weights]
        with ExitStack() as stack:
            pointers = stack.enter_context(RowReader(graph.indptr))
            entries = [stack.enter_context(RowReader(array)) for array in entry_arrays]
            rooms = [
                (pointers.room(self._most_rows + 1), [reader.room(self._most_entries) for reader in entries])
                for _ in range(2)
            ]

            def load(i: int) -> SparseBlock:
                (begin, end), (pointer_room, entry_rooms) = self.ranges[i], rooms[i % 2]
                begins = pointers.read(begin, end + 1, pointer_room)
                first, last = int(begins[0]), int(begins[-1])
                indices, *values = (
                    reader.read(first, last, room) for reader, room in zip(entries, entry_rooms, strict=True)
                )
                shape = (end - begin, num_nodes)
                return SparseBlock(begins - first, indices, values[0] if values else None, shape, begin)

            pool = stack.enter_context(ThreadPoolExecutor(1))
            ahead = pool.submit(load, 0)
            for i, (begin, end) in enumerate(self.ranges):
                block = ahead.result()
                if i + 1 < len(self.ranges):
                    ahead = pool.submit(load, i + 1)
                yield begin, end, block

    def product(
        self,
        x: np.ndarray,
        out: np.ndarray,
        *,
        row_scale: np.ndarray,
        loop: float = 0.0,
        alpha: float = 1.0,
        previous: np.ndarray | None = None,
        beta: float = 0.0,
        squared: bool = False,
        reporter: Reporter = SILENT,
    ) -> np.ndarray:
        """:meth:`SparseBlock.product`, range by range; ``squared`` squares ``row_scale`` without another array."""
        for begin, end, block in self.chunks():
            scale = row_scale[begin:end]
            block.product(
                x,
                out[begin:end],
                row_scale=scale**2 if squared else scale,
                loop=loop,
                alpha=alpha,
                previous=None if previous is None else previous[begin:end],
                beta=beta,
            )
            reporter.share("tokens", end / len(out))
        return out
