from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from polyformer.errors import InvalidParameter
from polyformer.graph import Graph
from polyformer.machine import require_memory
from polyformer.models.contract import Workload, bound
from polyformer.models.parts.full_graph import COMMON_SPACE, BaselineSettings, FullGraphModel, edge_tensor
from polyformer.operators import Operator
from polyformer.parameter_checks import check_not_negative, check_positive
from polyformer.propagation.differentiable import DifferentiableOperator
from polyformer.reporter import Reporter
from polyformer.settings import setting

__all__ = ["NodeFormerModel", "NodeFormerSettings", "kernelised_attention", "orthogonal_projection", "random_features"]

_SMALLEST = 1e-9
"""A number that is added to every random feature, so that no quotient is 0 / 0."""


def orthogonal_projection(num_features: int, channels: int, generator: torch.Generator | None = None) -> Tensor:
    """Gaussian rows, orthogonal within every block of ``channels``: (M, d)."""
    blocks = []
    for _ in range(math.ceil(num_features / channels)):
        square, triangle = torch.linalg.qr(torch.randn(channels, channels, generator=generator))
        blocks.append((square * triangle.diag().sign()).T)  # the signs make the direction of every row uniform
    lengths = torch.randn(num_features, channels, generator=generator).norm(dim=1, keepdim=True)
    return torch.cat(blocks)[:num_features] * lengths


def random_features(x: Tensor, projection: Tensor, is_query: bool) -> Tensor:
    r"""Positive features with :math:`E[φ(q)^T φ(k)] ∝ \exp(q^T k / \sqrt d)`: (N, H, d) -> (N, H, M).

    :math:`φ(x) = \exp(Ω x' - \|x'\|^2 / 2 - s) / \sqrt M` with :math:`x' = x / d^{1/4}`. The shift s keeps exp in
    range: each query has its own shift, all keys of a head share one; both cancel in the attention.
    """
    scaled = x / x.shape[-1] ** 0.25
    exponents = scaled @ projection.T - scaled.square().sum(dim=-1, keepdim=True) / 2
    shift = exponents.detach().amax(dim=-1 if is_query else (0, -1), keepdim=True)
    return ((exponents - shift).exp() + _SMALLEST) / math.sqrt(len(projection))


