"""Tokens that changed after a token directory was written, over the tokens of its array.

A reader maps the records that were in the log when it opened the directory; later ones do not reach it. Now and then
records are folded: into one record of a new log, or with ``tokens.npy`` into a new array; the manifest then names the
new files.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from polyformer.errors import FileCorrupt
from polyformer.stores.change_log import AGAIN, Record

__all__ = ["TokenLayers"]


class TokenLayers:
    """Tokens as they are stored, (n, K+1, d): an array of the first rows, and records over it; the newest counts.

    Args:
        base: memory-mapped array.
        records: oldest first.
        num_rows: n; tokens of rows that the base has not are in a record.
        log: (bytes,) uint8, the records as they are in the file.
    """

    def __init__(self, base: np.ndarray, records: list[Record], num_rows: int, log: np.ndarray | None = None) -> None:
        self.base, self.records, self.num_rows = base, records, num_rows
        width = int(base.shape[2])
        row_bytes = width * base.itemsize
        log = np.empty(0, np.uint8) if log is None else log
        self.log = log[: len(log) // row_bytes * row_bytes].view(base.dtype).reshape(-1, width)
        """The log as rows of d numbers: tokens of a record begin at a whole row."""
        self.places: list[np.ndarray | None] = [self._place(k) for k in range(base.shape[1])]
        """For each order the (n,) int32 row of :attr:`log` plus one, 0 for tokens of the base; None: all are there."""
        self._check()

    def _place(self, k: int) -> np.ndarray | None:
        if not any(len(record.ids[k]) for record in self.records):
            return None
        place = np.zeros(self.num_rows, np.int32)  # pages that are never written take no memory
        for record in self.records:
            ids = record.ids[k]
            if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self.num_rows:
                raise FileCorrupt(
                    f"The log of changed tokens names rows that are not 0 to {self.num_rows - 1}. {AGAIN}"
                )
            begin = record.begin + 1 + sum(len(part) for part in record.ids[:k])
            place[ids] = np.arange(begin, begin + len(ids))
        return place

    def _check(self) -> None:
        first = len(self.base)
        for place in self.places if self.num_rows > first else ():
            if place is None or not place[first:].all():
                raise FileCorrupt(
                    f"The log of changed tokens lacks some of the rows {first} to {self.num_rows - 1}. {AGAIN}"
                )

    @property
    def shape(self) -> tuple[int, int, int]:
        """(n, K+1, d)."""
        return (self.num_rows, int(self.base.shape[1]), int(self.base.shape[2]))

    @property
    def is_plain(self) -> bool:
        """Whether all tokens are those of the base."""
        return not any(place is not None for place in self.places)

    def overlay(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Copy what records have of some rows over what the base has: (n,) -> (n, k, d), k ≤ K+1 orders."""
        for k in range(out.shape[1]):
            place = self.places[k]
            if place is None:
                continue
            at = place[rows]
            changed = np.flatnonzero(at)
            out[changed, k] = self.log[at[changed] - 1]

    def take(self, rows: np.ndarray, num_tokens: int | None = None) -> np.ndarray:
        """Rows, their first orders: (B,) -> (B, k, d), as they are stored."""
        orders = self.shape[1] if num_tokens is None else num_tokens
        if self.num_rows == len(self.base):
            out = np.array(self.base[rows, :orders])
        else:
            out = np.empty((len(rows), orders, self.shape[2]), self.base.dtype)
            old = rows < len(self.base)
            out[old] = self.base[rows[old], :orders]
        self.overlay(rows, out)
        return out

    def take_order(self, k: int, rows: np.ndarray) -> np.ndarray:
        """Tokens of one order, as they are stored, zeros for rows that are not there: (B,) -> (B, d)."""
        out = np.zeros((len(rows), self.shape[2]), self.base.dtype)
        old = np.flatnonzero(rows < len(self.base))
        out[old] = self.base[rows[old], k]
        place = self.places[k]
        if place is not None:
            known = np.flatnonzero(rows < self.num_rows)
            at = place[rows[known]]
            changed = np.flatnonzero(at)
            out[known[changed]] = self.log[at[changed] - 1]
        return out

    def changed_rows(self, k: int) -> np.ndarray:
        """The rows, rising, whose tokens of one order are in a record."""
        place = self.places[k]
        return np.empty(0, np.int64) if place is None else np.flatnonzero(place)

    def pieces(self, rows_at_once: int) -> Iterator[np.ndarray]:
        """All rows in order."""
        for start in range(0, self.num_rows, rows_at_once):
            yield self.take(np.arange(start, min(self.num_rows, start + rows_at_once)))

    def left_out(self, num_rows: int) -> np.ndarray:
        """(K+1, num_rows) float32: bounds on what was left out of each order and row, zero where nothing was."""
        values = np.zeros((self.shape[1], num_rows), np.float32)
        for record in self.records:
            for k, ids in enumerate(record.left_ids):
                values[k, ids] = record.left_out[k]
        return values
