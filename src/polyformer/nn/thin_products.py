r"""Narrow tokens: how the first block saves work where the features are fewer than its channels.

:math:`\mathrm{LN}(xW + b)` of d features has rank d + 2 whatever its width, so a product with it can be computed as one
with d + 2 columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from polyformer.devices import has_float64
from polyformer.nn.tracing import is_recorded

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

    Let :math:`W_c, b_c` be the weight and bias minus their mean over the channels, and
    :math:`s = (\mathrm{mean}(xW_c + b_c)^2 + ε)^{-1/2}`,

    .. math::
        \mathrm{LN}(xW + b) = [s x,\; s,\; 1] \cdot [γ ∘ W_c;\; γ ∘ b_c;\; β]

    The mean square is a quadratic form of (x, 1), computed in float64. Multiplying the right factor by a matrix of C
    rows costs as much as C more rows of the left one; factors are given only where all of this is at most half the
    work, never where operations are recorded for batches of any size, and never on a device without float64.
    """
    channels, rank = linear.out_features, linear.in_features + 2
    if is_recorded() or not has_float64(tokens.device) or 2 * rank * (len(tokens) + channels) > channels * len(tokens):
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
