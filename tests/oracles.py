"""Slow and certain: the exact spectrum, and Lanczos with full re-orthogonalisation in double precision."""

from __future__ import annotations

import numpy as np

from polyformer.bases import FixedBasis
from polyformer.bases.optimal import BREAKDOWN
from polyformer.graph import Graph


def dense_features(graph: Graph) -> np.ndarray:
    features = graph.features
    assert features is not None
    return np.asarray(features if isinstance(features, np.ndarray) else features.toarray(), np.float64)


def dense_operator(graph: Graph, self_loops: bool) -> np.ndarray:
    """P from its definition, entry by entry."""
    adjacency = graph.adjacency(np.float64).toarray()
    if self_loops:
        adjacency = adjacency + np.eye(len(adjacency))
    degrees = adjacency.sum(axis=1)
    scaling = np.divide(1.0, np.sqrt(degrees), out=np.zeros_like(degrees), where=degrees > 0)
    return scaling[:, None] * adjacency * scaling


def exact_tokens(graph: Graph, basis: FixedBasis, order: int, self_loops: bool = False) -> np.ndarray:
    """U g_k(Λ) Uᵀ X: (N, K+1, d)."""
    eigenvalues, eigenvectors = np.linalg.eigh(np.eye(graph.num_nodes) - dense_operator(graph, self_loops))
    response = basis.response(eigenvalues, order)
    return np.einsum("nm,km,md->nkd", eigenvectors, response, eigenvectors.T @ dense_features(graph))


def exact_optimal(graph: Graph, order: int, self_loops: bool = False) -> np.ndarray:
    """Orthonormal tokens per column, zero from the breakdown on: (N, K+1, d)."""
    operator, features = dense_operator(graph, self_loops), dense_features(graph)
    tokens = np.zeros((graph.num_nodes, order + 1, features.shape[1]))
    for column in range(features.shape[1]):
        norm = np.linalg.norm(features[:, column])
        if norm == 0:
            continue
        tokens[:, 0, column] = features[:, column] / norm
        for k in range(order):
            step = operator @ tokens[:, k, column]
            earlier = tokens[:, : k + 1, column]
            for _ in range(3):
                step = step - earlier @ (earlier.T @ step)
            residual = np.linalg.norm(step)
            if residual <= BREAKDOWN:
                break
            tokens[:, k + 1, column] = step / residual
    return tokens
