"""Scores of nodes from a trained model, and predictions as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyformer.coverage import Coverage
from polyformer.graph import Graph
from polyformer.label_input import KnownLabels
from polyformer.metrics import predicted_classes
from polyformer.models import NodeModel, Workload
from polyformer.models.walk import node_blocks
from polyformer.objectives import Objective
from polyformer.reporter import SILENT, Reporter
from polyformer.table_writer import table_rows

__all__ = ["node_scores", "predict_blocks", "predict_scores", "write_predictions"]


@torch.no_grad()
def node_scores(model: NodeModel, objective: Objective, nodes: np.ndarray) -> np.ndarray:
    """Probabilities (n, C), or values (n, 1) of a regression, of nodes that the model is bound to."""
    return objective.scores(model(torch.from_numpy(nodes).to(next(model.parameters()).device)))


def predict_blocks(
    model: NodeModel,
    objective: Objective,
    graph: Graph,
    workload: Workload | None = None,
    reporter: Reporter = SILENT,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Node ids (n,) and their probabilities (n, C), or values (n, 1) of a regression, block after block in order.

    Args:
        workload: which nodes, all by default, and what the model may use; ``scratch`` is a folder that exists.
    """

    def compute(ids: np.ndarray) -> tuple[np.ndarray, ...]:
        return (node_scores(model, objective, ids),)

    for ids, (scores,) in node_blocks(model, graph, compute, workload, reporter, "predicting"):
        yield ids, scores


def predict_scores(
    model: NodeModel,
    objective: Objective,
    graph: Graph,
    nodes: np.ndarray | None = None,
    labels: KnownLabels | None = None,
) -> np.ndarray:
    """Probabilities (n, C), or values (n, 1) of a regression, of all nodes or of ``nodes``.

    Args:
        labels: those that a model which reads known labels is shown.
    """
    workload = Workload(nodes, labels=labels)
    return np.concatenate([scores for _, scores in predict_blocks(model, objective, graph, workload)])


def write_predictions(
    path: Path,
    blocks: Iterable[tuple[np.ndarray, np.ndarray]],
    ids: np.ndarray | None,
    objective: Objective,
    class_names: Sequence[str] | None = None,
    threshold: float | None = None,
    coverage: Coverage | None = None,
    labels: KnownLabels | None = None,
) -> int:
    """Write one row a node: ``node``, ``prediction`` and, for classes, ``probability_<class>`` for each.

    Args:
        blocks: node numbers and scores; each becomes a row group, so that one is in memory at a time.
        ids: (N,) what the nodes are called; their numbers by default.
        threshold: threshold between two classes, see :func:`predicted_classes`; the most probable class by default.
        coverage: adds the column ``set``, or ``low`` and ``high`` for real values, that hold the truth that often.
        labels: those that the model was shown; adds the column ``label_shown``, whether the node's own label was among
            them. The prediction of such a node rests on its label and is none to judge the model by.

    Returns:
        The number of rows.
    """
    with table_rows(path, "predictions") as rows:
        for nodes, scores in blocks:
            names = nodes if ids is None else ids[nodes]
            table = _table(names, scores, objective, class_names, threshold, coverage, path.suffix.lower())
            if labels is not None:
                table = table.append_column("label_shown", [np.isin(nodes, labels.nodes)])
            rows.write(table)
    return rows.count


def _table(
    names: np.ndarray,
    scores: np.ndarray,
    objective: Objective,
    class_names: Sequence[str] | None,
    threshold: float | None,
    coverage: Coverage | None,
    ending: str,
) -> Any:
    import pyarrow as pa

    columns: dict[str, pa.Array] = {"node": pa.array(names)}
    classes: list[str] = []
    if objective.name == "regression":
        columns["prediction"] = pa.array(scores[:, 0])
    else:
        best = predicted_classes(scores, threshold)
        classes = [str(i) for i in range(scores.shape[1])] if class_names is None else list(class_names)
        columns["prediction"] = pa.array(best if class_names is None else np.array(classes)[best])
        columns |= {f"probability_{name}": pa.array(scores[:, i]) for i, name in enumerate(classes)}
    if coverage is not None:
        columns |= coverage.columns(scores, classes, as_text=ending == ".csv")
    return pa.table(columns)
