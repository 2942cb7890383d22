from __future__ import annotations

import numpy as np
from numpy.polynomial import legendre

from polyformer.bases.base import FixedBasis

__all__ = ["Legendre"]


class Legendre(FixedBasis):
    r"""Legendre basis: :math:`g_k(λ) = P_k(1 - λ)`, orthogonal for the uniform weight on [0, 2].

    Example:
        >>> Legendre().response(np.array([0.0, 1.0, 2.0]), order=2)
        array([[ 1. ,  1. ,  1. ],
               [ 1. ,  0. , -1. ],
               [ 1. , -0.5,  1. ]])
    """

    def response(self, lam: np.ndarray, order: int) -> np.ndarray:
        return legendre.legvander(1 - np.asarray(lam), order).T
