from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from polyformer.bases import FixedBasis
from polyformer.errors import InvalidParameter
from polyformer.models.contract import with_own_rates
from polyformer.models.parts.token_filters import TokenFilterModel, TokenFilterSettings
from polyformer.nn.polyattn import PolyAttn
from polyformer.parameter_checks import check_not_negative, check_rates
from polyformer.settings import setting

__all__ = ["PolyAttnModel", "PolyAttnSettings"]


@dataclass(frozen=True)
class PolyAttnSettings(TokenFilterSettings):
    """Settings of the bare PolyAttn and of SelfAttn."""

    heads: int = setting(1, "heads of the attention; must divide hidden_channels")
    mlp_ratio: float = setting(1.0, "inner width of the order-wise MLPs, as a multiple of hidden_channels")
    decay: float = setting(2.0, "r: order j starts with the weight (j+1)^-r")
    scale: bool = setting(True, "divide scores by √d_head; the paper's text does not, its results do")
    attention_dropout: float = setting(0.0, "dropout on the attention scores")
    attention_lr: float | None = setting(None, "learning rate of the attention; lr by default")
    attention_weight_decay: float | None = setting(None, "weight decay of the attention; weight_decay by default")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rates(attention_lr=self.attention_lr)
        check_not_negative(attention_weight_decay=self.attention_weight_decay)


class PolyAttnModel(TokenFilterModel):
    r"""PolyAttn: one layer of node-wise filters, without the rest of a transformer.

    :math:`Z_i = \sum_k α_k^{(i)} (g_k(P) X)_i` with α from :class:`polyformer.nn.polyattn.PolyAttn`, then an MLP: the
    model that the paper compares with UniFilter; O((K+1)² N h). The search space is the paper's. The paper leaves out
    the dropout and the rates of the attention; they are searched over the same ranges.
    """

    settings_type = PolyAttnSettings
    activation: ClassVar[str] = "tanh"
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **TokenFilterModel.search_space,
        "attention_lr": TokenFilterModel.search_space["lr"],
        "attention_weight_decay": TokenFilterModel.search_space["weight_decay"],
        "attention_dropout": TokenFilterModel.search_space["dropout"],
        "mlp_ratio": (0.5, 1.0, 2.0),
    }

    def __init__(self, in_channels: int, out_channels: int, settings: PolyAttnSettings) -> None:
        super().__init__(in_channels, out_channels, settings)
        self.settings: PolyAttnSettings = settings
        self.attention = PolyAttn(
            settings.hidden_channels,
            self.order,
            settings.heads,
            mlp_ratio=settings.mlp_ratio,
            decay=settings.decay,
            activation=self.activation,
            scale=settings.scale,
            dropout=settings.attention_dropout,
        )

    def filter(self, hidden: Tensor) -> Tensor:
        return self.attention(hidden).sum(dim=1)

    def parameter_groups(self) -> list[dict[str, Any]]:
        attention, settings = self.attention.parameters(), self.settings
        return with_own_rates(self, attention, settings.attention_lr, settings.attention_weight_decay)

    @torch.no_grad()
    def frequency_response(self, lam: np.ndarray, nodes: Tensor | None = None) -> np.ndarray:
        """The filters of every node or of ``nodes``, head by head: (n,) -> (B·H, n)."""
        if not isinstance(self.basis, FixedBasis):
            raise InvalidParameter(
                f"The response of '{self.basis.name}' filters differs by feature column, which the first layer mixes. "
                f"Use a fixed basis."
            )
        alpha = self.filter_coefficients(self.nodes if nodes is None else nodes)  # (B, H, K+1)
        response = self.basis.response(np.asarray(lam, np.float64), self.order)
        return alpha.reshape(-1, alpha.shape[2]) @ response

    @property
    def filter_layers(self) -> int:
        """One."""
        return 1

    @torch.no_grad()
    def filter_coefficients(self, nodes: Tensor, layer: int = 0) -> np.ndarray:
        """α of the nodes: (B,) -> (B, H, K+1)."""
        return self.from_tokens(self.attention.filter_coefficients, nodes).cpu().numpy()
