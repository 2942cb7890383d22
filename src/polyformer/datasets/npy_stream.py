"""Arrays inside an npz file, read piece by piece: for those that do not fit in memory."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from polyformer.formats.arrays import reading

__all__ = ["NpzMember"]

CHUNK_BYTES = 64 << 20


@dataclass(frozen=True, eq=False)
class NpzMember:
    """One array of an npz file. ``offset`` is where its numbers begin in the unpacked ``.npy``."""

    path: Path
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype
    offset: int

    @classmethod
    def open(cls, path: Path, key: str) -> NpzMember:
        """Read the array's header only."""
        with reading(path), zipfile.ZipFile(path) as file, file.open(f"{key}.npy") as stream:
            version = np.lib.format.read_magic(stream)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran_order, dtype = read(stream)
            if fortran_order or dtype.hasobject:
                raise ValueError(f"'{key}' is not a plain array in row order")
            return cls(path, key, shape, dtype, stream.tell())

    def rows(self) -> Iterator[np.ndarray]:
        """The rows in order, in pieces of about 64 MiB."""
        width = int(np.prod(self.shape[1:]))
        step = max(1, CHUNK_BYTES // (width * self.dtype.itemsize))
        with reading(self.path), zipfile.ZipFile(self.path) as file, self._stream(file, 0) as stream:
            for start in range(0, self.shape[0], step):
                count = min(step, self.shape[0] - start)
                yield self._take(stream, count * width).reshape(count, *self.shape[1:])

    def columns(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Pieces of the two rows of a (2, E) array, side by side."""
        length = self.shape[1]
        step = CHUNK_BYTES // self.dtype.itemsize
        with (
            reading(self.path),
            zipfile.ZipFile(self.path) as file,
            self._stream(file, 0) as first,
            self._stream(file, length * self.dtype.itemsize) as second,
        ):
            for start in range(0, length, step):
                count = min(step, length - start)
                yield self._take(first, count), self._take(second, count)

    def _stream(self, file: zipfile.ZipFile, skipped: int) -> IO[bytes]:
        stream = file.open(f"{self.key}.npy")
        stream.seek(self.offset + skipped)
        return stream

    def _take(self, stream: IO[bytes], count: int) -> np.ndarray:
        data = stream.read(count * self.dtype.itemsize)
        if len(data) != count * self.dtype.itemsize:
            raise ValueError(f"'{self.key}' ends too early")
        return np.frombuffer(data, self.dtype)
