"""Tokens that stay on disk: a thread reads batches ahead of the model, in an order in which the disk is fast."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyformer.devices import to_device
from polyformer.inputs.token_inputs import RowInput
from polyformer.stores.ahead import ReadAhead, window_order
from polyformer.stores.directory import StoredTokens
from polyformer.stores.rows import RowIndex, TokenRows

__all__ = ["StreamedInput"]

CHUNK_BYTES = 1 << 17
"""Bytes of consecutive rows that shuffling keeps together: many enough for a fast disk, few enough to mix well."""

WINDOW_BYTES = (1 << 22, 1 << 26)
"""Least and most bytes of a window: rows that are in memory and shuffled together. One of two windows is read ahead."""


class StreamedInput(RowInput):
    """Rows of a token directory that are read when they are needed, into two windows of memory.

    The model may ask for any nodes at any time; batches that were named to :meth:`ahead` are in memory already.

    Args:
        stored: an open token directory.
        memory: bytes that may be used; the two windows take an eighth of them, within the bounds of ``WINDOW_BYTES``.
    """

    route = "streamed"

    def __init__(self, stored: StoredTokens, memory: int) -> None:
        self.index = RowIndex(stored.nodes, len(stored), f"'{stored.directory}'")
        self._rows = TokenRows(stored)
        size = self._rows.row_bytes
        window = min(max(memory // 16, WINDOW_BYTES[0]), WINDOW_BYTES[1])
        self.chunk_rows = max(1, CHUNK_BYTES // size)
        self.window_rows = max(1, window // (size * self.chunk_rows)) * self.chunk_rows
        self._buffers = [self._rows.buffer(max(1, min(self.window_rows, len(stored)))) for _ in range(2)]
        self._reader: ReadAhead | None = None

    def rows(self, nodes: Tensor, like: Tensor) -> Tensor:
        rows = self.index(nodes.cpu().numpy())
        tokens = None if self._reader is None else self._reader.take(rows)
        if tokens is None:
            tokens = self._rows.fetch(rows)
        return to_device(tokens, like)

    def shuffle(self, nodes: Tensor, random: np.random.Generator) -> Iterator[Tensor]:
        """Chunks of rows in random order, shuffled within windows; generator and chunks alone decide the order."""
        by_row = self.sort(nodes)
        for window in window_order(len(nodes), self.chunk_rows, self.window_rows, random):
            yield by_row[window]

    def describe(self) -> dict[str, Any]:
        """How many rows are read from disk at a time."""
        return {"chunk_rows": self.chunk_rows, "window_rows": self.window_rows}

    def sort(self, nodes: Tensor) -> Tensor:
        """Positions in the order in which the rows lie on disk."""
        rows = self.index(nodes.cpu().numpy())
        return torch.from_numpy(np.argsort(rows, kind="stable"))

    def ahead(self, nodes: Tensor, batches: Iterator[Tensor]) -> Generator[Tensor]:
        if self._reader is not None:  # the buffers are in use: read rows when they are asked for
            yield from batches
            return
        ids = nodes.cpu().numpy()
        reader = ReadAhead(self._rows, self._buffers, ((batch, self.index(ids[batch.numpy()])) for batch in batches))
        self._reader = reader
        try:
            yield from reader
        finally:
            self._reader = None
            reader.close()
