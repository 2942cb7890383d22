"""PolyFormer under the training contract: settings, token route, parameter groups."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from polyformer.bases import Basis, FixedBasis, Recurrence, check_order, resolve_basis
from polyformer.errors import InvalidData, InvalidParameter
from polyformer.graph import Graph
from polyformer.models.contract import NodeModel, Workload
from polyformer.models.token_binding import TokenNeeds, bind_tokens, bindable_nodes
from polyformer.nn.inputs import ProjectedInput, TokenInput, choose_route
from polyformer.nn.polyformer import PolyFormer
from polyformer.nn.streaming import StreamedInput
from polyformer.operators import Operator
from polyformer.progress import Share
from polyformer.settings import setting

__all__ = ["PolyFormerModel", "PolyFormerSettings"]

_ROWS_PER_SLICE = 1024
_ROWS_PER_STEP = 512


@dataclass(frozen=True)
class PolyFormerSettings:
    """Settings of PolyFormer. The defaults were chosen on several graphs, homophilic and heterophilic."""

    basis: str | dict[str, Any] = setting("chebyshev", "polynomial basis of the tokens; see `polyformer bases`")
    order: int = setting(10, "K: tokens g_0, …, g_K of every node")
    self_loops: bool = setting(False, "use the operator of A + I")
    hidden_channels: int = setting(128, "width inside the model")
    num_layers: int = setting(1, "number of blocks")
    heads: int = setting(8, "heads of each PolyAttn; must divide hidden_channels")
    ffn_channels: int | None = setting(None, "inner width of the feed-forward networks; hidden_channels by default")
    mlp_ratio: float = setting(1.0, "inner width of the order-wise MLPs, as a multiple of hidden_channels")
    decay: float = setting(2.0, "r: order j starts with the weight (j+1)^-r")
    dropout: float = setting(0.5, "dropout in the read-out")
    attention_dropout: float = setting(0.5, "dropout in the blocks")
    activation: Literal["tanh", "softmax"] = setting("tanh", "of the attention scores; softmax is the paper's ablation")
    scale: bool = setting(True, "divide scores by √d_head; the paper's text does not, its results do")
    attention_lr: float | None = setting(None, "learning rate of the attention group; lr by default")
    attention_weight_decay: float | None = setting(None, "weight decay of the attention group; weight_decay by default")
    token_route: Literal["auto", "stored", "streamed", "projected"] = setting(
        "auto",
        "store tokens, in memory or on disk as they fit; stream them from disk; or project features and propagate "
        "inside the model; auto estimates the cost",
    )


class PolyFormerModel(NodeModel):
    """:class:`PolyFormer` with its tokens: node ids in, outputs out."""

    settings_type = PolyFormerSettings

    def __init__(self, in_channels: int, out_channels: int, settings: PolyFormerSettings) -> None:
        super().__init__(in_channels, out_channels, settings)
        self.settings = settings
        self.order = check_order(settings.order)
        self.basis: Basis = resolve_basis(settings.basis)
        self.in_channels = in_channels
        self.network = PolyFormer(
            in_channels,
            settings.hidden_channels,
            out_channels,
            self.order,
            num_layers=settings.num_layers,
            heads=settings.heads,
            ffn_channels=settings.ffn_channels,
            mlp_ratio=settings.mlp_ratio,
            decay=settings.decay,
            dropout=settings.dropout,
            attention_dropout=settings.attention_dropout,
            activation=settings.activation,
            scale=settings.scale,
        )
        self.route = ""
        self.recurrence: Recurrence | None = None
        self._input: TokenInput | None = None

    def bind(self, graph: Graph, workload: Workload, progress: Share | None = None) -> None:
        needs = self._needs(graph, workload)
        self._input = None  # what was bound before makes room
        self.route = self._choose_route(needs)
        if self.route == "projected":
            assert graph.features is not None
            assert isinstance(self.basis, FixedBasis)
            operator = Operator(graph, self.settings.self_loops)
            self._input = ProjectedInput(operator, graph.features, self.basis, self.order)
            return
        self._input, self.recurrence = bind_tokens(needs, progress)
        self.route = "streamed" if isinstance(self._input, StreamedInput) else "stored"

    @property
    def by_rows(self) -> bool:
        return self.route != "projected"

    def nodes_at_once(self, graph: Graph, workload: Workload) -> int:
        needs = self._needs(graph, workload)
        return needs.num_rows if self._choose_route(needs) == "projected" else bindable_nodes(needs)

    def forward(self, nodes: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return self.network.encode(self.embed(nodes))
        return self._in_slices(self.network.encode, nodes)

    def shuffle(self, nodes: Tensor, random: np.random.Generator) -> Iterator[Tensor]:
        return super().shuffle(nodes, random) if self._input is None else self._input.shuffle(nodes, random)

    def ahead(self, nodes: Tensor, batches: Iterator[Tensor]) -> Generator[Tensor]:
        return super().ahead(nodes, batches) if self._input is None else self._input.ahead(nodes, batches)

    def accumulate(self, nodes: Tensor, loss: Callable[[Tensor, slice], Tensor]) -> float:
        """In slices; the projected route propagates once, forward and back, for all of them."""
        count, total = len(nodes), 0.0
        whole = self.embed(nodes) if self.route == "projected" else None
        gradients = []
        for start in range(0, count, _ROWS_PER_STEP):
            rows = slice(start, min(start + _ROWS_PER_STEP, count))
            part = self.embed(nodes[rows]) if whole is None else whole[rows].detach().requires_grad_()
            value = loss(self.network.encode(part), rows)
            value.backward()
            total += float(value.detach())
            if whole is not None:
                assert part.grad is not None
                gradients.append(part.grad)
        if whole is not None:
            whole.backward(torch.cat(gradients))
        return total

    def embed(self, nodes: Tensor) -> Tensor:
        """The input layer's output: (B,) -> (B, K+1, hidden)."""
        if self._input is None:
            raise InvalidParameter("The model has no graph yet. Bind it to one first.")
        return self._input.embed(nodes, self.network.input)

    @torch.no_grad()
    def filter_coefficients(self, nodes: Tensor, layer: int = 0) -> np.ndarray:
        """α of the nodes in the given layer: (B,) -> (B, H, K+1)."""
        training = self.training
        self.eval()
        try:
            return self._in_slices(lambda hidden: self.network.filter_coefficients(hidden, layer), nodes).cpu().numpy()
        finally:
            self.train(training)

    def parameter_groups(self) -> list[dict[str, Any]]:
        groups = self.network.parameter_groups()
        own = {"lr": self.settings.attention_lr, "weight_decay": self.settings.attention_weight_decay}
        chosen = {name: value for name, value in own.items() if value is not None}
        return [{"params": groups["rest"]}, {"params": groups["attention"], **chosen}]

    def describe(self) -> dict[str, Any]:
        about: dict[str, Any] = {"token_route": self.route}
        if isinstance(self._input, StreamedInput):
            about |= {"chunk_rows": self._input.chunk_rows, "window_rows": self._input.window_rows}
        return about

    def _in_slices(self, compute: Callable[[Tensor], Tensor], nodes: Tensor) -> Tensor:
        """``compute`` on the input layer's output of the nodes, where nothing is kept for a gradient.

        In slices that stay in cache, and in the order in which tokens on disk are read; the projected route propagates
        once for all of them.
        """
        if self.route == "projected":
            return torch.cat([compute(hidden) for hidden in self.embed(nodes).split(_ROWS_PER_SLICE)])
        results: Tensor | None = None
        order = torch.arange(len(nodes)) if self._input is None else self._input.sort(nodes)
        with contextlib.closing(self.ahead(nodes, iter(order.split(_ROWS_PER_SLICE)))) as slices:
            for positions in slices:
                values = compute(self.embed(nodes[positions]))
                if results is None:
                    results = values.new_empty((len(nodes), *values.shape[1:]))
                results[positions] = values
        assert results is not None
        return results

    def _needs(self, graph: Graph, workload: Workload) -> TokenNeeds:
        if graph.features is None or graph.num_features != self.in_channels:
            raise InvalidData(
                f"The model reads {self.in_channels} features per node. This graph has {graph.num_features}. "
                f"Pass a graph with the same features as in training."
            )
        route, self_loops = self.settings.token_route, self.settings.self_loops
        return TokenNeeds(graph, self.basis, self.order, self_loops, workload, streamed=route == "streamed")

    def _choose_route(self, needs: TokenNeeds) -> str:
        wanted, workload = self.settings.token_route, needs.workload
        if wanted == "projected" and not isinstance(self.basis, FixedBasis):
            raise InvalidParameter(
                f"'token_route' must be 'stored' for the basis '{self.basis.name}': its tokens depend on the features."
            )
        if wanted != "auto":
            return wanted
        if workload.tokens is not None or not isinstance(self.basis, FixedBasis):
            return "stored"
        assert needs.graph.features is not None
        return choose_route(
            Operator(needs.graph, self.settings.self_loops),
            needs.graph.features,
            self.order,
            self.settings.hidden_channels,
            workload.rows_per_epoch,
            workload.passes_per_epoch,
            workload.epochs,
            needs.memory,
            needs.num_rows,
            on_disk=workload.scratch is not None,
        )[0]
