from __future__ import annotations

import torch
from torch import Tensor

from polyformer.models.parts.polynomial import PolynomialModel

__all__ = ["BernNetModel"]


class BernNetModel(PolynomialModel):
    r"""BernNet: an MLP, then a non-negative filter in Bernstein polynomials.

    :math:`Z = \sum_k \mathrm{ReLU}(θ_k) \binom{K}{k} 2^{-K} (2I - \hat L)^{K-k} \hat L^k f_θ(X)`, θ starting at one
    (the identity). As a mix of Chebyshev terms it costs O(K |E| C) instead of the paper's O(K² |E| C). He et al.,
    NeurIPS 2021. The search space is ours.
    """

    basis = "bernstein"

    def initial_weights(self) -> Tensor:
        return torch.ones(self.settings.order + 1)

    def coefficients(self) -> Tensor:
        return self.filter_weights.relu()
