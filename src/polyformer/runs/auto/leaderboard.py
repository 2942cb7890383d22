"""How the candidates ended: validation scores with intervals, and whether the graph helps over the features alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.evaluation import Judge, guess, judge, paired_gain
from polyformer.metrics import METRICS
from polyformer.runs.auto.candidates import CANDIDATES
from polyformer.runs.auto.state import Standing
from polyformer.runs.prediction import predict_scores
from polyformer.runs.run import Run
from polyformer.splits import Split
from polyformer.structure_features import are_structural
from polyformer.tasks import Task

__all__ = ["Row", "graph_sentence", "make_leaderboard"]


@dataclass(frozen=True)
class Row:
    """One line of the leaderboard.

    Attributes:
        val: the score of the validation nodes that decided.
        interval: 95 % of this score over resampled validation nodes; None where there is none.
        status: as of :class:`polyformer.runs.auto.state.Standing`; ``best`` for the winner.
    """

    name: str
    val: float | None
    interval: tuple[float, float] | None
    status: str
    epochs: int = 0
    seconds: float = 0.0
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """For ``result.json``."""
        return asdict(self) | {"interval": None if self.interval is None else list(self.interval)}


def make_leaderboard(
    standings: Mapping[str, Standing], winner: str, place: Callable[[str], Path], task: Task, split: Split
) -> dict[str, Any]:
    """``leaderboard``, a row for each candidate and for guessing, best first; ``graph``, a sentence.

    Args:
        place: the run directory of a candidate.
    """
    labels, metric = task.labels[split.val], task.metric
    guessed = guess(task.labels[split.train], task.num_classes)
    same = np.broadcast_to(guessed, (len(labels), len(guessed)))
    verdict = judge(metric, same, labels, guessed)
    rows, scores = [Row("guess", verdict.score, verdict.interval, "finished")], {}
    for name, one in standings.items():
        interval = None
        if one.val is not None and one.status != "failed":
            scores[name], interval = _validation_scores(place(name), task, split)
        status = "best" if name == winner else one.status
        rows.append(Row(name, one.val, interval, status, one.epochs, round(one.seconds, 1), one.error))
    sign = -1.0 if METRICS[metric].larger_is_better else 1.0
    rows.sort(key=lambda row: (row.val is None, 0.0 if row.val is None else sign * row.val))
    sentence = graph_sentence({row.name: row.val for row in rows}, scores, task, split)
    return {"leaderboard": [row.to_json() for row in rows], "graph": sentence}


def _validation_scores(run: Path, task: Task, split: Split) -> tuple[np.ndarray, tuple[float, float] | None]:
    """A candidate's scores (n, C) of the validation nodes, and the interval of its metric."""
    opened = Run.open(run)
    card, model = opened.load()
    scores = predict_scores(model, card.reader, task.graph, split.val, opened.shown_labels(task))
    labels, guessed = task.labels[split.val], guess(task.labels[split.train], task.num_classes)
    judging = Judge.of(card.metric, task.labels, split, two_classes=card.reader.name == "binary")
    verdict = judge(card.metric, scores, labels, guessed, judging.threshold(scores, labels))
    return scores, verdict.interval


def graph_sentence(
    values: Mapping[str, float | None], scores: Mapping[str, np.ndarray], task: Task, split: Split
) -> str:
    """Whether the best model that reads edges is better on validation than the best that reads features alone.

    Args:
        values: validation score of each candidate.
        scores: outputs of the validation nodes of each candidate (n, C).
    """
    if are_structural(task.columns):
        return "The nodes have no features of their own: every model reads the graph."
    metric = METRICS[task.metric]
    best: dict[bool, str] = {}
    for name in scores:
        value, other = values[name], best.get(CANDIDATES[name].sees_graph)
        assert value is not None
        if other is None or metric.gain(value, values[other] or 0.0) > 0:
            best[CANDIDATES[name].sees_graph] = name
    if len(best) < 2:
        return "Whether the graph helps cannot be told: no model on the features alone was trained beside one on edges."
    ours, theirs = best[True], best[False]
    interval = paired_gain(task.metric, scores[ours], scores[theirs], task.labels[split.val])
    pair = (
        f"{ours} reaches a validation {metric.title} of {values[ours]:.4f}, {theirs} on the features alone "
        f"{values[theirs]:.4f}"
    )
    if interval is None:
        return f"{pair}."
    about = f"{pair}; the paired difference lies between {interval[0]:+.4f} and {interval[1]:+.4f}."
    if interval[0] > 0:
        return f"The graph helps: {about}"
    if interval[1] < 0:
        return f"The graph does not help: {about}"
    return f"The graph may not help: {about}"
