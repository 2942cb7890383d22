"""``.npy`` files written piece by piece, and hashed without being mapped into memory."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

__all__ = ["NpyWriter", "npy_digest"]


class NpyWriter:
    """An ``.npy`` file that grows along its first axis; its header gets the final length when it is closed.

    Args:
        path: the file, replaced if it is there.
        dtype: type of the numbers.
        tail: shape of one row, ``()`` for a vector.
    """

    def __init__(self, path: Path, dtype: Any, tail: tuple[int, ...] = ()) -> None:
        self.dtype, self.tail, self.length = np.dtype(dtype), tail, 0
        self._file = path.open("wb")
        self._write_header()
        self._start = self._file.tell()

    def _write_header(self) -> None:
        # numpy leaves room for the first axis to grow, so the header can be written again in place.
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.length, *self.tail)}
        np.lib.format.write_array_header_1_0(self._file, header)

    def append(self, rows: np.ndarray) -> None:
        """Add rows at the end."""
        block = np.ascontiguousarray(rows, self.dtype)
        assert block.shape[1:] == self.tail, (block.shape, self.tail)
        self._file.write(block.reshape(-1).view(np.uint8).data)
        self.length += len(block)

    def __enter__(self) -> NpyWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._file.seek(0)
                self._write_header()
                assert self._file.tell() == self._start
        finally:
            self._file.close()


def npy_digest(*paths: Path, chunk_bytes: int = 1 << 24) -> str:
    """What :func:`polyformer.files.array_digest` gives for the arrays in these files."""
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        with path.open("rb") as file:
            np.lib.format.read_magic(file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            digest.update(f"{dtype.str}{shape}".encode())
            while chunk := file.read(chunk_bytes):
                digest.update(chunk)
    return digest.hexdigest()
