"""Token directories that follow a changed graph: exactly, or within a tolerance and with a bound on the error."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.errors import FileCorrupt, InvalidData, InvalidParameter, OutputBusy
from polyformer.feature_scaling import FeatureScaling
from polyformer.files import locked, reporting_io_errors
from polyformer.graph import Graph
from polyformer.graph_changes import GraphChange, join_changes
from polyformer.machine import usable_memory
from polyformer.propagation.engine import ENGINES, Engine
from polyformer.reporter import SILENT, Reporter
from polyformer.stores.change_log import append_record
from polyformer.stores.directory import StoredTokens
from polyformer.stores.folding import fold, remove_leftovers
from polyformer.stores.layers import TokenLayers
from polyformer.structure_features import structure_features
from polyformer.updates.anew import replace_tokens
from polyformer.updates.bounds import TokenUpdate, error_bounds, root_mean_squares, token_thresholds
from polyformer.updates.half_precision import rounding_left_out
from polyformer.updates.token_rows import TokenRowMaker, TouchedTooMuch, feature_rows

__all__ = ["TokenUpdate", "change_since", "update_tokens"]

_COMPARED_ROWS = 1 << 16
_last_mapped: dict[tuple[int, ...], np.ndarray] = {}
"""The array that was updated last: kept mapped, an update of the same directory does not wait for its pages again."""


def update_tokens(
    directory: str | Path,
    graph: Graph,
    tolerance: float = 0.0,
    engine: str | Engine = "memory",
    reporter: Reporter = SILENT,
) -> TokenUpdate:
    """Bring a token directory of all nodes to a changed graph; readers keep what they opened until they open it again.

    Args:
        directory: tokens of the graph before the change: what ``polyformer tokens`` wrote, in any fixed basis.
        graph: what :meth:`polyformer.Graph.updated` gave, or an updated graph directory; scaled like the tokens.
        tolerance: 0 makes every touched row anew. Otherwise a row keeps its tokens while what it leaves out stays below
            this share of the root mean square of its order's tokens (rows' norms, estimated on 4,096 rows).
        engine: computes everything anew where more than half of the rows of an order is touched.
        reporter: is told the share of the work that is done, where everything is computed anew.

    Example:
        >>> import tempfile
        >>> from polyformer.tokens import write_tokens
        >>> graph = Graph([[0, 1, 2], [1, 2, 3]], features=np.eye(4))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_tokens(graph, f"{folder}/tokens", order=2)
        ...     update_tokens(f"{folder}/tokens", graph.updated(remove_edges=[[2, 3]])).rows_touched
        (0, 3, 4)
    """
    began = time.perf_counter()
    if not 0 <= tolerance < math.inf:
        raise InvalidParameter(f"'tolerance' must be 0 or a positive number. Got {tolerance}. Try 1e-3.")
    runner = ENGINES[engine]() if isinstance(engine, str) else engine
    with _held(Path(directory)):
        stored = _open(Path(directory))
        _check_updatable(stored, tolerance)
        graph = _scaled_alike(graph, stored)
        change = change_since(stored, graph)
        remove_leftovers(stored)
        rms = root_mean_squares(stored)
        try:
            update = _append_changed_rows(stored, graph, change, tolerance, runner, rms)
        except TouchedTooMuch:
            with reporting_io_errors("tokens", stored.directory):
                replace_tokens(stored, graph, runner, reporter, rms)
            touched = (graph.num_nodes,) * stored.layers.shape[1]
            update = TokenUpdate(touched, graph.num_nodes, (0.0,) * len(touched), tolerance, True, 0.0)
    return replace(update, seconds=time.perf_counter() - began)


def _append_changed_rows(
    stored: StoredTokens, graph: Graph, change: GraphChange, tolerance: float, runner: Engine, rms: list[float]
) -> TokenUpdate:
    """Compute the rows that the change touched and append them to the log; too many of them are left to the caller."""
    left_out = _left_out(stored, graph, tolerance)
    memory = usable_memory() if runner.memory is None else runner.memory
    most_rows = memory // (4 * 4 * math.prod(stored.layers.shape[1:]))
    thresholds = token_thresholds(rms, tolerance)
    maker = TokenRowMaker(graph, stored.layers, change, stored.self_loops, left_out, thresholds, most_rows)
    maker.run()
    bounds = error_bounds(left_out, stored.layers.shape[1])
    record = maker.record(_about(stored, graph, bounds, rms), _is_first_after_rounding(stored))
    append_record(stored.log_path, record, stored.log_bytes)
    fold(stored)
    return TokenUpdate(maker.rows_touched, maker.count_nodes(), bounds, tolerance, False, 0.0)


def _open(directory: Path) -> StoredTokens:
    """The tokens; their array is the memory map of the last update, and not checked again, if it is the same file."""
    key, base = next(iter(_last_mapped.items()), ((), None))
    sealed = not any(_key(path) == key for path in directory.glob("tokens*.npy"))
    stored = StoredTokens(directory, sealed=sealed)
    if base is not None and _key(stored.base_path) == key:
        stored.layers.base = base
    _last_mapped.clear()
    _last_mapped[_key(stored.base_path)] = stored.layers.base
    return stored


def _key(path: Path) -> tuple[int, ...]:
    """What tells one file from another, and from itself after a change."""
    about = path.stat()
    return (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)


@contextmanager
def _held(directory: Path) -> Iterator[None]:
    """Hold a token directory for this update; another one at the same time is refused."""
    if not directory.is_dir():
        StoredTokens(directory)  # says what is missing
    busy = OutputBusy(f"Another process is updating '{directory}'. Wait for it, then run again.")
    with reporting_io_errors("changed tokens", directory), locked(directory / "update.lock", busy):
        yield


def _check_updatable(stored: StoredTokens, tolerance: float) -> None:
    place = stored.directory
    if stored.manifest["stored"] != "chebyshev":
        raise InvalidParameter(
            f"'{place}' holds tokens of the basis '{stored.manifest['stored']}', which depend on all nodes at once, so "
            f"they cannot follow a change. Make them again, or use a fixed basis such as chebyshev."
        )
    if stored.manifest["subset"]:
        raise InvalidParameter(
            f"'{place}' holds tokens of some nodes, and an update reads those of their neighbours too. Make tokens of "
            f"all nodes, which can be updated: polyformer tokens GRAPH --nodes all --out DIR."
        )
    if tolerance == 0 and stored.manifest["dtype"] != "float32":
        raise InvalidParameter(
            f"'{place}' holds {stored.manifest['dtype']} tokens, which are rounded, so they cannot be updated exactly. "
            f"Give a tolerance such as 1e-2, or make float32 tokens."
        )


def _scaled_alike(graph: Graph, stored: StoredTokens) -> Graph:
    """The graph with features that are scaled like the tokens'; a graph without features gets those of its
    structure."""
    if graph.num_features == 0:
        graph = graph.with_features(structure_features(graph))
    scaling = FeatureScaling.from_json(stored.manifest.get("scaling"))
    if graph.scaling is None:
        graph = graph.scaled(scaling)
    elif scaling is None or scaling.digest != graph.scaling.digest:
        raise InvalidParameter(
            f"The features of the graph are scaled in another way than those of '{stored.directory}'. Pass the graph "
            f"with its features as they are stored: they are then scaled like the tokens."
        )
    if graph.features is None or graph.num_features != stored.layers.shape[2]:
        raise InvalidData(
            f"The tokens in '{stored.directory}' are of {stored.layers.shape[2]} features per node. This graph has "
            f"{graph.num_features}. Pass the changed graph with the same features."
        )
    return graph


def change_since(stored: StoredTokens, graph: Graph) -> GraphChange:
    """What changed between the graph that tokens were made from and ``graph``, by its history."""
    raw, manifest = graph.unscaled, stored.manifest
    made_from = manifest["graph"].partition("+")[0]
    empty = np.empty(0, np.int64)
    if made_from == raw.fingerprint:
        return GraphChange(made_from, raw.structure_fingerprint, graph.num_nodes, empty, np.empty(0), empty)
    history = raw.history
    for place in range(len(history) - 1, -1, -1):
        if history[place].before == made_from:
            return join_changes(history[place:])
    # Features that were made from the structure are in no history: they are compared.
    structure = manifest["operator"]["structure"]
    for place, change in enumerate(history):
        if change.structure_before == structure and change.num_nodes == stored.layers.num_rows:
            joined = join_changes(history[place:])
            rows = _differing_rows(stored.layers, graph, change.num_nodes)
            return GraphChange(made_from, structure, joined.num_nodes, joined.ends, joined.degrees, rows)
    raise FileCorrupt(
        f"The tokens in '{stored.directory}' were made from another graph, or from a version whose later changes are "
        f"not known any more. Make them again with: polyformer tokens."
    )


def _differing_rows(layers: TokenLayers, graph: Graph, num_nodes: int) -> np.ndarray:
    """Nodes whose tokens of order 0 are not their features."""
    rows = []
    assert graph.features is not None
    for start in range(0, num_nodes, _COMPARED_ROWS):
        nodes = np.arange(start, min(num_nodes, start + _COMPARED_ROWS))
        differs = (layers.take(nodes, 1)[:, 0] != feature_rows(graph.features, nodes).astype(layers.base.dtype)).any(1)
        rows.append(nodes[differs])
    return np.concatenate(rows) if rows else np.empty(0, np.int64)


def _left_out(stored: StoredTokens, graph: Graph, tolerance: float) -> np.ndarray | None:
    """(K+1, N) bounds on what was left out so far; None where nothing was and nothing may be."""
    layers = stored.layers
    if _is_first_after_rounding(stored):
        return rounding_left_out(layers, graph, stored.self_loops)
    if tolerance == 0 and not any(len(ids) for record in layers.records for ids in record.left_ids):
        return None
    return layers.left_out(graph.num_nodes)


def _is_first_after_rounding(stored: StoredTokens) -> bool:
    """Whether what rounding to float16 left out is not written down yet."""
    return stored.layers.base.dtype != np.float32 and not stored.layers.records and "rms" not in stored.manifest


def _about(stored: StoredTokens, graph: Graph, bounds: tuple[float, ...], rms: list[float]) -> dict[str, Any]:
    """What the manifest says of the tokens after this update."""
    return {
        "graph": graph.fingerprint,
        "structure": graph.structure_fingerprint,
        "num_rows": graph.num_nodes,
        "version": stored.manifest.get("version", 0) + 1,
        "error_bounds": bounds,
        "rms": rms,
        "updated": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
