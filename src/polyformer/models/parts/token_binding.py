"""Where a model's tokens come from and where they live: computed or stored, in memory or on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch

from polyformer.bases import Basis, FixedBasis, Recurrence
from polyformer.errors import FileCorrupt, InvalidParameter, OutOfResources
from polyformer.files import free_bytes
from polyformer.graph import Graph
from polyformer.graph_checks import Features
from polyformer.inputs.label_tokens import LabelledInput
from polyformer.inputs.mapped_tokens import MappedInput
from polyformer.inputs.streamed_tokens import StreamedInput
from polyformer.inputs.token_inputs import ProjectedInput, RowInput, StoredInput, choose_route
from polyformer.label_input import KnownLabels
from polyformer.machine import format_bytes, require_memory, usable_memory
from polyformer.models.contract import Workload
from polyformer.models.parts.bound_tokens import BoundTokens
from polyformer.operators import Operator
from polyformer.propagation.engine import ENGINES
from polyformer.reporter import SILENT, Reporter
from polyformer.stores.directory import StoredTokens
from polyformer.stores.rows import RowIndex, TokenRows
from polyformer.tokens import compute_tokens_and_recurrence, open_tokens, token_bytes, write_tokens

__all__ = ["TokenNeeds", "bind_tokens", "bindable_nodes", "label_tokens_folder", "open_fitting"]

_LOAD_BYTES = 1 << 25


@dataclass(frozen=True, eq=False)
class TokenNeeds:
    """The tokens that a model reads of a graph.

    Attributes:
        route: how tokens reach the model: ``auto``, ``stored``, ``projected``, or ``streamed``, which leaves
            tokens on disk even if they fit in memory.
        hidden_channels: width of the model's first layer.
        keep_norms: multiply tokens of the optimal basis by the norms of their feature columns.
        labels: known labels, whose tokens stand behind those of the features; None for none.
    """

    graph: Graph
    basis: Basis
    order: int
    self_loops: bool
    workload: Workload
    route: str = "auto"
    hidden_channels: int = 1
    keep_norms: bool = False
    labels: KnownLabels | None = None

    @property
    def operator(self) -> Operator:
        """The operator by which features are propagated."""
        return Operator(self.graph, self.self_loops)

    @property
    def features(self) -> Features:
        """The features that are propagated."""
        assert self.graph.features is not None
        return self.graph.features

    @property
    def memory(self) -> int:
        """Bytes that may be used."""
        return usable_memory() if self.workload.memory is None else self.workload.memory

    @property
    def num_rows(self) -> int:
        """Number of nodes whose tokens are read."""
        nodes = self.workload.nodes
        return self.graph.num_nodes if nodes is None else len(nodes)

    @property
    def size(self) -> int:
        """Bytes that the tokens take in memory."""
        return token_bytes(self.num_rows, self.order, self.graph.num_features)

    @property
    def row_width(self) -> int:
        """Number of columns whose tokens a node has."""
        return self.graph.num_features + (0 if self.labels is None else self.labels.width)

    @property
    def working(self) -> int:
        """Bytes that computing the tokens in memory takes besides."""
        return ENGINES["memory"]().cost(self.operator, self.order, self.features, self.basis.fixed).memory


def bind_tokens(needs: TokenNeeds, reporter: Reporter = SILENT) -> BoundTokens:
    """Tokens from projected features where that is cheaper, else in memory if they fit, else on disk.

    Tokens that do not fit, or whose computation does not, are computed into the scratch directory of the workload. A
    token directory that is there already is used, so that a run that goes on does not compute its tokens again.
    """
    nodes: Sequence[int] | np.ndarray | None = needs.workload.own_nodes
    if nodes is None:
        nodes = range(needs.graph.num_nodes)
    if _chosen_route(needs) == "projected":
        assert isinstance(needs.basis, FixedBasis)
        source = ProjectedInput(needs.operator, needs.features, needs.basis, needs.order, needs.labels)
        return BoundTokens(source, nodes)
    rows, recurrence = _bind_rows(needs, reporter)
    if needs.labels is not None:
        rows = _bind_labels(needs, rows, reporter)
    return BoundTokens.of_rows(rows, nodes, recurrence, needs.keep_norms)


def _bind_labels(needs: TokenNeeds, features: RowInput, reporter: Reporter) -> RowInput:
    """The tokens of features with those of known labels behind them: of all labels, and of every mask.

    Tokens of a mask are needed at the nodes whose labels it hides, as a step learns from these alone. Tokens of labels
    lie where those of features lie; if memory does not suffice for all of them, on disk beside those.
    """
    labels, workload = needs.labels, needs.workload
    assert labels is not None
    rows = needs.num_rows + sum(int(mask.hidden.sum()) for mask in workload.label_masks)
    left = needs.memory - (needs.size if features.route == "stored" else 0)
    fits = features.route == "stored" and token_bytes(rows, needs.order, labels.width) <= left

    def bind(name: str, columns: sp.csr_matrix, nodes: np.ndarray | None, share: np.ndarray | None) -> RowInput:
        scratch = None if workload.scratch is None else label_tokens_folder(workload.scratch, name)
        own = replace(workload, nodes=nodes, share=share, tokens=None, scratch=scratch)
        route = "stored" if fits or scratch is None else "streamed"
        part = replace(needs, graph=needs.graph.with_features(columns), workload=own, route=route, labels=None)
        return _bind_rows(part, reporter)[0]

    masked = []
    for mask in workload.label_masks:
        hidden, share = labels.hidden_nodes(mask), workload.share
        if share is not None and len(np.intersect1d(hidden, share)):
            share = np.intersect1d(hidden, share)
        elif share is not None:  # this process learns nothing under the mask; one row keeps the code below simple
            share = hidden[:1]
        masked.append(bind(f"mask-{mask.number}", labels.matrix(mask), hidden, share))
    return LabelledInput(features, bind("known", labels.matrix(), workload.nodes, workload.share), masked)


def label_tokens_folder(tokens: Path, name: str) -> Path:
    """Where tokens of labels are kept on disk, beside the folder of the features' tokens."""
    return tokens.with_name(f"label-{tokens.name}-{name}")


