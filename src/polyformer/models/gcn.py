from __future__ import annotations

from torch import nn

from polyformer.graph import Graph
from polyformer.models.contract import Workload
from polyformer.models.parts.convolutions import ConvolutionModel, ConvolutionSettings
from polyformer.models.parts.graph_layers import GraphConvolution, bind_operator
from polyformer.reporter import Reporter

__all__ = ["GCNModel"]


class GCNModel(ConvolutionModel):
    r"""GCN: layers of averaging over neighbours with symmetric normalisation.

    :math:`H' = \mathrm{ReLU}(\tilde A H W)` with :math:`\tilde A` normalised with self-loops, two layers of
    ``GCNConv``; O(|E| h + N d h). Kipf and Welling, ICLR 2017. The search space is ours.
    """

    settings_type = ConvolutionSettings

    def convolution(self, in_channels: int, out_channels: int, last: bool) -> nn.Module:
        return GraphConvolution(in_channels, out_channels)

    def prepare(self, graph: Graph, workload: Workload, reporter: Reporter) -> None:
        bind_operator(self, graph, self_loops=True)
