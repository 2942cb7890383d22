from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from polyformer.bases import check_order
from polyformer.graph import Graph
from polyformer.machine import require_memory
from polyformer.models.contract import Workload, bound, evaluating, with_own_rates
from polyformer.models.parts.full_graph import COMMON_SPACE, BaselineSettings, FullGraphModel
from polyformer.operators import Operator
from polyformer.parameter_checks import check_not_negative, check_rates
from polyformer.propagation.differentiable import DifferentiableOperator
from polyformer.reporter import Reporter
from polyformer.settings import setting

__all__ = ["OptBasisGNNModel", "OptBasisGNNSettings"]


@dataclass(frozen=True)
class OptBasisGNNSettings(BaselineSettings):
    """Settings of OptBasisGNN."""

    order: int = setting(10, "K: degree of the polynomials")
    filter_lr: float | None = setting(None, "learning rate of the filter's coefficients; lr by default")
    filter_weight_decay: float = setting(0.0, "weight decay of the filter's coefficients")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_order(self.order)
        check_rates(filter_lr=self.filter_lr)
        check_not_negative(filter_weight_decay=self.filter_weight_decay)


class OptBasisGNNModel(FullGraphModel):
    r"""OptBasisGNN: one filter a channel, in the basis that is orthonormal in the channel's own spectrum.

    :math:`F = \mathrm{ReLU}(X W + b)`, :math:`Z = \sqrt N (\sum_k α_{k,c} h_{k,c}) W' + b'`, where
    :math:`h_{0,c}, …, h_{K,c}` is the Lanczos basis of :math:`(\hat A, F_{:,c})`, computed in every pass, and α starts
    at one for k = 0 and at zero otherwise. We add the factor √N, as the basis vectors have unit norm. Unlike
    in the original, no dropout follows the filter. O(K |E| h + K² N h). Guo and Wei, ICML 2023. The search space is
    ours.
    """

    settings_type = OptBasisGNNSettings
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **COMMON_SPACE,
        "order": (5, 10),
        "filter_lr": (1e-3, 5e-3, 1e-2, 5e-2),
    }

    def __init__(self, in_channels: int, out_channels: int, settings: OptBasisGNNSettings) -> None:
        super().__init__(in_channels, out_channels, settings)
        self.input = nn.Linear(in_channels, settings.hidden_channels)
        self.output = nn.Linear(settings.hidden_channels, out_channels)
        self.filter_weights = nn.Parameter(torch.zeros(settings.order + 1, settings.hidden_channels))
        nn.init.ones_(self.filter_weights[0])
        self.scale = 1.0
        self._operator: DifferentiableOperator | None = None

    def prepare(self, graph: Graph, workload: Workload, reporter: Reporter) -> None:
        # The basis and its gradient, both in float64 and in float32.
        size = 24 * (self.settings.order + 2) * graph.num_nodes * self.settings.hidden_channels
        require_memory("The basis of OptBasisGNN", size, "Lower the order or hidden_channels.", workload.memory)
        self._operator = DifferentiableOperator(Operator(graph))
        # Entries of unit vectors are about 1/√N: without the factor √N the last layer would see almost nothing.
        self.scale = graph.num_nodes**0.5

    def encode(self) -> Tensor:
        tokens = bound(self._operator).optimal(self._signal(), self.settings.order)  # (N, K+1, h)
        return self.output(torch.einsum("kc,nkc->nc", self.filter_weights, tokens) * self.scale)

    def _signal(self) -> Tensor:
        """F: (N, h)."""
        hidden = self.features.linear(self.input, self.drop(self.settings.dropout)).relu()
        return functional.dropout(hidden, self.settings.dropout, self.training)

    @torch.no_grad()
    def frequency_response(self, lam: np.ndarray, nodes: Tensor | None = None) -> np.ndarray:
        """The filter of every hidden channel, as it is in evaluation: (n,) -> (h, n)."""
        with evaluating(self):
            signal = self._signal().cpu().numpy()
        recurrence = bound(self._operator).optimal_recurrence(signal, self.settings.order)
        weights = self.filter_weights.cpu().numpy()
        filters = [weights[:, c] @ recurrence.response(lam, c) for c in range(signal.shape[1])]
        return self.scale * np.stack(filters)

    def parameter_groups(self) -> list[dict[str, Any]]:
        return with_own_rates(self, [self.filter_weights], self.settings.filter_lr, self.settings.filter_weight_decay)
