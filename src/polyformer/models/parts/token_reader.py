"""How the tokens of a graph reach a model: from memory, from disk or from projected features."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from polyformer.bases import Basis, FixedBasis, Recurrence, check_order, resolve_basis
from polyformer.errors import InvalidParameter
from polyformer.graph import Graph
from polyformer.inputs.label_tokens import LabelledInput
from polyformer.inputs.streamed_tokens import StreamedInput
from polyformer.inputs.token_inputs import RowInput, StoredInput
from polyformer.label_input import KnownLabels, LabelMask
from polyformer.models.contract import NodeModel, Workload, bound
from polyformer.models.parts.bound_tokens import BoundTokens
from polyformer.models.parts.token_binding import TokenNeeds, bind_tokens, bindable_nodes, open_fitting
from polyformer.reporter import SILENT, Reporter
from polyformer.settings import setting
from polyformer.stores.directory import StoredTokens

__all__ = ["TokenReader", "TokenSettings"]


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


class TokenReader(NodeModel):
    """A model that sees the graph through tokens alone: which tokens it needs, and where they come from.

    What is computed from them is the matter of :class:`polyformer.models.parts.token_model.TokenModel`.
    """

    reads_tokens = True
    stores_label_tokens = True
    settings: TokenSettings

    def __init__(self, in_channels: int, out_channels: int, settings: TokenSettings) -> None:
        super().__init__(in_channels, out_channels, settings)
        self.order = check_order(settings.order)
        self.basis: Basis = resolve_basis(settings.basis)
        if settings.token_route == "projected" and not isinstance(self.basis, FixedBasis):
            raise InvalidParameter(
                f"'token_route' must be 'stored' for the basis '{self.basis.name}': its tokens depend on the features."
            )
        self._tokens: BoundTokens | None = None

    def token_graph(self, graph: Graph, workload: Workload, reporter: Reporter = SILENT) -> Graph:
        """The graph with the features that the model propagates: by default the graph itself."""
        self.features_of(graph)
        return graph

    @property
    def propagates_features(self) -> bool:
        """Whether the tokens are of the features of the graph and of nothing else."""
        return True

    def bind(self, graph: Graph, workload: Workload, reporter: Reporter = SILENT) -> None:
        needs = self._needs(graph, workload, reporter)
        self._tokens = None  # free what was bound before
        self._tokens = bind_tokens(needs, reporter)

    def check_tokens(self, graph: Graph, workload: Workload) -> None:
        """Refuse a token directory of the workload that is not of this graph, or not what the model reads."""
        tokens = workload.tokens
        assert tokens is not None
        if self.label_channels and workload.labels is None:  # tokens of features do not depend on labels
            workload = replace(workload, labels=KnownLabels.none(graph.num_nodes, self.label_channels))
        open_fitting(tokens, self._needs(graph, workload))

    def bind_stored(self, stored: StoredTokens, memory: int, labels: StoredTokens | None = None) -> None:
        """Attach a token directory that was checked, without its graph: for a process that predicts some rows.

        Args:
            labels: the tokens of known labels, for a model that is shown such.
        """
        nodes = range(len(stored)) if stored.nodes is None else stored.nodes
        source: RowInput = StreamedInput(stored, memory)
        if labels is not None:
            source = LabelledInput(source, StreamedInput(labels, memory))
        self._tokens = BoundTokens.of_rows(source, nodes, stored.recurrence, self.settings.keep_norms)

    def label_refusal(self, name: str) -> str | None:
        if isinstance(self.basis, FixedBasis):
            return None
        return (
            f"'label_input' needs a fixed basis: '{self.basis.name}' would be another basis under every mask of the "
            f"labels. Choose another one of `polyformer bases`."
        )

    def show_labels(self, mask: LabelMask | None) -> None:
        bound(self._tokens).source.show_labels(mask)

    def nodes_at_once(self, graph: Graph, workload: Workload, reporter: Reporter = SILENT) -> int:
        needs = self._needs(graph, workload, reporter)
        return bindable_nodes(needs)

    def shuffle(self, nodes: Tensor, random: np.random.Generator) -> Iterator[Tensor]:
        return bound(self._tokens).source.shuffle(nodes, random)

    def ahead(self, nodes: Tensor, batches: Iterator[Tensor]) -> Generator[Tensor]:
        return bound(self._tokens).source.ahead(nodes, batches)

    @property
    def nodes(self) -> Tensor:
        """Ids whose outputs can be asked for; none before the model is bound."""
        return torch.from_numpy(np.asarray(() if self._tokens is None else self._tokens.nodes, np.int64))

    def bind_rows(self, tokens: Tensor) -> None:
        """Attach tokens (n, K+1, d) in the model's own basis that were made elsewhere; nodes are the rows 0..n-1."""
        self._tokens = BoundTokens.of_rows(StoredInput(tokens), range(len(tokens)), None, keep_norms=False)

    @property
    def route(self) -> str:
        """How tokens reach the model: ``stored``, ``streamed`` or ``projected``; empty before it is bound."""
        return "" if self._tokens is None else self._tokens.route

    @property
    def recurrence(self) -> Recurrence | None:
        """The recurrence of each feature column of the optimal basis; None for a fixed basis or before it is bound."""
        return None if self._tokens is None else self._tokens.recurrence

    @property
    def by_rows(self) -> bool:
        return self.route != "projected"

    def indivisible_reason(self, name: str, workers: int) -> str:
        return (
            f"'token_route' must not be projected with {workers} workers: every step would propagate the whole "
            f"graph on each of them. Use auto, stored or streamed."
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
            self.labels_of(graph, workload),
        )
