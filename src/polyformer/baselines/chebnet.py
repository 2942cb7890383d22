from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from polyformer.baselines.convolutions import ConvolutionModel, ConvolutionSettings
from polyformer.baselines.full_graph import edge_tensors
from polyformer.graph import Graph
from polyformer.machine import require_memory
from polyformer.models.contract import Workload
from polyformer.nn.checks import check_positive
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

    :math:`H' = \mathrm{ReLU}(\sum_{k=0}^K T_k(\hat L - I) H W_k)`, two layers of ``ChebConv`` (whose own K counts
    terms); O(K |E| d + K N d h). The first layer propagates the features as they are, which is heavy where they are
    wide. Defferrard et al., NeurIPS 2016. The search space is ours.
    """

    settings_type = ChebNetSettings
    dense_features = True
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {**ConvolutionModel.search_space, "order": (1, 2, 3)}

    def convolution(self, in_channels: int, out_channels: int, last: bool) -> nn.Module:
        from torch_geometric.nn import ChebConv

        return ChebConv(in_channels, out_channels, self.settings.order + 1)

    def prepare(self, graph: Graph, workload: Workload, progress: Share | None) -> None:
        # Messages along every edge, and the terms that are kept for the gradient.
        entries = 2 * len(graph.indices) + (self.settings.order + 3) * graph.num_nodes
        advice = "ChebConv propagates all features: use chebnetii, which propagates class scores."
        require_memory("ChebNet's first layer", 4 * entries * graph.num_features, advice, workload.memory)
        self.edges = edge_tensors(graph)
