"""Kinds of filters: clusters of nodes by response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from polyformer.errors import InvalidParameter

__all__ = ["CLUSTERED_NODES", "FilterClusters", "check_clusters", "cluster_filters"]

CLUSTERED_NODES = 10_000
"""Kinds are told by at most so many nodes, drawn at random."""

_COMPARED_NODES = 1_500
_CLUSTER_NUMBERS = range(2, 7)


@dataclass(frozen=True, eq=False)
class FilterClusters:
    """Kinds of filters, the most common first.

    Shapes:
        ``centres`` (C, H, L): the mean response of each cluster, head by head.
    """

    centres: np.ndarray

    def assign(self, responses: np.ndarray) -> np.ndarray:
        """The nearest centre of each node: (n, H, L) -> (n,)."""
        flat, centres = responses.reshape(len(responses), -1), self.centres.reshape(len(self.centres), -1)
        return np.argmin(np.square(centres).sum(axis=1) - 2 * flat @ centres.T, axis=1)


def cluster_filters(responses: np.ndarray, number: int | None = None, seed: int = 0) -> FilterClusters:
    """Clusters of nodes by response, by k-means over all heads on the grid: (n, H, L) -> :class:`FilterClusters`.

    Args:
        number: number of clusters; by default the number from 2 to 6 with the best silhouette.

    Example:
        >>> low, high = np.linspace(1, 0, 9), np.linspace(0, 1, 9)
        >>> clusters = cluster_filters(np.stack([low, high, high])[:, None], number=2)
        >>> clusters.assign(np.stack([high, low])[:, None])
        array([0, 1])
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    random = np.random.default_rng(seed)
    sampled_nodes = np.sort(random.permutation(len(responses))[:CLUSTERED_NODES])
    flat = responses[sampled_nodes].reshape(len(sampled_nodes), -1)
    distinct = len(np.unique(flat.astype(np.float32), axis=0))
    check_clusters(number, len(responses))

    def fit(count: int, rows: np.ndarray) -> Any:
        return KMeans(min(count, distinct), n_init=3, random_state=seed).fit(rows)

    if number is None:
        few = flat[:: -(-len(flat) // _COMPARED_NODES)]
        scores = {1: 0.0}
        for count in _CLUSTER_NUMBERS:
            assignment = fit(count, few).labels_
            if 1 < len(np.unique(assignment)) < len(few):
                scores[count] = float(silhouette_score(few, assignment))
        number = max(scores, key=lambda count: scores[count])
    result = fit(number, flat)
    order = np.argsort(-np.bincount(result.labels_, minlength=len(result.cluster_centers_)), kind="stable")
    return FilterClusters(result.cluster_centers_[order].reshape(-1, *responses.shape[1:]))


def check_clusters(number: int | None, num_nodes: int) -> None:
    """Refuse a number of kinds that so many nodes cannot have; None is left to :func:`cluster_filters`."""
    if number is not None and not 1 <= number <= num_nodes:
        raise InvalidParameter(f"'clusters' must lie in 1..{num_nodes}, the number of nodes. Got {number}.")