def kernelised_attention(query: Tensor, key: Tensor, value: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    r"""Softmax attention by random features, in linear time, and its denominators.

    :math:`z_i = \mathrm{mean}_s \frac{φ(q_i)^T \sum_j e^{g_{js}} φ(k_j) v_j^T}{φ(q_i)^T \sum_j e^{g_{js}} φ(k_j)}` over
    the draws s of the Gumbel noise.

    Args:
        query, key: features (N, H, M).
        value: (N, H, c).
        noise: (N, H, S), already divided by τ.

    Returns:
        (N, H, c), and the denominators without noise (N, H).
    """
    weights = (noise - noise.amax(dim=0)).exp()  # the shift cancels in the quotient
    context = torch.einsum("nhm,nhs,nhc->hsmc", key, weights, value)
    total = torch.einsum("nhm,nhs->hsm", key, weights)
    numerator = torch.einsum("nhm,hsmc->nhsc", query, context)
    denominator = torch.einsum("nhm,hsm->nhs", query, total)
    mixed = (numerator / denominator[..., None]).mean(dim=2)
    return mixed, torch.einsum("nhm,hm->nh", query, key.sum(dim=0))


@dataclass(frozen=True)
class NodeFormerSettings(BaselineSettings):
    """Settings of NodeFormer."""

    hidden_channels: int = setting(32, "width of every head")
    num_layers: int = setting(2, "number of layers")
    heads: int = setting(4, "heads of the attention, each of the full width")
    random_features: int = setting(30, "M: random features of the softmax kernel")
    temperature: float = setting(0.25, "τ of the Gumbel softmax")
    draws: int = setting(10, "draws of the Gumbel noise in a training pass")
    edge_weight: float = setting(0.1, "λ: weight of the loss that attends to edges")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(
            num_layers=self.num_layers, heads=self.heads, random_features=self.random_features, draws=self.draws
        )
        if not self.temperature > 0:
            raise InvalidParameter(f"'temperature' must be above 0. Got {self.temperature}.")
        check_not_negative(edge_weight=self.edge_weight)


class _Layer(nn.Module):
    """Attention to all nodes plus σ(b)-weighted propagation over the edges, for every head."""

    def __init__(self, settings: NodeFormerSettings) -> None:
        super().__init__()
        self.settings = settings
        hidden, heads = settings.hidden_channels, settings.heads
        self.query, self.key, self.value = (nn.Linear(hidden, heads * hidden) for _ in range(3))
        self.out = nn.Linear(heads * hidden, hidden)
        self.relation = nn.Parameter(torch.full((heads, 1), 0.1))

    def forward(
        self, x: Tensor, projection: Tensor, operator: DifferentiableOperator, edges: Tensor | None, degrees: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """The output and, if ``edges`` are given, the mean over the edges of log attention / in-degree."""
        heads, temperature = self.settings.heads, self.settings.temperature
        parts = (layer(x).unflatten(1, (heads, -1)) for layer in (self.query, self.key, self.value))
        query, key, value = parts  # (N, H, h)
        query = random_features(query / math.sqrt(temperature), projection, is_query=True)
        key = random_features(key / math.sqrt(temperature), projection, is_query=False)
        draws = self.settings.draws if self.training else 1
        noise = torch.zeros(len(x), heads, draws, device=x.device)
        if self.training:
            noise = -torch.empty_like(noise).exponential_().log() / temperature
        mixed, denominator = kernelised_attention(query, key, value, noise)
        near = operator.product(value.flatten(1)).unflatten(1, (heads, -1))
        out = self.out((mixed + self.relation.sigmoid() * near).flatten(1))
        if edges is None:
            return out, None
        source, target = edges
        attention = torch.einsum("ehm,ehm->eh", query[target], key[source]) / denominator[target]
        return out, (attention.log() / degrees[target, None]).mean()


class NodeFormerModel(FullGraphModel):
    r"""NodeFormer: Gumbel-softmax attention to all nodes by random features, guided by the edges.

    A layer is :func:`kernelised_attention` with :math:`Q/\sqrtτ, K/\sqrtτ` and Gumbel noise :math:`g_j/τ` in training,
    plus :math:`σ(b) \tilde A V`, with a residual connection and LayerNorm. The loss has the additional term
    :math:`-λ` times the mean over edges of log attention / in-degree; the original counts self-loops among the edges,
    this model does not. Evaluation has no noise and a fixed random projection, so that results repeat.
    O(N M h + |E| h). Wu et al., NeurIPS 2022. The search space is ours.
    """

    settings_type = NodeFormerSettings
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **COMMON_SPACE,
        "hidden_channels": (32, 64),
        "num_layers": (1, 2, 3),
        "heads": (1, 2, 4),
        "edge_weight": (0.01, 0.1, 1.0),
    }

    def __init__(self, in_channels: int, out_channels: int, settings: NodeFormerSettings) -> None:
        super().__init__(in_channels, out_channels, settings)
        hidden = settings.hidden_channels
        self.input = nn.Linear(in_channels, hidden)
        self.layers = nn.ModuleList(_Layer(settings) for _ in range(settings.num_layers))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(settings.num_layers + 1))
        self.output = nn.Linear(hidden, out_channels)
        self._operator: DifferentiableOperator | None = None
        self._edges, self._degrees = torch.empty(2, 0, dtype=torch.long), torch.empty(0)

    def prepare(self, graph: Graph, workload: Workload, reporter: Reporter) -> None:
        settings = self.settings
        per_layer = graph.num_nodes * (settings.random_features + settings.hidden_channels) * (settings.draws + 4)
        edges = 3 * settings.random_features * len(graph.indices)
        size = 4 * settings.num_layers * settings.heads * (per_layer + edges)
        advice = "Lower draws, heads or random_features."
        require_memory("Attention by random features", size, advice, workload.memory)
        self._operator = DifferentiableOperator(Operator(graph, self_loops=True))
        self._edges = edge_tensor(graph)
        self._degrees = torch.bincount(self._edges[1], minlength=graph.num_nodes).float()

    def encode(self) -> Tensor:
        return self._encode(with_edges=False)[0]

    def outputs_and_penalty(self, nodes: Tensor) -> tuple[Tensor, Tensor | None]:
        outputs, edge_terms = self._encode(with_edges=self._edges.shape[1] > 0)
        penalty = -self.settings.edge_weight * torch.stack(edge_terms).mean() if edge_terms else None
        return outputs[nodes], penalty

    def _encode(self, with_edges: bool) -> tuple[Tensor, list[Tensor]]:
        settings, terms = self.settings, []
        generator = None if self.training else torch.Generator().manual_seed(0)
        first, *norms = (cast(nn.LayerNorm, norm) for norm in self.norms)
        hidden = self._drop(functional.elu(first(self.features.linear(self.input, self.drop(settings.dropout)))))
        device = hidden.device
        edges, degrees = self._edges.to(device) if with_edges else None, self._degrees.to(device)
        for layer, norm in zip(self.layers, norms, strict=True):
            projection = orthogonal_projection(settings.random_features, settings.hidden_channels, generator)
            out, term = layer(hidden, projection.to(device), bound(self._operator), edges, degrees)
            hidden = self._drop(functional.elu(norm(out + hidden)))
            if term is not None:
                terms.append(term)
        return self.output(hidden), terms

    def _drop(self, x: Tensor) -> Tensor:
        return functional.dropout(x, self.settings.dropout, self.training)
