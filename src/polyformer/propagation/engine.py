"""What an engine is: a way to fill an array with tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from polyformer.bases.optimal import Recurrence
from polyformer.graph import Features
from polyformer.operators import Operator
from polyformer.registry import Registry

__all__ = ["ENGINES", "Engine", "Progress"]

Progress = Callable[[float], None]
"""Told the share of the work that is done, in [0, 1]."""


class Engine(ABC):
    """Computes tokens of all nodes, or of ``nodes``, into ``out`` (n, K+1, d) float32."""

    @abstractmethod
    def memory_needed(self, num_nodes: int, order: int, features: Features, fixed: bool) -> int:
        """Bytes of working memory besides graph, features and output, roughly."""

    @abstractmethod
    def chebyshev(
        self,
        operator: Operator,
        features: Features,
        order: int,
        out: np.ndarray,
        nodes: np.ndarray | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Write T_k(L̂ - I) X."""

    @abstractmethod
    def optimal(
        self,
        operator: Operator,
        features: Features,
        order: int,
        out: np.ndarray,
        nodes: np.ndarray | None = None,
        progress: Progress | None = None,
    ) -> Recurrence:
        """Write the optimal tokens and return the recurrence of every column."""


ENGINES: Registry[type[Engine]] = Registry(
    "engine",
    {
        "memory": "polyformer.propagation.memory:MemoryEngine",
    },
)
