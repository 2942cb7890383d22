from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from polyformer.graph import Graph
from polyformer.machine import require_memory
from polyformer.models.contract import Workload
from polyformer.models.parts.full_graph import COMMON_SPACE, FULL_BATCH, BaselineSettings, FullGraphModel
from polyformer.models.parts.layers import TransformerBlock
from polyformer.parameter_checks import check_dropout, check_heads, check_positive
from polyformer.reporter import Reporter
from polyformer.settings import setting

__all__ = ["TransformerModel", "TransformerSettings"]


@dataclass(frozen=True)
class TransformerSettings(BaselineSettings):
    """Settings of the Transformer."""

    num_layers: int = setting(2, "number of blocks")
    heads: int = setting(4, "heads of the attention; must divide hidden_channels")
    attention_dropout: float = setting(0.0, "dropout on the attention weights; needs the N × N weights in memory")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(num_layers=self.num_layers)
        check_heads(self.heads, hidden_channels=self.hidden_channels)
        check_dropout("attention_dropout", self.attention_dropout)


class TransformerModel(FullGraphModel):
    r"""Transformer: full self-attention of every node to all nodes, blind to the edges.

    Linear, L pre-norm blocks :math:`\mathrm{softmax}(QK^T/\sqrt{d}) V` with FFN, LayerNorm, Linear; O(L N² h) time, and
    O(L H N²) memory if the weights have dropout (without dropout, the fused kernel never holds them). Vaswani et al.,
    NeurIPS 2017. The search space is ours.
    """

    settings_type = TransformerSettings
    compares_all_nodes = True
    training_defaults: ClassVar[Mapping[str, Any]] = {**FULL_BATCH, "lr": 1e-3}
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **COMMON_SPACE,
        "lr": (1e-4, 5e-4, 1e-3, 5e-3),
        "num_layers": (1, 2, 3),
        "heads": (1, 4, 8),
    }

    def __init__(self, in_channels: int, out_channels: int, settings: TransformerSettings) -> None:
        super().__init__(in_channels, out_channels, settings)
        hidden = settings.hidden_channels
        block = (hidden, settings.heads, 2 * hidden, settings.dropout, settings.attention_dropout)
        self.input = nn.Linear(in_channels, hidden)
        self.blocks = nn.Sequential(*(TransformerBlock(*block) for _ in range(settings.num_layers)))
        self.output = nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, out_channels))

    def prepare(self, graph: Graph, workload: Workload, reporter: Reporter) -> None:
        require_memory(
            f"Attention of {graph.num_nodes:,} nodes to each other",
            self.memory_needed(graph.num_nodes),
            "Set attention_dropout=0 and fewer layers, or use a model that is linear in the nodes, e.g. sgformer.",
            workload.memory,
        )

    def memory_needed(self, num_nodes: int) -> int:
        """Bytes that a training step holds, roughly."""
        settings = self.settings
        rows = 24 * settings.hidden_channels  # one block: input, norms, query, key, value, FFN and their dropout
        weights = 3 * settings.heads * num_nodes if settings.attention_dropout > 0 else 0
        return 4 * settings.num_layers * num_nodes * (rows + weights)

    def encode(self) -> Tensor:
        hidden = self.features.linear(self.input, self.drop(self.settings.dropout))
        return self.output(self.blocks(hidden[None])[0])
