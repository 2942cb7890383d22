from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from polyformer.bases import FixedBasis
from polyformer.models.parts.token_filters import TokenFilterModel, TokenFilterSettings
from polyformer.settings import setting

__all__ = ["UniFilterModel", "UniFilterSettings"]


@dataclass(frozen=True)
class UniFilterSettings(TokenFilterSettings):
    """Settings of UniFilter."""

    decay: float = setting(2.0, "r: α_k starts at (k+1)^-r, as PolyAttn's bias does")


class UniFilterModel(TokenFilterModel):
    r"""UniFilter: the same filter for all nodes, on the tokens that PolyAttn sees, in any basis.

    :math:`Z = \sum_k α_k\, g_k(P) X`, then an MLP; the paper's control for node-wise filters, O(K N h). The search
    space is the paper's.
    """

    settings_type = UniFilterSettings

    def __init__(self, in_channels: int, out_channels: int, settings: UniFilterSettings) -> None:
        super().__init__(in_channels, out_channels, settings)
        self.coefficients = nn.Parameter((1.0 + torch.arange(self.order + 1)) ** -settings.decay)

    def filter(self, hidden: Tensor) -> Tensor:
        return torch.einsum("k,bkc->bc", self.coefficients, hidden)

    def frequency_response(self, lam: np.ndarray, nodes: Tensor | None = None) -> np.ndarray:
        """The filter of all nodes: (n,) -> (1, n); the optimal basis has a filter for each feature column: (d, n)."""
        coefficients = self.coefficients.detach().cpu().numpy()
        if isinstance(self.basis, FixedBasis):
            return coefficients[None] @ self.basis.response(np.asarray(lam, np.float64), self.order)
        return np.stack([coefficients @ self.token_response(lam, c) for c in range(self.in_channels)])
