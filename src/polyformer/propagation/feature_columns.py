"""Blocks of feature columns read from row-major features, which are never held in memory as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

import numpy as np

from polyformer.arrays import RowReader
from polyformer.feature_scaling import ScaledFeatures
from polyformer.graph_checks import Features
from polyformer.machine import available_memory

__all__ = ["FeatureColumns"]


class FeatureColumns:
    """Fills buffers with columns of dense or sparse features, and scales the columns that have a scaling.

    Args:
        features: (N, d); a memory-mapped file is read from front to back.
        held: how many columns one pass over the rows reads and keeps for the next blocks; with 0, every block reads all
            rows again.
        piece_bytes: bytes of the rows that are read at once.
    """

    def __init__(self, features: Features, held: int, piece_bytes: int) -> None:
        self.features, self.held, self.piece_bytes = features, held, piece_bytes
        self._room: np.ndarray | None = None
        self._columns = slice(0, 0)
        self._reader: RowReader | None = None
        self._scaling = features.scaling if isinstance(features, ScaledFeatures) else None
        stored = features.raw if isinstance(features, ScaledFeatures) else features
        if isinstance(stored, np.ndarray):
            # A feature file too large for the cache must not displace the index file, which is read once a hop.
            self._reader = RowReader(stored, drop=stored.nbytes > available_memory() // 2)

    def fill(self, columns: slice, out: np.ndarray) -> None:
        """Write the columns into ``out`` (N, w), and zeros into the remaining columns of ``out``."""
        used = columns.stop - columns.start
        out[:, used:] = 0
        if self.held == 0:
            for begin, piece in self._pieces(columns):
                self._put(piece, columns, out[begin : begin + len(piece), :used])
            return
        if self._room is None or columns.start < self._columns.start or columns.stop > self._columns.stop:
            self._room = self._hold(columns.start)
        first = columns.start - self._columns.start
        out[:, :used] = self._room[:, first : first + used]

    def _hold(self, start: int) -> np.ndarray:
        """Read the columns that will be held, from ``start`` on."""
        room = np.empty((self.features.shape[0], self.held), self.features.dtype) if self._room is None else self._room
        self._columns = slice(start, min(start + self.held, self.features.shape[1]))
        for begin, piece in self._pieces(self._columns):
            self._put(piece, self._columns, room[begin : begin + len(piece), : piece.shape[1]])
        return room

    def _put(self, piece: np.ndarray, columns: slice, out: np.ndarray) -> None:
        """Write a piece, scaled if the features have a scaling."""
        if self._scaling is None:
            out[:] = piece
        else:
            self._scaling.apply(piece, columns.start, out)

    def _pieces(self, columns: slice) -> Iterator[tuple[int, np.ndarray]]:
        """Pieces of the columns, (first row, (n, w)); the next piece is read while the caller uses one."""
        count, width = self.features.shape
        if not isinstance(self.features, np.ndarray | ScaledFeatures):
            step = max(1, self.piece_bytes // (4 * width))
            for begin in range(0, count, step):
                yield begin, self.features[begin : begin + step, columns].toarray()
            return
        assert self._reader is not None
        step = max(1, self.piece_bytes // self._reader.row_bytes)
        rooms = [self._reader.room(min(step, count)) for _ in range(2)]
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
