"""PolyFormer under the training contract: settings, network, parameter groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from polyformer.models.contract import evaluating, with_own_rates
from polyformer.models.parts.spectral_token_model import SpectralTokenModel
from polyformer.models.parts.token_reader import TokenSettings
from polyformer.nn.polyformer import PolyFormer
from polyformer.parameter_checks import check_not_negative, check_rates
from polyformer.settings import setting

__all__ = ["PolyFormerModel", "PolyFormerSettings"]

_LEARNING_RATES = (5e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2)
_WEIGHT_DECAYS = (0.0, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
_DROPOUTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class PolyFormerSettings(TokenSettings):
    """Settings of PolyFormer. The defaults were chosen by validation scores on graphs that nobody tuned for.

    Legendre tokens are the default because all of them are 1 at λ = 0: their sum, with which the read-out begins, is
    large where neighbours are alike, and training need not discover that. Chebyshev tokens of L̂ - I change their sign
    from order to order there, so that their sum begins near 0: with few labels this costs twenty points on Cora.
    """

    basis: str | dict[str, Any] = setting("legendre", "polynomial basis of the tokens; see `polyformer bases`")
    num_layers: int = setting(1, "number of blocks")
    heads: int = setting(8, "heads of each PolyAttn; must divide hidden_channels")
    ffn_channels: int | None = setting(None, "inner width of the feed-forward networks; hidden_channels by default")
    mlp_ratio: float = setting(1.0, "inner width of the order-wise MLPs, as a multiple of hidden_channels")
    decay: float = setting(2.0, "r: order j starts with the weight (j+1)^-r")
    dropout: float = setting(0.5, "dropout in the read-out")
    attention_dropout: float = setting(0.5, "dropout in the blocks")
    activation: Literal["tanh", "softmax"] = setting("tanh", "activation of the scores; softmax: the paper's ablation")
    scale: bool = setting(True, "divide scores by √d_head; the paper's text does not, its results do")
    attention_lr: float | None = setting(None, "learning rate of the attention group; lr by default")
    attention_weight_decay: float | None = setting(None, "weight decay of the attention group; weight_decay by default")

    def __post_init__(self) -> None:
        check_rates(attention_lr=self.attention_lr)
        check_not_negative(attention_weight_decay=self.attention_weight_decay)


class PolyFormerModel(SpectralTokenModel):
    """PolyFormer: a transformer of node-wise polynomial filters over each node's tokens.

    See :class:`polyformer.nn.polyformer.PolyFormer`. The search space is the paper's, for large graphs too.
    The paper's space leaves out the rates and the dropout of the attention group, which its published settings use;
    both are searched over the same ranges, the dropout on large graphs also over the published values.

    With few labels the defaults are others. In a sparse graph most eigenvalues of P are far from ±1. There tokens of an
    orthogonal basis keep a part of the noise at every order, by which a wide model tells its few training nodes apart
    without learning their classes; monomial tokens leave only what neighbours share. An epoch is one optimiser step or
    two, so steps are larger and patience is longer.

    Which of the two suits a graph between few and many labels, and whether few labels want a strong decay and a wide
    neighbourhood, only the graph can tell: a run without settings tries both.
    """

    settings_type = PolyFormerSettings
    few_label_defaults: ClassVar[Mapping[str, Any]] = {
        "basis": "monomial",
        "order": 4,
        "hidden_channels": 64,
        "lr": 5e-3,
        "weight_decay": 5e-4,
        "patience": 100,
    }
    alternatives: ClassVar[Sequence[Mapping[str, Any]]] = (few_label_defaults,)
    few_label_alternatives: ClassVar[Sequence[Mapping[str, Any]]] = ({"order": 10, "lr": 1e-3, "weight_decay": 2e-2},)
    exact_filter = False  # residual connections and LayerNorm stand beside the filter
    search_space: ClassVar[dict[str, tuple[Any, ...]]] = {
        "order": (2, 4, 6, 8, 10, 12, 14),
        "num_layers": (1, 2, 3, 4),
        "heads": (1, 2, 4, 8, 16),
        "hidden_channels": (16, 32, 64, 128, 256),
        "ffn_channels": (32, 64, 128, 256, 512),
        "lr": _LEARNING_RATES,
        "attention_lr": _LEARNING_RATES,
        "weight_decay": _WEIGHT_DECAYS,
        "attention_weight_decay": _WEIGHT_DECAYS,
        "dropout": _DROPOUTS,
        "attention_dropout": _DROPOUTS,
        "decay": (1.0, 1.2, 1.4, 1.6, 1.8, 2.0),
        "mlp_ratio": (0.5, 1.0, 2.0),
    }
    large_search_space: ClassVar[dict[str, tuple[Any, ...]]] = {
        "order": (4, 8, 10),
        "num_layers": (1, 2),
        "heads": (1, 4, 8),
        "hidden_channels": (128, 512, 1024),
        "ffn_channels": (512, 1024),
        "lr": (5e-5, 2e-4, 1e-2),
        "attention_lr": (5e-5, 2e-4, 1e-2),
        "weight_decay": (0.0, 5e-5, 5e-4, 1e-3),
        "attention_weight_decay": (0.0, 5e-5, 5e-4, 1e-3),
        "dropout": (0.0, 0.25, 0.4, 0.5),
        "attention_dropout": (0.0, 0.25, 0.4, 0.5, 0.6, 0.8),
        "decay": (1.0, 2.0),
        "mlp_ratio": (0.5, 1.0),
        "batch_size": (10_000, 20_000, 50_000),
    }

    def __init__(self, in_channels: int, out_channels: int, settings: PolyFormerSettings) -> None:
        super().__init__(in_channels, out_channels, settings)
        self.settings: PolyFormerSettings = settings
        self.depth = settings.num_layers
        self.network = PolyFormer(
            in_channels,
            settings.hidden_channels,
            out_channels,
            self.order,
            num_layers=settings.num_layers,
            heads=settings.heads,
            ffn_channels=settings.ffn_channels,
            mlp_ratio=settings.mlp_ratio,
            decay=settings.decay,
            dropout=settings.dropout,
            attention_dropout=settings.attention_dropout,
            activation=settings.activation,
            scale=settings.scale,
        )

    @property
    def input(self) -> nn.Linear:
        return self.network.input

    def encode(self, hidden: Tensor) -> Tensor:
        return self.network.encode(hidden)

    def encode_tokens(self, tokens: Tensor) -> Tensor:
        return self.network(tokens)

    @property
    def filter_layers(self) -> int:
        """The number of blocks, each of which has a PolyAttn."""
        return self.depth

    @torch.no_grad()
    def filter_coefficients(self, nodes: Tensor, layer: int = 0) -> np.ndarray:
        """α of the nodes in the given layer: (B,) -> (B, H, K+1)."""
        with evaluating(self):
            return self.from_tokens(lambda hidden: self.network.filter_coefficients(hidden, layer), nodes).cpu().numpy()

    def parameter_groups(self) -> list[dict[str, Any]]:
        attention, settings = self.network.parameter_groups()["attention"], self.settings
        return with_own_rates(self, attention, settings.attention_lr, settings.attention_weight_decay)
