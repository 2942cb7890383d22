"""Memory laid out for the kernels."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import numpy as np

from polyformer.errors import FileCorrupt
from polyformer.system import OPEN_FLAGS, advise, read_at

__all__ = ["RowReader", "aligned_empty", "row_pieces", "row_ranges", "writable"]

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


def writable(array: np.ndarray) -> np.ndarray:
    """The same numbers in an array that may be written to, as torch demands of every array that becomes a tensor.

    A memory-mapped file is mapped again, so that a write would change this process's copy of a page and never the
    file; nothing is read for that. Another array that is read-only is copied.
    """
    if array.flags.writeable:
        return array
    if isinstance(array, np.memmap) and _is_whole(array):
        return np.memmap(str(array.filename), array.dtype, "c", array.offset, array.shape)
    return array.copy()


class RowReader:
    """Rows of an array, piece by piece; those of a memory-mapped file are read from it by explicit reads.

    So its pages never count as memory of this process, and a reading thread can run ahead of the computation. An array
    in memory is given out as it is, without a copy.

    Args:
        array: an array of any shape; rows are along its first axis.
        drop: tell the system to forget each piece of the file once it is read: for a file too large to be kept anyway,
            so that it does not displace others.
    """

    def __init__(self, array: np.ndarray, drop: bool = False) -> None:
        self.array, self.drop = array, drop
        self.row_bytes = array.itemsize * math.prod(array.shape[1:])
        self._handle: int | None = None
        self._offset = 0
        if isinstance(array, np.memmap) and _is_whole(array):
            self._handle = os.open(str(array.filename), os.O_RDONLY | OPEN_FLAGS)
            self._offset = array.offset
            self._advise(0, 0, "POSIX_FADV_SEQUENTIAL")

    def _advise(self, start: int, length: int, advice: str) -> None:
        if self._handle is not None:
            advise(self._handle, start, length, advice)

    def room(self, rows: int) -> np.ndarray | None:
        """Memory for :meth:`read` to read that many rows into; None where nothing is copied."""
        return None if self._handle is None else np.empty((rows, *self.array.shape[1:]), self.array.dtype)

    def read(self, start: int, stop: int, room: np.ndarray | None = None) -> np.ndarray:
        """Rows start..stop-1; into ``room``, an array of at least that many rows, if they come from a file."""
        if self._handle is None:
            return self.array[start:stop]
        shape = (stop - start, *self.array.shape[1:])
        rows = np.empty(shape, self.array.dtype) if room is None else room[: stop - start]
        view = memoryview(rows.reshape(-1).view(np.uint8).data)
        begin, done = self._offset + start * self.row_bytes, 0
        while done < len(view):
            count = read_at(self._handle, view[done:], begin + done)
            if count == 0:
                raise FileCorrupt(
                    f"'{getattr(self.array, 'filename', '')}' ended while it was read: it has been cut off. "
                    f"Restore it from a copy or make it again."
                )
            done += count
        if self.drop:
            self._advise(begin, len(view), "POSIX_FADV_DONTNEED")
        return rows

    def close(self) -> None:
        """Close the file."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> RowReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _is_whole(array: Any) -> bool:
    """Whether a memory map is the file's array itself; a part of one does not know where in the file it begins."""
    return isinstance(array.base, mmap.mmap) and bool(array.flags.c_contiguous)


def row_pieces(array: np.ndarray, piece_bytes: int = 1 << 24) -> Iterator[tuple[int, np.ndarray]]:
    """All rows of an array, (first row, rows), each piece valid until the next.

    >>> [(start, piece.tolist()) for start, piece in row_pieces(np.arange(3), piece_bytes=16)]
    [(0, [0, 1]), (2, [2])]
    """
    with RowReader(array) as reader:
        step = max(1, piece_bytes // max(1, reader.row_bytes))
        room = reader.room(min(step, len(array)))
        for start in range(0, len(array), step):
            yield start, reader.read(start, min(len(array), start + step), room)


def row_ranges(indptr: np.ndarray, most_entries: int, most_rows: int) -> Iterator[tuple[int, int]]:
    """Cut the rows of a CSR pattern into ranges of at most that many entries and rows; a longer row stands alone.

    >>> list(row_ranges(np.array([0, 2, 3, 9, 9]), most_entries=4, most_rows=10))
    [(0, 2), (2, 3), (3, 4)]
    """
    start, last = 0, len(indptr) - 1
    with RowReader(indptr) as reader:
        while start < last:
            begins = reader.read(start, min(last, start + most_rows) + 1)
            fitting = int(np.searchsorted(begins, begins[0] + most_entries, side="right")) - 1
            stop = start + min(max(1, fitting), len(begins) - 1)
            yield start, stop
            start = stop
