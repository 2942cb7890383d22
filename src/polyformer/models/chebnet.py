from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from polyformer.graph import Graph
from polyformer.models.contract import Workload
from polyformer.models.parts.convolutions import ConvolutionModel, ConvolutionSettings
from polyformer.models.parts.graph_layers import ChebyshevConvolution, bind_operator
from polyformer.parameter_checks import check_positive
from polyformer.reporter import Reporter
from polyformer.settings import setting

__all__ = ["ChebNetModel", "ChebNetSettings"]


@dataclass(frozen=True)
class ChebNetSettings(ConvolutionSettings):
    """Settings of ChebNet."""

    order: int = setting(2, "K of each convolution: terms T_0, …, T_K")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(order=self.order)


class ChebNetModel(ConvolutionModel):
    r"""ChebNet: layers of Chebyshev polynomials of the Laplacian with a matrix for each order.

    :math:`H' = \mathrm{ReLU}(\sum_{k=0}^K T_k(\hat L - I) H W_k)`, two layers with the weights of ``ChebConv``
    (where K counts terms, not degrees); O(K |E| h + K N d h). Defferrard et al., NeurIPS 2016. The search space is
    ours.
    """

    settings_type = ChebNetSettings
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {**ConvolutionModel.search_space, "order": (1, 2, 3)}

    def convolution(self, in_channels: int, out_channels: int, last: bool) -> nn.Module:
        return ChebyshevConvolution(in_channels, out_channels, self.settings.order)

    def prepare(self, graph: Graph, workload: Workload, reporter: Reporter) -> None:
        bind_operator(self, graph)
