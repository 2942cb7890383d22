"""What the explorer in the page reads: arrays of the nodes on the map, packed as base64."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from polyformer.filters import BANDS, Filters, local_homophily
from polyformer.metrics import predicted_classes
from polyformer.reports.charts import PALETTE, cluster_curves
from polyformer.reports.outcome import NEIGHBOURS, Outcome
from polyformer.splits import has_label

__all__ = ["explorer_data"]

_MISSING = 65535
_WRONG, _CORRECT = "#D55E00", "#0072B2"
"""Vermilion and blue, which colour-blind readers can tell apart."""


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
        "places": _pack(np.round(np.clip(outcome.places, 0, 1) * _MISSING), np.uint16),
        "aspect": None if outcome.grid is None else outcome.grid**2 / task.graph.num_nodes,
        "palette": PALETTE,
        "columns": _columns(outcome),
        "neighbours": _neighbours(outcome),
        "elsewhere": _names_elsewhere(outcome),
        "filters": None if outcome.filters is None else _filters(outcome.filters),
    }


def _pack(values: np.ndarray, dtype: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(values, np.dtype(dtype).newbyteorder("<")).tobytes()).decode()


def _category(
    title: str, values: np.ndarray, labels: list[str], colours: Sequence[str] | None = None
) -> dict[str, Any]:
    """Values 0, 1, … with names; -1 for none. Colours are those of the palette by default."""
    packed = _pack(np.where(values < 0, _MISSING, values), np.uint16)
    return {"title": title, "labels": labels, "colours": colours, "values": packed}


def _number(title: str, values: np.ndarray, digits: int = 3) -> dict[str, Any]:
    """Numbers as 16-bit steps between the least and the most."""
    finite = np.isfinite(values)
    least = float(values[finite].min()) if finite.any() else 0.0
    most = float(values[finite].max()) if finite.any() else 0.0
    span = (most - least) or 1.0
    # Whole numbers stay whole where they fit in 16 bits.
    span = float(_MISSING - 1) if digits == 0 and span < _MISSING else span
    steps = np.full(len(values), float(_MISSING))
    steps[finite] = np.round((values[finite] - least) / span * (_MISSING - 1))
    packed = _pack(steps, np.uint16)
    return {"title": title, "least": least, "most": most, "step": span / (_MISSING - 1), "digits": digits} | {
        "values": packed
    }


def _columns(outcome: Outcome) -> dict[str, Any]:
    task, shown, filters = outcome.task, outcome.shown, outcome.filters
    _, scores = outcome.scores_of(shown)
    labels, columns = task.labels[shown], {}
    if filters is not None:
        kinds = [f"kind {c + 1}" for c in range(len(filters.clusters.centres))]
        columns["cluster"] = _category("kind of filter", filters.cluster, kinds)
    if task.is_regression:
        columns["class"] = _number("value", labels)
        columns["prediction"] = _number("prediction", scores[:, 0])
        columns["error"] = _number("absolute error", np.abs(scores[:, 0] - labels))
    else:
        names, best = task.shown_classes, predicted_classes(scores, outcome.card.threshold)
        columns["class"] = _category("class", labels, names)
        columns["prediction"] = _category("prediction", best, names)
        correct = np.where(labels < 0, -1, best == labels)
        columns["correct"] = _category("correctness", correct, ["wrong", "correct"], [_WRONG, _CORRECT])
        columns["confidence"] = _number("probability of the prediction", scores[np.arange(len(best)), best])
    part = np.full(len(shown), -1)
    for i, nodes in enumerate((outcome.split.train, outcome.split.val, outcome.split.test)):
        part[np.isin(shown, nodes)] = i
    columns["part"] = _category("part of the split", part, ["train", "validation", "test"])
    if filters is not None:
        for i, name in enumerate(BANDS):
            columns[name] = _number(f"{name}-pass share", filters.bands[:, i])
        orders = np.arange(filters.contributions.shape[1])
        columns["order"] = _number("mean order", filters.contributions @ orders)
    columns["degree"] = _number("degree", outcome.degrees.astype(np.float64), digits=0)
    if not task.is_regression:
        columns["homophily"] = _number("local homophily", local_homophily(task.graph, task.labels, shown))
    return columns


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
