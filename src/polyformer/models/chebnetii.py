from __future__ import annotations

import numpy as np
import torch
from numpy.polynomial import chebyshev
from torch import Tensor

from polyformer.models.parts.polynomial import PolynomialModel

__all__ = ["ChebNetIIModel"]


class ChebNetIIModel(PolynomialModel):
    r"""ChebNetII: an MLP, then a filter learned by its values at the Chebyshev nodes.

    :math:`Z = \tfrac{c_0}{2} F + \sum_{i \ge 1} c_i T_i(\hat L - I) F` with :math:`F = f_θ(X)` and
    :math:`c_i = \tfrac{2}{K+1} \sum_j \mathrm{ReLU}(γ_j) T_i(x_j)`, where :math:`x_j = \cos((K - j + ½)π/(K+1))`. This
    is the polynomial whose gain at frequency :math:`1 + x_j` is :math:`\mathrm{ReLU}(γ_j)`. γ starts at one (the
    identity). O(K |E| C). He, Wei and Wen, NeurIPS 2022. The search space is ours.
    """

    basis = "chebyshev"
    interpolation: Tensor

    def __init__(self, in_channels: int, out_channels: int, settings: object) -> None:
        super().__init__(in_channels, out_channels, settings)
        order = self.settings.order
        values = chebyshev.chebvander(chebyshev.chebpts1(order + 1), order) * (2 / (order + 1))  # (j, i)
        values[:, 0] /= 2
        self.register_buffer("interpolation", torch.from_numpy(np.asarray(values)).float(), persistent=False)

    def initial_weights(self) -> Tensor:
        return torch.ones(self.settings.order + 1)

    def coefficients(self) -> Tensor:
        return self.filter_weights.relu() @ self.interpolation
