"""Node-unified polynomial filters: an MLP, then one learned polynomial of the operator for all nodes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from polyformer.bases import FixedBasis, basis_response, check_order, resolve_basis
from polyformer.errors import InvalidParameter
from polyformer.graph import Graph
from polyformer.models.contract import Workload, bound, with_own_rates
from polyformer.models.parts.full_graph import COMMON_SPACE, BaselineSettings, FullGraphModel
from polyformer.models.parts.layers import FeatureMLP
from polyformer.operators import Operator
from polyformer.parameter_checks import check_dropout, check_not_negative, check_rates
from polyformer.propagation.differentiable import DifferentiableOperator
from polyformer.reporter import Reporter
from polyformer.settings import setting

__all__ = ["PolynomialModel", "PolynomialSettings", "check_restart", "personalised_pagerank"]


@dataclass(frozen=True)
class PolynomialSettings(BaselineSettings):
    """Settings of every node-unified polynomial filter."""

    order: int = setting(10, "K: degree of the polynomial")
    propagation_dropout: float = setting(0.0, "dropout on the MLP's output, before the filter")
    filter_lr: float | None = setting(None, "learning rate of the filter's coefficients; lr by default")
    filter_weight_decay: float = setting(0.0, "weight decay of the filter's coefficients")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_order(self.order)
        check_dropout("propagation_dropout", self.propagation_dropout)
        check_rates(filter_lr=self.filter_lr)
        check_not_negative(filter_weight_decay=self.filter_weight_decay)


class PolynomialModel(FullGraphModel):
    r"""A filter of the MLP's output: :math:`Z = \sum_{k=0}^K α_k\, g_k(\hat L)\, f_θ(X)`.

    A subclass names its ``basis`` and whether the operator has ``self_loops``, and writes :meth:`initial_weights` and
    :meth:`coefficients`. The K sparse products have the width of the output: O(K |E| C + N d h).
    """

    settings_type: ClassVar[type] = PolynomialSettings
    carries_outputs = True
    basis: ClassVar[str]
    self_loops: ClassVar[bool] = False
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **COMMON_SPACE,
        "propagation_dropout": (0.0, 0.2, 0.5, 0.8),
        "filter_lr": (1e-3, 5e-3, 1e-2, 5e-2),
    }
    mixing: Tensor

    def __init__(self, in_channels: int, out_channels: int, settings: Any) -> None:
        super().__init__(in_channels, out_channels, settings)
        self.network = FeatureMLP(in_channels, settings.hidden_channels, out_channels, settings.dropout)
        self.filter_weights = nn.Parameter(self.initial_weights())
        basis = resolve_basis(self.basis)
        assert isinstance(basis, FixedBasis)
        self.register_buffer("mixing", torch.from_numpy(basis.mixing(settings.order)).float(), persistent=False)
        self._operator: DifferentiableOperator | None = None

    @abstractmethod
    def initial_weights(self) -> Tensor:
        """The initial values of the filter's learned weights."""

    @abstractmethod
    def coefficients(self) -> Tensor:
        """The coefficients α in the model's basis: (K+1,), or (N, K+1) if they differ by node."""

    def prepare(self, graph: Graph, workload: Workload, reporter: Reporter) -> None:
        self._operator = DifferentiableOperator(Operator(graph, self.self_loops))

    def encode(self) -> Tensor:
        return self.filter_signal(self.coefficients())

    def filter_signal(self, coefficients: Tensor) -> Tensor:
        """The MLP's output, filtered: (N, C)."""
        signal = functional.dropout(self.network(self.features), self.settings.propagation_dropout, self.training)
        return bound(self._operator).filter(signal, coefficients @ self.mixing)

    @torch.no_grad()
    def frequency_response(self, lam: np.ndarray, nodes: Tensor | None = None) -> np.ndarray:
        """The one filter of all nodes: (n,) -> (1, n)."""
        return self.coefficients().cpu().numpy()[None] @ self.basis_response(lam)

    def basis_response(self, lam: np.ndarray) -> np.ndarray:
        """g_0(λ), …, g_K(λ): (n,) -> (K+1, n)."""
        return basis_response(self.basis, self.settings.order, lam)

    def parameter_groups(self) -> list[dict[str, Any]]:
        return with_own_rates(
            self, self.filter_parameters(), self.settings.filter_lr, self.settings.filter_weight_decay
        )

    def filter_parameters(self) -> list[nn.Parameter]:
        """The learned weights of the filter, which have their own learning rate and weight decay."""
        return [self.filter_weights]


def check_restart(restart: float) -> None:
    """Refuse a restart probability that is not strictly between 0 and 1."""
    if not 0 < restart < 1:
        raise InvalidParameter(f"'restart' must lie in (0, 1). Got {restart}.")


def personalised_pagerank(order: int, restart: float) -> Tensor:
    """The weights of a truncated personalised PageRank: a (1-a)^k, and (1-a)^K for the last; they sum to one.

    >>> personalised_pagerank(2, 0.5).tolist()
    [0.5, 0.25, 0.25]
    """
    weights = restart * (1 - restart) ** torch.arange(order + 1.0)
    weights[-1] = (1 - restart) ** order
    return weights
