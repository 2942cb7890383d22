"""Write sorted entries as the files of a CSR matrix."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import numpy as np

from polyformer.files import NpyWriter
from polyformer.importing.external_sort import EdgeSorter, Entries
from polyformer.reporter import Reporter

__all__ = ["CsrWriter", "write_csr"]

_CHUNK = 1 << 16
_LONGEST_REPEAT = 1 << 22


class CsrWriter:
    """Writes ``indptr.npy``, ``indices.npy`` and, if there are weights, ``weights.npy``.

    Entries come in ascending order, so the writer appends row pointers to their file and never holds all of them.
    """

    def __init__(self, folder: Path, weighted: bool) -> None:
        self._indptr = NpyWriter(folder / "indptr.npy", np.int64)
        self._indices = NpyWriter(folder / "indices.npy", np.int32)
        self._weights = NpyWriter(folder / "weights.npy", np.float32) if weighted else None
        self._last_row = -1
        self.num_entries = self.rows_with_entries = 0

    def add(self, entries: Entries) -> None:
        """Append entries that are greater than all before them."""
        for start in range(0, len(entries.keys), _CHUNK):
            part = slice(start, start + _CHUNK)
            self._add_keys(entries.keys[part])
            if self._weights is not None and entries.weights is not None:
                self._weights.append(entries.weights[part])

    def _add_keys(self, keys: np.ndarray) -> None:
        rows = (keys >> np.uint64(32)).astype(np.int64)
        new = np.empty(len(rows), bool)
        new[0] = rows[0] != self._last_row
        np.not_equal(rows[1:], rows[:-1], out=new[1:])
        starts = np.flatnonzero(new)  # entries at which a row begins; empty rows before it begin there too
        if len(starts):
            repeats = np.diff(rows[starts], prepend=self._last_row)
            self._point_to(starts + self.num_entries, repeats)
            self._last_row = int(rows[-1])
        self.rows_with_entries += len(starts)
        self.num_entries += len(keys)
        self._indices.append((keys & np.uint64(0xFFFFFFFF)).astype(np.int32))

    def _point_to(self, values: np.ndarray, repeats: np.ndarray) -> None:
        if int(repeats.sum()) <= _LONGEST_REPEAT:
            self._indptr.append(np.repeat(values, repeats))
            return
        for value, count in zip(values.tolist(), repeats.tolist(), strict=True):
            for done in range(0, count, _LONGEST_REPEAT):
                self._indptr.append(np.full(min(_LONGEST_REPEAT, count - done), value, np.int64))

    def finish(self, num_nodes: int) -> None:
        """Write the pointers of the rows after the last entry, which are empty."""
        last = np.array([self.num_entries], np.int64)
        self._point_to(last, np.array([num_nodes - self._last_row], np.int64))
        self._last_row = num_nodes

    def __enter__(self) -> CsrWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in (self._indptr, self._indices, self._weights):
            if writer is not None:
                writer.__exit__(kind, error, trace)


def write_csr(folder: Path, sorter: EdgeSorter, num_nodes: int, reporter: Reporter) -> CsrWriter:
    """Write all entries of the sorter; the returned writer knows their number."""
    with CsrWriter(folder, sorter.weighted) as writer:
        for entries in sorter.merge():
            writer.add(entries)
            reporter.stage("writing edges", writer.num_entries, sorter.num_entries)
        writer.finish(num_nodes)
    return writer
