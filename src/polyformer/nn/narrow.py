r"""Narrow tokens: what the first block can spare where the features are fewer than its channels.

:math:`\mathrm{LN}(xW + b)` of d features has rank d + 2 whatever its width, so a product with it is one with d + 2
columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = ["Factors", "normalised_factors"]


@dataclass(frozen=True)
class Factors:
    """Tokens as a thin product: ``left`` (B, K+1, r) times ``right`` (r, C)."""

    left: Tensor
    right: Tensor

    def product(self) -> Tensor:
        """The tokens: (B, K+1, C)."""
        return self.left @ self.right


def normalised_factors(tokens: Tensor, linear: nn.Linear, norm: nn.LayerNorm) -> Factors | None:
    r"""``norm(linear(tokens))`` as a product of rank d + 2; None where that would not save work.

    With :math:`W_c, b_c` the weight and bias less their mean over the channels and
    :math:`s = (\mathrm{mean}(xW_c + b_c)^2 + ε)^{-1/2}`,

    .. math::
        \mathrm{LN}(xW + b) = [s x,\; s,\; 1] \cdot [γ ∘ W_c;\; γ ∘ b_c;\; β]

    The mean square is a quadratic form of (x, 1), taken in float64. Multiplying the right factor by a matrix of C rows
    costs as much as C more rows of the left one; it is done where all that is at most half of what it replaces.
    """
    channels, rank = linear.out_features, linear.in_features + 2
    if 2 * rank * (len(tokens) + channels) > channels * len(tokens):
        return None
    affine = torch.cat([linear.weight.t(), linear.bias[None]])  # (d+1, C)
    centred = affine - affine.mean(dim=1, keepdim=True)
    double = centred.double()
    x = torch.cat([tokens, tokens.new_ones(*tokens.shape[:-1], 1)], dim=-1)  # (B, K+1, d+1)
    wide = x.double()
    square = (wide @ (double @ double.t() / channels) * wide).sum(dim=-1, keepdim=True)
    scale = (square + norm.eps).rsqrt().to(x.dtype)
    left = torch.cat([x * scale, torch.ones_like(scale)], dim=-1)
    return Factors(left, torch.cat([centred * norm.weight, norm.bias[None]]))
