"""Classic convolutions made deep by normalisation and residual connections: strong after a careful search."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from polyformer.graph import Graph
from polyformer.models.contract import Workload
from polyformer.models.parts.full_graph import (
    COMMON_SPACE,
    FULL_BATCH,
    BaselineSettings,
    FullGraphModel,
    edge_tensor,
    require_message_memory,
)
from polyformer.models.parts.graph_layers import GraphConvolution, MeanConvolution, bind_mean, bind_operator
from polyformer.nn.functional import Dropout
from polyformer.nn.stage_functions import finish_stage
from polyformer.parameter_checks import check_heads, check_positive
from polyformer.reporter import Reporter
from polyformer.settings import setting

__all__ = ["DeepGATModel", "DeepGATSettings", "DeepGCNModel", "DeepSAGEModel", "DeepSettings"]

_NORMS: dict[str, type[nn.Module]] = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm, "none": nn.Identity}


@dataclass(frozen=True)
class DeepSettings(BaselineSettings):
    """Settings of the deep convolutions."""

    hidden_channels: int = setting(128, "width inside the model")
    num_layers: int = setting(4, "number of convolutions")
    norm: Literal["batch", "layer", "none"] = setting("layer", "normalisation after every convolution")
    residual: bool = setting(True, "add a Linear of a layer's input to its output")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(num_layers=self.num_layers)


class DeepModel(FullGraphModel):
    """H = dropout(ReLU(Linear(X))), then L layers H' = dropout(ReLU(Norm(conv(H) + H W))), Linear.

    A subclass is the convolution. After Luo, Shi and Wu, "Classic GNNs are strong baselines", NeurIPS 2024, where the
    first layer is optional and has no ReLU.
    """

    settings_type: ClassVar[type] = DeepSettings
    training_defaults: ClassVar[Mapping[str, Any]] = {**FULL_BATCH, "lr": 3e-3, "weight_decay": 0.0}
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **COMMON_SPACE,
        "hidden_channels": (64, 128, 256, 512),
        "num_layers": (2, 4, 6, 8, 10),
        "norm": ("batch", "layer", "none"),
        "residual": (False, True),
    }

    def __init__(self, in_channels: int, out_channels: int, settings: Any) -> None:
        super().__init__(in_channels, out_channels, settings)
        hidden, layers = settings.hidden_channels, range(settings.num_layers)
        self.input, self.output = nn.Linear(in_channels, hidden), nn.Linear(hidden, out_channels)
        self.convolutions = nn.ModuleList(self.convolution(hidden) for _ in layers)
        self.norms = nn.ModuleList(_NORMS[settings.norm](hidden) for _ in layers)
        self.shortcuts = nn.ModuleList(nn.Linear(hidden, hidden) for _ in layers if settings.residual)
        self.dropout = Dropout(settings.dropout)
        self.edges: tuple[Tensor, ...] = ()

    @abstractmethod
    def convolution(self, channels: int) -> nn.Module:
        """One layer: (N, channels) -> (N, channels)."""

    def prepare(self, graph: Graph, workload: Workload, reporter: Reporter) -> None:
        settings = self.settings
        require_message_memory(graph, settings.num_layers, settings.hidden_channels, workload)
        self.edges = (edge_tensor(graph),)

    def encode(self) -> Tensor:
        edges = [part.to(self.input.weight.device) for part in self.edges]
        hidden = self.dropout(self.features.linear(self.input).relu())
        for i, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            out = convolution(hidden, *edges)
            if self.settings.residual:
                out = out + self.shortcuts[i](hidden)
            hidden = finish_stage(out, None, norm, self.dropout.p, self.training)
        return self.output(hidden)


class DeepGCNModel(DeepModel):
    """Tuned GCN: GCNConv layers with normalisation, residual connections and depth.

    The search space is ours; O(L (|E| h + N h²)).
    """

    def convolution(self, channels: int) -> nn.Module:
        return GraphConvolution(channels, channels)

    def prepare(self, graph: Graph, workload: Workload, reporter: Reporter) -> None:
        bind_operator(self, graph, self_loops=True)


class DeepSAGEModel(DeepModel):
    """Tuned GraphSAGE: SAGEConv (mean) layers with normalisation, residual connections and depth.

    Hamilton, Ying and Leskovec, NeurIPS 2017, without sampling. It reads no edge weights. The search space is ours;
    O(L (|E| h + N h²)).
    """

    def convolution(self, channels: int) -> nn.Module:
        return MeanConvolution(channels, channels)

    def prepare(self, graph: Graph, workload: Workload, reporter: Reporter) -> None:
        bind_mean(self, graph)


@dataclass(frozen=True)
class DeepGATSettings(DeepSettings):
    """Settings of the deep GAT."""

    heads: int = setting(4, "heads of the attention; must divide hidden_channels")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self.heads, hidden_channels=self.hidden_channels)


class DeepGATModel(DeepModel):
    """Tuned GAT: GATConv layers with normalisation, residual connections and depth.

    The heads share the width of the layer and see the node itself; in the original each has the full width and no
    self-loop. It reads no edge weights. The search space is ours; O(L (|E| h + N h²)).
    """

    settings_type = DeepGATSettings
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {**DeepModel.search_space, "heads": (1, 4, 8)}

    def convolution(self, channels: int) -> nn.Module:
        from torch_geometric.nn import GATConv

        return GATConv(channels, channels // self.settings.heads, self.settings.heads)
