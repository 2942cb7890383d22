from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyformer.bases.base import Basis

__all__ = ["BREAKDOWN", "Optimal", "Recurrence"]

BREAKDOWN = 1e-6
"""If the residual of a unit vector is smaller than this, it is rounding: the Krylov space is exhausted."""


class Optimal(Basis):
    r"""Optimal basis: for each feature column, the polynomials that are orthonormal in the spectrum of that column.

    :math:`β_{k+1} h_{k+1} = P h_k - γ_k h_k - β_k h_{k-1}` with :math:`h_0 = x / \|x\|` (Lanczos), so the tokens of a
    column are orthonormal vectors. The basis depends on graph and features, so it is no mix of Chebyshev tokens. From
    OptBasisGNN (Guo and Wei, ICML 2023). Where the Krylov space is exhausted, and for zero columns, the further
    tokens are zero; the paper's results come from code that fills them with normalised noise instead.
    """

    name = "optimal"
    fixed = False


@dataclass(frozen=True)
class Recurrence:
    """The recurrence coefficients of every feature column, from which the response of the optimal basis is computed.

    Shapes:
        ``norm`` (d,): ‖x‖; ``gamma`` (K, d); ``beta`` (K, d): β_1, …, β_K, zero from the breakdown on.
    """

    norm: np.ndarray
    gamma: np.ndarray
    beta: np.ndarray

    def response(self, lam: np.ndarray, channel: int) -> np.ndarray:
        """g_0(λ), …, g_K(λ) of one column, such that its tokens are g_k(L̂) x: (n,) -> (K+1, n)."""
        mu = 1 - np.asarray(lam, dtype=np.float64)
        order = len(self.gamma)
        values = np.zeros((order + 1, len(mu)))
        if self.norm[channel] == 0:
            return values
        values[0] = 1 / self.norm[channel]
        previous = np.zeros_like(mu)
        for k in range(order):
            beta = self.beta[k, channel]
            if beta == 0:
                break
            carry = self.beta[k - 1, channel] * previous if k else 0.0
            previous = values[k]
            values[k + 1] = ((mu - self.gamma[k, channel]) * values[k] - carry) / beta
        return values
