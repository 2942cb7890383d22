"""Responses of filters on a grid of frequencies, and what they amount to node by node."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from polyformer.errors import InvalidParameter
from polyformer.graph import Graph
from polyformer.models import NodeWiseFilter

__all__ = [
    "BANDS",
    "filter_coefficients",
    "filter_response",
    "frequency_grid",
    "local_homophily",
    "order_contributions",
    "pass_shares",
    "spectral_coefficients",
    "spectral_layers",
]

BANDS = ("low", "band", "high")
"""The thirds of the spectrum: λ in [0, 2/3), [2/3, 4/3), [4/3, 2]."""


def frequency_grid(points: int = 65) -> np.ndarray:
    """Frequencies λ, evenly from 0 to 2.

    >>> frequency_grid(3)
    array([0., 1., 2.])
    """
    return np.linspace(0.0, 2.0, points)


def filter_coefficients(model: NodeWiseFilter, nodes: np.ndarray, layer: int = 0) -> np.ndarray:
    """α_k of each node and head in one layer: (len(nodes), H, K+1)."""
    count = model.filter_layers
    if not 0 <= layer < count:
        raise InvalidParameter(f"'layer' must lie in 0..{count - 1}. Got {layer}.")
    return model.filter_coefficients(torch.from_numpy(nodes), layer)


def spectral_layers(model: NodeWiseFilter) -> list[int]:
    """The layers that have a response: the first, and of a cascade every stage."""
    return [layer for layer in range(model.filter_layers) if model.filter_input(layer) is not None]


def spectral_coefficients(model: NodeWiseFilter, nodes: np.ndarray) -> np.ndarray:
    """α_k of each node in all layers that have a response: (len(nodes), S, H, K+1)."""
    return np.stack([filter_coefficients(model, nodes, layer) for layer in spectral_layers(model)], axis=1)


def filter_response(
    model: NodeWiseFilter, nodes: np.ndarray, lam: Any, layer: int = 0, channel: int | None = None
) -> np.ndarray:
    r"""The filter of each node and head: :math:`h_i(λ) = \sum_k α_k g_k(λ)`, (len(nodes), H, len(lam)).

    It is relative to what the layer's polynomials are applied to, ``model.filter_input(layer)``. Of PolyFormer it is
    the first layer's PolyAttn on its own normalised input, the residual left out; later layers have coefficients but no
    spectrum: their tokens are no polynomials of the operator any more. Of a cascade every stage filters its own input.

    Args:
        channel: the feature column whose recurrence is meant; needed by the optimal basis and by no other.
    """
    if 0 < layer < model.filter_layers and model.filter_input(layer) is None:
        raise InvalidParameter(
            f"'layer' must be 0: later layers have coefficients but no spectrum. Got {layer}. Use filter_coefficients."
        )
    lam = np.asarray(lam, dtype=np.float64)
    if lam.ndim != 1:
        raise InvalidParameter(f"'lam' must be one-dimensional. Got shape {lam.shape}.")
    return np.einsum("nhk,kl->nhl", filter_coefficients(model, nodes, layer), model.token_response(lam, channel))


def order_contributions(coefficients: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    r"""How much each order contributes to a node's filters: (n, H, K+1), (K+1, L) -> (n, K+1), rows that sum to one.

    :math:`\sum_h |α_{hk}|\,\|g_k\|` with the L2 norm of :math:`g_k` on the grid of λ, divided by the sum over k.

    >>> order_contributions(np.array([[[1.0, -3.0]]]), np.ones((2, 5)))
    array([[0.25, 0.75]])
    """
    return _shares(np.abs(coefficients).sum(axis=1) * np.sqrt(np.square(tokens).mean(axis=1)))


def pass_shares(responses: np.ndarray, lam: np.ndarray) -> np.ndarray:
    r"""The share of a node's filters' energy in each of ``BANDS``: (n, H, L), (L,) -> (n, 3), rows that sum to one.

    :math:`\sum_h \int_b h(λ)^2 dλ`, divided by the sum over the bands b.

    >>> pass_shares(np.array([[[1.0, 0.0, 2.0]]]), frequency_grid(3))
    array([[0.2, 0. , 0.8]])
    """
    energy = np.square(responses).sum(axis=1)  # (n, L)
    band = np.minimum((lam * 1.5).astype(np.int64), 2)
    return _shares(np.stack([energy[:, band == i].sum(axis=1) for i in range(3)], axis=1))


def _shares(parts: np.ndarray) -> np.ndarray:
    """Rows divided by their sums; equal shares where there is nothing."""
    total = parts.sum(axis=1, keepdims=True)
    return np.divide(parts, total, out=np.full_like(parts, 1 / parts.shape[1]), where=total > 0)


def local_homophily(graph: Graph, labels: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """The share of each node's labelled neighbours that have its class: (n,), NaN where there are none.

    >>> local_homophily(Graph([[0, 0], [1, 2]]), np.array([0, 0, 1]), np.arange(3))
    array([0.5, 1. , 0. ])
    """
    starts, counts = graph.indptr[nodes], graph.indptr[nodes + 1] - graph.indptr[nodes]
    row = np.repeat(np.arange(len(nodes)), counts)
    offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    neighbour = labels[graph.indices[np.repeat(starts, counts) + offset]]
    own = labels[nodes]
    known = (neighbour >= 0) & (own[row] >= 0)
    same = np.bincount(row[known & (neighbour == own[row])], minlength=len(nodes))
    total = np.bincount(row[known], minlength=len(nodes))
    return np.divide(same, total, out=np.full(len(nodes), np.nan), where=total > 0)
