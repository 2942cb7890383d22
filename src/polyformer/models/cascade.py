"""The cascade under the training contract: settings, memory, the operator of the graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from polyformer.bases import FixedBasis, check_order, resolve_basis
from polyformer.errors import InvalidParameter
from polyformer.graph import Graph
from polyformer.machine import require_memory
from polyformer.models.contract import Workload, bound, evaluating
from polyformer.models.filter_contract import check_no_channel
from polyformer.models.parts.full_graph import FullGraphModel
from polyformer.nn.cascade import Cascade
from polyformer.operators import Operator
from polyformer.parameter_checks import check_dropout
from polyformer.propagation.differentiable import DifferentiableOperator
from polyformer.reporter import Reporter
from polyformer.settings import setting

__all__ = ["CascadeModel", "CascadeSettings"]


@dataclass(frozen=True)
class CascadeSettings:
    """Settings of the cascade."""

    basis: str | dict[str, Any] = setting("chebyshev", "polynomial basis of every stage; any fixed one")
    order: int = setting(2, "K: degree of the polynomials of a stage")
    self_loops: bool = setting(False, "use the operator of A + I")
    num_layers: int = setting(4, "number of stages")
    hidden_channels: int = setting(64, "width inside the model")
    heads: int = setting(4, "groups of channels that share a coefficient; must divide hidden_channels")
    form: Literal["id", "none"] = setting("id", "id adds a stage's input to its output, none does not")
    norm: Literal["batch", "layer", "none"] = setting("batch", "normalisation in every stage")
    coefficient: Literal["tanh", "none", "polyattn"] = setting(
        "tanh", "a node's coefficients: tanh of a linear score of its tokens, 1 for all, or those of a PolyAttn"
    )
    normalise_scores: bool = setting(True, "normalise what the linear score of the coefficients sees")
    dropout: float = setting(0.2, "dropout on hidden representations")
    input_dropout: float = setting(0.0, "dropout on features")

    def __post_init__(self) -> None:
        check_order(self.order)
        check_dropout("input_dropout", self.input_dropout)

    def training_bytes(self, num_nodes: int) -> float:
        """What a training step takes: tokens, weighted tokens and three arrays of H's size, which every stage keeps.

        Once more twice for the stage that the gradient is at.
        """
        return 4.0 * num_nodes * (self.num_layers + 2) * (2 * self.order + 5) * self.hidden_channels


class CascadeModel(FullGraphModel):
    r"""Cascade: stages of node-wise polynomial filters, each on the hidden representation before it.

    :math:`H^{l+1} = H^l + \mathrm{ReLU}(\mathrm{norm}(\sum_k (α_k^{(i)} ⊙ g_k(P) H^l) W_k))`; see
    :class:`polyformer.nn.cascade.Cascade`. O(L K (|E| h + N h²)). The search space is ours.
    """

    settings_type = CascadeSettings
    exact_filter = False  # matrices, normalisation and residual connections stand beside the filter
    training_defaults: ClassVar[Mapping[str, Any]] = {
        "batch_size": "full",
        "lr": 0.01,
        "schedule": "cosine",
        "warmup": 10,
        "epochs": 300,
        "patience": 100,
    }
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "order": (1, 2, 3, 4),
        "self_loops": (False, True),
        "num_layers": (1, 2, 3, 4, 6, 8),
        "hidden_channels": (32, 64, 128),
        "form": ("id", "none"),
        "norm": ("batch", "layer"),
        "coefficient": ("tanh", "none"),
        "dropout": (0.0, 0.2, 0.35, 0.5, 0.7),
        "input_dropout": (0.0, 0.2, 0.5),
        "lr": (1e-3, 3e-3, 1e-2, 2e-2),
        "weight_decay": (0.0, 1e-5, 1e-4, 1e-3),
        "epochs": (60, 150, 300, 600),
    }

    def __init__(self, in_channels: int, out_channels: int, settings: CascadeSettings) -> None:
        super().__init__(in_channels, out_channels, settings)
        basis = resolve_basis(settings.basis)
        if not isinstance(basis, FixedBasis):
            raise InvalidParameter(
                f"'basis' must be a fixed one: the tokens of every stage are made again in each step. Got "
                f"'{basis.name}'. Choose another one of `polyformer bases`."
            )
        self.basis, self.mixing = basis, basis.mixing(settings.order)
        self.network = Cascade(
            in_channels,
            settings.hidden_channels,
            out_channels,
            settings.order,
            num_layers=settings.num_layers,
            heads=settings.heads,
            form=settings.form,
            norm=settings.norm,
            coefficient=settings.coefficient,
            dropout=settings.dropout,
            normalise_scores=settings.normalise_scores,
        )
        self._operator: DifferentiableOperator | None = None

    def prepare(self, graph: Graph, workload: Workload, reporter: Reporter) -> None:
        size, settings = self.settings.training_bytes(graph.num_nodes), self.settings
        advice = "Lower num_layers, order or hidden_channels."
        require_memory(f"{settings.num_layers} stages", size, advice, workload.memory)
        self._operator = DifferentiableOperator(Operator(graph, self.settings.self_loops))

    def encode(self) -> Tensor:
        return self.network(self._projected(), self._tokens_of)

    def _projected(self) -> Tensor:
        return self.features.linear(self.network.input, self.drop(self.settings.input_dropout))

    def _tokens_of(self, hidden: Tensor) -> Tensor:
        return bound(self._operator).tokens(hidden, self.mixing)

    @property
    def filter_layers(self) -> int:
        """Every stage has coefficients."""
        return self.settings.num_layers

    @torch.no_grad()
    def filter_coefficients(self, nodes: Tensor, layer: int = 0) -> np.ndarray:
        """α of the nodes in a stage, of the polynomials of that stage's own input: (B,) -> (B, H, K+1)."""
        with evaluating(self):
            alpha = self.network.filter_coefficients(self._projected(), self._tokens_of, layer)
        return alpha[nodes].cpu().numpy()

    def filter_input(self, layer: int) -> str:
        """A stage filters its own input."""
        return "the hidden representation ReLU(XW + b)" if layer == 0 else f"the output of stage {layer}"

    def token_response(self, lam: np.ndarray, channel: int | None = None) -> np.ndarray:
        """g_0(λ), …, g_K(λ): (n,) -> (K+1, n)."""
        self.check_channel(channel)
        return self.basis.response(lam, self.settings.order)

    @property
    def default_channel(self) -> int | None:
        """None: all features share the basis."""
        return None

    def check_channel(self, channel: int | None) -> None:
        """Refuse any: all features share the basis."""
        check_no_channel(self.basis.name, channel)
