from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from polyformer.errors import InvalidParameter
from polyformer.graph import Graph
from polyformer.machine import require_memory
from polyformer.models.contract import Workload
from polyformer.models.parts.full_graph import (
    COMMON_SPACE,
    FULL_BATCH,
    BaselineSettings,
    FullGraphModel,
    edge_tensor,
    require_message_memory,
)
from polyformer.models.parts.graph_layers import GraphConvolution, bind_operator
from polyformer.nn.functional import Dropout
from polyformer.parameter_checks import check_at_least, check_dropout, check_heads, check_positive
from polyformer.reporter import Reporter
from polyformer.settings import setting

__all__ = ["PolynormerModel", "PolynormerSettings"]


@dataclass(frozen=True)
class PolynormerSettings(BaselineSettings):
    """Settings of Polynormer."""

    num_layers: int = setting(7, "number of local layers")
    global_layers: int = setting(2, "number of global layers")
    heads: int = setting(4, "heads of both attentions; must divide hidden_channels")
    local_attention: bool = setting(True, "attention to neighbours in the local layers, else a GCN convolution")
    beta: float = setting(0.9, "β: share of a layer's output that is not multiplied by its gate")
    local_epochs: int = setting(100, "so many training steps without the global layers")
    input_dropout: float = setting(0.15, "dropout on features")
    global_dropout: float = setting(0.5, "dropout in the global layers")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(num_layers=self.num_layers, global_layers=self.global_layers)
        check_heads(self.heads, hidden_channels=self.hidden_channels)
        check_at_least(0, local_epochs=self.local_epochs)
        check_dropout("input_dropout", self.input_dropout)
        check_dropout("global_dropout", self.global_dropout)
        if not 0 <= self.beta <= 1:
            raise InvalidParameter(f"'beta' must lie in [0, 1]. Got {self.beta}.")


class LocalLayer(nn.Module):
    r"""X' = drop(ReLU(BN(conv(X) + X W))), then (1 - β) LN(ReLU(X W_h) ⊙ X') + β X': (N, C) -> (N, C)."""

    def __init__(self, channels: int, heads: int, attention: bool, beta: float, dropout: float) -> None:
        from torch_geometric.nn import GATConv

        super().__init__()
        self.gate, self.shortcut = nn.Linear(channels, channels), nn.Linear(channels, channels, bias=False)
        self.convolution: nn.Module = GraphConvolution(channels, channels)
        if attention:
            self.convolution = GATConv(channels, channels // heads, heads, add_self_loops=False, bias=False)
        else:
            self.convolution.weights.bias = None  # BN takes the mean away, and with it any bias
        self.batch_norm, self.norm = nn.BatchNorm1d(channels), nn.LayerNorm(channels)
        self.dropout, self.beta = Dropout(dropout), beta

    def forward(self, x: Tensor, *edges: Tensor) -> Tensor:
        gate = self.gate(x).relu()
        x = self.dropout(self.batch_norm(self.convolution(x, *edges) + self.shortcut(x)).relu())
        return (1 - self.beta) * self.norm(gate * x) + self.beta * x


class GlobalLayer(nn.Module):
    r"""Attention of all nodes to all in linear time, multiplied by a gate: (N, C) -> (N, C).

    :math:`A = σ(Q) (σ(K)^T V) / (σ(Q) (σ(K)^T 1))` per head, then drop(ReLU((LN(A) ⊙ (X W_h + b + β)) W)).
    """

    def __init__(self, channels: int, heads: int, beta: float, dropout: float) -> None:
        super().__init__()
        self.heads, self.beta = heads, beta
        self.gate, self.out = nn.Linear(channels, channels), nn.Linear(channels, channels)
        self.query_key_value = nn.Linear(channels, 3 * channels, bias=False)
        self.norm, self.dropout = nn.LayerNorm(channels), Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.query_key_value(x).unflatten(1, (3, self.heads, -1)).unbind(1)  # (N, H, d)
        query, key = query.sigmoid(), key.sigmoid()
        context = torch.einsum("nhd,nhc->hdc", key, value)
        mixed = torch.einsum("nhd,hdc->nhc", query, context)
        total = torch.einsum("nhd,hd->nh", query, key.sum(dim=0))
        attended = (mixed / (total[..., None] + 1e-6)).flatten(1)
        return self.dropout(self.out(self.norm(attended) * (self.gate(x) + self.beta)).relu())


class PolynormerModel(FullGraphModel):
    r"""Polynormer: local attention in layers that multiply, then linear attention to all nodes.

    The outputs of all local layers are summed. The first ``local_epochs`` steps train the local layers with an output
    of their own; from then on the global layers stand behind their sum, and the local output rests. The number of
    steps is part of the state, so a model predicts with the layers that it was trained with. All heads together are as
    wide as the layer; published, each is. Deng, Yue and Zhang, ICLR 2024. O(L (|E| h + N h²)). The search space is
    ours.
    """

    settings_type = PolynormerSettings
    training_defaults: ClassVar[Mapping[str, Any]] = {**FULL_BATCH, "lr": 1e-3, "weight_decay": 0.0, "patience": 200}
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **COMMON_SPACE,
        "num_layers": (3, 5, 7, 10),
        "global_layers": (1, 2, 3),
        "local_attention": (True, False),
        "local_epochs": (50, 100, 200),
        "input_dropout": (0.0, 0.15, 0.3),
        "global_dropout": (0.0, 0.3, 0.5),
    }
    steps: Tensor

    def __init__(self, in_channels: int, out_channels: int, settings: PolynormerSettings) -> None:
        super().__init__(in_channels, out_channels, settings)
        hidden, heads, beta = settings.hidden_channels, settings.heads, settings.beta
        local = (hidden, heads, settings.local_attention, beta, settings.dropout)
        self.input = nn.Linear(in_channels, hidden)
        self.local_layers = nn.ModuleList(LocalLayer(*local) for _ in range(settings.num_layers))
        self.norm = nn.LayerNorm(hidden)
        self.global_layers = nn.ModuleList(
            GlobalLayer(hidden, heads, beta, settings.global_dropout) for _ in range(settings.global_layers)
        )
        self.local_output, self.global_output = nn.Linear(hidden, out_channels), nn.Linear(hidden, out_channels)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.edges: tuple[Tensor, ...] = ()

    def prepare(self, graph: Graph, workload: Workload, reporter: Reporter) -> None:
        settings = self.settings
        if settings.local_attention:
            require_message_memory(graph, settings.num_layers, settings.hidden_channels, workload)
            self.edges = (edge_tensor(graph),)
        else:
            bind_operator(self, graph, self_loops=True)
        size = 4.0 * graph.num_nodes * settings.hidden_channels * 10 * (settings.num_layers + settings.global_layers)
        require_memory("The layers", size, "Lower num_layers or hidden_channels.", workload.memory)

    def outputs_and_penalty(self, nodes: Tensor) -> tuple[Tensor, Tensor | None]:
        outputs = self(nodes)
        self.steps += 1
        return outputs, None

    def encode(self) -> Tensor:
        settings, device = self.settings, self.input.weight.device
        edges = [part.to(device) for part in self.edges]
        hidden = self.features.linear(self.input, self.drop(settings.input_dropout))
        hidden = functional.dropout(hidden, settings.dropout, self.training)
        local = torch.zeros_like(hidden)
        for layer in self.local_layers:
            hidden = layer(hidden, *edges)
            local = local + hidden
        if self.steps < settings.local_epochs:
            return self.local_output(local)
        hidden = self.norm(local)
        for layer in self.global_layers:
            hidden = layer(hidden)
        return self.global_output(hidden)
