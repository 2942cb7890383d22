"""Polynomial tokens: operator + basis + engine + store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyformer.arrays import aligned_empty
from polyformer.bases import Basis, FixedBasis, Recurrence, basis_config, check_order, resolve_basis
from polyformer.errors import InvalidData, InvalidParameter
from polyformer.graph import Graph
from polyformer.graph_checks import Features, to_numpy
from polyformer.operators import Operator
from polyformer.propagation.engine import ENGINES, Engine, TokenJob
from polyformer.reporter import SILENT, Reporter
from polyformer.stores.blocks import TokenShape
from polyformer.stores.directory import FORMAT, StoredTokens
from polyformer.stores.mixing import mix_orders
from polyformer.stores.sinks import ArraySink, join_recurrences
from polyformer.stores.writer import TokenDirectoryWriter

__all__ = [
    "check_nodes",
    "compute_tokens",
    "compute_tokens_and_recurrence",
    "open_tokens",
    "token_bytes",
    "write_tokens",
]


def compute_tokens(
    graph: Graph,
    basis: str | Basis = "chebyshev",
    order: int = 10,
    self_loops: bool = False,
    nodes: Any = None,
    reporter: Reporter = SILENT,
) -> torch.Tensor:
    r"""Tokens :math:`g_0(\hat L) X, …, g_K(\hat L) X` of all nodes or of ``nodes``.

    Args:
        graph: a graph with features (N, d).
        basis: a name, a spec such as ``"jacobi:a=1,b=0.5"``, or a basis object.
        order: K.
        self_loops: use the operator of A + I.
        nodes: node ids or a boolean mask; all nodes by default.
        reporter: hears which share of the work is done.

    Returns:
        A contiguous float32 CPU tensor (N or len(nodes), K+1, d).

    Example:
        >>> graph = Graph([[0, 1], [1, 2]], features=[[1.0], [0.0], [0.0]])
        >>> tokens = compute_tokens(graph, "monomial", order=2)
        >>> tokens.shape
        torch.Size([3, 3, 1])
        >>> [round(float(value), 3) for value in tokens[0, :, 0]]  # 1, then one and two steps away and back
        [1.0, 0.0, 0.5]
    """
    return compute_tokens_and_recurrence(graph, basis, order, self_loops, nodes, reporter)[0]


def compute_tokens_and_recurrence(
    graph: Graph,
    basis: str | Basis = "chebyshev",
    order: int = 10,
    self_loops: bool = False,
    nodes: Any = None,
    reporter: Reporter = SILENT,
) -> tuple[torch.Tensor, Recurrence | None]:
    """:func:`compute_tokens`, and for the optimal basis the recorded recurrence of its columns."""
    basis, order, features = resolve_basis(basis), check_order(order), _features(graph)
    rows = check_nodes(nodes, graph.num_nodes)
    # Compute the matrix first, so that a response that is no polynomial is refused before any work is done.
    mixing = basis.mixing(order) if isinstance(basis, FixedBasis) else None
    count = graph.num_nodes if rows is None else len(rows)
    out = aligned_empty((count, order + 1, features.shape[1]), np.float32)
    sink = ArraySink(out)
    job = TokenJob(Operator(graph, self_loops), features, order, sink, rows, reporter)
    _run(ENGINES["memory"](), basis, job)
    if mixing is not None and not np.array_equal(mixing, np.eye(order + 1)):
        mix_orders(out, mixing)
    return torch.from_numpy(out), join_recurrences(sink.recurrences)


def write_tokens(
    graph: Graph,
    directory: str | Path,
    basis: str | Basis = "chebyshev",
    order: int = 10,
    self_loops: bool = False,
    nodes: Any = None,
    engine: str | Engine = "memory",
    reporter: Reporter = SILENT,
    dtype: str = "float32",
) -> None:
    """Compute tokens into a token directory; after a kill, the same call goes on with the finished blocks.

    For a fixed basis, Chebyshev tokens are stored, which serve every fixed basis; the basis is recorded as the default
    view.

    Args:
        engine: ``"memory"``, ``"disk"``, ``"ray"`` or an engine object, e.g. ``DiskEngine(memory=8 << 30)``.
        dtype: how tokens are stored: ``"float32"``, or ``"float16"``, which is refused if a token does not fit.
    """
    basis, order, features = resolve_basis(basis), check_order(order), _features(graph)
    rows = check_nodes(nodes, graph.num_nodes)
    if rows is not None and len(rows) == 0:
        raise InvalidParameter("'nodes' must name at least one node. Got none.")
    if isinstance(basis, FixedBasis):
        basis.mixing(order)
    operator = Operator(graph, self_loops)
    shape = TokenShape(graph.num_nodes if rows is None else len(rows), order, features.shape[1], dtype)
    about = {
        "format": FORMAT,
        "kind": "tokens",
        "graph": graph.fingerprint,
        "operator": operator.key,
        "order": order,
        "num_rows": shape.num_rows,
        "num_features": shape.num_features,
        "dtype": dtype,
        "stored": "chebyshev" if basis.fixed else basis.name,
        "view": basis_config(basis, order),
        "subset": rows is not None,
    }
    if graph.scaling is not None:
        about["scaling"] = graph.scaling.to_json()
    runner = ENGINES[engine]() if isinstance(engine, str) else engine
    about |= runner.about()
    with TokenDirectoryWriter(Path(directory), shape, about, rows).open() as writer, runner.session():
        if writer.missing():
            _run(runner, basis, TokenJob(operator, features, order, writer, rows, reporter))
        writer.finish(runner.assemble)


def open_tokens(directory: str | Path, basis: str | Basis | None = None, order: int | None = None) -> StoredTokens:
    """Open a token directory; rows are memory-mapped and mixed into ``basis`` as they are read."""
    return StoredTokens(directory, basis, order)


def token_bytes(num_rows: int, order: int, num_features: int) -> int:
    """Bytes of float32 tokens of this size, in memory or on disk."""
    return TokenShape(num_rows, order, num_features).bytes


def check_nodes(nodes: Any, num_nodes: int) -> np.ndarray | None:
    """Node ids as int64; a boolean mask becomes ids; None stays None."""
    if nodes is None:
        return None
    ids = to_numpy(nodes, "nodes")
    if ids.dtype == bool and ids.shape == (num_nodes,):
        return np.flatnonzero(ids)
    if ids.size == 0:
        return np.empty(0, np.int64)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise InvalidParameter(
            f"'nodes' must be a list of node ids or a mask of length {num_nodes}. Got {ids.dtype} of shape {ids.shape}."
        )
    wrong = ids[(ids < 0) | (ids >= num_nodes)]
    if len(wrong):
        raise InvalidParameter(f"'nodes' must lie in 0..{num_nodes - 1}. Got {int(wrong[0])}.")
    return ids.astype(np.int64)


def _features(graph: Graph) -> Features:
    if graph.features is None or graph.num_features == 0:
        raise InvalidData(
            "Tokens need node features and this graph has none. Pass features, e.g. degrees or random columns."
        )
    return graph.features


def _run(engine: Engine, basis: Basis, job: TokenJob) -> None:
    if basis.fixed:
        engine.chebyshev(job)
    else:
        engine.optimal(job)
