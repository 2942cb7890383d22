"""Where a model's tokens come from and where they live: computed or stored, in memory or on disk."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from polyformer.bases import Basis, Recurrence
from polyformer.errors import FileCorrupt, InvalidParameter, OutOfResources
from polyformer.graph import Graph
from polyformer.machine import format_bytes, usable_memory
from polyformer.models.contract import Workload
from polyformer.nn.inputs import RowInput, StoredInput
from polyformer.nn.streaming import StreamedInput
from polyformer.operators import Operator
from polyformer.progress import Share
from polyformer.propagation.engine import ENGINES
from polyformer.stores.directory import StoredTokens
from polyformer.stores.rows import RowIndex, TokenRows
from polyformer.tokens import compute_tokens_and_recurrence, open_tokens, token_bytes, write_tokens

__all__ = ["TokenNeeds", "bind_tokens", "bindable_nodes", "open_fitting"]

_LOAD_BYTES = 1 << 25


@dataclass(frozen=True, eq=False)
class TokenNeeds:
    """The tokens that a model reads of a graph.

    Attributes:
        streamed: leave them on disk even if they fit in memory.
    """

    graph: Graph
    basis: Basis
    order: int
    self_loops: bool
    workload: Workload
    streamed: bool = False

    @property
    def memory(self) -> int:
        """Bytes that may be used."""
        return usable_memory() if self.workload.memory is None else self.workload.memory

    @property
    def num_rows(self) -> int:
        """How many nodes' tokens are read."""
        nodes = self.workload.nodes
        return self.graph.num_nodes if nodes is None else len(nodes)

    @property
    def size(self) -> int:
        """What they take in memory."""
        return token_bytes(self.num_rows, self.order, self.graph.num_features)

    @property
    def working(self) -> int:
        """What computing them in memory takes besides."""
        assert self.graph.features is not None
        operator = Operator(self.graph, self.self_loops)
        return ENGINES["memory"]().cost(operator, self.order, self.graph.features, self.basis.fixed).memory


def bind_tokens(needs: TokenNeeds, progress: Share | None = None) -> tuple[RowInput, Recurrence | None]:
    """Tokens in memory if they fit, else on disk: of the given directory, or computed.

    Tokens that do not fit, or whose computation does not, are computed into the scratch directory of the workload;
    one that is there already is used, so that a run that goes on does not compute them again.
    """
    workload, fits = needs.workload, not needs.streamed and needs.size <= needs.memory
    directory = workload.tokens
    if directory is None:
        if fits and needs.size + needs.working <= needs.memory:
            tokens, recurrence = compute_tokens_and_recurrence(
                needs.graph, needs.basis, needs.order, needs.self_loops, workload.own_nodes, progress
            )
            return StoredInput(tokens, workload.own_nodes), recurrence
        directory = _compute_on_disk(needs, progress)
    stored = open_fitting(directory, needs)
    if not fits:
        return StreamedInput(stored, needs.memory), stored.recurrence
    nodes = np.arange(needs.graph.num_nodes) if workload.own_nodes is None else workload.own_nodes
    return StoredInput(_load(stored, nodes), workload.own_nodes), stored.recurrence


def bindable_nodes(needs: TokenNeeds) -> int:
    """How many nodes' tokens there is room for: all, or as many as memory or the scratch directory's disk holds."""
    scratch = needs.workload.scratch
    if needs.workload.tokens is not None or needs.size + needs.working <= needs.memory or scratch is None:
        return needs.num_rows
    # Tokens take twice their size on disk until their blocks are put together.
    room = max(needs.memory - needs.working, int(0.45 * _free_disk(scratch)))
    return min(needs.num_rows, max(1, room // max(1, token_bytes(1, needs.order, needs.graph.num_features))))


def _compute_on_disk(needs: TokenNeeds, progress: Share | None) -> Path:
    scratch = needs.workload.scratch
    if scratch is None and needs.streamed:
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
        if needs.workload.report is not None:
            needs.workload.report(
                f"tokens of {needs.num_rows:,} nodes, {format_bytes(needs.size)}, are computed into {scratch}: "
                f"{format_bytes(needs.memory)} of memory may be used"
            )
        engine, nodes = ENGINES["disk"](needs.memory), needs.workload.nodes
        write_tokens(needs.graph, scratch, needs.basis, needs.order, needs.self_loops, nodes, engine, progress)
    return scratch


def _free_disk(path: Path) -> int:
    """Bytes that are free where ``path`` is or will be."""
    return shutil.disk_usage(next(folder for folder in (path, *path.absolute().parents) if folder.exists())).free


def open_fitting(directory: Path, needs: TokenNeeds) -> StoredTokens:
    """Open a token directory that holds what is needed of this very graph."""
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
    wanted = needs.workload.nodes
    if wanted is None and stored.nodes is not None:
        wanted = np.arange(needs.graph.num_nodes)
    if wanted is not None:
        RowIndex(stored.nodes, len(stored), f"'{directory}'")(wanted)
    return stored


def _refuse_scaling(directory: Path, stored: StoredTokens, needs: TokenNeeds) -> None:
    """Refuse tokens of this graph whose features were scaled in another way; the sentence names the command."""
    made, wanted = stored.manifest.get("scaling") is not None, needs.graph.scaling is not None
    words = "otherwise scaled" if made and wanted else "scaled" if made else "unscaled"
    option = "--like RUN" if made and wanted else f"--scale-features {'auto' if wanted else 'none'}"
    raise InvalidParameter(
        f"The tokens in '{directory}' were made from {words} features, but the model reads "
        f"{'scaled' if wanted else 'unscaled'} ones. Make tokens anew with: polyformer tokens PATH {option} "
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
