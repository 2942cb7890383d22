"""Which predictions rest on known labels: the same model, shown labels and shown none."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from polyformer.label_input import KnownLabels
from polyformer.metrics import METRICS, predicted_classes
from polyformer.models import Workload
from polyformer.reports.outcome import Outcome, Trained
from polyformer.runs.prediction import predict_blocks

__all__ = ["LabelEffect", "label_effect", "label_words"]

_MOVED = 0.1
"""A real value that moves by more than this share of the deviation of all predictions rests on labels."""


@dataclass(frozen=True)
class LabelEffect:
    """What known labels change in the predictions of nodes that the model was not trained on.

    Attributes:
        shown: number of labels that the model is shown.
        nodes: number of nodes that are compared, all of one ``part``: test, or validation where there are no others.
        changed: how many of these have another class, or a value that moved by a tenth of a deviation.
        score: the metric with labels; ``without`` is the metric of the same model that is shown none.
    """

    shown: int
    part: str
    nodes: int
    changed: int
    score: float
    without: float


def label_effect(trained: Trained, outcome: Outcome, workload: Workload) -> LabelEffect | None:
    """Predict once more without labels; None for a model that reads no labels, or without nodes to judge by."""
    part = "test" if len(trained.split.test) else "validation"
    nodes, scores = outcome.scores_of(np.sort(trained.split.test if part == "test" else trained.split.val))
    if workload.labels is None or len(nodes) == 0:
        return None
    graph, card = trained.task.graph, trained.card
    blank = replace(workload, nodes=nodes, labels=KnownLabels.none(graph.num_nodes, workload.labels.width))
    without = np.concatenate([rows for _, rows in predict_blocks(trained.model, card.reader, graph, blank)])
    if card.objective == "regression":
        moved = np.abs(scores - without)[:, 0] > _MOVED * max(float(scores.std()), 1e-12)
    else:
        moved = predicted_classes(scores, card.threshold) != predicted_classes(without, card.threshold)
    metric, labels = METRICS[card.metric], trained.task.labels[nodes]
    with_and_without = (metric(part_scores, labels, card.threshold) for part_scores in (scores, without))
    return LabelEffect(len(workload.labels.nodes), part, len(nodes), int(moved.sum()), *with_and_without)


def label_words(effect: LabelEffect, metric: str) -> str:
    """The comparison in two sentences.

    >>> label_words(LabelEffect(5000, "test", 2500, 200, 0.989, 0.94), "roc_auc")[:61]
    'The model is shown the labels of 5,000 nodes. Shown none, it '
    """
    return (
        f"The model is shown the labels of {effect.shown:,} nodes. Shown none, it predicts {effect.changed:,} of "
        f"{effect.nodes:,} {effect.part} nodes otherwise, so these predictions rest on labels; its "
        f"{METRICS[metric].title} is then {effect.without:.4f} instead of {effect.score:.4f}. A label is never shown "
        f"to the node that is judged by it: labels of validation and test nodes are hidden from the model."
    )
