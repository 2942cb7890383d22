from __future__ import annotations

import numpy as np
from scipy.special import comb

from polyformer.bases.base import FixedBasis

__all__ = ["Bernstein"]


class Bernstein(FixedBasis):
    r"""Bernstein basis: :math:`g_k(λ) = \binom{K}{k} (2 - λ)^{K-k} λ^k / 2^K`.

    Each g_k is a bump at λ = 2k/K, and all g_k sum to one, so a coefficient is about the gain at that frequency. From
    BernNet (He et al., NeurIPS 2021).

    Example:
        >>> Bernstein().response(np.array([0.0, 1.0, 2.0]), order=2)
        array([[1.  , 0.25, 0.  ],
               [0.  , 0.5 , 0.  ],
               [0.  , 0.25, 1.  ]])
    """

    def response(self, lam: np.ndarray, order: int) -> np.ndarray:
        k = np.arange(order + 1)[:, None]
        return np.asarray(comb(order, k) * (2 - lam) ** (order - k) * lam**k / 2**order)
