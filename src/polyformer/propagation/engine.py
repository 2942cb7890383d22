"""What an engine is: a way to compute tokens, one block of columns after the other, into whatever receives them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyformer.bases.optimal import Recurrence
from polyformer.graph_checks import Features
from polyformer.operators import Operator
from polyformer.progress import Share
from polyformer.registry import Registry

__all__ = [
    "ENGINES",
    "ArraySink",
    "Assembly",
    "Cost",
    "Engine",
    "TokenBlock",
    "TokenJob",
    "TokenSink",
    "join_recurrences",
    "whole",
]


class TokenBlock(ABC):
    """One block of columns on its way: K+1 orders of (n, w) tokens, n being the nodes asked for."""

    recurrence: Recurrence | None = None
    """To be set for the optimal basis: the recurrence of these columns."""

    @abstractmethod
    def view(self, order: int) -> np.ndarray | None:
        """An (n, w) float32 view to write the tokens of one order into, where there is one."""

    @abstractmethod
    def put(self, order: int, values: np.ndarray) -> None:
        """The next rows of one order, (rows, w); orders and rows come in ascending order."""


class TokenSink(ABC):
    """What receives tokens."""

    @abstractmethod
    def missing(self) -> list[slice]:
        """Ranges of columns that have not been received yet."""

    @abstractmethod
    def block(self, columns: slice) -> AbstractContextManager[TokenBlock]:
        """Begin a block; it counts as received when the context ends without an error."""


class ArraySink(TokenSink):
    """Tokens into an array (n, K+1, d) in memory."""

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
    """The recurrences of blocks, by their first column, as one."""
    if not parts:
        return None
    ordered = [parts[start] for start in sorted(parts)]
    return Recurrence(
        np.concatenate([part.norm for part in ordered]),
        np.concatenate([part.gamma for part in ordered], axis=1),
        np.concatenate([part.beta for part in ordered], axis=1),
    )


@dataclass(frozen=True, eq=False)
class TokenJob:
    """What an engine is to compute: tokens of all nodes, or of ``nodes``, into ``out``."""

    operator: Operator
    features: Features
    order: int
    out: TokenSink
    nodes: np.ndarray | None = None
    progress: Share | None = None

    def tell(self, done: float) -> None:
        """Report the share of this job that is done."""
        if self.progress is not None:
            self.progress(done)


class Assembly(ABC):
    """Tokens that are to be put together, row after row, from blocks of columns."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Bytes of all rows."""

    @abstractmethod
    def parts(self, most: int) -> list[tuple[int, int]]:
        """All bytes in ranges (begin, end) of at most so many, and at least a MiB, which may be written at a time."""

    @abstractmethod
    def write(self, begin: int, end: int) -> None:
        """Put together the bytes begin..end-1."""


def whole(rows: Assembly) -> None:
    """Put all rows together in this process."""
    rows.write(0, rows.size)


@dataclass(frozen=True)
class Cost:
    """What a job will take, roughly: bytes of memory (besides what is loaded already) and seconds.

    Attributes:
        tasks: how many processes take that memory at a time.
    """

    memory: int
    seconds: float
    tasks: int = 1


class Engine(ABC):
    """Computes tokens.

    Args:
        memory: bytes that may be used besides what the process holds already; by default as many as it takes.
    """

    def __init__(self, memory: int | None = None) -> None:
        self.memory = memory

    @abstractmethod
    def cost(self, operator: Operator, order: int, features: Features, fixed: bool) -> Cost:
        """Estimates for a job; refuses one that cannot be done within :attr:`memory`."""

    @abstractmethod
    def chebyshev(self, job: TokenJob) -> None:
        """Deliver T_k(L̂ - I) X."""

    @abstractmethod
    def optimal(self, job: TokenJob) -> None:
        """Deliver the optimal tokens, each block with the recurrence of its columns."""

    def session(self) -> AbstractContextManager[Any]:
        """What the engine runs on, e.g. a cluster, to be held while it is asked for anything; may be nested."""
        return nullcontext()

    def assemble(self, rows: Assembly) -> None:
        """Put the rows of a job together when all its blocks are there."""
        whole(rows)


ENGINES: Registry[type[Engine]] = Registry(
    "engine",
    {
        "memory": "polyformer.propagation.memory:MemoryEngine",
        "disk": "polyformer.propagation.disk:DiskEngine",
        "ray": "polyformer.propagation.ray:RayEngine",
    },
)
