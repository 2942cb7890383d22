from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from polyformer.graph import Graph
from polyformer.models.contract import Workload, bound, evaluating
from polyformer.models.parts.encodings import eigenpairs
from polyformer.models.parts.full_graph import COMMON_SPACE, BaselineSettings, FullGraphModel
from polyformer.models.parts.layers import FeatureMLP, TransformerBlock
from polyformer.parameter_checks import check_dropout, check_heads, check_positive
from polyformer.reporter import Reporter
from polyformer.settings import setting

__all__ = ["SpecformerModel", "SpecformerSettings"]

_FREQUENCY_SCALE = 100.0


@dataclass(frozen=True)
class SpecformerSettings(BaselineSettings):
    """Settings of Specformer."""

    num_layers: int = setting(1, "how often the filters are applied")
    heads: int = setting(4, "number of filters, and heads of the attention; must divide eigenvalue_channels")
    eigenvalue_channels: int = setting(32, "width of the encoding of an eigenvalue; must be even")
    eigenvalue_dropout: float = setting(0.1, "dropout in the transformer over eigenvalues")
    num_eigenpairs: int | None = setting(None, "number of eigenpairs, half from each end of the spectrum; default: all")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(num_layers=self.num_layers, heads=self.heads)
        if self.num_eigenpairs is not None:
            check_positive(num_eigenpairs=self.num_eigenpairs)
        check_dropout("eigenvalue_dropout", self.eigenvalue_dropout)
        check_heads(2, eigenvalue_channels=self.eigenvalue_channels)
        check_heads(self.heads, eigenvalue_channels=self.eigenvalue_channels)


class SpecformerModel(FullGraphModel):
    r"""Specformer: a transformer over all eigenvalues learns the filters, applied by the eigenvectors.

    Each λ is encoded as :math:`\mathrm{Linear}[λ \| \sin(100 λ ω) \| \cos(100 λ ω)]`; a pre-norm transformer block and
    a Linear turn the encoded eigenvalues into M filters :math:`λ_m`; a layer is
    :math:`h' = w_0 ∘ h + \sum_m w_m ∘ (U\, \mathrm{diag}(λ_m)\, U^T h)` with channel-wise w, ones at the start, on the
    class scores :math:`h = f_θ(X)`. O(N³) once, cached; O(N² (M C + e)) a pass. Bo et al., ICLR 2023. The search space
    is ours.
    """

    settings_type = SpecformerSettings
    compares_all_nodes = True
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **COMMON_SPACE,
        "num_layers": (1, 2),
        "heads": (1, 2, 4),
        "eigenvalue_channels": (16, 32, 64),
        "eigenvalue_dropout": (0.0, 0.1, 0.3, 0.5),
    }
    waves: Tensor

    def __init__(self, in_channels: int, out_channels: int, settings: SpecformerSettings) -> None:
        super().__init__(in_channels, out_channels, settings)
        width, heads = settings.eigenvalue_channels, settings.heads
        self.network = FeatureMLP(in_channels, settings.hidden_channels, out_channels, settings.dropout)
        self.encoder = nn.Linear(width + 1, width)
        self.block = TransformerBlock(width, heads, width, settings.eigenvalue_dropout)
        self.decoder = nn.Linear(width, heads)
        self.weights = nn.Parameter(torch.ones(settings.num_layers, heads + 1, out_channels))
        waves = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        self.register_buffer("waves", waves, persistent=False)
        self._eigenvalues: Tensor | None = None
        self._eigenvectors: Tensor | None = None

    def prepare(self, graph: Graph, workload: Workload, reporter: Reporter) -> None:
        count = self.settings.num_eigenpairs
        pairs = eigenpairs(graph, count, workload, reporter)
        self._eigenvalues, self._eigenvectors = (torch.from_numpy(part) for part in pairs)

    def filters(self) -> Tensor:
        """The filters λ_m at the graph's eigenvalues: (n, M)."""
        eigenvalues = bound(self._eigenvalues).to(self.waves.device)[:, None]  # (n, 1)
        angles = _FREQUENCY_SCALE * eigenvalues * self.waves  # (n, width / 2)
        encoded = self.encoder(torch.cat([eigenvalues, angles.sin(), angles.cos()], dim=1))
        return self.decoder(self.block(encoded[None])[0])

    def encode(self) -> Tensor:
        signal = self.network(self.features)
        signal = functional.dropout(signal, self.settings.dropout, self.training)
        vectors, filters = bound(self._eigenvectors).to(signal.device), self.filters()
        for weights in self.weights:
            spectrum = vectors.T @ signal  # (n, C)
            filtered = vectors @ (filters[:, :, None] * spectrum[:, None]).flatten(1)  # (N, M·C)
            heads = filtered.unflatten(1, (-1, signal.shape[1]))  # (N, M, C)
            signal = weights[0] * signal + (weights[1:] * heads).sum(dim=1)
        return signal

    @torch.no_grad()
    def frequency_response(self, lam: np.ndarray, nodes: Tensor | None = None) -> np.ndarray:
        """The M filters, known at the graph's eigenvalues and interpolated between them: (n,) -> (M, n)."""
        with evaluating(self):
            filters = self.filters().cpu().numpy()
        return np.stack([np.interp(lam, bound(self._eigenvalues).numpy(), column) for column in filters.T])
