from __future__ import annotations

from typing import Any

import numpy as np
from numpy.polynomial import chebyshev

from polyformer.bases.base import FixedBasis

__all__ = ["Chebyshev"]


class Chebyshev(FixedBasis):
    r"""Chebyshev basis: :math:`g_k(λ) = T_k(λ - 1)`; every other fixed basis is a mix of it.

    The paper's table writes :math:`T_k(\hat L)`, whose argument would leave [-1, 1]; its results use the shifted
    :math:`\hat L - I`, and so do we. ``shifted=False`` follows the text: :math:`g_k(λ) = T_k(λ)`, which grows like
    3.7^k at λ = 2.

    Example:
        >>> Chebyshev().response(np.array([0.0, 1.0, 2.0]), order=2)
        array([[ 1.,  1.,  1.],
               [-1.,  0.,  1.],
               [ 1., -1.,  1.]])
    """

    def __init__(self, shifted: bool = True) -> None:
        self.shifted = bool(shifted)

    @property
    def options(self) -> dict[str, Any]:
        return {"shifted": self.shifted}

    def response(self, lam: np.ndarray, order: int) -> np.ndarray:
        argument = np.asarray(lam) - 1 if self.shifted else np.asarray(lam)
        return chebyshev.chebvander(argument, order).T

    def mixing(self, order: int) -> np.ndarray:
        """The identity, without the rounding of the interpolation."""
        return np.eye(order + 1) if self.shifted else super().mixing(order)
