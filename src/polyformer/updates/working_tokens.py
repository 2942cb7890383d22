"""Tokens while an update makes some of them anew: those that it made, over those that are stored."""

from __future__ import annotations

import numpy as np

from polyformer.stores.layers import TokenLayers

__all__ = ["WorkingTokens"]


class WorkingTokens:
    """Stored tokens, and over them what an update has made so far; nothing is written.

    Args:
        stored: tokens of the graph before the change.
        num_nodes: N of the changed graph.
    """

    def __init__(self, stored: TokenLayers, num_nodes: int) -> None:
        self.stored, self.num_nodes = stored, num_nodes
        empty = np.empty((0, stored.shape[2]), np.float32)
        self.made: list[np.ndarray] = [empty for _ in range(stored.shape[1])]
        """For each order the (m_k, d) tokens that were made."""
        self.nodes: list[np.ndarray] = [np.empty(0, np.int64) for _ in range(stored.shape[1])]
        """For each order the (m_k,) nodes of these tokens, rising."""
        self.places: list[np.ndarray | None] = [None] * stored.shape[1]
        """For each order the (N,) int32 row of :attr:`made` plus one, 0 for stored tokens; None: all are stored."""

    @property
    def rounded(self) -> bool:
        """Whether tokens are stored in half precision."""
        return self.stored.base.dtype != np.float32

    def put(self, k: int, nodes: np.ndarray, tokens: np.ndarray) -> None:
        """Have other tokens of one order from now on: (m,) rising ids, (m, d) float32."""
        place = np.zeros(self.num_nodes, np.int32)  # pages that are never written take no memory
        place[nodes] = np.arange(1, len(nodes) + 1)
        self.places[k], self.nodes[k], self.made[k] = place, nodes, tokens

    def take(self, k: int, nodes: np.ndarray) -> np.ndarray:
        """Tokens of one order as they are now: (n,) -> (n, d) float32."""
        place = self.places[k]
        if place is None:
            return self.take_stored(k, nodes)
        at = place[nodes]
        made = at > 0
        tokens = np.empty((len(nodes), self.stored.shape[2]), np.float32)
        tokens[made] = self.made[k][at[made] - 1]
        tokens[~made] = self.take_stored(k, nodes[~made])
        return tokens

    def take_stored(self, k: int, nodes: np.ndarray) -> np.ndarray:
        """Tokens of one order before the update, zeros for new nodes: (n,) -> (n, d) float32."""
        return self.stored.take_order(k, nodes).astype(np.float32, copy=False)
