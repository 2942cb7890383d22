from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from polyformer.errors import InvalidParameter
from polyformer.graph import Graph
from polyformer.models.contract import Workload, bound
from polyformer.models.parts.full_graph import COMMON_SPACE, BaselineSettings, FullGraphModel
from polyformer.operators import Operator
from polyformer.parameter_checks import check_positive
from polyformer.propagation.differentiable import DifferentiableOperator
from polyformer.reporter import Reporter
from polyformer.settings import setting

__all__ = ["SGFormerModel", "SGFormerSettings", "linear_attention"]


def linear_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    r"""Attention of all nodes to all in linear time: (N, H, d), (N, H, d), (N, H, c) -> (N, H, c).

    :math:`(N V + \hat Q (\hat K^T V)) / (N + \hat Q (\hat K^T 1))` per head, with :math:`\hat Q, \hat K` divided by
    their Frobenius norms over the whole tensors.
    """
    count = len(query)
    query, key = query / query.norm().clamp_min(1e-12), key / key.norm().clamp_min(1e-12)
    context = torch.einsum("nhd,nhc->hdc", key, value)
    numerator = count * value + torch.einsum("nhd,hdc->nhc", query, context)
    denominator = count + torch.einsum("nhd,hd->nh", query, key.sum(dim=0))
    return numerator / denominator[..., None]


@dataclass(frozen=True)
class SGFormerSettings(BaselineSettings):
    """Settings of SGFormer."""

    num_layers: int = setting(2, "number of GCN layers; the attention is always one layer")
    heads: int = setting(1, "heads of the attention, each of the full width, averaged")
    residual: float = setting(0.5, "α: weight of the attention's output; its input has the weight 1 - α")
    graph_weight: float = setting(0.8, "w: weight of the GCN; the attention has the weight 1 - w")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(num_layers=self.num_layers, heads=self.heads)
        for name in ("residual", "graph_weight"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidParameter(f"'{name}' must lie in [0, 1]. Got {getattr(self, name)}.")


class SGFormerModel(FullGraphModel):
    r"""SGFormer: one layer of linear attention to all nodes, added to a GCN.

    :math:`Z = (w\, \mathrm{GCN}(X) + (1-w)\, T) W`, where T is LayerNorm of α·attention + (1 - α)·input and attention
    is :func:`linear_attention`, heads averaged; the norms are over the whole tensors, as in the paper's formula
    (PyTorch Geometric's ``SGFormer`` normalises row by row). O(|E| h + N h²). Wu et al., NeurIPS 2023. The search space
    is ours.
    """

    settings_type = SGFormerSettings
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **COMMON_SPACE,
        "num_layers": (1, 2, 3),
        "graph_weight": (0.2, 0.5, 0.8),
    }

    def __init__(self, in_channels: int, out_channels: int, settings: SGFormerSettings) -> None:
        super().__init__(in_channels, out_channels, settings)
        hidden, heads = settings.hidden_channels, settings.heads
        self.attention_input, self.attention_norm = nn.Linear(in_channels, hidden), nn.LayerNorm(hidden)
        self.query, self.key, self.value = (nn.Linear(hidden, heads * hidden) for _ in range(3))
        self.out_norm = nn.LayerNorm(hidden)
        self.graph_input = nn.Linear(in_channels, hidden)
        self.graph_layers = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(settings.num_layers))
        self.graph_norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in range(settings.num_layers + 1))
        self.output = nn.Linear(hidden, out_channels)
        self._operator: DifferentiableOperator | None = None

    def prepare(self, graph: Graph, workload: Workload, reporter: Reporter) -> None:
        self._operator = DifferentiableOperator(Operator(graph, self_loops=True))

    def encode(self) -> Tensor:
        weight = self.settings.graph_weight
        return self.output(weight * self._graph_branch() + (1 - weight) * self._attention_branch())

    def _attention_branch(self) -> Tensor:
        hidden = self._drop(self.attention_norm(self._project(self.attention_input)).relu())
        parts = (layer(hidden).unflatten(1, (self.settings.heads, -1)) for layer in (self.query, self.key, self.value))
        attended = linear_attention(*parts).mean(dim=1)  # (N, h)
        mixed = self.settings.residual * attended + (1 - self.settings.residual) * hidden
        return self._drop(self.out_norm(mixed))

    def _graph_branch(self) -> Tensor:
        first, *norms = self.graph_norms
        hidden = self._drop(first(self._project(self.graph_input)).relu())
        for layer, norm in zip(self.graph_layers, norms, strict=True):
            hidden = self._drop(norm(bound(self._operator).product(layer(hidden))).relu()) + hidden
        return hidden

    def _project(self, layer: nn.Linear) -> Tensor:
        return self.features.linear(layer, self.drop(self.settings.dropout))

    def _drop(self, x: Tensor) -> Tensor:
        return functional.dropout(x, self.settings.dropout, self.training)
