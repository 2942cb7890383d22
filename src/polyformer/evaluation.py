"""Whether a result is any good: every score, the score of guessing, an interval, the threshold, and warnings.

Here and nowhere else stand the rules by which a result is called uncertain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyformer.files import finite
from polyformer.metrics import METRICS, Metric, best_threshold, fitting_metrics
from polyformer.splits import Split

__all__ = ["FEW_VALIDATION_NODES", "Judge", "Verdict", "data_warnings", "guess", "judge"]

RESAMPLES = 400
"""How often the judged nodes are drawn again, with replacement, for an interval."""

FEW_VALIDATION_NODES, FEW_NODES_OF_A_CLASS = 30, 5
"""Fewer validation nodes, and fewer nodes of a class in training or validation, give a warning."""

UNEQUAL_SHARE, THRESHOLD_NODES = 0.4, 20
"""Two classes are unequal if one has less than this share of the training nodes; then a threshold is chosen, if
validation has so many nodes of each class."""

_DRAWN_ENTRIES = 40_000
_NAMED_CLASSES = 5


@dataclass(frozen=True)
class Judge:
    """How a run scores its validation nodes: by its metric and, for two unequal classes, at the best threshold.

    Where few nodes belong to one class, no probability of that class may exceed 0.5, and a metric of predicted classes
    is the same in every epoch. So such a metric is read at the threshold at which it is largest, and the same threshold
    is used on all nodes afterwards. Metrics of probabilities need no threshold: then the predicted classes are those of
    the largest balanced accuracy.
    """

    metric: Metric
    adjusts: bool

    @classmethod
    def of(cls, metric: str, labels: np.ndarray, split: Split, two_classes: bool) -> Judge:
        """The judge of a run.

        Args:
            labels: (N,) of the whole graph; those of training and validation nodes are read.
            two_classes: whether the model tells two classes apart, rather than more, or values.
        """
        return cls(METRICS[metric], two_classes and _are_unequal(labels[split.train], labels[split.val]))

    def score(self, scores: np.ndarray, labels: np.ndarray) -> float:
        """The metric of validation nodes."""
        if self.adjusts and self.metric.counts is not None:
            return best_threshold(self.metric, scores, labels)[1]
        return self.metric(scores, labels)

    def threshold(self, scores: np.ndarray, labels: np.ndarray) -> float | None:
        """From which probability on the second class is predicted, by validation nodes; None for the most probable."""
        if not self.adjusts:
            return None
        metric = METRICS["balanced_accuracy"] if self.metric.counts is None else self.metric
        return best_threshold(metric, scores, labels)[0]


def _are_unequal(train: np.ndarray, val: np.ndarray) -> bool:
    share = float((train == 1).mean())
    rarer = min(int((val == 0).sum()), int((val == 1).sum()))
    return 0 < min(share, 1 - share) < UNEQUAL_SHARE and rarer >= THRESHOLD_NODES


def guess(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """What somebody answers who knows the training labels only: the classes' shares (C,), or the mean value (1,).

    The most probable class of the shares is the most common class.

    >>> guess(np.array([0, 1, 1, 1]), 2), guess(np.array([1.0, 2.0]), 0)
    (array([0.25, 0.75]), array([1.5]))
    """
    if labels.dtype.kind == "f":
        return np.array([labels.mean()])
    return np.bincount(labels, minlength=num_classes) / len(labels)


@dataclass(frozen=True)
class Verdict:
    """A model's scores on some nodes beside those of guessing; None where a score is not defined.

    Attributes:
        scores: every metric that fits the labels, by name.
        interval: 95 % of the score over resampled nodes.
        baseline: the score of guessing.
        gain: 95 % of the paired difference to guessing, positive where the model is better.
    """

    metric: str
    score: float | None
    scores: dict[str, float | None]
    interval: tuple[float, float] | None
    baseline: float | None
    gain: tuple[float, float] | None

    def to_json(self) -> dict[str, Any]:
        """For ``result.json``."""
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
            answer: what is guessed, in words.
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
    """Scores (n, C) of nodes beside their labels (n,), and beside what :func:`guess` gives."""
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


def _resampled(
    metric: Metric, scores: np.ndarray, same: np.ndarray, labels: np.ndarray, threshold: float | None
) -> np.ndarray:
    """The metric of the model and of guessing on the same draws of nodes: (2, draws).

    Of many nodes each draw takes fewer; the deviations from the mean, which then are larger, are scaled down by the
    root of the ratio.
    """
    random, count = np.random.default_rng(0), len(labels)
    drawn = min(count, max(500, _DRAWN_ENTRIES // scores.shape[1]))
    values = np.empty((2, RESAMPLES))
    for i in range(RESAMPLES):
        rows = random.integers(0, count, drawn)
        values[:, i] = metric(scores[rows], labels[rows], threshold), metric(same[rows], labels[rows])
    values = values[:, np.isfinite(values).all(axis=0)]
    if drawn == count or values.shape[1] == 0:
        return values
    mean = values.mean(axis=1, keepdims=True)
    return np.asarray(mean + (values - mean) * np.sqrt(drawn / count))


def _interval(values: np.ndarray, score: float) -> tuple[float, float] | None:
    """The middle 95 %, widened to hold the score itself."""
    if len(values) == 0:
        return None
    least, most = np.quantile(values, [0.025, 0.975])
    return min(float(least), score), max(float(most), score)


def data_warnings(labels: np.ndarray, split: Split, names: Sequence[str]) -> list[str]:
    """A sentence where validation is too small to select by, and one where classes have almost no training node.

    Args:
        labels: (N,) of the whole graph.
        names: of the classes; none for real values.
    """
    warnings, count = [], len(split.val)
    if count < FEW_VALIDATION_NODES:
        warnings.append(
            f"Validation has {count} nodes, fewer than {FEW_VALIDATION_NODES}, so which epoch is kept is partly "
            f"chance. Put more labelled nodes into validation."
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
