from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from scipy.special import eval_jacobi

from polyformer.bases.base import FixedBasis
from polyformer.errors import InvalidParameter

__all__ = ["Jacobi"]


class Jacobi(FixedBasis):
    r"""Jacobi basis: :math:`g_k(λ) = P_k^{(a,b)}(1 - λ)`, orthogonal for the weight :math:`λ^a (2 - λ)^b` on [0, 2].

    From JacobiConv (Wang and Zhang, ICML 2022). A larger ``a`` expects less signal at low frequencies, a larger
    ``b`` less at high ones.

    Args:
        a, b: exponents of the weight, both above -1.

    Example:
        >>> Jacobi(a=1, b=1).response(np.array([0.0, 1.0, 2.0]), order=1)
        array([[ 1.,  1.,  1.],
               [ 2.,  0., -2.]])
    """

    def __init__(self, a: float = 1.0, b: float = 1.0) -> None:
        given: dict[str, Any] = {"a": a, "b": b}
        for name, value in given.items():
            if not (isinstance(value, Real) and -1 < float(value) < float("inf")):
                raise InvalidParameter(f"'{name}' of the Jacobi basis must be a number above -1. Got {value}. Try 1.0.")
        self.a, self.b = float(a), float(b)

    @property
    def options(self) -> dict[str, Any]:
        return {"a": self.a, "b": self.b}

    def response(self, lam: np.ndarray, order: int) -> np.ndarray:
        k = np.arange(order + 1)[:, None]
        return np.asarray(eval_jacobi(k, self.a, self.b, 1 - np.asarray(lam)))
