from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from polyformer.errors import InvalidParameter
from polyformer.graph import Graph
from polyformer.inputs.feature_matrix import FeatureMatrix
from polyformer.label_input import LabelMask
from polyformer.machine_speed import SECONDS_PER_SAMPLED_NEIGHBOURHOOD
from polyformer.models.contract import NodeModel, Workload, bound, in_slices
from polyformer.models.parts.encodings import laplacian_encoding
from polyformer.models.parts.full_graph import COMMON_SPACE, BaselineSettings
from polyformer.models.parts.node2vec import node2vec_encoding
from polyformer.models.parts.precomputed import Effort, precomputed
from polyformer.parameter_checks import check_at_least, check_heads, check_positive
from polyformer.reporter import SILENT, Reporter
from polyformer.settings import setting
from polyformer.stores.rows import RowIndex

__all__ = ["Codebook", "GOATModel", "GOATSettings", "sample_neighbourhood"]


@dataclass(frozen=True)
class GOATSettings(BaselineSettings):
    """Settings of GOAT."""

    hidden_channels: int = setting(128, "width inside the model")
    heads: int = setting(4, "heads of both attentions; must divide hidden_channels")
    hops: int = setting(2, "the local attention sees nodes at distance 1, …, hops")
    neighbours: int = setting(10, "largest number of nodes that are sampled at each distance")
    num_centroids: int = setting(64, "centroids that stand for all nodes in the global attention")
    centroid_decay: float = setting(0.99, "decay of the moving averages that move the centroids")
    positional: Literal["laplacian", "node2vec"] = setting("laplacian", "kind of positional encoding")
    positional_channels: int = setting(16, "width of the positional encoding; 0 for none")
    sampling_seed: int = setting(0, "seed for sampling the neighbours")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self.heads, hidden_channels=self.hidden_channels)
        check_positive(hops=self.hops, neighbours=self.neighbours, num_centroids=self.num_centroids)
        check_at_least(0, positional_channels=self.positional_channels)
        if not 0 <= self.centroid_decay < 1:
            raise InvalidParameter(f"'centroid_decay' must lie in [0, 1). Got {self.centroid_decay}.")


def sample_neighbourhood(graph: Graph, node: int, hops: int, count: int, seed: int) -> list[np.ndarray]:
    """At most ``count`` nodes at each distance 1, …, hops; the sample depends on the node and the seed only.

    The nodes at a distance are neighbours of the nodes sampled at the distance before.
    """
    random = np.random.default_rng([seed, node])
    seen, frontier, samples = np.array([node]), np.array([node]), []
    for _ in range(hops):
        parts = [graph.indices[graph.indptr[i] : graph.indptr[i + 1]] for i in frontier]
        reached = np.setdiff1d(np.concatenate(parts) if parts else seen, seen)
        frontier = reached if len(reached) <= count else np.sort(random.choice(reached, count, replace=False))
        seen = np.union1d(seen, reached)
        samples.append(frontier)
    return samples


class Codebook(nn.Module):
    """K-means centroids kept by moving averages, updated in training only: (B, c) rows -> (M, c) centroids.

    A batch assigns each row to the nearest centroid; counts and sums of the rows decay. The first batch places the
    centroids.
    """

    centroids: Tensor
    counts: Tensor

    def __init__(self, num_centroids: int, channels: int, decay: float) -> None:
        super().__init__()
        self.decay = decay
        self.register_buffer("centroids", torch.zeros(num_centroids, channels))
        self.register_buffer("counts", torch.zeros(num_centroids))

    @torch.no_grad()
    def update(self, rows: Tensor) -> None:
        """One step of K-means."""
        empty = bool((self.counts == 0).all())
        if empty:
            self.centroids.copy_(rows[torch.randint(len(rows), (len(self.counts),)).to(rows.device)])
        nearest = torch.cdist(rows, self.centroids).argmin(dim=1)
        assigned = functional.one_hot(nearest, len(self.counts)).to(rows.dtype)  # (B, M)
        decay = 0.0 if empty else self.decay
        counts = decay * self.counts + (1 - decay) * assigned.sum(dim=0)
        sums = decay * self.counts[:, None] * self.centroids + (1 - decay) * (assigned.T @ rows)
        self.centroids.copy_(torch.where(counts[:, None] > 0, sums / counts.clamp_min(1e-9)[:, None], self.centroids))
        self.counts.copy_(counts)


