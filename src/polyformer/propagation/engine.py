"""What an engine is: a way to compute tokens, one block of columns after the other, for a sink that receives them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyformer.graph_checks import Features
from polyformer.operators import Operator
from polyformer.registry import Registry
from polyformer.reporter import SILENT, Reporter
from polyformer.stores.sinks import Assembly, TokenSink, assemble_all

__all__ = ["ENGINES", "Engine", "EngineCost", "TokenJob"]


@dataclass(frozen=True, eq=False)
class TokenJob:
    """A job for an engine: compute the tokens of all nodes, or of ``nodes``, into ``out``."""

    operator: Operator
    features: Features
    order: int
    out: TokenSink
    nodes: np.ndarray | None = None
    reporter: Reporter = SILENT

    def tell(self, done: float) -> None:
        """Tell the reporter which share of this job is done."""
        self.reporter.share("tokens", done)


@dataclass(frozen=True)
class EngineCost:
    """An estimate for a job: bytes of memory, besides what is loaded already, and seconds.

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

    def about(self) -> dict[str, str]:
        """What a token directory records of the engine, because its tokens differ: only such blocks go together."""
        return {}

    @abstractmethod
    def cost(self, operator: Operator, order: int, features: Features, fixed: bool) -> EngineCost:
        """Estimate a job; refuse a job that cannot be done within :attr:`memory`."""

    @abstractmethod
    def chebyshev(self, job: TokenJob) -> None:
        """Deliver T_k(L̂ - I) X."""

    @abstractmethod
    def optimal(self, job: TokenJob) -> None:
        """Deliver the optimal tokens, each block with the recurrence of its columns."""

    def session(self) -> AbstractContextManager[Any]:
        """Hold what the engine runs on, e.g. a cluster; callers enter it before they call other methods. It nests."""
        return nullcontext()

    def assemble(self, rows: Assembly) -> None:
        """Put the rows of a job together when all blocks of the job are there."""
        assemble_all(rows)


ENGINES: Registry[type[Engine]] = Registry(
    "engine",
    {
        "memory": "polyformer.propagation.memory:MemoryEngine",
        "disk": "polyformer.propagation.disk:DiskEngine",
        "ray": "polyformer.propagation.ray:RayEngine",
    },
)
