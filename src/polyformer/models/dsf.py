"""DSF: polynomial filters whose coefficients differ by node, made from a propagated positional encoding."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from polyformer.graph import Graph
from polyformer.models.contract import Workload, bound, evaluating
from polyformer.models.filter_contract import check_no_channel
from polyformer.models.parts.encodings import return_probabilities
from polyformer.models.parts.polynomial import (
    PolynomialModel,
    PolynomialSettings,
    check_restart,
    personalised_pagerank,
)
from polyformer.operators import Operator
from polyformer.parameter_checks import check_at_least, check_dropout, check_not_negative, check_positive
from polyformer.propagation.differentiable import DifferentiableOperator
from polyformer.reporter import Reporter
from polyformer.settings import setting

__all__ = ["DSFBernModel", "DSFGPRModel", "DSFSettings"]


@dataclass(frozen=True)
class DSFSettings(PolynomialSettings):
    """Settings of DSF."""

    walk_steps: int = setting(32, "number of steps of the walks whose return probabilities are encoded")
    encoding_channels: int = setting(16, "width of the positional encoding")
    encoding_dropout: float = setting(0.2, "dropout on the initial encoding")
    restart: float = setting(
        0.5, "a: share of the initial encoding in every update, and restart probability of GPR's first weights"
    )
    orthogonality: float = setting(0.05, "weight of the loss that keeps the encoding's columns orthogonal")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(encoding_channels=self.encoding_channels)
        check_at_least(2, walk_steps=self.walk_steps)
        check_dropout("encoding_dropout", self.encoding_dropout)
        check_restart(self.restart)
        check_not_negative(orthogonality=self.orthogonality)


class DSFModel(PolynomialModel):
    r"""Node-wise coefficients :math:`α_{ik} = φ(θ_k, w_k^T p_i^{(k)} + b_k)` of a polynomial filter.

    :math:`p^{(0)} = \tanh(\mathrm{Linear}(r))` with r the return probabilities of random walks ("R"), and
    :math:`p^{(k+1)} = \tanh(a p^{(0)} + (1-a) \tilde A p^{(k)})`. The loss has the
    additional term :math:`\|P^T P - I\|_F^2 / \dim`, where P is the last encoding with its columns centred and
    normalised. The gates start open, with b = 1 and small w, so that training begins near the node-unified filter; the
    original draws both at random.
    """

    settings_type: ClassVar[type] = DSFSettings
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **PolynomialModel.search_space,
        "encoding_channels": (8, 16, 32),
        "restart": (0.1, 0.5, 0.9),
        "orthogonality": (0.0, 0.01, 0.05, 0.1, 1.0),
    }

    def __init__(self, in_channels: int, out_channels: int, settings: DSFSettings) -> None:
        super().__init__(in_channels, out_channels, settings)
        self.encoder = nn.Linear(settings.walk_steps - 1, settings.encoding_channels)
        self.gate = nn.Parameter(torch.randn(settings.order + 1, settings.encoding_channels) * 0.1)
        self.gate_bias = nn.Parameter(torch.ones(settings.order + 1))
        self._returns: Tensor | None = None
        self._encoding_operator: DifferentiableOperator | None = None

    @abstractmethod
    def combine(self, weights: Tensor, gates: Tensor) -> Tensor:
        """φ: θ (K+1,) and the gates' arguments (N, K+1) -> α (N, K+1)."""

    def prepare(self, graph: Graph, workload: Workload, reporter: Reporter) -> None:
        super().prepare(graph, workload, reporter)
        self._encoding_operator = DifferentiableOperator(Operator(graph, self_loops=True))
        returns = return_probabilities(graph, self.settings.walk_steps, workload, reporter)
        self._returns = torch.from_numpy(returns)

    def encodings(self) -> Tensor:
        """p^(0), …, p^(K): (K+1, N, dim)."""
        first = self.encoder(bound(self._returns).to(self.encoder.weight.device)).tanh()
        first = functional.dropout(first, self.settings.encoding_dropout, self.training)
        steps = [first]
        for _ in range(self.settings.order):
            moved = bound(self._encoding_operator).product(steps[-1])
            steps.append((self.settings.restart * first + (1 - self.settings.restart) * moved).tanh())
        return torch.stack(steps)

    def coefficients(self) -> Tensor:
        return self._coefficients(self.encodings())

    def _coefficients(self, encodings: Tensor) -> Tensor:
        gates = torch.einsum("knp,kp->nk", encodings, self.gate) + self.gate_bias
        return self.combine(self.filter_weights, gates)

    def encode(self) -> Tensor:
        return self._encode(self.encodings())

    def _encode(self, encodings: Tensor) -> Tensor:
        return self.filter_signal(self._coefficients(encodings))

    def outputs_and_penalty(self, nodes: Tensor) -> tuple[Tensor, Tensor | None]:
        encodings = self.encodings()
        last = encodings[-1] - encodings[-1].mean(dim=0)
        unit = functional.normalize(last, dim=0)  # (N, dim)
        gram = unit.T @ unit - torch.eye(unit.shape[1], device=unit.device)
        return self._encode(encodings)[nodes], self.settings.orthogonality * gram.square().sum() / unit.shape[1]

    @torch.no_grad()
    def frequency_response(self, lam: np.ndarray, nodes: Tensor | None = None) -> np.ndarray:
        """The filter of every node, or of ``nodes``: (n,) -> (B, n)."""
        return self._chosen_coefficients(nodes) @ self.basis_response(lam)

    @property
    def filter_layers(self) -> int:
        """The one layer of filters."""
        return 1

    def filter_input(self, layer: int) -> str:
        """One filter, of what an MLP makes of the features."""
        return "the MLP's output"

    @torch.no_grad()
    def filter_coefficients(self, nodes: Tensor, layer: int = 0) -> np.ndarray:
        """α of the nodes: (B,) -> (B, 1, K+1)."""
        return self._chosen_coefficients(nodes)[:, None]

    def token_response(self, lam: np.ndarray, channel: int | None = None) -> np.ndarray:
        """g_0(λ), …, g_K(λ): (n,) -> (K+1, n)."""
        self.check_channel(channel)
        return self.basis_response(lam)

    @property
    def default_channel(self) -> int | None:
        """None: all features share the basis."""
        return None

    def check_channel(self, channel: int | None) -> None:
        """Refuse every feature column: all columns share the basis."""
        check_no_channel(self.basis, channel)

    def _chosen_coefficients(self, nodes: Tensor | None) -> np.ndarray:
        with evaluating(self):
            coefficients = self.coefficients().cpu().numpy()
        return coefficients if nodes is None else coefficients[nodes.cpu().numpy()]

    def filter_parameters(self) -> list[nn.Parameter]:
        return [self.filter_weights, self.gate, self.gate_bias]


