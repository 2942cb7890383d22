"""Which feature columns a model relies on: permutation importance on validation nodes, within a bound on its time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from polyformer.feature_scaling import ScaledFeatures
from polyformer.metrics import METRICS
from polyformer.models import NodeModel, Workload
from polyformer.reports.node_map import sample_nodes
from polyformer.runs.prediction import predict_blocks
from polyformer.runs.saved_model import ModelCard
from polyformer.splits import Split
from polyformer.tasks import Task

__all__ = ["ColumnGroup", "Importance", "column_groups", "feature_importance", "shuffled"]

SECONDS = 10.0
"""So long may it take, beside the first evaluation."""

_COLUMNS, _REPEATS, _NODES = 50, 5, 5_000

PlainFeatures: TypeAlias = "np.ndarray | sp.csr_matrix"
"""Node features as the model reads them, scaled already."""


@dataclass(frozen=True)
class ColumnGroup:
    """Features ``start`` to ``stop`` that come from one column of the user's table, e.g. all of its categories."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class Importance:
    """By how much a score gets worse when a column is shuffled among the nodes.

    Attributes:
        names: names of the columns, the most important first; empty where nothing was computed.
        losses: (c,) mean loss of score; ``spread`` (c,) its standard deviation over the repeats.
        score: score with undisturbed features, on ``num_nodes`` validation nodes.
        remark: what was left out, and why; empty where nothing was.
    """

    names: list[str]
    losses: np.ndarray
    spread: np.ndarray
    score: float
    num_nodes: int
    repeats: int
    remark: str

    @classmethod
    def left_out(cls, remark: str) -> Importance:
        """Nothing but the reason."""
        return cls([], np.empty(0), np.empty(0), float("nan"), 0, 0, remark)


def column_groups(task: Task) -> list[ColumnGroup]:
    """The columns of the table that the features come from, or the features themselves, by number."""
    count = task.graph.num_features
    columns = task.columns or ()
    ends = np.cumsum([column.width for column in columns])
    if len(ends) and ends[-1] == count:
        return [
            ColumnGroup(column.name, int(end) - column.width, int(end))
            for column, end in zip(columns, ends, strict=True)
        ]
    return [ColumnGroup(f"feature {i}", i, i + 1) for i in range(count)]


def shuffled(features: PlainFeatures, group: ColumnGroup, order: np.ndarray) -> PlainFeatures:
    """The features with those of one column taken from other nodes: row i from row ``order[i]``."""
    if sp.issparse(features):
        parts = [features[:, : group.start], features[order, group.start : group.stop], features[:, group.stop :]]
        return sp.csr_matrix(sp.hstack(parts, format="csr"))
    changed = np.array(features)
    changed[:, group.start : group.stop] = changed[order, group.start : group.stop]
    return changed


def feature_importance(
    model: NodeModel, card: ModelCard, task: Task, split: Split, workload: Workload, seconds: float = SECONDS
) -> Importance | None:
    """Shuffle one column after the other and see how much worse the validation nodes are predicted.

    The model is bound to a graph with the changed features each time, so that this works for every model. At most 50
    columns, those of the largest variance, are shuffled five times at most, fewer where the time does not suffice.

    Args:
        workload: what the model may use.
        seconds: how long all of it may take.
    """
    graph, groups = task.graph, column_groups(task)
    if graph.features is None or not groups or len(split.val) == 0:
        return None
    features = np.asarray(graph.features) if isinstance(graph.features, ScaledFeatures) else graph.features
    nodes = np.sort(split.val[sample_nodes(len(split.val), _NODES)])
    metric, labels = METRICS[card.metric], task.labels[nodes]

    def score(changed: PlainFeatures) -> float:
        other = graph.with_features(changed)
        blocks = [rows for _, rows in predict_blocks(model, card.reader, other, replace(workload, nodes=nodes))]
        return metric(np.concatenate(blocks), labels, card.threshold)

    started = time.monotonic()
    whole = score(features)
    cost = max(time.monotonic() - started, 1e-4)
    allowed = int(seconds / cost)
    count = min(len(groups), _COLUMNS, allowed)
    if not np.isfinite(whole):
        return None
    if count == 0:
        return Importance.left_out(f"It was not computed: shuffling one column would take about {cost:.0f} seconds.")
    kept = _most_varied(features, groups, count)
    losses = _losses(lambda changed: metric.gain(whole, score(changed)), features, kept, allowed // count, seconds)
    mean, order = losses.mean(axis=1), np.argsort(-losses.mean(axis=1), kind="stable")
    names = [kept[i].name for i in order]
    remark = "" if len(names) == len(groups) else _left_out(len(names), len(groups))
    return Importance(names, mean[order], losses.std(axis=1)[order], whole, len(nodes), losses.shape[1], remark)


def _losses(
    loss: Callable[[PlainFeatures], float],
    features: PlainFeatures,
    groups: list[ColumnGroup],
    repeats: int,
    seconds: float,
) -> np.ndarray:
    """The loss of score from shuffling each column, (c, r); only the first columns if the time ends before the last."""
    random, deadline = np.random.default_rng(0), time.monotonic() + seconds
    losses: list[list[float]] = []
    for group in groups:
        if losses and time.monotonic() > deadline:
            break
        orders = [random.permutation(features.shape[0]) for _ in range(min(_REPEATS, repeats))]
        losses.append([loss(shuffled(features, group, order)) for order in orders])
    return np.array(losses)


def _left_out(shown: int, count: int) -> str:
    return f"Only the {shown:,} of {count:,} columns with the largest variance were shuffled, to bound the time."


def _most_varied(features: PlainFeatures, groups: list[ColumnGroup], count: int) -> list[ColumnGroup]:
    """The ``count`` columns of the largest variance, that of its features added up, in order of variance."""
    mean = np.asarray(features.mean(axis=0), np.float64).ravel()
    squares: Any = sp.csr_matrix(features).power(2) if sp.issparse(features) else np.square(features, dtype=np.float64)
    variance = np.asarray(squares.mean(axis=0)).ravel() - mean**2
    totals = np.array([variance[group.start : group.stop].sum() for group in groups])
    return [groups[i] for i in np.argsort(-totals, kind="stable")[:count]]
