from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from polyformer.baselines.convolutions import ConvolutionModel, ConvolutionSettings
from polyformer.graph import Graph
from polyformer.models.contract import Workload, bound
from polyformer.nn.checks import check_positive
from polyformer.nn.propagation import DifferentiableOperator
from polyformer.operators import Operator
from polyformer.progress import Share
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

    :math:`H' = \mathrm{ReLU}(\sum_{k=0}^K T_k(\hat L - I) H W_k)`, two layers with the weights of ``ChebConv`` (whose
    own K counts terms); O(K |E| h + K N d h). Defferrard et al., NeurIPS 2016. The search space is ours.
    """

    settings_type = ChebNetSettings
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {**ConvolutionModel.search_space, "order": (1, 2, 3)}

    def convolution(self, in_channels: int, out_channels: int, last: bool) -> nn.Module:
        return _Convolution(in_channels, out_channels, self.settings.order)

    def prepare(self, graph: Graph, workload: Workload, progress: Share | None) -> None:
        operator = DifferentiableOperator(Operator(graph))
        for layer in self.layers:
            cast(_Convolution, layer).operator = operator


class _Convolution(nn.Module):
    """``ChebConv`` with the weights first: T_k(M) (H W_k), in Clenshaw's order, propagates h columns instead of d."""

    def __init__(self, in_channels: int, out_channels: int, order: int) -> None:
        from torch_geometric.nn import ChebConv

        super().__init__()
        self.weights = ChebConv(in_channels, out_channels, order + 1)
        self.operator: DifferentiableOperator | None = None

    def forward(self, x: Tensor) -> Tensor:
        """(N, d) -> (N, h)."""
        operator = bound(self.operator)
        weight = torch.cat([linear.weight for linear in self.weights.lins])  # ((K+1) h, d)
        first, *others, here = (x @ weight.t()).chunk(len(self.weights.lins), dim=1)
        before = torch.zeros_like(here)
        for term in reversed(others):  # M = -P
            here, before = term - 2 * operator.product(here) - before, here
        return first - operator.product(here) - before + self.weights.bias