class DSFGPRModel(DSFModel):
    r"""DSF-GPR-R: GPRGNN with coefficients that differ by node.

    :math:`α_{ik} = θ_k \tanh(w_k^T p_i^{(k)} + b_k)` of :math:`\tilde A^k`, from an encoding by random walks that is
    propagated beside the signal and kept orthogonal; O(K |E| (C + p)), and O(s N |E|) once for walks of s steps. Guo
    et al., WWW 2023. The search space is ours.
    """

    basis = "monomial"
    self_loops = True

    def initial_weights(self) -> Tensor:
        return personalised_pagerank(self.settings.order, self.settings.restart)

    def combine(self, weights: Tensor, gates: Tensor) -> Tensor:
        return weights * gates.tanh()


class DSFBernModel(DSFModel):
    r"""DSF-Bern-R: BernNet with coefficients that differ by node.

    :math:`α_{ik} = \mathrm{ReLU}(θ_k)\, σ(w_k^T p_i^{(k)} + b_k)` of the Bernstein terms, from an encoding by random
    walks that is propagated beside the signal and kept orthogonal; O(K |E| (C + p)), and O(s N |E|) once for walks of
    s steps. Guo et al., WWW 2023. The search space is ours.
    """

    basis = "bernstein"

    def initial_weights(self) -> Tensor:
        return torch.ones(self.settings.order + 1)

    def combine(self, weights: Tensor, gates: Tensor) -> Tensor:
        return weights.relu() * gates.sigmoid()
