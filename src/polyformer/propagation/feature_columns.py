"""Blocks of feature columns read from row-major features, which are never held in memory as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

import numpy as np

from polyformer.arrays import RowReader
from polyformer.graph_checks import Features
from polyformer.machine import available_memory

__all__ = ["FeatureColumns"]


class FeatureColumns:
    """Fills buffers with columns of dense or sparse features.

    Args:
        features: (N, d); a memory-mapped file is read from front to back, once for every ``ahead`` columns.
        ahead: how many columns are taken from one pass over the rows; what a block does not need yet is held for the
            next ones.
        piece_bytes: rows that are read at once.
    """

    def __init__(self, features: Features, ahead: int, piece_bytes: int) -> None:
        self.features, self.ahead, self.piece_bytes = features, ahead, piece_bytes
        self._held: np.ndarray | None = None
        self._columns = slice(0, 0)
        self._reader: RowReader | None = None
        if isinstance(features, np.ndarray):
            # A file too large to be kept must not displace that of the indices, which is read once a hop.
            self._reader = RowReader(features, drop=features.nbytes > available_memory() // 2)

    def fill(self, columns: slice, out: np.ndarray) -> None:
        """Write the columns into ``out`` (N, w) and zeros into the columns that fill it up."""
        used = columns.stop - columns.start
        out[:, used:] = 0
        if self.ahead <= used:
            for begin, piece in self._pieces(columns):
                out[begin : begin + len(piece), :used] = piece
            return
        if self._held is None or columns.start < self._columns.start or columns.stop > self._columns.stop:
            self._hold(columns.start)
        assert self._held is not None
        first = columns.start - self._columns.start
        out[:, :used] = self._held[:, first : first + used]

    def _hold(self, start: int) -> None:
        self._columns = slice(start, min(start + self.ahead, self.features.shape[1]))
        if self._held is None:
            self._held = np.empty((self.features.shape[0], self.ahead), self.features.dtype)
        for begin, piece in self._pieces(self._columns):
            self._held[begin : begin + len(piece), : piece.shape[1]] = piece

    def _pieces(self, columns: slice) -> Iterator[tuple[int, np.ndarray]]:
        """The columns of all rows, (first row, (n, w)); one piece is read while the one before is used."""
        count, width = self.features.shape
        if not isinstance(self.features, np.ndarray):
            step = max(1, self.piece_bytes // (4 * width))
            for begin in range(0, count, step):
                yield begin, self.features[begin : begin + step, columns].toarray()
            return
        assert self._reader is not None
        step = max(1, self.piece_bytes // self._reader.row_bytes)
        rooms = [np.empty((min(step, count), width), self.features.dtype) for _ in range(2)]
        with ThreadPoolExecutor(1) as pool:
            ahead = pool.submit(self._reader.read, 0, min(step, count), rooms[0])
            for turn, begin in enumerate(range(0, count, step)):
                piece = ahead.result()
                if begin + step < count:
                    until = min(count, begin + 2 * step)
                    ahead = pool.submit(self._reader.read, begin + step, until, rooms[(turn + 1) % 2])
                yield begin, piece[:, columns]

    def __enter__(self) -> FeatureColumns:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reader is not None:
            self._reader.close()
