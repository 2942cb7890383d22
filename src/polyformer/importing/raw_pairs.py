"""Edge lists as raw pairs of integers: ``.bin`` or ``.i32`` (int32, little-endian) and ``.npy``, read in pieces.

Files are read, not memory-mapped: mapped pages would count as resident memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from polyformer.errors import DataNotFound, FileCorrupt, InvalidData
from polyformer.files import open_regular, read_npy_header, reading
from polyformer.importing.edges import EdgeBatch, EdgeReader, node_numbers
from polyformer.importing.options import ColumnMatch
from polyformer.importing.tables import BATCH_ROWS

__all__ = ["RAW_ENDINGS", "RawPairs"]

RAW_ENDINGS = (".bin", ".i32", ".npy")


class RawPairs(EdgeReader):
    """Pairs of node numbers in a file, one pair after the other; an ``.npy`` of (2, E) has all sources first."""

    kind = "integer"

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.name
        if not path.is_file():
            raise DataNotFound(f"There is no file '{path}'. Check the path.")
        with reading(path):
            self.dtype, self.offset, self.num_rows, self.paired = _layout(path)
        needed = self.offset + 2 * self.num_rows * self.dtype.itemsize
        if path.stat().st_size < needed:
            raise FileCorrupt(
                f"'{path}' is truncated: it has {path.stat().st_size:,} of {needed:,} bytes. Restore or make it again."
            )
        pair = "pairs" if self.paired else "two rows"
        self.matched = (ColumnMatch(self.name, "edge list", f"{pair} of {self.dtype}"),)

    def batches(self) -> Iterator[EdgeBatch]:
        assert self.num_rows is not None
        width = self.dtype.itemsize
        with reading(self.path), open_regular(self.path) as file:
            for start in range(0, self.num_rows, BATCH_ROWS):
                count = min(BATCH_ROWS, self.num_rows - start)
                if self.paired:
                    file.seek(self.offset + 2 * start * width)
                    source, target = np.fromfile(file, self.dtype, 2 * count).reshape(-1, 2).T
                else:
                    file.seek(self.offset + start * width)
                    source = np.fromfile(file, self.dtype, count)
                    file.seek(self.offset + (self.num_rows + start) * width)
                    target = np.fromfile(file, self.dtype, count)
                yield EdgeBatch(node_numbers(source, self.name), node_numbers(target, self.name), None)


def _layout(path: Path) -> tuple[np.dtype, int, int, bool]:
    """Dtype, offset of the numbers, number of edges, and whether the two ends of an edge are neighbours in the file."""
    if path.suffix.lower() != ".npy":
        size = path.stat().st_size
        if size % 8:
            raise FileCorrupt(f"'{path}' must hold pairs of int32, so its size must divide by 8. Got {size} bytes.")
        return np.dtype("<i4"), 0, size // 8, True
    with open_regular(path) as file:
        header = read_npy_header(file)
    shape, dtype = header.shape, header.dtype
    if dtype.kind not in "iu" or len(shape) != 2 or 2 not in shape:
        raise InvalidData(f"'{path}' must hold integers of shape (2, E) or (E, 2). Got {dtype} {shape}.")
    rows_first = shape[0] == 2
    return dtype, header.offset, shape[1] if rows_first else shape[0], rows_first == header.fortran_order