class GOATModel(NodeModel):
    r"""GOAT: attention to sampled neighbours beside attention to centroids of all nodes.

    Local: softmax over the node itself and sampled nodes at distance h of :math:`q^T k/\sqrt d - \log n_h`, n_h their
    number, plus a linear skip. Global: softmax over K-means centroids of :math:`[x' \| p]` (moving averages, updated in
    training only) of :math:`q^T k/\sqrt d + \log n_c`, with empty centroids masked and a Laplacian or node2vec encoding
    p. The two are concatenated; LayerNorm and Linear - ReLU - Linear follow. Every node's neighbours are sampled once,
    so results repeat and do not depend on the batch. O(N (n + M) h) in mini-batches. Kong et al., ICML 2023. The
    original also learns a bias for each distance, has dropout on both attentions, and batch-normalises the rows for
    K-means. The search space is ours.
    """

    settings_type = GOATSettings
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **COMMON_SPACE,
        "lr": (5e-4, 1e-3, 5e-3),
        "hops": (1, 2, 3),
        "num_centroids": (64, 256, 1024),
        "positional": ("laplacian", "node2vec"),
    }

    def __init__(self, in_channels: int, out_channels: int, settings: GOATSettings) -> None:
        super().__init__(in_channels, out_channels, settings)
        hidden, positional = settings.hidden_channels, settings.positional_channels
        self.input = nn.Linear(in_channels, hidden)
        # A bias of the keys would add the same to all scores of a query, which softmax ignores.
        self.local_query, self.local_value = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.local_key = nn.Linear(hidden, hidden, bias=False)
        self.skip, self.project = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.global_query, self.global_value = nn.Linear(hidden + positional, hidden), nn.Linear(hidden, hidden)
        self.global_key = nn.Linear(hidden + positional, hidden, bias=False)
        self.codebook = Codebook(settings.num_centroids, hidden + positional, settings.centroid_decay)
        self.readout = nn.Sequential(
            nn.LayerNorm(2 * hidden),
            nn.Dropout(settings.dropout),
            nn.Linear(2 * hidden, hidden),
            nn.ReLU(),
            nn.Dropout(settings.dropout),
            nn.Linear(hidden, out_channels),
        )
        self._features: FeatureMatrix | None = None
        self._encoding = torch.empty(0, 0)
        self._row: RowIndex | None = None
        self._members, self._bias = torch.empty(0, 0), torch.empty(0, 0)

    def bind(self, graph: Graph, workload: Workload, reporter: Reporter = SILENT) -> None:
        self._features = FeatureMatrix(self.features_of(graph), self.labels_of(graph, workload))
        settings = self.settings
        if settings.positional == "laplacian":
            encoding = laplacian_encoding(graph, settings.positional_channels, workload, reporter)
        else:
            encoding = node2vec_encoding(graph, settings.positional_channels, workload, reporter=reporter)
        spread = encoding.std(axis=0)
        self._encoding = torch.from_numpy(encoding / np.where(spread > 0, spread, 1.0))
        nodes = np.arange(graph.num_nodes) if workload.nodes is None else workload.nodes
        self._sample(graph, nodes, workload, reporter)

    def show_labels(self, mask: LabelMask | None) -> None:
        bound(self._features).show_labels(mask)

    def _sample(self, graph: Graph, nodes: np.ndarray, workload: Workload, reporter: Reporter) -> None:
        """Sample every node's neighbourhood, the node itself first, with biases: (n, 1 + hops · neighbours)."""
        hops, neighbours, seed = self.settings.hops, self.settings.neighbours, self.settings.sampling_seed
        width = 1 + hops * neighbours

        def compute() -> dict[str, np.ndarray]:
            members = np.zeros((len(nodes), width), np.int64)
            bias = np.full(members.shape, -np.inf, np.float32)
            members[:, 0], bias[:, 0] = nodes, 0.0
            for i, node in enumerate(nodes.tolist()):
                stop = 1
                for part in sample_neighbourhood(graph, node, hops, neighbours, seed):
                    start, stop = stop, stop + len(part)
                    members[i, start:stop], bias[i, start:stop] = part, -np.log(max(1, len(part)))
                if i % 1000 == 0:
                    reporter.share("neighbourhoods", i / len(nodes))
            return {"members": members, "bias": bias}

        effort = Effort(
            f"The neighbourhoods of {len(nodes):,} nodes",
            SECONDS_PER_SAMPLED_NEIGHBOURHOOD * len(nodes) * hops,
            12.0 * len(nodes) * width,
            "Lower hops or neighbours, or use another model, e.g. sgformer.",
            workload,
        )
        named = hashlib.blake2b(np.ascontiguousarray(nodes, np.int64).data, digest_size=12).hexdigest()
        parameters = {"hops": hops, "neighbours": neighbours, "seed": seed, "nodes": named}
        arrays = precomputed("neighbourhoods", graph, parameters, compute, effort, reporter)
        self._members, self._bias = torch.from_numpy(arrays["members"]), torch.from_numpy(arrays["bias"])
        self._row = RowIndex(nodes, len(nodes), what="sampled neighbours")

    @property
    def by_rows(self) -> bool:
        return True

    @property
    def divisible(self) -> bool:
        """No: every batch as a whole moves the centroids."""
        return False

    def forward(self, nodes: Tensor) -> Tensor:
        return self._encode(nodes) if torch.is_grad_enabled() else in_slices(self._encode, nodes)

    def _encode(self, nodes: Tensor) -> Tensor:
        device, rows = nodes.device, torch.from_numpy(bound(self._row)(nodes.cpu().numpy()))
        members, position = torch.unique(self._members[rows], return_inverse=True)
        hidden = self._hidden(members)  # (U, h)
        position, bias = position.to(device), self._bias[rows].to(device)
        here = hidden[position[:, 0]]  # (B, h)
        local = self.skip(here) + self._local(here, hidden, position, bias)
        everywhere = self._global(here, self._encoding[nodes.cpu()].to(device))
        return self.readout(torch.cat([local, everywhere], dim=1))

    def _hidden(self, nodes: Tensor) -> Tensor:
        """ReLU(Linear X) of some nodes; the kernel multiplies sparse features of all nodes."""
        features, device = bound(self._features), self.input.weight.device
        if features.dense is None:
            projected = features.linear(self.input)[nodes.to(device)]
        else:
            projected = self.input(features.rows(nodes).to(device))
        return functional.dropout(projected.relu(), self.settings.dropout, self.training)

    def _local(self, here: Tensor, hidden: Tensor, position: Tensor, bias: Tensor) -> Tensor:
        heads = self.settings.heads
        query = self.local_query(here).unflatten(1, (heads, -1))  # (B, H, d)
        key, value = (layer(hidden)[position].unflatten(2, (heads, -1)) for layer in (self.local_key, self.local_value))
        scores = torch.einsum("bhd,bnhd->bhn", query, key) / query.shape[-1] ** 0.5 + bias[:, None]
        return torch.einsum("bhn,bnhd->bhd", scores.softmax(dim=-1), value).flatten(1)

    def _global(self, here: Tensor, encoding: Tensor) -> Tensor:
        heads = self.settings.heads
        rows = torch.cat([self.project(here), encoding], dim=1)  # (B, h + p)
        if self.training:
            self.codebook.update(rows)
        used = self.codebook.counts > 0
        if not used.any():
            return torch.zeros_like(here)
        centroids, counts = self.codebook.centroids[used], self.codebook.counts[used]
        query = self.global_query(rows).unflatten(1, (heads, -1))  # (B, H, d)
        key = self.global_key(centroids).unflatten(1, (heads, -1))  # (M, H, d)
        value = self.global_value(centroids[:, : here.shape[1]]).unflatten(1, (heads, -1))
        scores = torch.einsum("bhd,mhd->bhm", query, key) / query.shape[-1] ** 0.5 + counts.log()
        return torch.einsum("bhm,mhd->bhd", scores.softmax(dim=-1), value).flatten(1)
