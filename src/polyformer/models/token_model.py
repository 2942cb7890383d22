"""Models that see the graph through its tokens alone: how tokens reach them, from memory, disk or a projection."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from polyformer.bases import Basis, FixedBasis, Recurrence, check_order, resolve_basis
from polyformer.errors import InvalidParameter
from polyformer.graph import Graph
from polyformer.machine import require_memory
from polyformer.models.contract import ROWS_PER_SLICE, NodeModel, Workload, bound, check_no_channel, in_slices
from polyformer.models.token_binding import TokenNeeds, bind_tokens, bindable_nodes, open_fitting
from polyformer.nn.inputs import ProjectedInput, RowInput, TokenInput, choose_route
from polyformer.nn.streaming import StreamedInput
from polyformer.operators import Operator
from polyformer.progress import Share
from polyformer.settings import setting
from polyformer.stores.directory import StoredTokens

__all__ = ["TokenModel", "TokenSettings"]

_STEP_BYTES = 1 << 26
_BYTES_PER_CHANNEL = 48


@dataclass(frozen=True)
class TokenSettings:
    """Settings that every model on tokens has."""

    basis: str | dict[str, Any] = setting("chebyshev", "polynomial basis of the tokens; see `polyformer bases`")
    order: int = setting(10, "K: tokens g_0, …, g_K of every node")
    self_loops: bool = setting(False, "use the operator of A + I")
    keep_norms: bool = setting(
        False, "optimal basis: tokens with the norms of their feature columns, not 1; for a few dense features"
    )
    hidden_channels: int = setting(128, "width inside the model")
    token_route: Literal["auto", "stored", "streamed", "projected"] = setting(
        "auto",
        "store tokens, in memory or on disk as they fit; stream them from disk; or project features and propagate "
        "inside the model; auto estimates the cost",
    )


class TokenModel(NodeModel):
    """A model whose first layer is one Linear on every token; what follows sees a node's tokens and no other node.

    A subclass has that layer as ``input`` and writes :meth:`encode`.
    """

    settings: TokenSettings
    depth = 1
    """Blocks whose activations a training step keeps."""

    def __init__(self, in_channels: int, out_channels: int, settings: TokenSettings) -> None:
        super().__init__(in_channels, out_channels, settings)
        self.settings = settings
        self.order = check_order(settings.order)
        self.basis: Basis = resolve_basis(settings.basis)
        if settings.token_route == "projected" and not isinstance(self.basis, FixedBasis):
            raise InvalidParameter(
                f"'token_route' must be 'stored' for the basis '{self.basis.name}': its tokens depend on the features."
            )
        self.route = ""
        self.recurrence: Recurrence | None = None
        self._nodes: Sequence[int] | np.ndarray = range(0)
        self._input: TokenInput | None = None

    @property
    @abstractmethod
    def input(self) -> nn.Linear:
        """The first layer."""

    @abstractmethod
    def encode(self, hidden: Tensor) -> Tensor:
        """From tokens that went through the first layer: (B, K+1, hidden) -> (B, out)."""

    def encode_tokens(self, tokens: Tensor) -> Tensor:
        """From tokens as they are stored: (B, K+1, d) -> (B, out)."""
        return self.encode(self.input(tokens))

    def token_graph(self, graph: Graph, workload: Workload) -> Graph:
        """The graph with the features that are propagated: by default its own."""
        self.features_of(graph)
        return graph

    def bind(self, graph: Graph, workload: Workload, progress: Share | None = None) -> None:
        needs = self._needs(graph, workload)
        self._input = None  # what was bound before makes room
        self.route = self._choose_route(needs)
        if self.route == "projected":
            assert needs.graph.features is not None
            assert isinstance(self.basis, FixedBasis)
            operator = Operator(needs.graph, self.settings.self_loops)
            self._input = ProjectedInput(operator, needs.graph.features, self.basis, self.order)
        else:
            self._attach(*bind_tokens(needs, progress))
            self.route = "streamed" if isinstance(self._input, StreamedInput) else "stored"
        self._nodes = range(graph.num_nodes) if workload.own_nodes is None else workload.own_nodes

    def check_tokens(self, graph: Graph, workload: Workload) -> None:
        """Refuse a token directory of the workload that is not of this graph, or not what the model reads."""
        assert workload.tokens is not None
        open_fitting(workload.tokens, self._needs(graph, workload))

    def bind_stored(self, stored: StoredTokens, memory: int) -> None:
        """Attach a token directory that was checked, without its graph: for a process that predicts some rows."""
        self._attach(StreamedInput(stored, memory), stored.recurrence)
        self.route = "streamed"
        self._nodes = range(len(stored)) if stored.nodes is None else stored.nodes

    def _attach(self, source: RowInput, recurrence: Recurrence | None) -> None:
        self._input, self.recurrence = source, recurrence
        if self.settings.keep_norms and recurrence is not None:
            source.norms = torch.from_numpy(recurrence.norm)

    @property
    def nodes(self) -> Tensor:
        """Ids whose outputs can be asked for; none before it is bound."""
        return torch.from_numpy(np.asarray(self._nodes, np.int64))

    @property
    def by_rows(self) -> bool:
        return self.route != "projected"

    @property
    def rows_per_step(self) -> int:
        """As many rows as keep some 64 MiB of activations: fewer gain no speed, more only take memory."""
        row_bytes = _BYTES_PER_CHANNEL * self.depth * (self.order + 1) * self.settings.hidden_channels
        return min(max(_STEP_BYTES // row_bytes, 128), 1024)

    def nodes_at_once(self, graph: Graph, workload: Workload) -> int:
        needs = self._needs(graph, workload)
        return needs.num_rows if self._choose_route(needs) == "projected" else bindable_nodes(needs)

    def forward(self, nodes: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return self._in_slices(self.encode, self.encode_tokens, nodes)
        source = bound(self._input)
        if isinstance(source, RowInput):
            return self.encode_tokens(source.scaled_rows(nodes, self.input.weight))
        return self.encode(self.embed(nodes))

    def shuffle(self, nodes: Tensor, random: np.random.Generator) -> Iterator[Tensor]:
        return bound(self._input).shuffle(nodes, random)

    def ahead(self, nodes: Tensor, batches: Iterator[Tensor]) -> Generator[Tensor]:
        return bound(self._input).ahead(nodes, batches)

    def accumulate(self, nodes: Tensor, loss: Callable[[Tensor, slice], Tensor]) -> float:
        """In slices; the projected route propagates once, forward and back, for all of them."""
        count, total, step = len(nodes), 0.0, self.rows_per_step
        whole = self.embed(nodes) if self.route == "projected" else None
        gradients = []
        for start in range(0, count, step):
            rows = slice(start, min(start + step, count))
            part = None if whole is None else whole[rows].detach().requires_grad_()
            value = loss(self(nodes[rows]) if part is None else self.encode(part), rows)
            value.backward()
            total += float(value.detach())
            if part is not None:
                assert part.grad is not None
                gradients.append(part.grad)
        if whole is not None:
            whole.backward(torch.cat(gradients))
        return total

    def embed(self, nodes: Tensor) -> Tensor:
        """The first layer's output: (B,) -> (B, K+1, hidden)."""
        return bound(self._input).embed(nodes, self.input)

    def from_tokens(self, compute: Callable[[Tensor], Tensor], nodes: Tensor) -> Tensor:
        """``compute`` on the first layer's output of the nodes, where nothing is kept for a gradient."""
        return self._in_slices(compute, lambda tokens: compute(self.input(tokens)), nodes)

    def _in_slices(
        self, from_hidden: Callable[[Tensor], Tensor], from_tokens: Callable[[Tensor], Tensor], nodes: Tensor
    ) -> Tensor:
        """One function on the first layer's output, or its like on the tokens themselves, as the nodes come.

        In slices that stay in cache, and in the order in which tokens on disk are read; the projected route propagates
        once for all of them.
        """
        source = bound(self._input)
        if not isinstance(source, RowInput):
            return in_slices(from_hidden, self.embed(nodes))
        results: Tensor | None = None
        with contextlib.closing(self.ahead(nodes, iter(source.sort(nodes).split(ROWS_PER_SLICE)))) as slices:
            for positions in slices:
                values = from_tokens(source.scaled_rows(nodes[positions], self.input.weight))
                if results is None:
                    results = values.new_empty((len(nodes), *values.shape[1:]))
                results[positions] = values
        assert results is not None
        return results

    def token_response(self, lam: np.ndarray, channel: int | None = None) -> np.ndarray:
        """g_0(λ), …, g_K(λ); of the feature column ``channel`` for the optimal basis: (n,) -> (K+1, n)."""
        self.check_channel(channel)
        if isinstance(self.basis, FixedBasis):
            return self.basis.response(lam, self.order)
        assert channel is not None
        recurrence = bound(self.recurrence)
        scale = recurrence.norm[channel] if self.settings.keep_norms else 1.0
        return scale * recurrence.response(lam, channel)

    def check_channel(self, channel: int | None) -> None:
        """Refuse a feature column that there is not, or one where all share the basis."""
        if isinstance(self.basis, FixedBasis):
            check_no_channel(self.basis.name, channel)
        elif channel is None or not 0 <= channel < self.in_channels:
            raise InvalidParameter(
                f"'channel' must lie in 0..{self.in_channels - 1} for the optimal basis, which differs by feature "
                f"column. Got {channel}."
            )

    def describe(self) -> dict[str, Any]:
        about: dict[str, Any] = {"token_route": self.route}
        if isinstance(self._input, StreamedInput):
            about |= {"chunk_rows": self._input.chunk_rows, "window_rows": self._input.window_rows}
        return about

    def _needs(self, graph: Graph, workload: Workload) -> TokenNeeds:
        seen, settings = self.token_graph(graph, workload), self.settings
        if workload.tokens is not None and seen is not graph:
            raise InvalidParameter(
                f"The model propagates more than the features of the graph, of which '{workload.tokens}' has the "
                f"tokens. Leave --tokens out."
            )
        streamed = settings.token_route == "streamed"
        return TokenNeeds(seen, self.basis, self.order, settings.self_loops, workload, streamed)

    def _choose_route(self, needs: TokenNeeds) -> str:
        wanted, workload = self.settings.token_route, needs.workload
        if wanted not in ("auto", "projected"):
            return wanted
        given = workload.tokens is not None or workload.share is not None
        if wanted == "auto" and (given or not isinstance(self.basis, FixedBasis)):
            return "stored"
        assert needs.graph.features is not None
        route, costs = choose_route(
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
        )
        if wanted == "auto":
            return route
        advice = "Set token_route=auto, or lower hidden_channels or batch_size."
        require_memory("Projecting and propagating features", costs.projected_bytes, advice, needs.memory)
        return wanted
