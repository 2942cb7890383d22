"""PolyFormer as the paper's pseudocode reads, for comparison: one module per order, full batches over all nodes.

No idea of ours is in it: tokens of all nodes are stored, every order has its own ``nn.Sequential``, scores are computed
by plain batched products, an epoch trains on all nodes and evaluates by whole forward passes (four for multi-class
tasks, one for binary ones, as public implementations do).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["LiteralPolyFormer", "copy_weights"]


class LiteralAttention(nn.Module):
    def __init__(self, channels: int, order: int, heads: int, mlp_ratio: float, decay: float, dropout: float) -> None:
        super().__init__()
        inner = int(mlp_ratio * channels)
        self.heads, self.decay = heads, decay
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(channels, inner), nn.ReLU(), nn.Linear(inner, channels)) for _ in range(order + 1)
        )
        self.query = nn.Linear(channels, channels, bias=False)
        self.key = nn.Linear(channels, channels, bias=False)
        self.bias = nn.Parameter(torch.ones(heads, order + 1))
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        nodes, count, channels = tokens.shape
        hidden = torch.stack([mlp(tokens[:, j]) for j, mlp in enumerate(self.mlps)], dim=1)
        shape = (nodes, count, self.heads, channels // self.heads)
        query, key, value = (x.view(shape).permute(0, 2, 1, 3) for x in (self.query(hidden), self.key(hidden), tokens))
        scores = torch.tanh(query @ key.transpose(-2, -1) / (channels // self.heads) ** 0.5)
        weights = self.bias / (torch.arange(count) + 1.0).to(tokens.dtype) ** self.decay
        scores = self.dropout(scores * weights.view(1, self.heads, 1, count))
        return (scores @ value).permute(0, 2, 1, 3).reshape(nodes, count, channels)


class LiteralBlock(nn.Module):
    def __init__(
        self, channels: int, order: int, heads: int, ffn: int, mlp_ratio: float, decay: float, dropout: float
    ) -> None:
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.attention = LiteralAttention(channels, order, heads, mlp_ratio, decay, dropout)
        self.ffn = nn.Sequential(nn.Linear(channels, ffn), nn.GELU(), nn.Linear(ffn, channels))
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = self.dropout(self.attention(self.attention_norm(hidden))) + hidden
        return self.dropout(self.ffn(self.ffn_norm(hidden))) + hidden


class LiteralPolyFormer(nn.Module):
    """(N, K+1, d) -> (N, out)."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        order: int,
        num_layers: int,
        heads: int,
        ffn_channels: int,
        mlp_ratio: float,
        decay: float,
        dropout: float,
        attention_dropout: float,
    ) -> None:
        super().__init__()
        block = (hidden_channels, order, heads, ffn_channels, mlp_ratio, decay, attention_dropout)
        self.input = nn.Linear(in_channels, hidden_channels)
        self.blocks = nn.ModuleList(LiteralBlock(*block) for _ in range(num_layers))
        self.first, self.second = nn.Linear(hidden_channels, hidden_channels), nn.Linear(hidden_channels, out_channels)
        self.dropout = dropout

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.input(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        hidden = functional.dropout(hidden.sum(dim=1), self.dropout, self.training)
        hidden = functional.dropout(torch.relu(self.first(hidden)), self.dropout, self.training)
        return self.second(hidden)

    def attention_parameters(self) -> list[nn.Parameter]:
        """The group with its own learning rate."""
        modules = [module for block in self.blocks for module in (block.attention_norm, block.attention)]
        return [parameter for module in modules for parameter in module.parameters()]


@torch.no_grad()
def copy_weights(ours: nn.Module, literal: LiteralPolyFormer) -> None:
    """Give the literal model the weights of ``polyformer.PolyFormer``."""
    literal.input.load_state_dict(ours.input.state_dict())
    literal.first.load_state_dict(ours.readout[1].state_dict())
    literal.second.load_state_dict(ours.readout[4].state_dict())
    for block, other in zip(ours.blocks, literal.blocks, strict=True):
        for name in ("attention_norm", "ffn_norm", "ffn"):
            getattr(other, name).load_state_dict(getattr(block, name).state_dict())
        other.attention.query.load_state_dict(block.attention.query.state_dict())
        other.attention.key.load_state_dict(block.attention.key.state_dict())
        other.attention.bias.copy_(block.attention.order_bias)
        mlps = block.attention.order_mlps
        for j, mlp in enumerate(other.attention.mlps):
            for layer, weight, bias in ((mlp[0], mlps.weight1, mlps.bias1), (mlp[2], mlps.weight2, mlps.bias2)):
                layer.weight.copy_(weight[j].T)
                layer.bias.copy_(bias[j, 0])
