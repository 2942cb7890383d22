from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from polyformer.models.parts.polynomial import (
    PolynomialModel,
    PolynomialSettings,
    check_restart,
    personalised_pagerank,
)
from polyformer.settings import setting

__all__ = ["GPRGNNModel", "GPRGNNSettings"]


@dataclass(frozen=True)
class GPRGNNSettings(PolynomialSettings):
    """Settings of GPRGNN."""

    restart: float = setting(0.1, "a: the coefficients start as a personalised PageRank with this restart probability")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_restart(self.restart)


class GPRGNNModel(PolynomialModel):
    r"""GPRGNN: an MLP, then a learned generalised PageRank.

    :math:`Z = \sum_k γ_k \tilde A^k f_θ(X)`, γ starting as :math:`a(1-a)^k`, with self-loops in the operator;
    O(K |E| C). Chien et al., ICLR 2021. The search space is ours.
    """

    settings_type = GPRGNNSettings
    basis = "monomial"
    self_loops = True
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **PolynomialModel.search_space,
        "restart": (0.1, 0.2, 0.5, 0.9),
    }

    def initial_weights(self) -> Tensor:
        return personalised_pagerank(self.settings.order, self.settings.restart)

    def coefficients(self) -> Tensor:
        return self.filter_weights
