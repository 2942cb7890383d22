"""Every node's filters as a Parquet table."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np

from polyformer.errors import InvalidParameter
from polyformer.files import create_mapped, existing_folder, reporting_io_errors
from polyformer.filters.clusters import CLUSTERED_NODES, FilterClusters, check_clusters, cluster_filters
from polyformer.filters.responses import (
    BANDS,
    filter_coefficients,
    frequency_grid,
    local_homophily,
    order_contributions,
    pass_shares,
    spectral_layers,
)
from polyformer.graph import Graph
from polyformer.models import NodeModel, NodeWiseFilter, SpectralFilter, Workload
from polyformer.models.walk import ROWS_PER_BLOCK, node_blocks
from polyformer.reporter import SILENT, Reporter
from polyformer.table_writer import table_rows
from polyformer.tasks import Task

__all__ = ["write_filters"]


def write_filters(
    path: Path,
    model: NodeModel,
    task: Task,
    workload: Workload | None = None,
    *,
    clusters: int | None = None,
    channel: int | None = None,
    points: int = 21,
    reporter: Reporter = SILENT,
) -> int:
    """Write every node's filters as Parquet, a row group at a time; returns the number of rows.

    One row a node: ``node``, ``cluster``, ``low``, ``band``, ``high`` (:func:`pass_shares`), ``order_<k>``
    (:func:`order_contributions`), ``degree``, for classes ``homophily`` and ``class``, ``layer<l>_head<h>`` (the K+1
    coefficients) and ``response_head<h>`` (the first layer's response at λ = 0, …, 2 on ``points`` frequencies). Where
    later layers have a spectrum too, as the stages of a cascade, there are ``layer<l>_response_head<h>``, each relative
    to what ``model.filter_input(l)`` says. A node-unified model gives one row a filter: ``filter`` and ``response``.

    Args:
        workload: which nodes, all by default, and what the model may use; ``scratch`` is a folder that exists.
        clusters: how many kinds of filters; chosen by default.
        channel: the feature column of an optimal basis; the one with the largest norm by default.
        points: frequencies of the responses that are written; none if 0.
    """
    if points < 0:
        raise InvalidParameter(f"'points' must be 0 or more. Got {points}.")
    work = Workload() if workload is None else workload
    if not isinstance(model, NodeWiseFilter):
        return _write_shared(path, model, task.graph, work, points, reporter)
    check_clusters(clusters, task.graph.num_nodes if work.nodes is None else len(work.nodes))
    if channel is not None:
        model.check_channel(channel)
    with tempfile.TemporaryDirectory(prefix=".filters.", dir=existing_folder(path)) as folder:
        # Clustering needs a sample of all nodes, so the coefficients stay on disk until all nodes are computed.
        coefficients = _keep_coefficients(Path(folder) / "alpha.npy", model, task.graph, work, reporter)
        channel = model.default_channel if channel is None else channel
        lam = frequency_grid()
        tokens, grid = model.token_response(lam, channel), model.token_response(frequency_grid(points), channel)
        sample = np.sort(np.random.default_rng(0).permutation(len(coefficients))[:CLUSTERED_NODES])
        kinds = cluster_filters(np.einsum("nhk,kl->nhl", coefficients[sample, 0], tokens), clusters)

        spectral = spectral_layers(model)

        def columns(ids: np.ndarray, alpha: np.ndarray) -> dict[str, Any]:
            return _columns(ids, alpha, task, tokens, lam, kinds, grid) | _responses(alpha, grid, spectral)

        return _write_rows(path, coefficients, work.nodes, columns)


def _write_rows(
    path: Path,
    coefficients: np.ndarray,
    nodes: np.ndarray | None,
    columns: Callable[[np.ndarray, np.ndarray], dict[str, Any]],
) -> int:
    """Write the rows of all nodes, a block at a time."""
    import pyarrow as pa

    with table_rows(path, "filters") as rows:
        for start in range(0, len(coefficients), ROWS_PER_BLOCK):
            alpha = np.array(coefficients[start : start + ROWS_PER_BLOCK])
            ids = np.arange(start, start + len(alpha)) if nodes is None else nodes[start : start + len(alpha)]
            rows.write(pa.table(columns(ids, alpha)))
    return rows.count


def _write_shared(
    path: Path, model: NodeModel, graph: Graph, workload: Workload, points: int, reporter: Reporter
) -> int:
    """Write the filters that all nodes share."""
    import pyarrow as pa

    if not isinstance(model, SpectralFilter):
        raise InvalidParameter(
            "The model has no spectral filter. Choose a run of another model, e.g. polyformer or polyattn."
        )
    for _ in node_blocks(model, graph, lambda ids: (ids,), workload, reporter, "filters"):
        break  # bound, which the response needs
    with table_rows(path, "filters") as rows:
        response = model.frequency_response(frequency_grid(points))
        columns = {"filter": np.arange(len(response))} | ({"response": list(response)} if points else {})
        rows.write(pa.table(columns))
    return rows.count


def _keep_coefficients(
    path: Path, model: NodeWiseFilter, graph: Graph, workload: Workload, reporter: Reporter
) -> np.ndarray:
    """Coefficients of all layers on disk: (n, layers, H, K+1) float32."""

    def compute(ids: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.stack([filter_coefficients(model, ids, layer) for layer in range(model.filter_layers)], axis=1),)

    kept, done = None, 0
    for ids, (alpha,) in node_blocks(cast(NodeModel, model), graph, compute, workload, reporter, "filters"):
        if kept is None:
            count = graph.num_nodes if workload.nodes is None else len(workload.nodes)
            shape = (count, *alpha.shape[1:])
            with reporting_io_errors("coefficients", path):
                kept = create_mapped(path, np.float32, shape)
        kept[done : done + len(ids)] = alpha
        done += len(ids)
    assert kept is not None
    return kept


def _columns(
    ids: np.ndarray,
    alpha: np.ndarray,
    task: Task,
    tokens: np.ndarray,
    lam: np.ndarray,
    clusters: FilterClusters,
    grid: np.ndarray,
) -> dict[str, Any]:
    """The columns of :func:`write_filters`: α (n, layers, H, K+1), tokens (K+1, L), grid (K+1, points)."""
    first = alpha[:, 0]
    cluster, bands = np.empty(len(ids), np.int64), np.empty((len(ids), 3))
    for start in range(0, len(ids), 4096):  # responses take L / (K+1) times the memory of their coefficients
        rows = slice(start, start + 4096)
        responses = np.einsum("nhk,kl->nhl", first[rows], tokens)
        cluster[rows], bands[rows] = clusters.assign(responses), pass_shares(responses, lam)
    columns: dict[str, Any] = {"node": ids if task.ids is None else task.ids[ids], "cluster": cluster}
    columns |= {name: bands[:, i] for i, name in enumerate(BANDS)}
    columns |= {f"order_{k}": part for k, part in enumerate(order_contributions(first, tokens).T)}
    columns["degree"] = task.graph.indptr[ids + 1] - task.graph.indptr[ids]
    if not task.is_regression and task.num_classes:
        columns["homophily"] = local_homophily(task.graph, task.labels, ids)
        names = None if task.class_names is None else np.array([*task.class_names, ""])
        columns["class"] = task.labels[ids] if names is None else names[task.labels[ids]]
    for layer in range(alpha.shape[1]):
        columns |= {f"layer{layer}_head{h}": _lists(alpha[:, layer, h]) for h in range(alpha.shape[2])}
    return columns


def _responses(alpha: np.ndarray, grid: np.ndarray, layers: list[int]) -> dict[str, Any]:
    """Responses of the layers that have one: α (n, layers, H, K+1), grid (K+1, points); none without points."""
    return {
        f"{f'layer{layer}_' if layer else ''}response_head{h}": _lists(alpha[:, layer, h] @ grid)
        for layer in (layers if grid.shape[1] else [])
        for h in range(alpha.shape[2])
    }


def _lists(rows: np.ndarray) -> Any:
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(np.ascontiguousarray(rows, np.float32).ravel(), rows.shape[1])
