"""The adjacency of a graph streamed past blocks of columns: sequential reads, one chunk ahead of the computation."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from polyformer.arrays import RowReader, row_ranges
from polyformer.graph import Graph
from polyformer.progress import Share
from polyformer.propagation.kernel import SparseBlock

__all__ = ["StreamedAdjacency"]

_BYTES_PER_ROW = 8


@dataclass(frozen=True, eq=False)
class _Room:
    """Where one chunk is read to."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray | None


class StreamedAdjacency:
    """A of a graph as ranges of rows, each a :class:`SparseBlock`; a range is read while the one before is computed.

    Args:
        graph: memory-mapped, or in memory; then nothing is copied.
        chunk_bytes: memory for one of the two chunks, roughly; a single longer row stretches it.
    """

    def __init__(self, graph: Graph, chunk_bytes: int) -> None:
        self.graph = graph
        per_entry = 4 if graph.weights is None else 8
        entries, rows = max(1, chunk_bytes // per_entry), max(1, chunk_bytes // _BYTES_PER_ROW // 4)
        self.ranges = list(row_ranges(graph.indptr, entries, rows))
        self._rooms = [self._room() for _ in range(2)]

    def _room(self) -> _Room:
        rows = max(stop - start for start, stop in self.ranges)
        entries = max(int(self.graph.indptr[stop] - self.graph.indptr[start]) for start, stop in self.ranges)
        if not isinstance(self.graph.indices, np.memmap):
            rows = entries = 0
        weighted = self.graph.weights is not None
        return _Room(
            np.empty(rows + 1, np.int64),
            np.empty(entries, np.int32),
            np.empty(entries, np.float32) if weighted else None,
        )

    def chunks(self) -> Iterator[tuple[int, int, SparseBlock]]:
        """(begin, end, rows begin..end-1 of A), in order; each valid until the next."""
        graph, num_nodes = self.graph, self.graph.num_nodes
        readers = [RowReader(array) for array in (graph.indptr, graph.indices)]
        if graph.weights is not None:
            readers.append(RowReader(graph.weights))

        def load(begin: int, end: int, room: _Room) -> SparseBlock:
            pointers = readers[0].read(begin, end + 1, room.indptr)
            first, last = int(pointers[0]), int(pointers[-1])
            indices = readers[1].read(first, last, room.indices)
            values = None if graph.weights is None else readers[2].read(first, last, room.values)
            return SparseBlock(pointers - first, indices, values, (end - begin, num_nodes), begin)

        try:
            with ThreadPoolExecutor(1) as pool:
                ahead = pool.submit(load, *self.ranges[0], self._rooms[0])
                for i, (begin, end) in enumerate(self.ranges):
                    block = ahead.result()
                    if i + 1 < len(self.ranges):
                        ahead = pool.submit(load, *self.ranges[i + 1], self._rooms[(i + 1) % 2])
                    yield begin, end, block
        finally:
            for reader in readers:
                reader.close()

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
        progress: Share | None = None,
    ) -> np.ndarray:
        """As :meth:`SparseBlock.product`, range by range; ``squared``: square ``row_scale``, which saves an array."""
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
            if progress is not None:
                progress(end / len(out))
        return out
