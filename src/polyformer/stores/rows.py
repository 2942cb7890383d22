"""Read rows of a token directory into the caller's buffers, without using memory besides them.

Memory-mapped rows would stay in memory until the system needs it for something else. Here the pages of the file are
given back as soon as they were copied, so that memory stays bounded however large the tokens are.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch

from polyformer.bases import FixedBasis
from polyformer.errors import FileCorrupt, InvalidParameter
from polyformer.stores.directory import StoredTokens
from polyformer.stores.mixing import mix_orders
from polyformer.system import advise, read_at

__all__ = ["RowIndex", "TokenRows"]

_GAP_BYTES = 1 << 15
"""Bytes of a gap between rows that it is cheaper to read than to skip by another call."""

_CALL_BYTES = 1 << 21
"""Most bytes that are read at once and held besides the caller's buffer."""


class RowIndex:
    """Finds the row of a node by binary search, in memory that grows with the rows, not with the graph.

    Args:
        nodes: (n,) the node of each row, each once; None where row i is node i.
        num_rows: how many rows there are.
        place: where the rows are, for messages.
        what: what a row holds, for messages.

    Example:
        >>> RowIndex(np.array([7, 3, 5]), 3)(np.array([3, 7])).tolist()
        [1, 0]
    """

    def __init__(self, nodes: np.ndarray | None, num_rows: int, place: str = "memory", what: str = "tokens") -> None:
        self.num_rows, self.place, self.what = num_rows, place, what
        self._nodes, self._order = nodes, None
        if nodes is not None and not bool(np.all(nodes[1:] > nodes[:-1])):
            self._order = np.argsort(nodes, kind="stable")
            self._nodes = nodes[self._order]

    def __call__(self, nodes: np.ndarray) -> np.ndarray:
        """The rows of the nodes: (B,) -> (B,); refuses a node that has no row."""
        if self._nodes is None:
            rows, known = nodes, nodes < self.num_rows
        else:
            rows = np.minimum(np.searchsorted(self._nodes, nodes), self.num_rows - 1)
            known = self._nodes[rows] == nodes if self.num_rows else np.zeros(len(nodes), bool)
        if not known.all():
            lacking = nodes[~known]
            others = f" and {len(lacking) - 1:,} others" if len(lacking) > 1 else ""
            raise InvalidParameter(
                f"There are no {self.what} of node {int(lacking[0])}{others} in {self.place}. "
                f"Make them for these nodes too."
            )
        return rows if self._order is None else self._order[rows]


class TokenRows:
    """Reads stored rows of a token directory into given memory, and mixes them into the view.

    Args:
        stored: an open token directory; its basis and order are the view.
    """

    def __init__(self, stored: StoredTokens) -> None:
        self.path, self.order, self.num_rows = stored.base_path, stored.order, len(stored)
        base: Any = stored.layers.base
        self.dtype, self.row_shape, self._start = base.dtype, base.shape[1:], int(base.offset)
        self.row_bytes = self.dtype.itemsize * int(np.prod(self.row_shape))
        self._layers, self._file = stored.layers, os.fdopen(os.dup(stored.base_file.fileno()), "rb", buffering=0)
        self._mixing: np.ndarray | None = None
        if isinstance(stored.basis, FixedBasis):
            mixing = stored.basis.mixing(stored.order)
            self._mixing = None if np.array_equal(mixing, np.eye(len(mixing))) else mixing
        # Tell the system to read the rows that are asked for and to read nothing ahead.
        self._advise("POSIX_FADV_RANDOM")
        self._advise("POSIX_FADV_DONTNEED")

    def buffer(self, count: int) -> np.ndarray:
        """Memory for ``count`` stored rows: (count, stored K+1, d)."""
        return np.empty((count, *self.row_shape), self.dtype)

    def read(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Copy rows, in ascending order, from the disk: (n,) -> (n, stored K+1, d)."""
        old = int(np.searchsorted(rows, len(self._layers.base)))
        self._read_base(rows[:old], out[:old])
        self._layers.overlay(rows, out)

    def _read_base(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Rows of the array."""
        gap = 1 + _GAP_BYTES // self.row_bytes
        breaks = np.flatnonzero(np.diff(rows) > gap) + 1
        runs = list(zip([0, *breaks.tolist()], [*breaks.tolist(), len(rows)], strict=True)) if len(rows) else []
        for first, end in runs:  # announce all runs first, so that the disk works on many of them
            begin, past = int(rows[first]), int(rows[end - 1]) + 1
            self._advise("POSIX_FADV_WILLNEED", self._start + begin * self.row_bytes, (past - begin) * self.row_bytes)
        for first, end in runs:
            self._read_run(rows[first:end], out[first:end])
        # Give back the whole file: the system keeps pages in groups, and a group that is named in part would stay.
        self._advise("POSIX_FADV_DONTNEED")

    def fetch(self, rows: np.ndarray) -> torch.Tensor:
        """The tokens of any rows in the view: (B,) -> (B, K+1, d) float32."""
        unique, place = np.unique(rows, return_inverse=True)
        raw = self.buffer(len(unique))
        self.read(unique, raw)
        return self.gather(raw, torch.from_numpy(place))

    def gather(self, raw: np.ndarray, place: torch.Tensor) -> torch.Tensor:
        """Copy stored rows out of a buffer into the view: (n, stored K+1, d), (B,) -> (B, K+1, d) float32."""
        tokens = torch.from_numpy(raw)[:, : self.order + 1][place].to(torch.float32).contiguous()
        if self._mixing is not None:
            mix_orders(tokens.numpy(), self._mixing)
        return tokens

    def _advise(self, advice: str, start: int = 0, length: int = 0) -> None:
        """Tell the system how a part of the file will be used; by default the whole file."""
        advise(self._file.fileno(), start, length, advice)

    def _read_run(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Read rows that have small gaps or none between them."""
        step = max(1, _CALL_BYTES // self.row_bytes)
        start = 0
        while start < len(rows):
            first = int(rows[start])
            end = int(np.searchsorted(rows, first + step))
            count = int(rows[end - 1]) + 1 - first
            if count == end - start:
                self._pread(first, out[start:end])
            else:
                span = self.buffer(count)
                self._pread(first, span)
                np.take(span, rows[start:end] - first, axis=0, out=out[start:end], mode="clip")
            start = end

    def _pread(self, first: int, out: np.ndarray) -> None:
        """Read consecutive rows."""
        start, size = self._start + first * self.row_bytes, out.nbytes
        view, done = out.reshape(-1).view(np.uint8).data, 0
        while done < size:
            count = read_at(self._file.fileno(), view[done:], start + done)
            if count == 0:
                raise FileCorrupt(f"'{self.path}' ends before row {first + len(out)}. Make the tokens again.")
            done += count
