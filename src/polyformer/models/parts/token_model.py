"""Models that see the graph only through its tokens, which come from memory, from disk or from projected features."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from polyformer.bases import Basis, FixedBasis, Recurrence, check_order, resolve_basis
from polyformer.errors import InvalidParameter
from polyformer.graph import Graph
from polyformer.inputs.streamed_tokens import StreamedInput
from polyformer.inputs.token_inputs import RowInput
from polyformer.models.contract import NodeModel, Workload, bound
from polyformer.models.filter_contract import check_no_channel
from polyformer.models.parts.bound_tokens import BoundTokens
from polyformer.models.parts.token_binding import TokenNeeds, bind_tokens, bindable_nodes, open_fitting
from polyformer.models.token_function import TokenFunction
from polyformer.reporter import SILENT, Reporter
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
        False, "optimal basis: multiply tokens by the norms of their feature columns; for a few dense features"
    )
    hidden_channels: int = setting(128, "width inside the model")
    token_route: Literal["auto", "stored", "streamed", "projected"] = setting(
        "auto",
        "stored: tokens in memory, or on disk if they do not fit; streamed: tokens on disk; projected: propagate "
        "projected features inside the model; auto: the cheaper of stored and projected",
    )


class TokenModel(NodeModel):
    """A model whose first layer is one Linear on every token; the layers after it see the tokens of one node at a time.

    A subclass has that layer as ``input`` and writes :meth:`encode`.
    """

    reads_tokens = True
    settings: TokenSettings
    depth = 1
    """Number of blocks whose activations a training step keeps."""

    def __init__(self, in_channels: int, out_channels: int, settings: TokenSettings) -> None:
        super().__init__(in_channels, out_channels, settings)
        self.settings = settings
        self.order = check_order(settings.order)
        self.basis: Basis = resolve_basis(settings.basis)
        if settings.token_route == "projected" and not isinstance(self.basis, FixedBasis):
            raise InvalidParameter(
                f"'token_route' must be 'stored' for the basis '{self.basis.name}': its tokens depend on the features."
            )
        self._tokens: BoundTokens | None = None

    @property
    @abstractmethod
    def input(self) -> nn.Linear:
        """The first layer."""

    @abstractmethod
    def encode(self, hidden: Tensor) -> Tensor:
        """Outputs from the first layer's output: (B, K+1, hidden) -> (B, out)."""

    def encode_tokens(self, tokens: Tensor) -> Tensor:
        """Outputs from tokens: (B, K+1, d) -> (B, out)."""
        return self.encode(self.input(tokens))

    def on_tokens(self, name: str) -> TokenFunction:
        if not isinstance(self.basis, FixedBasis):
            raise InvalidParameter(
                f"The tokens of the basis '{self.basis.name}' depend on the features of all nodes, so the model cannot "
                f"be exported. Export a run with a fixed basis, such as chebyshev."
            )
        return TokenFunction(self.encode_tokens, self.basis, self.order, self.settings.self_loops, self.in_channels)

    def token_graph(self, graph: Graph, workload: Workload, reporter: Reporter = SILENT) -> Graph:
        """The graph with the features that the model propagates: by default the graph itself."""
        self.features_of(graph)
        return graph

    def bind(self, graph: Graph, workload: Workload, reporter: Reporter = SILENT) -> None:
        needs = self._needs(graph, workload, reporter)
        self._tokens = None  # free what was bound before
        self._tokens = bind_tokens(needs, reporter)

    def check_tokens(self, graph: Graph, workload: Workload) -> None:
        """Refuse a token directory of the workload that is not of this graph, or not what the model reads."""
        assert workload.tokens is not None
        open_fitting(workload.tokens, self._needs(graph, workload))

    def bind_stored(self, stored: StoredTokens, memory: int) -> None:
        """Attach a token directory that was checked, without its graph: for a process that predicts some rows."""
        nodes = range(len(stored)) if stored.nodes is None else stored.nodes
        source = StreamedInput(stored, memory)
        self._tokens = BoundTokens.of_rows(source, nodes, stored.recurrence, self.settings.keep_norms)

    @property
    def route(self) -> str:
        """How tokens reach the model: ``stored``, ``streamed`` or ``projected``; empty before it is bound."""
        return "" if self._tokens is None else self._tokens.route

    @property
    def recurrence(self) -> Recurrence | None:
        """The recurrence of each feature column of the optimal basis; None for a fixed basis or before it is bound."""
        return None if self._tokens is None else self._tokens.recurrence

    @property
    def capabilities(self) -> frozenset[str]:
        """All, unless the basis depends on all nodes at once, or more than the features is propagated."""
        local = isinstance(self.basis, FixedBasis) and self.propagates_features
        return frozenset({"update", "new nodes", "serve"} if local else {"serve"})

    @property
    def propagates_features(self) -> bool:
        """Whether the tokens are of the features of the graph and of nothing else."""
        return True

    @property
    def nodes(self) -> Tensor:
        """Ids whose outputs can be asked for; none before the model is bound."""
        return torch.from_numpy(np.asarray(() if self._tokens is None else self._tokens.nodes, np.int64))

    @property
    def by_rows(self) -> bool:
        return self.route != "projected"

    def indivisible_reason(self, name: str, workers: int) -> str:
        return (
            f"'token_route' must not be projected with {workers} workers: every step would propagate the whole "
            f"graph on each of them. Use auto, stored or streamed."
        )

    @property
    def rows_per_step(self) -> int:
        """As many rows as have about 64 MiB of activations: more rows take memory and bring no speed."""
        row_bytes = _BYTES_PER_CHANNEL * self.depth * (self.order + 1) * self.settings.hidden_channels
        return min(max(_STEP_BYTES // row_bytes, 128), 1024)

    def nodes_at_once(self, graph: Graph, workload: Workload, reporter: Reporter = SILENT) -> int:
        needs = self._needs(graph, workload, reporter)
        return bindable_nodes(needs)

    def forward(self, nodes: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return bound(self._tokens).compute(nodes, self.input, self.encode, self.encode_tokens)
        source = bound(self._tokens).source
        if isinstance(source, RowInput):
            return self.encode_tokens(source.scaled_rows(nodes, self.input.weight))
        return self.encode(self.embed(nodes))

    def shuffle(self, nodes: Tensor, random: np.random.Generator) -> Iterator[Tensor]:
        return bound(self._tokens).source.shuffle(nodes, random)

    def ahead(self, nodes: Tensor, batches: Iterator[Tensor]) -> Generator[Tensor]:
        return bound(self._tokens).source.ahead(nodes, batches)

    def accumulate(self, nodes: Tensor, loss: Callable[[Tensor, slice], Tensor]) -> float:
        """Add the gradient slice by slice; the projected route propagates once, forward and back, for all slices."""
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
        return bound(self._tokens).source.embed(nodes, self.input)

    def from_tokens(self, compute: Callable[[Tensor], Tensor], nodes: Tensor) -> Tensor:
        """``compute`` applied to the first layer's output of the nodes, without gradients."""
        return bound(self._tokens).compute(nodes, self.input, compute, lambda tokens: compute(self.input(tokens)))

    def filter_input(self, layer: int) -> str | None:
        """The first layer filters features; what later layers see are no polynomials of P any more."""
        return "the projected features" if layer == 0 else None

    def token_response(self, lam: np.ndarray, channel: int | None = None) -> np.ndarray:
        """g_0(λ), …, g_K(λ); of the feature column ``channel`` for the optimal basis: (n,) -> (K+1, n)."""
        self.check_channel(channel)
        if isinstance(self.basis, FixedBasis):
            return self.basis.response(lam, self.order)
        assert channel is not None
        recurrence = bound(self.recurrence)
        scale = recurrence.norm[channel] if self.settings.keep_norms else 1.0
        return scale * recurrence.response(lam, channel)

    @property
    def default_channel(self) -> int | None:
        """None where all feature columns share the basis, else the column with the largest norm."""
        return None if self.recurrence is None else int(self.recurrence.norm.argmax())

    def check_channel(self, channel: int | None) -> None:
        """Refuse a feature column that does not exist, and any column if all columns share the basis."""
        if isinstance(self.basis, FixedBasis):
            check_no_channel(self.basis.name, channel)
        elif channel is None or not 0 <= channel < self.in_channels:
            raise InvalidParameter(
                f"'channel' must lie in 0..{self.in_channels - 1} for the optimal basis, which differs by feature "
                f"column. Got {channel}."
            )

    def describe(self) -> dict[str, Any]:
        return bound(self._tokens).describe()

    def _needs(self, graph: Graph, workload: Workload, reporter: Reporter = SILENT) -> TokenNeeds:
        seen, settings = self.token_graph(graph, workload, reporter), self.settings
        if workload.tokens is not None and seen is not graph:
            raise InvalidParameter(
                f"The model propagates more than the features of the graph, of which '{workload.tokens}' has the "
                f"tokens. Leave --tokens out."
            )
        return TokenNeeds(
            seen,
            self.basis,
            self.order,
            settings.self_loops,
            workload,
            settings.token_route,
            settings.hidden_channels,
            settings.keep_norms,
        )