def _bind_rows(needs: TokenNeeds, reporter: Reporter) -> tuple[RowInput, Recurrence | None]:
    workload, fits = needs.workload, needs.route != "streamed" and needs.size <= needs.memory
    directory = workload.tokens
    if directory is None:
        if fits and needs.size + needs.working <= needs.memory:
            tokens, recurrence = compute_tokens_and_recurrence(
                needs.graph, needs.basis, needs.order, needs.self_loops, workload.own_nodes, reporter
            )
            return StoredInput(tokens, workload.own_nodes), recurrence
        directory = _compute_on_disk(needs, reporter)
    stored = open_fitting(directory, needs)
    if workload.mapped:
        return MappedInput(stored), stored.recurrence
    if not fits:
        return StreamedInput(stored, needs.memory), stored.recurrence
    nodes = np.arange(needs.graph.num_nodes) if workload.own_nodes is None else workload.own_nodes
    return StoredInput(_load(stored, nodes), workload.own_nodes), stored.recurrence


def bindable_nodes(needs: TokenNeeds) -> int:
    """The number of nodes whose tokens fit in memory or on the disk of the scratch directory; at most all nodes."""
    scratch = needs.workload.scratch
    if _chosen_route(needs) == "projected" or needs.workload.tokens is not None or scratch is None:
        return needs.num_rows
    if needs.size + needs.working <= needs.memory:
        return needs.num_rows
    # Tokens take twice their size on disk until their blocks are put together.
    room = max(needs.memory - needs.working, int(0.45 * free_bytes(scratch)))
    return min(needs.num_rows, max(1, room // max(1, token_bytes(1, needs.order, needs.row_width))))


def _chosen_route(needs: TokenNeeds) -> str:
    """The route that was asked for, or the cheaper one; a projection that does not fit in memory is refused."""
    workload = needs.workload
    if workload.mapped:
        return "stored"
    if needs.route not in ("auto", "projected"):
        return needs.route
    has_source = workload.tokens is not None or workload.share is not None
    if needs.route == "auto" and (has_source or not isinstance(needs.basis, FixedBasis)):
        return "stored"
    cheaper_route, costs = choose_route(
        needs.operator,
        needs.features,
        needs.order,
        needs.hidden_channels,
        workload.rows_per_epoch,
        workload.passes_per_epoch,
        workload.epochs,
        needs.memory,
        needs.num_rows,
        on_disk=workload.scratch is not None,
    )
    if needs.route == "auto":
        return cheaper_route
    advice = "Set token_route=auto, or lower hidden_channels or batch_size."
    require_memory("Projecting and propagating features", costs.projected_bytes, advice, needs.memory)
    return needs.route


def _compute_on_disk(needs: TokenNeeds, reporter: Reporter) -> Path:
    scratch = needs.workload.scratch
    if scratch is None and needs.route == "streamed":
        raise InvalidParameter(
            "'token_route' must not be streamed where there is no place for tokens on disk. Use auto."
        )
    if scratch is None:
        raise OutOfResources(
            f"The tokens take {format_bytes(needs.size)} and computing them {format_bytes(needs.working)}, more than "
            f"the {format_bytes(needs.memory)} of memory that can be used. Lower the order, or use the command line, "
            f"which keeps them on disk."
        )
    if not scratch.exists():
        reporter.say(
            f"tokens of {needs.num_rows:,} nodes, {format_bytes(needs.size)}, are computed into {scratch}: "
            f"{format_bytes(needs.memory)} of memory may be used"
        )
        engine, nodes = ENGINES["disk"](needs.memory), needs.workload.nodes
        write_tokens(needs.graph, scratch, needs.basis, needs.order, needs.self_loops, nodes, engine, reporter)
    return scratch


def open_fitting(directory: Path, needs: TokenNeeds) -> StoredTokens:
    """Open a token directory; refuse tokens of another graph, or other tokens than the model needs."""
    stored = open_tokens(directory, needs.basis, needs.order)
    if stored.manifest["graph"] != needs.graph.fingerprint:
        if stored.manifest["graph"].partition("+")[0] == needs.graph.unscaled.fingerprint:
            _refuse_scaling(directory, stored, needs)
        raise FileCorrupt(
            f"The tokens in '{directory}' were made from another graph, or this one has changed since. Make them again "
            f"with: polyformer tokens."
        )
    if stored.self_loops != needs.self_loops:
        has, wants = ("has", "none") if stored.self_loops else ("has no", "some")
        raise InvalidParameter(
            f"The operator of the tokens in '{directory}' {has} self-loops, but the model wants {wants}. "
            f"Use --{'' if stored.self_loops else 'no-'}self-loops, or make the tokens again."
        )
    nodes = needs.workload.nodes
    if nodes is None and stored.nodes is not None:
        nodes = np.arange(needs.graph.num_nodes)
    if nodes is not None:
        RowIndex(stored.nodes, len(stored), f"'{directory}'")(nodes)
    return stored


def _refuse_scaling(directory: Path, stored: StoredTokens, needs: TokenNeeds) -> None:
    """Refuse tokens of this graph whose features were scaled in another way; the sentence names the command."""
    tokens_scaled, graph_scaled = stored.manifest.get("scaling") is not None, needs.graph.scaling is not None
    words = "otherwise scaled" if tokens_scaled and graph_scaled else "scaled" if tokens_scaled else "unscaled"
    option = (
        "--like RUN" if tokens_scaled and graph_scaled else f"--scale-features {'auto' if graph_scaled else 'none'}"
    )
    raise InvalidParameter(
        f"The tokens in '{directory}' were made from {words} features, but the model reads "
        f"{'scaled' if graph_scaled else 'unscaled'} ones. Make tokens anew with: polyformer tokens PATH {option} "
        f"--order {needs.order} --out DIR."
    )


def _load(stored: StoredTokens, nodes: np.ndarray) -> torch.Tensor:
    """The tokens of the nodes in memory, read in the order of the disk: (n,) -> (n, K+1, d) float32."""
    rows, reader = RowIndex(stored.nodes, len(stored))(nodes), TokenRows(stored)
    out = torch.empty((len(rows), stored.order + 1, stored.shape[2]))
    order, step = np.argsort(rows, kind="stable"), max(1, _LOAD_BYTES // reader.row_bytes)
    for start in range(0, len(rows), step):
        part = order[start : start + step]
        out[torch.from_numpy(part)] = reader.fetch(rows[part])
    return out
