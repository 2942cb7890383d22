"""The files of unfinished tokens: blocks of columns, and the rows put together from them.

The process that holds the place (:mod:`polyformer.stores.writer`) may let other processes write these files: a block is
a file of its own that appears whole, and rows go to their place in a file that has its final size from the beginning.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from polyformer.errors import InvalidData, InvalidParameter
from polyformer.files import create_npy, sync_directory, write_whole
from polyformer.stores.sinks import Assembly, TokenBlock, TokenSink

__all__ = ["TOKEN_DTYPES", "BlockSink", "FileBlock", "RowAssembly", "TokenShape", "write_block"]

TOKEN_DTYPES = ("float32", "float16")
_PIECE_BYTES = 1 << 25
_PAGE_BYTES = 1 << 20  # at least a page of any file system


@dataclass(frozen=True)
class TokenShape:
    """(n, K+1, d) tokens of a dtype."""

    num_rows: int
    order: int
    num_features: int
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.dtype not in TOKEN_DTYPES:
            raise InvalidParameter(f"'dtype' of tokens must be {' or '.join(TOKEN_DTYPES)}. Got '{self.dtype}'.")

    @property
    def row_bytes(self) -> int:
        """Bytes of the tokens of one node."""
        return (self.order + 1) * self.num_features * np.dtype(self.dtype).itemsize

    @property
    def bytes(self) -> int:
        """Bytes of all tokens."""
        return self.num_rows * self.row_bytes


class FileBlock(TokenBlock):
    """A block of columns, order after order, row after row, (K+1, n, w) in a file."""

    def __init__(self, file: IO[bytes], name: str, columns: slice, shape: TokenShape) -> None:
        self.file, self.name, self.columns, self.shape = file, name, columns, shape
        self._digest = hashlib.blake2b(digest_size=16)
        self._rows = 0

    def view(self, order: int) -> np.ndarray | None:
        return None

    def put(self, order: int, values: np.ndarray) -> None:
        assert order == self._rows // max(1, self.shape.num_rows)
        dtype = np.dtype(self.shape.dtype)
        if dtype.itemsize < 4:
            self._check_range(order, values, float(np.finfo(dtype).max))
        data = np.ascontiguousarray(values, dtype).data
        self._digest.update(data)
        self.file.write(data)
        self._rows += len(values)

    def _check_range(self, order: int, values: np.ndarray, largest: float) -> None:
        if len(values) and not max(values.max(), -values.min()) <= largest:
            row, column = np.unravel_index(int(np.argmax(np.abs(values))), values.shape)
            raise InvalidData(
                f"A token of order {order} in column {self.columns.start + int(column)} is {values[row, column]:.6g}, "
                f"but float16 holds at most {largest:.0f}. Use --dtype float32, or scale the features down."
            )

    def check(self) -> None:
        """Make sure that every row of every order was written."""
        assert self._rows == self.shape.num_rows * (self.shape.order + 1), (self._rows, self.shape)

    @property
    def entry(self) -> dict[str, Any]:
        """The entry of the block in ``progress.json``, once the block is on the disk."""
        about: dict[str, Any] = {
            "start": self.columns.start,
            "stop": self.columns.stop,
            "file": self.name,
            "digest": self._digest.hexdigest(),
        }
        if self.recurrence is not None:
            about["recurrence"] = {key: value.tolist() for key, value in vars(self.recurrence).items()}
        return about


@contextlib.contextmanager
def write_block(folder: Path, columns: slice, shape: TokenShape) -> Iterator[FileBlock]:
    """A block of columns as a file; the whole file is on the disk when the context ends without an error."""
    name = f"block-{columns.start:06d}-{columns.stop:06d}"
    with write_whole(folder / name) as file:
        block = FileBlock(file, name, columns, shape)
        yield block
        block.check()
    sync_directory(folder)


class BlockSink(TokenSink):
    """Writes some columns into files, for a process that does not hold the place; :attr:`entries` lists the files.

    Args:
        folder: the folder of the unfinished tokens.
        columns: the columns that this process computes.
    """

    def __init__(self, folder: Path, shape: TokenShape, columns: slice) -> None:
        self.folder, self.shape, self.columns = folder, shape, columns
        self.entries: list[dict[str, Any]] = []

    def missing(self) -> list[slice]:
        return [self.columns]

    @contextlib.contextmanager
    def block(self, columns: slice) -> Iterator[TokenBlock]:
        with write_block(self.folder, columns, self.shape) as block:
            yield block
        self.entries.append(block.entry)


@dataclass(frozen=True)
class RowAssembly(Assembly):
    """Makes ``tokens.npy`` (n, K+1, d) from blocks of columns; any process can write any part of it.

    Attributes:
        folder: the folder of the unfinished tokens.
        blocks: (first column, past the last one, name of the file) of each block.
    """

    folder: Path
    shape: TokenShape
    blocks: tuple[tuple[int, int, str], ...]

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / "tokens.npy"

    @property
    def size(self) -> int:
        return self.shape.bytes

    def create(self) -> None:
        """Create the file with its header and its final size, so that a full disk is an error here."""
        shape = self.shape
        array = (shape.num_rows, shape.order + 1, shape.num_features)
        create_npy(self.path, shape.dtype, array)

    def parts(self, most: int) -> list[tuple[int, int]]:
        # Parts end between pages of the file, not between rows, so that no two machines write to one page.
        step = max(1, most // _PAGE_BYTES) * _PAGE_BYTES
        cuts = range(step - self._header, self.size, step)
        return list(zip([0, *cuts], [*cuts, self.size], strict=True)) if self.size else []

    @property
    def _header(self) -> int:
        return self.path.stat().st_size - self.size

    def write(self, begin: int, end: int) -> None:
        row_bytes = self.shape.row_bytes
        step = max(1, _PIECE_BYTES // row_bytes)
        with contextlib.ExitStack() as stack:
            out = stack.enter_context(self.path.open("r+b"))
            files = [stack.enter_context((self.folder / name).open("rb", buffering=0)) for *_, name in self.blocks]
            out.seek(self._header + begin)
            last = -(-end // row_bytes)
            for first in range(begin // row_bytes, last, step):
                rows = self._rows(files, first, min(step, last - first)).reshape(-1).view(np.uint8)
                offset = first * row_bytes
                out.write(rows[max(0, begin - offset) : end - offset].data)
            out.flush()
            os.fsync(out.fileno())

    def _rows(self, files: Sequence[IO[bytes]], first: int, count: int) -> np.ndarray:
        """Rows read from the files of the blocks: (count, K+1, d)."""
        shape, dtype = self.shape, np.dtype(self.shape.dtype)
        rows = np.empty((count, shape.order + 1, shape.num_features), dtype)
        for (start, stop, _), file in zip(self.blocks, files, strict=True):
            width = stop - start
            for k in range(shape.order + 1):
                file.seek((k * shape.num_rows + first) * width * dtype.itemsize)
                rows[:, k, start:stop] = np.fromfile(file, dtype, count * width).reshape(-1, width)
        return rows
