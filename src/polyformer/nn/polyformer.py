"""PolyFormer: the transformer built on PolyAttn."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Self, cast

import torch
from torch import Tensor, nn

from polyformer.errors import FileCorrupt
from polyformer.nn.functional import add_dropout
from polyformer.nn.polyattn import PolyAttn
from polyformer.nn.pretrained import read_pretrained
from polyformer.nn.products import feed_forward, layer_norm, multiplies
from polyformer.nn.readout import read_out
from polyformer.nn.resetting import reset_children
from polyformer.nn.thin_products import Factors, normalised_factors
from polyformer.parameter_checks import check_dropout, check_positive

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
        """Apply the block; ``factors`` are those of LN(H), where it is a thin product."""
        if factors is None:
            hidden, normalised = layer_norm(hidden, self.attention_norm)
        else:
            normalised = factors.product()
        hidden = add_dropout(hidden, self.attention(normalised, factors), self.dropout, self.training)
        hidden, normalised = layer_norm(hidden, self.ffn_norm)
        return add_dropout(hidden, self._feed_forward(normalised), self.dropout, self.training)

    def _feed_forward(self, hidden: Tensor) -> Tensor:
        first, second = cast(nn.Linear, self.ffn[0]), cast(nn.Linear, self.ffn[2])
        if multiplies(hidden, first.weight, first.bias, second.weight, second.bias):
            return feed_forward(hidden, first.weight, first.bias, second.weight, second.bias)
        return cast(Tensor, self.ffn(hidden))

    def filter_coefficients(self, hidden: Tensor) -> Tensor:
        """α of this block's PolyAttn on the normalised input of the block: (B, K+1, C) -> (B, H, K+1)."""
        return self.attention.filter_coefficients(self.attention_norm(hidden))


class PolyFormer(nn.Module):
    """Node classifier or regressor on polynomial tokens.

    One Linear shared by all orders, L blocks, then sum over the tokens - dropout - Linear - ReLU - dropout - Linear.

    Args:
        in_channels: d, width of the tokens; -1 takes the width of the first tokens that the model sees.
        hidden_channels: width inside the model.
        out_channels: number of outputs per node.
        order: K.
        num_layers: L, number of blocks.
        heads: number of heads of each PolyAttn; must divide ``hidden_channels``.
        ffn_channels: inner width of the FFN; ``hidden_channels`` by default.
        mlp_ratio, decay, activation, scale: see :class:`PolyAttn`.
        dropout: dropout in the read-out.
        attention_dropout: dropout in the blocks.

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
            in_channels=1 if in_channels == -1 else in_channels,
            hidden_channels=hidden_channels,
            out_channels=out_channels,
            num_layers=num_layers,
            ffn_channels=ffn_channels,
        )
        check_dropout("attention_dropout", attention_dropout)
        block = (hidden_channels, order, heads, ffn_channels, mlp_ratio, decay, activation, scale, attention_dropout)
        lazy = in_channels == -1
        self.input = nn.LazyLinear(hidden_channels) if lazy else nn.Linear(in_channels, hidden_channels)
        self.hidden_channels, self.out_channels = hidden_channels, out_channels
        self.order, self.num_layers, self.heads = order, num_layers, heads
        self.blocks = nn.ModuleList(PolyFormerBlock(*block) for _ in range(num_layers))
        self.readout = read_out(hidden_channels, out_channels, dropout)

    @property
    def in_channels(self) -> int:
        """Width of the tokens; -1 as long as the model has not seen any."""
        return -1 if self.input.in_features == 0 else self.input.in_features

    def reset_parameters(self) -> None:
        """Draw all parameters anew, as the constructor does; call ``to_empty`` before it on ``meta``."""
        reset_children(self)

    @classmethod
    def from_pretrained(cls, directory: str | Path) -> Self:
        """The module of a run of ``polyformer``, or of a saved classifier, with its weights, in evaluation mode.

        It gives outputs, not probabilities: one logit of two classes, C logits of more, or the value of a regression in
        the units in which it was trained. Tokens are those of the run's basis, order and scaled features.

        Example:
            >>> import polyformer as pf, tempfile
            >>> folder = f"{tempfile.mkdtemp()}/run"
            >>> small = {"basis": "monomial", "order": 2, "hidden_channels": 8, "epochs": 1}
            >>> run = pf.train("minefield:width=20,height=10", out=folder, **small)
            >>> model = pf.PolyFormer.from_pretrained(folder)
            >>> model(pf.compute_tokens(run.task().graph, basis="monomial", order=2)).shape
            torch.Size([200, 1])
        """
        arguments, weights = read_pretrained(directory)
        with torch.device("meta"):  # shapes without numbers: a config that claims wide layers costs no memory
            expected = cls(**arguments).state_dict()
        shapes = [{name: tensor.shape for name, tensor in part.items()} for part in (expected, weights)]
        if shapes[0] != shapes[1]:
            raise FileCorrupt(
                f"The weights in '{directory}' do not fit its config.json. They come from different runs."
            )
        module = cls(**arguments)
        module.load_state_dict(weights)
        return module.eval()

    def forward(self, tokens: Tensor) -> Tensor:
        first = cast(PolyFormerBlock, self.blocks[0])
        return self.encode(self.input(tokens), normalised_factors(tokens, self.input, first.attention_norm))

    def encode(self, hidden: Tensor, factors: Factors | None = None) -> Tensor:
        """From tokens that went through the input layer: (B, K+1, hidden) -> (B, out).

        Args:
            factors: the factors of the first block's normalised input, where it is a thin product.
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
        attention_ids = {id(parameter) for parameter in attention}
        return {"attention": attention, "rest": [p for p in self.parameters() if id(p) not in attention_ids]}
