"""What a trained model does to the spectrum: every node's coefficients and response, and what they have in common."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from polyformer.errors import InvalidParameter
from polyformer.files import existing_folder
from polyformer.graph import Graph
from polyformer.models import NodeModel, NodeWiseFilter, SpectralFilter
from polyformer.models.token_model import TokenModel
from polyformer.prediction import ROWS_PER_BLOCK, Resources, node_blocks, table_rows
from polyformer.tasks import Task

__all__ = [
    "BANDS",
    "FilterClusters",
    "cluster_filters",
    "default_channel",
    "filter_coefficients",
    "filter_response",
    "frequency_grid",
    "local_homophily",
    "order_contributions",
    "pass_shares",
    "write_filters",
]

BANDS = ("low", "band", "high")
"""The thirds of the spectrum: λ in [0, 2/3), [2/3, 4/3), [4/3, 2]."""

_CLUSTERED_NODES, _COMPARED_NODES = 10_000, 1_500
_CLUSTER_NUMBERS = range(2, 7)


def frequency_grid(points: int = 65) -> np.ndarray:
    """Frequencies λ, evenly from 0 to 2.

    >>> frequency_grid(3)
    array([0., 1., 2.])
    """
    return np.linspace(0.0, 2.0, points)


def filter_coefficients(model: NodeWiseFilter, nodes: np.ndarray, layer: int = 0) -> np.ndarray:
    """α_k of each node and head in one layer: (len(nodes), H, K+1)."""
    count = model.filter_layers
    if not 0 <= layer < count:
        raise InvalidParameter(f"'layer' must lie in 0..{count - 1}. Got {layer}.")
    return model.filter_coefficients(torch.from_numpy(nodes), layer)


def filter_response(
    model: NodeWiseFilter, nodes: np.ndarray, lam: Any, layer: int = 0, channel: int | None = None
) -> np.ndarray:
    r"""The filter of each node and head: :math:`h_i(λ) = \sum_k α_k g_k(λ)`, (len(nodes), H, len(lam)).

    It is the first layer's PolyAttn on its own normalised input, the residual left out; exact for a bare PolyAttn.
    Later layers have coefficients but no spectrum: their tokens are no polynomials of the operator any more.

    Args:
        channel: the feature column whose recurrence is meant; needed by the optimal basis and by no other.
    """
    if layer != 0:
        raise InvalidParameter(
            f"'layer' must be 0: later layers have coefficients but no spectrum. Got {layer}. Use filter_coefficients."
        )
    lam = np.asarray(lam, dtype=np.float64)
    if lam.ndim != 1:
        raise InvalidParameter(f"'lam' must be one-dimensional. Got shape {lam.shape}.")
    return np.einsum("nhk,kl->nhl", filter_coefficients(model, nodes, layer), model.token_response(lam, channel))


def default_channel(model: NodeWiseFilter) -> int | None:
    """The feature column to show: None where all share the basis, else the one with the largest norm."""
    if isinstance(model, TokenModel) and model.recurrence is not None:
        return int(model.recurrence.norm.argmax())
    return None


def order_contributions(coefficients: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    r"""How much each order contributes to a node's filters: (n, H, K+1), (K+1, L) -> (n, K+1), rows that sum to one.

    :math:`\sum_h |α_{hk}|\,\|g_k\|` with the L2 norm of :math:`g_k` on the grid of λ, divided by the sum over k.

    >>> order_contributions(np.array([[[1.0, -3.0]]]), np.ones((2, 5)))
    array([[0.25, 0.75]])
    """
    return _shares(np.abs(coefficients).sum(axis=1) * np.sqrt(np.square(tokens).mean(axis=1)))


def pass_shares(responses: np.ndarray, lam: np.ndarray) -> np.ndarray:
    r"""The share of a node's filters' energy in each of ``BANDS``: (n, H, L), (L,) -> (n, 3), rows that sum to one.

    :math:`\sum_h \int_b h(λ)^2 dλ`, divided by the sum over the bands b.

    >>> pass_shares(np.array([[[1.0, 0.0, 2.0]]]), frequency_grid(3))
    array([[0.2, 0. , 0.8]])
    """
    energy = np.square(responses).sum(axis=1)  # (n, L)
    band = np.minimum((lam * 1.5).astype(np.int64), 2)
    return _shares(np.stack([energy[:, band == i].sum(axis=1) for i in range(3)], axis=1))


def _shares(parts: np.ndarray) -> np.ndarray:
    """Rows divided by their sums; equal shares where there is nothing."""
    total = parts.sum(axis=1, keepdims=True)
    return np.divide(parts, total, out=np.full_like(parts, 1 / parts.shape[1]), where=total > 0)


def local_homophily(graph: Graph, labels: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """The share of each node's labelled neighbours that have its class: (n,), NaN where there are none.

    >>> local_homophily(Graph([[0, 0], [1, 2]]), np.array([0, 0, 1]), np.arange(3))
    array([0.5, 1. , 0. ])
    """
    starts, counts = graph.indptr[nodes], graph.indptr[nodes + 1] - graph.indptr[nodes]
    row = np.repeat(np.arange(len(nodes)), counts)
    offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    neighbour = labels[graph.indices[np.repeat(starts, counts) + offset]]
    own = labels[nodes]
    known = (neighbour >= 0) & (own[row] >= 0)
    same = np.bincount(row[known & (neighbour == own[row])], minlength=len(nodes))
    total = np.bincount(row[known], minlength=len(nodes))
    return np.divide(same, total, out=np.full(len(nodes), np.nan), where=total > 0)


@dataclass(frozen=True, eq=False)
class FilterClusters:
    """Kinds of filters, the most common first.

    Shapes:
        ``centres`` (C, H, L): the mean response of each cluster, head by head.
    """

    centres: np.ndarray

    def assign(self, responses: np.ndarray) -> np.ndarray:
        """The nearest centre of each node: (n, H, L) -> (n,)."""
        flat, centres = responses.reshape(len(responses), -1), self.centres.reshape(len(self.centres), -1)
        return np.argmin(np.square(centres).sum(axis=1) - 2 * flat @ centres.T, axis=1)


def cluster_filters(responses: np.ndarray, number: int | None = None, seed: int = 0) -> FilterClusters:
    """Clusters of nodes by response, by k-means over all heads on the grid: (n, H, L) -> :class:`FilterClusters`.

    Args:
        number: number of clusters; by default the number from 2 to 6 with the best silhouette.

    Example:
        >>> low, high = np.linspace(1, 0, 9), np.linspace(0, 1, 9)
        >>> clusters = cluster_filters(np.stack([low, high, high])[:, None], number=2)
        >>> clusters.assign(np.stack([high, low])[:, None])
        array([0, 1])
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    random = np.random.default_rng(seed)
    sampled_nodes = np.sort(random.permutation(len(responses))[:_CLUSTERED_NODES])
    flat = responses[sampled_nodes].reshape(len(sampled_nodes), -1)
    distinct = len(np.unique(flat.astype(np.float32), axis=0))
    _check_clusters(number, len(responses))

    def fit(count: int, rows: np.ndarray) -> Any:
        return KMeans(min(count, distinct), n_init=3, random_state=seed).fit(rows)

    if number is None:
        few = flat[:: -(-len(flat) // _COMPARED_NODES)]
        scores = {1: 0.0}
        for count in _CLUSTER_NUMBERS:
            assignment = fit(count, few).labels_
            if 1 < len(np.unique(assignment)) < len(few):
                scores[count] = float(silhouette_score(few, assignment))
        number = max(scores, key=lambda count: scores[count])
    result = fit(number, flat)
    order = np.argsort(-np.bincount(result.labels_, minlength=len(result.cluster_centers_)), kind="stable")
    return FilterClusters(result.cluster_centers_[order].reshape(-1, *responses.shape[1:]))


def _check_clusters(number: int | None, num_nodes: int) -> None:
    if number is not None and not 1 <= number <= num_nodes:
        raise InvalidParameter(f"'clusters' must lie in 1..{num_nodes}, the number of nodes. Got {number}.")


def write_filters(
    path: Path,
    model: NodeModel,
    task: Task,
    nodes: np.ndarray | None = None,
    *,
    clusters: int | None = None,
    channel: int | None = None,
    points: int = 21,
    resources: Resources | None = None,
) -> int:
    """Write every node's filters as Parquet, a row group at a time; returns the number of rows.

    One row a node: ``node``, ``cluster``, ``low``, ``band``, ``high`` (:func:`pass_shares`), ``order_<k>``
    (:func:`order_contributions`), ``degree``, for classes ``homophily`` and ``class``, ``layer<l>_head<h>`` (the K+1
    coefficients) and ``response_head<h>`` (the first layer's response at λ = 0, …, 2 on ``points`` frequencies). A
    node-unified model gives one row a filter: ``filter`` and ``response``.

    Args:
        nodes: ids of the nodes to write; all nodes by default.
        clusters: how many kinds of filters; chosen by default.
        channel: the feature column of an optimal basis; the one with the largest norm by default.
        points: frequencies of the responses that are written; none if 0.
    """
    import pyarrow as pa

    if points < 0:
        raise InvalidParameter(f"'points' must be 0 or more. Got {points}.")
    if not isinstance(model, NodeWiseFilter):
        if not isinstance(model, SpectralFilter):
            raise InvalidParameter(
                "The model has no spectral filter. Choose a run of another model, e.g. polyformer or polyattn."
            )
        for _ in node_blocks(model, task.graph, lambda ids: (ids,), nodes, resources):
            break  # bound, which the response needs
        with table_rows(path, "filters") as rows:
            response = model.frequency_response(frequency_grid(points))
            columns = {"filter": np.arange(len(response))} | ({"response": list(response)} if points else {})
            rows.write(pa.table(columns))
        return rows.count
    _check_clusters(clusters, task.graph.num_nodes if nodes is None else len(nodes))
    if channel is not None:
        model.check_channel(channel)
    with tempfile.TemporaryDirectory(prefix=".filters.", dir=existing_folder(path)) as folder:
        # Clustering needs a sample of all nodes, so the coefficients stay on disk until all nodes are computed.
        coefficients = _keep_coefficients(Path(folder) / "alpha.npy", model, task.graph, nodes, resources)
        channel = default_channel(model) if channel is None else channel
        lam = frequency_grid()
        tokens, grid = model.token_response(lam, channel), model.token_response(frequency_grid(points), channel)
        sample = np.sort(np.random.default_rng(0).permutation(len(coefficients))[:_CLUSTERED_NODES])
        kinds = cluster_filters(np.einsum("nhk,kl->nhl", coefficients[sample, 0], tokens), clusters)
        with table_rows(path, "filters") as rows:
            for start in range(0, len(coefficients), ROWS_PER_BLOCK):
                alpha = np.array(coefficients[start : start + ROWS_PER_BLOCK])
                ids = np.arange(start, start + len(alpha)) if nodes is None else nodes[start : start + len(alpha)]
                rows.write(pa.table(_columns(ids, alpha, task, tokens, lam, kinds, grid)))
    return rows.count


def _keep_coefficients(
    path: Path, model: NodeWiseFilter, graph: Graph, nodes: np.ndarray | None, resources: Resources | None
) -> np.ndarray:
    """Coefficients of all layers on disk: (n, layers, H, K+1) float32."""

    def compute(ids: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.stack([filter_coefficients(model, ids, layer) for layer in range(model.filter_layers)], axis=1),)

    kept, done = None, 0
    for ids, (alpha,) in node_blocks(cast(NodeModel, model), graph, compute, nodes, resources):
        if kept is None:
            count = graph.num_nodes if nodes is None else len(nodes)
            kept = np.lib.format.open_memmap(path, "w+", np.float32, (count, *alpha.shape[1:]))
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
    if grid.shape[1]:
        columns |= {f"response_head{h}": _lists(first[:, h] @ grid) for h in range(alpha.shape[2])}
    return columns


def _lists(rows: np.ndarray) -> Any:
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(np.ascontiguousarray(rows, np.float32).ravel(), rows.shape[1])
