"""Stacks of one of PyTorch Geometric's convolutions, as their papers stack them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional

from polyformer.models.parts.full_graph import COMMON_SPACE, BaselineSettings, FullGraphModel
from polyformer.parameter_checks import check_positive
from polyformer.settings import setting

__all__ = ["ConvolutionModel", "ConvolutionSettings"]


@dataclass(frozen=True)
class ConvolutionSettings(BaselineSettings):
    """Settings of every stack of convolutions."""

    num_layers: int = setting(2, "number of convolutions")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(num_layers=self.num_layers)


class ConvolutionModel(FullGraphModel):
    """Convolutions with an activation and dropout between them.

    Attributes:
        edges: the edges, which a layer takes besides x.
    """

    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {**COMMON_SPACE, "num_layers": (1, 2, 3)}

    def __init__(self, in_channels: int, out_channels: int, settings: Any) -> None:
        super().__init__(in_channels, out_channels, settings)
        widths = [in_channels, *[settings.hidden_channels] * (settings.num_layers - 1), out_channels]
        count = settings.num_layers
        self.layers = nn.ModuleList(self.convolution(widths[i], widths[i + 1], i == count - 1) for i in range(count))
        self.edges: tuple[Tensor, ...] = ()

    @abstractmethod
    def convolution(self, in_channels: int, out_channels: int, last: bool) -> nn.Module:
        """One layer."""

    def activation(self, x: Tensor) -> Tensor:
        """The activation between layers."""
        return x.relu()

    def encode(self) -> Tensor:
        device = next(self.parameters()).device
        edges = [part.to(device) for part in self.edges]
        hidden = self.features.to_torch(self.drop(self.settings.dropout)).to(device)
        for i, layer in enumerate(self.layers):
            if i:
                hidden = functional.dropout(self.activation(hidden), self.settings.dropout, self.training)
            hidden = layer(hidden, *edges)
        return hidden
