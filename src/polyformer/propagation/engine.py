"""What an engine is: a way to fill an array with tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from polyformer.bases.optimal import Recurrence
from polyformer.graph_checks import Features
from polyformer.operators import Operator
from polyformer.progress import Share
from polyformer.registry import Registry

__all__ = ["ENGINES", "Engine", "TokenJob"]


@dataclass(frozen=True, eq=False)
class TokenJob:
    """What an engine is to compute: tokens of all nodes, or of ``nodes``, into ``out`` (n, K+1, d) float32."""

    operator: Operator
    features: Features
    order: int
    out: np.ndarray
    nodes: np.ndarray | None = None
    progress: Share | None = None


class Engine(ABC):
    """Fills an array with tokens."""

    @abstractmethod
    def memory_needed(self, num_nodes: int, order: int, features: Features, fixed: bool) -> int:
        """Bytes of working memory besides graph, features and output, roughly."""

    @abstractmethod
    def chebyshev(self, job: TokenJob) -> None:
        """Write T_k(L̂ - I) X."""

    @abstractmethod
    def optimal(self, job: TokenJob) -> Recurrence:
        """Write the optimal tokens and return the recurrence of every column."""


ENGINES: Registry[type[Engine]] = Registry(
    "engine",
    {
        "memory": "polyformer.propagation.memory:MemoryEngine",
    },
)
