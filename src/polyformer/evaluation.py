"""How good a result is: every score, the score of guessing, an interval, a threshold, and warnings.

The rules by which a result is called uncertain stand here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyformer.bootstrap import bootstrap_rows, middle_95
from polyformer.files import finite
from polyformer.metrics import METRICS, Metric, best_threshold, fitting_metrics
from polyformer.splits import Split

__all__ = ["FEW_VALIDATION_NODES", "Judge", "Verdict", "data_warnings", "guess", "judge", "paired_gain"]

RESAMPLES = 400
"""How often the judged nodes are drawn again, with replacement, for an interval."""

FEW_VALIDATION_NODES, FEW_NODES_OF_A_CLASS = 30, 5
"""Fewer validation nodes than the first number give a warning, and so do fewer nodes of a class in training or
validation than the second."""

UNEQUAL_SHARE, THRESHOLD_NODES = 0.4, 20
"""Two classes are unequal if one has less than this share of the training nodes. A threshold is selected for unequal
classes if validation has at least this number of nodes of each class."""

_DRAWN_ENTRIES = 40_000
_NAMED_CLASSES = 5


@dataclass(frozen=True)
class Judge:
    """How a run scores its validation nodes: by its metric and, for two unequal classes, at the best threshold.

    Where few nodes belong to one class, no probability of that class may exceed 0.5, and a metric of predicted classes
    is the same in every epoch. So such a metric is computed at the threshold at which it is largest, and the same
    threshold is used on all nodes afterwards. Metrics of probabilities need no threshold: then classes are predicted at
    the threshold with the largest balanced accuracy.
    """

    metric: Metric
    adjusts: bool

    @classmethod
    def of(cls, metric: str, labels: np.ndarray, split: Split, two_classes: bool) -> Judge:
        """The judge of a run.

        Args:
            labels: (N,) labels of the whole graph; only those of training and validation nodes are read.
            two_classes: whether the model predicts two classes; False for more classes and for values.
        """
        return cls(METRICS[metric], two_classes and _are_unequal(labels[split.train], labels[split.val]))

    def score(self, scores: np.ndarray, labels: np.ndarray) -> float:
        """The metric on validation nodes."""
        if self.adjusts and self.metric.counts is not None:
            return best_threshold(self.metric, scores, labels)[1]
        return self.metric(scores, labels)

    def threshold(self, scores: np.ndarray, labels: np.ndarray) -> float | None:
        """Probability above which the second class is predicted, from validation nodes; None for no threshold."""
        if not self.adjusts:
            return None
        metric = METRICS["balanced_accuracy"] if self.metric.counts is None else self.metric
        return best_threshold(metric, scores, labels)[0]


def _are_unequal(train: np.ndarray, val: np.ndarray) -> bool:
    share = float((train == 1).mean())
    rarer = min(int((val == 0).sum()), int((val == 1).sum()))
    return 0 < min(share, 1 - share) < UNEQUAL_SHARE and rarer >= THRESHOLD_NODES


def guess(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """The answer of a guess that knows the training labels only: the share of each class (C,), or the mean value (1,).

    The class with the largest share is the most common class.

    >>> guess(np.array([0, 1, 1, 1]), 2), guess(np.array([1.0, 2.0]), 0)
    (array([0.25, 0.75]), array([1.5]))
    """
    if labels.dtype.kind == "f":
        return np.array([labels.mean()])
    return np.bincount(labels, minlength=num_classes) / len(labels)


@dataclass(frozen=True)
class Verdict:
    """Scores of a model and of guessing on the same nodes; None stands for a score that is not defined.

    Attributes:
        scores: every metric that fits the labels, by name.
        interval: interval that holds 95 % of the scores on resampled nodes.
        baseline: score of guessing.
        gain: interval that holds 95 % of the paired differences to guessing; positive if the model is better.
    """

    metric: str
    score: float | None
    scores: dict[str, float | None]
    interval: tuple[float, float] | None
    baseline: float | None
    gain: tuple[float, float] | None

    def to_json(self) -> dict[str, Any]:
        """The part of ``result.json`` that tells of the verdict."""
        interval, gain = (None if pair is None else list(pair) for pair in (self.interval, self.gain))
        return {
            "test_interval": interval,
            "baseline": self.baseline,
            "gain_interval": gain,
            "scores": self.scores,
        }

    def warnings(self, answer: str) -> list[str]:
        """A sentence if the model does not beat guessing.

        Args:
            answer: the guess, in words.
        """
        if self.score is None or self.baseline is None or self.gain is None or self.gain[0] > 0:
            return []
        title = METRICS[self.metric].title
        pair = f"its test {title} is {self.score:.4f}, and {answer} reaches {self.baseline:.4f}"
        if METRICS[self.metric].gain(self.score, self.baseline) <= 0:
            return [f"The model does not beat guessing: {pair}."]
        return [
            f"The model may be no better than guessing: {pair}; on other test nodes the gain could lie anywhere from "
            f"{self.gain[0]:+.4f} to {self.gain[1]:+.4f}."
        ]


def judge(
    metric: str, scores: np.ndarray, labels: np.ndarray, guessed: np.ndarray, threshold: float | None = None
) -> Verdict:
    """Judge the scores (n, C) of nodes by their labels (n,), beside the answer ``guessed`` of :func:`guess`."""
    fitting = fitting_metrics("values" if labels.dtype.kind == "f" else "classes")
    values = {name: finite(METRICS[name](scores, labels, threshold)) for name in fitting}
    same = np.broadcast_to(guessed, (len(labels), len(guessed)))
    baseline, score = finite(METRICS[metric](same, labels)), values[metric]
    interval = gain = None
    if score is not None and baseline is not None and len(labels) > 1:
        ours, theirs = _resampled(METRICS[metric], scores, same, labels, threshold)
        interval = _interval(ours, score)
        difference = METRICS[metric].gain(score, baseline)
        gain = _interval(np.array([METRICS[metric].gain(a, b) for a, b in zip(ours, theirs, strict=True)]), difference)
    return Verdict(metric, score, values, interval, baseline, gain)


def paired_gain(metric: str, scores: np.ndarray, others: np.ndarray, labels: np.ndarray) -> tuple[float, float] | None:
    """95 % of the difference between two models' scores (n, C) over the same resampled nodes, positive for the first.

    None where the metric is not defined on these nodes.

    >>> labels = np.array([0, 1] * 50)
    >>> low, high = paired_gain("accuracy", np.eye(2)[labels], np.eye(2)[0 * labels], labels)
    >>> 0.3 < low < 0.5 < high < 0.7
    True
    """
    kind = METRICS[metric]
    difference = kind.gain(kind(scores, labels), kind(others, labels))
    if len(labels) < 2 or not np.isfinite(difference):
        return None
    ours, theirs = _resampled(kind, scores, others, labels, None)
    return _interval(np.array([kind.gain(a, b) for a, b in zip(ours, theirs, strict=True)]), difference)


def _resampled(
    metric: Metric, scores: np.ndarray, same: np.ndarray, labels: np.ndarray, threshold: float | None
) -> np.ndarray:
    """The metric of the model and of guessing on the same draws of nodes: (2, draws).

    A draw takes fewer nodes than there are if there are many. Deviations from the mean are then larger, and are scaled
    down by the square root of the ratio.
    """
    count = len(labels)
    drawn = min(count, max(500, _DRAWN_ENTRIES // scores.shape[1]))
    values = np.empty((2, RESAMPLES))
    for i, rows in enumerate(bootstrap_rows(count, RESAMPLES, drawn)):
        values[:, i] = metric(scores[rows], labels[rows], threshold), metric(same[rows], labels[rows])
    values = values[:, np.isfinite(values).all(axis=0)]
    if drawn == count or values.shape[1] == 0:
        return values
    mean = values.mean(axis=1, keepdims=True)
    return np.asarray(mean + (values - mean) * np.sqrt(drawn / count))


def _interval(values: np.ndarray, score: float) -> tuple[float, float] | None:
    """The interval of the middle 95 % of the values, widened so that it holds the score itself."""
    if len(values) == 0:
        return None
    low, high = middle_95(values)
    return min(low, score), max(high, score)


def data_warnings(labels: np.ndarray, split: Split, names: Sequence[str]) -> list[str]:
    """Warnings, a sentence each: validation is too small to select by, or a class has almost no training nodes.

    Args:
        labels: (N,) labels of the whole graph.
        names: names of the classes; empty for real values.
    """
    warnings, count = [], len(split.val)
    if count < FEW_VALIDATION_NODES:
        warnings.append(
            f"Validation has {count} nodes, fewer than {FEW_VALIDATION_NODES}, so chance partly decides which "
            f"epoch is kept. Put more labelled nodes into validation."
        )
    if not names:
        return warnings
    parts = (split.train, split.val, split.test)
    in_train, in_val, _ = (np.bincount(labels[part], minlength=len(names)) for part in parts)
    used = np.bincount(labels[np.concatenate(parts)], minlength=len(names)) > 0
    rare = np.flatnonzero(used & (in_val < FEW_NODES_OF_A_CLASS))
    if len(rare) and count >= FEW_VALIDATION_NODES:
        warnings.append(
            f"Validation has fewer than {FEW_NODES_OF_A_CLASS} nodes of {_listed(rare, in_val, names)}, too few to "
            f"tell which epoch suits {'it' if len(rare) == 1 else 'them'}."
        )
    rare = np.flatnonzero(used & (in_train < FEW_NODES_OF_A_CLASS))
    if len(rare):
        warnings.append(
            f"Training has fewer than {FEW_NODES_OF_A_CLASS} nodes of {_listed(rare, in_train, names)}, from which "
            f"little can be learned. Label more, or merge classes."
        )
    return warnings


def _listed(classes: np.ndarray, counts: np.ndarray, names: Sequence[str]) -> str:
    """Classes with their numbers of nodes, the first few by name."""
    listed = ", ".join(f"'{names[c]}' ({counts[c]})" for c in classes[:_NAMED_CLASSES])
    more = f" and {len(classes) - _NAMED_CLASSES} more" if len(classes) > _NAMED_CLASSES else ""
    return f"the class{'es' if len(classes) > 1 else ''} {listed}{more}"
