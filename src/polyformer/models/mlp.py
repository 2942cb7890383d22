from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from polyformer.graph import Graph
from polyformer.inputs.feature_matrix import FeatureMatrix
from polyformer.models.contract import NodeModel, Workload, bound, in_slices
from polyformer.models.parts.full_graph import COMMON_SPACE, BaselineSettings
from polyformer.models.parts.layers import FeatureMLP
from polyformer.reporter import SILENT, Reporter
from polyformer.settings import setting

__all__ = ["MLPModel", "MLPSettings"]


@dataclass(frozen=True)
class MLPSettings(BaselineSettings):
    """Settings of the MLP."""

    hidden_channels: int = setting(128, "width inside the model")
    num_layers: int = setting(2, "number of Linear layers")


class MLPModel(NodeModel):
    """MLP on the features alone, blind to the graph.

    :math:`Z = f_θ(X)`, with ReLU and dropout between the layers; O(N d h) an epoch, in mini-batches. The search space
    is ours.
    """

    settings_type = MLPSettings
    reads_labels = False  # a node sees itself alone, and its own label is hidden when it is to be predicted
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {**COMMON_SPACE, "num_layers": (1, 2, 3)}

    def __init__(self, in_channels: int, out_channels: int, settings: MLPSettings) -> None:
        super().__init__(in_channels, out_channels, settings)
        widths = (in_channels, settings.hidden_channels, out_channels)
        self.network = FeatureMLP(*widths, settings.dropout, settings.num_layers)
        self._features: FeatureMatrix | None = None

    def bind(self, graph: Graph, workload: Workload, reporter: Reporter = SILENT) -> None:
        self._features = FeatureMatrix(self.features_of(graph))

    @property
    def by_rows(self) -> bool:
        return True

    def forward(self, nodes: Tensor) -> Tensor:
        return self._encode(nodes) if torch.is_grad_enabled() else in_slices(self._encode, nodes)

    def _encode(self, nodes: Tensor) -> Tensor:
        return self.network(bound(self._features).rows(nodes).to(nodes.device))
