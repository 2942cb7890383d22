from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from polyformer.feature_scaling import ScaledFeatures
from polyformer.graph import Graph
from polyformer.models.contract import Workload
from polyformer.models.parts.encodings import laplacian_encoding
from polyformer.models.parts.layers import TransformerBlock
from polyformer.models.parts.token_model import TokenModel, TokenSettings
from polyformer.models.token_function import TokenFunction
from polyformer.parameter_checks import check_at_least, check_dropout, check_heads, check_positive
from polyformer.reporter import SILENT, Reporter
from polyformer.settings import setting

__all__ = ["NAGphormerModel", "NAGphormerSettings"]


@dataclass(frozen=True)
class NAGphormerSettings(TokenSettings):
    """Settings of NAGphormer."""

    basis: str | dict[str, Any] = setting("monomial", "basis of the tokens; monomial gives the hops of the paper")
    order: int = setting(7, "K: hops 0, …, K")
    self_loops: bool = setting(True, "use the operator of A + I")
    num_layers: int = setting(1, "number of blocks")
    heads: int = setting(8, "heads of the attention; must divide hidden_channels")
    positional_channels: int = setting(8, "number of Laplacian eigenvectors beside the features; 0 for none")
    dropout: float = setting(0.1, "dropout in the blocks")
    attention_dropout: float = setting(0.1, "dropout on the attention weights")

    def __post_init__(self) -> None:
        check_positive(num_layers=self.num_layers)
        check_at_least(2, hidden_channels=self.hidden_channels)
        check_at_least(0, positional_channels=self.positional_channels)
        check_heads(self.heads, hidden_channels=self.hidden_channels)
        check_dropout("dropout", self.dropout)
        check_dropout("attention_dropout", self.attention_dropout)


class NAGphormerModel(TokenModel):
    r"""NAGphormer: a transformer over each node's hops, read out by attention to the node itself.

    Tokens :math:`\tilde A^k [X \| E]`, k = 0, …, K, with Laplacian eigenvectors E; Linear, L pre-norm blocks,
    LayerNorm; then :math:`x_0 + \sum_{k \ge 1} \mathrm{softmax}_k(a^T [x_0 \| x_k])\, x_k` and Linear - ReLU - Linear.
    O(K² N h) in mini-batches. Chen et al., ICLR 2023. The search space is ours.
    """

    settings_type = NAGphormerSettings
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "lr": (5e-4, 1e-3, 5e-3),
        "weight_decay": (0.0, 1e-5, 1e-4),
        "dropout": (0.1, 0.3, 0.5),
        "hidden_channels": (128, 256, 512),
        "order": (2, 3, 7, 10),
        "num_layers": (1, 2, 3),
        "positional_channels": (3, 8, 15),
    }

    def __init__(self, in_channels: int, out_channels: int, settings: NAGphormerSettings) -> None:
        super().__init__(in_channels, out_channels, settings)
        self.positional_channels = settings.positional_channels
        hidden = settings.hidden_channels
        block = (hidden, settings.heads, 2 * hidden, settings.dropout, settings.attention_dropout)
        self.first = nn.Linear(in_channels + settings.positional_channels, hidden)
        self.depth = settings.num_layers
        self.blocks = nn.Sequential(*(TransformerBlock(*block) for _ in range(settings.num_layers)))
        self.norm = nn.LayerNorm(hidden)
        self.hop_attention = nn.Linear(2 * hidden, 1, bias=False)
        self.readout = nn.Sequential(nn.Linear(hidden, hidden // 2), nn.ReLU(), nn.Linear(hidden // 2, out_channels))

    @property
    def input(self) -> nn.Linear:
        return self.first

    @property
    def propagates_features(self) -> bool:
        return not self.positional_channels

    def on_tokens(self, name: str) -> TokenFunction:
        return replace(super().on_tokens(name), encoding_channels=self.positional_channels)

    def token_graph(self, graph: Graph, workload: Workload, reporter: Reporter = SILENT) -> Graph:
        features = self.features_of(graph)
        if not self.positional_channels:
            return graph
        encoding = laplacian_encoding(graph, self.positional_channels, workload, reporter)
        if isinstance(features, np.ndarray | ScaledFeatures):
            return graph.with_features(np.hstack([np.asarray(features), encoding]))
        return graph.with_features(sp.hstack([features, sp.csr_matrix(encoding)], format="csr"))

    def encode(self, hidden: Tensor) -> Tensor:
        hops = self.norm(self.blocks(hidden))  # (B, K+1, h)
        node, others = hops[:, :1], hops[:, 1:]
        pairs = torch.cat([node.expand_as(others), others], dim=-1)
        weights = self.hop_attention(pairs).softmax(dim=1)  # (B, K, 1)
        return self.readout(node[:, 0] + (weights * others).sum(dim=1))
