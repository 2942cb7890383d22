"""What receives tokens while an engine computes them, one block of columns after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np

from polyformer.bases.optimal import Recurrence

__all__ = ["ArraySink", "Assembly", "TokenBlock", "TokenSink", "assemble_all", "join_recurrences"]


class TokenBlock(ABC):
    """One block of columns while it is computed: K+1 orders of (n, w) tokens of the n requested nodes."""

    recurrence: Recurrence | None = None
    """The recurrence of these columns; the engine sets it for the optimal basis."""

    @abstractmethod
    def view(self, order: int) -> np.ndarray | None:
        """A float32 view (n, w) into which the tokens of one order are to be written; None if there is none."""

    @abstractmethod
    def put(self, order: int, values: np.ndarray) -> None:
        """Receive the next rows of one order, (rows, w); orders and rows come in ascending order."""


class TokenSink(ABC):
    """Receives tokens."""

    @abstractmethod
    def missing(self) -> list[slice]:
        """Ranges of columns that have not been received yet."""

    @abstractmethod
    def block(self, columns: slice) -> AbstractContextManager[TokenBlock]:
        """Begin a block; it counts as received when the context ends without an error."""


class ArraySink(TokenSink):
    """Receives tokens in an array (n, K+1, d) in memory."""

    def __init__(self, out: np.ndarray) -> None:
        self.out = out
        self.recurrences: dict[int, Recurrence] = {}

    def missing(self) -> list[slice]:
        return [slice(0, self.out.shape[2])]

    @contextmanager
    def block(self, columns: slice) -> Iterator[TokenBlock]:
        block = _ArrayBlock(self.out[:, :, columns])
        yield block
        if block.recurrence is not None:
            self.recurrences[columns.start] = block.recurrence


class _ArrayBlock(TokenBlock):
    def __init__(self, out: np.ndarray) -> None:
        self.out, self._filled = out, [0] * out.shape[1]

    def view(self, order: int) -> np.ndarray | None:
        return self.out[:, order]

    def put(self, order: int, values: np.ndarray) -> None:
        begin = self._filled[order]
        self._filled[order] += len(values)
        self.out[begin : begin + len(values), order] = values


def join_recurrences(parts: dict[int, Recurrence]) -> Recurrence | None:
    """Join the recurrences of blocks of columns, which are given by the first column of each block."""
    if not parts:
        return None
    ordered = [parts[start] for start in sorted(parts)]
    return Recurrence(
        np.concatenate([part.norm for part in ordered]),
        np.concatenate([part.gamma for part in ordered], axis=1),
        np.concatenate([part.beta for part in ordered], axis=1),
    )


class Assembly(ABC):
    """Puts tokens together, row after row, from blocks of columns."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Bytes of all rows."""

    @abstractmethod
    def parts(self, most: int) -> list[tuple[int, int]]:
        """Ranges (begin, end) of at most ``most`` bytes, and at least a MiB, that together are all bytes."""

    @abstractmethod
    def write(self, begin: int, end: int) -> None:
        """Write the bytes begin..end-1."""


def assemble_all(rows: Assembly) -> None:
    """Put all rows together in this process."""
    rows.write(0, rows.size)
