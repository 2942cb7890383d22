"""Layers that several baselines share: an MLP on the features, a pre-norm transformer block."""

from __future__ import annotations

from itertools import pairwise
from typing import cast

from torch import Tensor, nn
from torch.nn import functional

from polyformer.inputs.feature_matrix import FeatureMatrix
from polyformer.parameter_checks import check_heads, check_positive

__all__ = ["FeatureMLP", "SelfAttention", "TransformerBlock"]

_FAST_WIDTH, _MANY_TOKENS = 16, 256
"""The least width of a head: from 256 tokens on, the fused kernel is 1.6 to 1.8 times as fast with 16 as with 8."""


class FeatureMLP(nn.Module):
    """dropout - Linear - ReLU, repeated, and a last dropout - Linear: features of N nodes -> (N, out)."""

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, dropout: float, num_layers: int = 2
    ) -> None:
        super().__init__()
        check_positive(num_layers=num_layers)
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))
        self.dropout = dropout

    def forward(self, features: FeatureMatrix | Tensor) -> Tensor:
        first, *rest = (cast(nn.Linear, layer) for layer in self.layers)
        if isinstance(features, FeatureMatrix):
            hidden = features.linear(first, self.dropout if self.training else 0.0)
        else:
            hidden = first(functional.dropout(features, self.dropout, self.training))
        for layer in rest:
            hidden = layer(functional.dropout(hidden.relu(), self.dropout, self.training))
        return hidden


class SelfAttention(nn.Module):
    r"""Multi-head self-attention, :math:`\mathrm{softmax}(QK^T/\sqrt{d}) V W_O`: (…, T, C) -> (…, T, C).

    O(T²C) time. Without dropout of the weights, the fused kernel never holds the T × T matrix.
    """

    def __init__(self, channels: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        check_heads(heads, hidden_channels=channels)
        self.heads, self.dropout = heads, dropout
        self.query_key_value = nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.query_key_value(x).unflatten(-1, (3, self.heads, -1))  # (…, T, 3, H, d)
        width = parts.shape[-1]
        if width < _FAST_WIDTH and x.shape[-2] >= _MANY_TOKENS:
            parts = functional.pad(parts, (0, _FAST_WIDTH - width))  # zeros change no product
        query, key, value = (parts.select(-3, i).transpose(-2, -3) for i in range(3))  # (…, H, T, d)
        dropout = self.dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout, scale=width**-0.5)
        return self.out(mixed[..., :width].transpose(-2, -3).flatten(-2))


class TransformerBlock(nn.Module):
    """Pre-norm block: x + attention(LN(x)), then x + FFN(LN(x)) with GELU: (…, T, C) -> (…, T, C)."""

    def __init__(
        self, channels: int, heads: int, ffn_channels: int, dropout: float, attention_dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(channels)
        self.attention = SelfAttention(channels, heads, attention_dropout)
        self.ffn_norm = nn.LayerNorm(channels)
        self.ffn = nn.Sequential(nn.Linear(channels, ffn_channels), nn.GELU(), nn.Linear(ffn_channels, channels))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self.dropout(self.ffn(self.ffn_norm(x)))
