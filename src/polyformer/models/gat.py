from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional

from polyformer.graph import Graph
from polyformer.models.contract import Workload
from polyformer.models.parts.convolutions import ConvolutionModel, ConvolutionSettings
from polyformer.models.parts.full_graph import edge_tensor, require_message_memory
from polyformer.models.parts.graph_layers import GraphAttention
from polyformer.parameter_checks import check_dropout, check_heads
from polyformer.reporter import Reporter
from polyformer.settings import setting

__all__ = ["GATModel", "GATSettings"]


@dataclass(frozen=True)
class GATSettings(ConvolutionSettings):
    """Settings of GAT."""

    heads: int = setting(8, "heads of all layers but the last; must divide hidden_channels")
    attention_dropout: float = setting(0.5, "dropout on the attention weights")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self.heads, hidden_channels=self.hidden_channels)
        check_dropout("attention_dropout", self.attention_dropout)


class GATModel(ConvolutionModel):
    r"""GAT: layers of attention over the neighbours and the node itself.

    :math:`h_i' = \sum_j \mathrm{softmax}_j(\mathrm{LeakyReLU}(a^T [W h_i \| W h_j])) W h_j`, heads concatenated, ELU
    between layers, one head in the last; two layers of ``GATConv``, which reads no edge weights; O(|E| h + N d h).
    Veličković et al., ICLR 2018. The search space is ours.
    """

    settings_type = GATSettings
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **ConvolutionModel.search_space,
        "heads": (1, 4, 8),
        "attention_dropout": (0.0, 0.3, 0.6),
    }

    def convolution(self, in_channels: int, out_channels: int, last: bool) -> nn.Module:
        heads = 1 if last else self.settings.heads
        return GraphAttention(in_channels, out_channels // heads, heads, dropout=self.settings.attention_dropout)

    def activation(self, x: Tensor) -> Tensor:
        return functional.elu(x)

    def prepare(self, graph: Graph, workload: Workload, reporter: Reporter) -> None:
        settings = self.settings
        require_message_memory(graph, settings.num_layers, settings.hidden_channels, workload)
        self.edges = (edge_tensor(graph),)
