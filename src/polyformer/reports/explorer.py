"""What the explorer in the page reads: arrays of the nodes on the map, packed as base64."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import numpy as np

from polyformer.filters import Filters
from polyformer.reports.charts import PALETTE, cluster_curves
from polyformer.reports.node_columns import (
    MISSING,
    NodeColumn,
    category_column,
    filter_columns,
    kind_names,
    part_column,
    prediction_columns,
    structure_columns,
)
from polyformer.reports.outcome import NEIGHBOURS, Outcome
from polyformer.splits import has_label

__all__ = ["explorer_data"]


def explorer_data(outcome: Outcome) -> dict[str, Any]:
    """Places, columns to colour by, neighbours and, for node-wise models, coefficients of every node on the map."""
    shown, task = outcome.shown, outcome.task
    ids = None if task.ids is None else [str(name) for name in task.ids[shown]]
    return {
        "ids": ids,
        "nodes": None if len(shown) == task.graph.num_nodes else _pack(shown, np.uint32),
        "count": len(shown),
        "first": _first_node(outcome),
        "total": len(task.graph.present_nodes),
        "places": _pack(np.round(np.clip(outcome.places, 0, 1) * MISSING), np.uint16),
        "aspect": None if outcome.grid is None else outcome.grid**2 / task.graph.num_nodes,
        "palette": PALETTE,
        "columns": _columns(outcome),
        "neighbours": _neighbours(outcome),
        "elsewhere": _names_elsewhere(outcome),
        "filters": None if outcome.filters is None else _filters(outcome.filters),
    }


def _pack(values: np.ndarray, dtype: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(values, np.dtype(dtype).newbyteorder("<")).tobytes()).decode()


def _columns(outcome: Outcome) -> dict[str, Any]:
    task, shown, filters = outcome.task, outcome.shown, outcome.filters
    _, scores = outcome.scores_of(shown)
    columns: dict[str, NodeColumn] = {}
    if filters is not None:
        kinds = kind_names(len(filters.clusters.centres))
        columns["cluster"] = category_column("kind of filter", filters.cluster, kinds)
    columns |= prediction_columns(task, shown, scores, outcome.card.threshold)
    columns["part"] = part_column(outcome.split, shown)
    if filters is not None:
        columns |= filter_columns(filters.bands, filters.mean_order)
    columns |= structure_columns(task, shown)
    return {name: {**column.describe(), "values": _pack(column.steps, np.uint16)} for name, column in columns.items()}


def _first_node(outcome: Outcome) -> int:
    """The row of the node that is shown first: one of those on which the model was tested, else one with a label."""
    labelled = has_label(outcome.task.labels[outcome.shown])
    tested = np.isin(outcome.shown, outcome.split.test)
    return int(np.argmax(2 * tested + labelled))


def _listed_neighbours(outcome: Outcome) -> tuple[np.ndarray, np.ndarray]:
    """The first neighbours of each node on the map, as many as are shown: how many, and their numbers."""
    indptr, indices = outcome.task.graph.indptr, outcome.task.graph.indices
    counts = np.minimum(indptr[outcome.shown + 1] - indptr[outcome.shown], NEIGHBOURS)
    starts = np.concatenate([[0], np.cumsum(counts)])
    rows = np.repeat(indptr[outcome.shown] - starts[:-1], counts) + np.arange(starts[-1])
    return counts, indices[rows]


def _names_elsewhere(outcome: Outcome) -> dict[str, str]:
    """What neighbours that are not on the map are called, by number, where nodes have names."""
    ids = outcome.task.ids
    if ids is None:
        return {}
    absent = np.setdiff1d(_listed_neighbours(outcome)[1], outcome.shown)
    return {str(node): str(name) for node, name in zip(absent, ids[absent], strict=True)}


def _neighbours(outcome: Outcome) -> dict[str, str]:
    """How many neighbours each node has in the list, and their numbers."""
    counts, nodes = _listed_neighbours(outcome)
    small = outcome.task.graph.num_nodes < 1 << 16
    return {
        "width": "Uint16Array" if small else "Uint32Array",
        "counts": _pack(counts, np.uint8),
        "nodes": _pack(nodes, np.uint16 if small else np.uint32),
    }


def _filters(filters: Filters) -> dict[str, Any]:
    layers = [filters.coefficients] + ([] if filters.later is None else list(filters.later.swapaxes(0, 1)))
    first, *later = (
        _layer(replace(filters, coefficients=layer), of) for layer, of in zip(layers, filters.inputs, strict=True)
    )
    return {
        "lam": filters.lam.round(5).tolist(),
        "tokens": filters.tokens.round(7).tolist(),
        "heads": filters.coefficients.shape[1],
        "orders": filters.coefficients.shape[2],
        **first,
        "later": later,
    }


def _layer(filters: Filters, applied_to: str) -> dict[str, Any]:
    """Coefficients of one layer, and the mean and spread of its responses by kind."""
    mean, spread = cluster_curves(filters)
    step = float(np.abs(filters.coefficients).max()) / 32767 or 1.0
    return {
        "input": applied_to,
        "step": step,
        "coefficients": _pack(np.round(filters.coefficients / step), np.int16),
        "mean": mean.round(5).tolist(),
        "spread": spread.round(5).tolist(),
    }
