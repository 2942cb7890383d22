from __future__ import annotations

import numpy as np

from polyformer.bases.base import FixedBasis

__all__ = ["Monomial"]


class Monomial(FixedBasis):
    r"""Monomial basis: :math:`g_k(λ) = (1 - λ)^k`, the k-hop neighbourhoods :math:`P^k X`.

    The paper's results use this basis on the operator with self-loops (``self_loops=True``); the paper's text does not.

    Example:
        >>> Monomial().response(np.array([0.0, 0.5, 2.0]), order=2)
        array([[ 1.  ,  1.  ,  1.  ],
               [ 1.  ,  0.5 , -1.  ],
               [ 1.  ,  0.25,  1.  ]])
    """

    def response(self, lam: np.ndarray, order: int) -> np.ndarray:
        k = np.arange(order + 1)[:, None]
        return (1 - lam) ** k
