"""How the energy of a signal on a graph is spread over the frequencies, without an eigendecomposition."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from polyformer.graph_checks import Features
from polyformer.operators import Operator

__all__ = ["signal_spectrum", "sketch_columns"]


def sketch_columns(features: Features, width: int = 16, seed: int = 0) -> np.ndarray:
    """At most ``width`` columns whose spectrum is, on average, that of all: random signed sums, (N, d) -> (N, w)."""
    num_columns = features.shape[1]
    features = features if sp.issparse(features) else np.asarray(features)
    if num_columns <= width:
        return np.asarray(features @ np.eye(num_columns, dtype=np.float32), np.float64)
    signs = np.random.default_rng(seed).choice(np.array([-1.0, 1.0], np.float32), (num_columns, width))
    return np.asarray(features @ signs, np.float64)


def signal_spectrum(operator: Operator, signals: np.ndarray, lam: np.ndarray, moments: int = 96) -> np.ndarray:
    r"""Density over λ of the signals' energy, (N, d), (L,) -> (L,): the kernel polynomial method.

    The energy :math:`\sum_c |u_j^\top x_c|^2` at each eigenvalue, smoothed to a width of about 6 / ``moments`` by
    Jackson's kernel; from the Chebyshev moments :math:`\mu_k = \sum_c x_c^\top T_k(\hat L - I) x_c`, two of which come
    from each product with P (Weiße et al., Rev. Mod. Phys. 78, 2006). It integrates to one over [0, 2].

    Example:
        >>> from polyformer.graph import Graph
        >>> ring = Graph(np.stack([np.arange(8), (np.arange(8) + 1) % 8]))
        >>> lam = np.linspace(0.0, 2.0, 41)
        >>> lam[signal_spectrum(Operator(ring), np.ones((8, 1)), lam).argmax()]
        np.float64(0.0)
    """
    matrix = -operator.to_scipy(np.float64)  # L̂ - I
    before, current = signals, matrix @ signals
    mu = np.zeros(moments)
    mu[0], mu[1] = (signals * signals).sum(), (signals * current).sum()
    for k in range(1, moments // 2):
        mu[2 * k] = 2 * (current * current).sum() - mu[0]
        before, current = current, 2 * (matrix @ current) - before
        mu[2 * k + 1] = 2 * (current * before).sum() - mu[1]
    x = np.clip(lam - 1, -0.999, 0.999)  # the density has a factor 1 / √(1 - x²), infinite at the ends
    order = np.arange(1, moments)
    waves = np.cos(order * np.arccos(x)[:, None])
    values = mu[0] + 2 * waves @ (mu[1:] * _jackson(moments)[1:])
    density = np.maximum(values, 0) / (np.pi * np.sqrt(1 - x * x))
    total = np.trapezoid(density, lam)
    return density / total if total > 0 else density


def _jackson(count: int) -> np.ndarray:
    """Jackson's kernel: the damping that keeps a truncated Chebyshev series positive."""
    k, angle = np.arange(count), np.pi / (count + 1)
    return ((count - k + 1) * np.cos(angle * k) + np.sin(angle * k) / np.tan(angle)) / (count + 1)
