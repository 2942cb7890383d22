"""Models of one Linear, a filter of each node's tokens and a read-out; they differ by the filter only."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from polyformer.models.parts.spectral_token_model import SpectralTokenModel
from polyformer.models.parts.token_reader import TokenSettings
from polyformer.nn.readout import read_out
from polyformer.parameter_checks import check_dropout, check_positive
from polyformer.settings import setting

__all__ = ["TokenFilterModel", "TokenFilterSettings"]


@dataclass(frozen=True)
class TokenFilterSettings(TokenSettings):
    """Settings of every filter of tokens."""

    hidden_channels: int = setting(64, "width inside the model")
    dropout: float = setting(0.5, "dropout in the read-out")

    def __post_init__(self) -> None:
        check_positive(hidden_channels=self.hidden_channels)
        check_dropout("dropout", self.dropout)


class TokenFilterModel(SpectralTokenModel):
    """Linear on every token, a filter, then dropout - Linear - ReLU - dropout - Linear. A subclass writes the filter.

    The search space is the paper's for PolyAttn and UniFilter.
    """

    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "hidden_channels": (16, 32, 64, 128, 256),
        "lr": (5e-5, 2e-4, 1e-3, 1e-2),
        "weight_decay": (0.0, 1e-5, 1e-4, 5e-4, 1e-3),
        "dropout": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    }

    def __init__(self, in_channels: int, out_channels: int, settings: Any) -> None:
        super().__init__(in_channels, out_channels, settings)
        hidden = settings.hidden_channels
        self.first = nn.Linear(in_channels, hidden)
        self.readout = read_out(hidden, out_channels, settings.dropout)

    @property
    def input(self) -> nn.Linear:
        return self.first

    @abstractmethod
    def filter(self, hidden: Tensor) -> Tensor:
        """(B, K+1, hidden) -> (B, hidden)."""

    def encode(self, hidden: Tensor) -> Tensor:
        return self.readout(self.filter(hidden))
