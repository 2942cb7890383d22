"""PolyFormer: the transformer built on PolyAttn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from torch import Tensor, nn

from polyformer.nn.checks import check_dropout, check_positive
from polyformer.nn.functional import Dropout, add_dropout
from polyformer.nn.narrow import Factors, normalised_factors
from polyformer.nn.polyattn import PolyAttn

__all__ = ["PolyFormer", "PolyFormerBlock"]


class PolyFormerBlock(nn.Module):
    r"""One block: :math:`H' = \mathrm{PolyAttn}(\mathrm{LN}(H)) + H`, then :math:`\mathrm{FFN}(\mathrm{LN}(H')) + H'`.

    ``dropout`` acts on the scores, on the attention's output and on the FFN's output, as in the published results.

    Shapes:
        (B, K+1, C) -> (B, K+1, C).
    """

    def __init__(
        self,
        channels: int,
        order: int,
        heads: int,
        ffn_channels: int,
        mlp_ratio: float,
        decay: float,
        activation: str,
        scale: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(channels)
        self.attention = PolyAttn(
            channels,
            order,
            heads,
            mlp_ratio=mlp_ratio,
            decay=decay,
            activation=activation,
            scale=scale,
            dropout=dropout,
        )
        self.ffn_norm = nn.LayerNorm(channels)
        self.ffn = nn.Sequential(nn.Linear(channels, ffn_channels), nn.GELU(), nn.Linear(ffn_channels, channels))
        self.dropout = dropout

    def forward(self, hidden: Tensor, factors: Factors | None = None) -> Tensor:
        """``factors``: those of LN(H), where it is a thin product."""
        normalised = self.attention_norm(hidden) if factors is None else factors.product()
        hidden = add_dropout(hidden, self.attention(normalised, factors), self.dropout, self.training)
        return add_dropout(hidden, self.ffn(self.ffn_norm(hidden)), self.dropout, self.training)

    def filter_coefficients(self, hidden: Tensor) -> Tensor:
        """α of this block's PolyAttn on its own normalised input: (B, K+1, C) -> (B, H, K+1)."""
        return self.attention.filter_coefficients(self.attention_norm(hidden))


class PolyFormer(nn.Module):
    """Node classifier or regressor on polynomial tokens.

    One Linear shared by all orders, L blocks, then sum over the tokens - dropout - Linear - ReLU - dropout - Linear.

    Args:
        in_channels: d, width of the tokens.
        hidden_channels: width inside.
        out_channels: number of outputs per node.
        order: K.
        num_layers: L blocks.
        heads: of each PolyAttn; must divide ``hidden_channels``.
        ffn_channels: inner width of the FFN; ``hidden_channels`` by default.
        mlp_ratio, decay, activation, scale: see :class:`PolyAttn`.
        dropout: in the read-out.
        attention_dropout: in the blocks.

    Shapes:
        (B, K+1, in_channels) -> (B, out_channels).

    Example:
        >>> import torch
        >>> model = PolyFormer(in_channels=7, hidden_channels=16, out_channels=2, order=4, heads=4)
        >>> model(torch.randn(3, 5, 7)).shape
        torch.Size([3, 2])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        order: int,
        num_layers: int = 1,
        heads: int = 1,
        ffn_channels: int | None = None,
        mlp_ratio: float = 1.0,
        decay: float = 1.0,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation: str = "tanh",
        scale: bool = True,
    ) -> None:
        super().__init__()
        ffn_channels = hidden_channels if ffn_channels is None else ffn_channels
        check_positive(
            in_channels=in_channels,
            hidden_channels=hidden_channels,
            out_channels=out_channels,
            num_layers=num_layers,
            ffn_channels=ffn_channels,
        )
        check_dropout("attention_dropout", attention_dropout)
        block = (hidden_channels, order, heads, ffn_channels, mlp_ratio, decay, activation, scale, attention_dropout)
        self.input = nn.Linear(in_channels, hidden_channels)
        self.blocks = nn.ModuleList(PolyFormerBlock(*block) for _ in range(num_layers))
        self.readout = nn.Sequential(
            Dropout(check_dropout("dropout", dropout)),
            nn.Linear(hidden_channels, hidden_channels),
            nn.ReLU(),
            Dropout(dropout),
            nn.Linear(hidden_channels, out_channels),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        first = cast(PolyFormerBlock, self.blocks[0])
        return self.encode(self.input(tokens), normalised_factors(tokens, self.input, first.attention_norm))

    def encode(self, hidden: Tensor, factors: Factors | None = None) -> Tensor:
        """From tokens that went through the input layer: (B, K+1, hidden) -> (B, out).

        Args:
            factors: those of the first block's normalised input, where it is a thin product.
        """
        for block in self.blocks:
            hidden = block(hidden, factors)
            factors = None
        return self.readout(hidden.sum(dim=1))

    def filter_coefficients(self, hidden: Tensor, layer: int = 0) -> Tensor:
        """α of the given layer, from tokens that went through the input layer: (B, K+1, hidden) -> (B, H, K+1)."""
        for block in self.blocks[:layer]:
            hidden = block(hidden)
        return cast(PolyFormerBlock, self.blocks[layer]).filter_coefficients(hidden)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """The optimiser's groups: ``attention`` (each block's first LayerNorm and its PolyAttn) and ``rest``."""
        blocks = cast(Iterable[PolyFormerBlock], self.blocks)
        modules = [module for block in blocks for module in (block.attention_norm, block.attention)]
        attention = [parameter for module in modules for parameter in module.parameters()]
        chosen = {id(parameter) for parameter in attention}
        return {"attention": attention, "rest": [p for p in self.parameters() if id(p) not in chosen]}
