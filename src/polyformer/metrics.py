"""Metrics by name: each knows which labels it fits and whether larger is better.

Each metric is a few numpy operations, so that it can be computed after every epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from polyformer.registry import Registry

__all__ = [
    "METRICS",
    "Metric",
    "best_threshold",
    "calibration_bins",
    "fitting_metrics",
    "predicted_classes",
    "squared_error",
]

Counts = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]

_BINS = 15


@dataclass(frozen=True)
class Metric:
    """A number for scores (n, C) of classes, or (n, 1) of real values, beside labels (n,).

    Attributes:
        title: name of the metric in texts for people.
        labels: kind of labels that the metric fits.
        compute: the metric as a function of scores and labels; if ``counts`` is given, of predicted classes (n,) and
            labels.
        counts: the metric of two classes as a function of the numbers of true positives, false positives, false
            negatives and true negatives, each (m,); None if the metric reads probabilities or values.
        larger_is_better: False for losses, of which the smallest is selected.
        needs_variety: whether the metric is undefined if all labels are the same.

    Example:
        >>> METRICS["accuracy"](np.array([[0.6, 0.4], [0.7, 0.3]]), np.array([0, 1]))
        0.5
        >>> METRICS["accuracy"](np.array([[0.6, 0.4], [0.8, 0.2]]), np.array([1, 0]), threshold=0.3)
        1.0
    """

    title: str
    labels: Literal["classes", "values"]
    compute: Callable[[np.ndarray, np.ndarray], float]
    counts: Counts | None = None
    larger_is_better: bool = True
    needs_variety: bool = False

    def __call__(self, scores: np.ndarray, labels: np.ndarray, threshold: float | None = None) -> float:
        """The metric; NaN where it is undefined or where scores are not finite.

        Args:
            threshold: see :func:`predicted_classes`.
        """
        if len(labels) == 0 or not np.isfinite(scores).all():
            return float("nan")
        return self.compute(scores if self.counts is None else predicted_classes(scores, threshold), labels)

    def gain(self, score: float, other: float) -> float:
        """By how much ``score`` is better than ``other``; negative if ``score`` is worse."""
        return score - other if self.larger_is_better else other - score


def predicted_classes(scores: np.ndarray, threshold: float | None = None) -> np.ndarray:
    """The predicted class of each node, (n, C) -> (n,) int64: the most probable class by default.

    Args:
        threshold: for two classes only: the second class is predicted if its probability is greater than this.

    >>> predicted_classes(np.array([[0.6, 0.4], [0.9, 0.1]]), threshold=0.3)
    array([1, 0])
    """
    if threshold is None:
        return np.asarray(scores.argmax(axis=1))
    return (scores[:, 1] > threshold).astype(np.int64)


def best_threshold(metric: Metric, scores: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """The threshold for two classes at which a metric with ``counts`` is largest on these nodes, and its value there.

    All thresholds between two neighbouring probabilities predict the same classes: 0.5 represents the interval that
    holds it, the midpoint any other interval. Among equally good thresholds the nearest to 0.5 is taken.

    >>> best_threshold(METRICS["accuracy"], np.array([[1.0, 0.0], [0.75, 0.25], [0.5, 0.5]]), np.array([0, 1, 1]))
    (0.125, 1.0)
    """
    assert metric.counts is not None
    if not np.isfinite(scores).all():
        return 0.5, float("nan")
    order = np.argsort(-scores[:, 1], kind="stable")
    bounds = np.concatenate([[1.0], scores[order, 1], [0.0]])  # predicting i positives needs a threshold between two
    positive = labels[order] == 1
    cuts = np.flatnonzero(bounds[:-1] > bounds[1:])
    upper, lower = bounds[cuts], bounds[cuts + 1]
    true = np.concatenate([[0], np.cumsum(positive)])[cuts]
    false, positives = cuts - true, int(positive.sum())
    values = metric.counts(true, false, positives - true, len(labels) - positives - false)
    middle = lower + (upper - lower) / 2
    thresholds = np.where((lower <= 0.5) & (upper > 0.5), 0.5, np.where(middle < upper, middle, lower))
    best = np.flatnonzero(values >= values.max() - 1e-12)
    nearest = best[np.abs(thresholds[best] - 0.5).argmin()]
    return float(thresholds[nearest]), float(values[nearest])


# ---- metrics of predicted classes ----


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """``part / whole``; 0 where ``whole`` is 0."""
    return np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=np.asarray(whole) > 0)


def _accuracy(predicted: np.ndarray, labels: np.ndarray) -> float:
    return float((predicted == labels).mean())


def _balanced_accuracy(predicted: np.ndarray, labels: np.ndarray) -> float:
    """The share of right predictions among the nodes of a class, averaged over the classes that occur."""
    total = np.bincount(labels)
    right = np.bincount(labels[predicted == labels], minlength=len(total))
    return float((right[total > 0] / total[total > 0]).mean())


def _macro_f1(predicted: np.ndarray, labels: np.ndarray) -> float:
    """2 · right / (labels + predictions) of a class, averaged over the classes that are labelled or predicted."""
    count = int(max(predicted.max(), labels.max())) + 1
    total = np.bincount(labels, minlength=count) + np.bincount(predicted, minlength=count)
    right = np.bincount(labels[predicted == labels], minlength=count)
    return float((2 * right[total > 0] / total[total > 0]).mean())


def _counted_accuracy(tp: np.ndarray, fp: np.ndarray, fn: np.ndarray, tn: np.ndarray) -> np.ndarray:
    return (tp + tn) / (tp + fp + fn + tn)


def _counted_balanced_accuracy(tp: np.ndarray, fp: np.ndarray, fn: np.ndarray, tn: np.ndarray) -> np.ndarray:
    present = np.sign(tp + fn) + np.sign(tn + fp)
    return (_share(tp, tp + fn) + _share(tn, tn + fp)) / present


def _counted_macro_f1(tp: np.ndarray, fp: np.ndarray, fn: np.ndarray, tn: np.ndarray) -> np.ndarray:
    present = np.sign(tp + fp + fn) + np.sign(tn + fp + fn)
    return (_share(2 * tp, 2 * tp + fp + fn) + _share(2 * tn, 2 * tn + fp + fn)) / present


# ---- metrics of probabilities ----


def _over_classes(scores: np.ndarray, labels: np.ndarray, one: Callable[[np.ndarray, np.ndarray], float]) -> float:
    """``one(probabilities, positive)`` of the second of two classes; of more classes the mean where it is defined."""
    if scores.shape[1] == 2:
        return one(scores[:, 1], labels == 1)
    values = [one(scores[:, c], labels == c) for c in np.unique(labels)]
    defined = [value for value in values if np.isfinite(value)]
    return float(np.mean(defined)) if defined else float("nan")


def _one_roc_auc(scores: np.ndarray, positive: np.ndarray) -> float:
    count = int(positive.sum())
    others = len(positive) - count
    if count == 0 or others == 0:
        return float("nan")
    _, place, ties = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(ties) - (ties - 1) / 2)[place]
    return float((ranks[positive].sum() - count * (count + 1) / 2) / (count * others))


def _one_average_precision(scores: np.ndarray, positive: np.ndarray) -> float:
    if not positive.any():
        return float("nan")
    order = np.argsort(-scores, kind="stable")
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))  # last node of each group of equal scores
    right = np.cumsum(positive[order])[last]
    return float((np.diff(right, prepend=0) * right / (last + 1)).sum() / right[-1])


def _roc_auc(scores: np.ndarray, labels: np.ndarray) -> float:
    return _over_classes(scores, labels, _one_roc_auc)


def _average_precision(scores: np.ndarray, labels: np.ndarray) -> float:
    return _over_classes(scores, labels, _one_average_precision)


def _log_loss(scores: np.ndarray, labels: np.ndarray) -> float:
    """Mean of -log(probability of the label); a probability counts as at least the smallest step of float64."""
    of_label = scores[np.arange(len(labels)), labels]
    return float(-np.log(np.maximum(of_label, np.finfo(np.float64).eps)).mean())


def _brier(scores: np.ndarray, labels: np.ndarray) -> float:
    """Mean squared error of the second class's probability; of more than two classes, the sum over classes."""
    if scores.shape[1] == 2:
        return float(np.square(scores[:, 1] - (labels == 1)).mean())
    of_label = scores[np.arange(len(labels)), labels]
    return float((np.square(scores).sum(axis=1) - 2 * of_label + 1).mean())


def calibration_bins(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Put nodes into 15 bins of equal width by the probability of their most probable class; empty bins are left out.

    Returns:
        Mean probability, share of nodes whose most probable class is the label, and number of nodes: (b,) each.
        scikit-learn's ``calibration_curve`` gives no numbers of nodes, which weigh the calibration error.
    """
    confidence, right = scores.max(axis=1), scores.argmax(axis=1) == labels
    place = np.clip((confidence * _BINS).astype(np.int64), 0, _BINS - 1)
    count = np.bincount(place, minlength=_BINS)
    used = count > 0
    mean, share = (np.bincount(place, values, _BINS)[used] / count[used] for values in (confidence, right))
    return mean, share, count[used]


def _calibration_error(scores: np.ndarray, labels: np.ndarray) -> float:
    """Expected calibration error: the gap between probability and share of right answers, averaged over nodes."""
    mean, share, count = calibration_bins(scores, labels)
    return float((np.abs(mean - share) * count).sum() / count.sum())


# ---- metrics of real values ----


def _r2(scores: np.ndarray, labels: np.ndarray) -> float:
    """1 - squared error / variance of the labels."""
    spread = float(((labels - labels.mean()) ** 2).sum())
    return 1.0 - float(((scores[:, 0] - labels) ** 2).sum()) / spread if spread > 0 else float("nan")


def _mae(scores: np.ndarray, labels: np.ndarray) -> float:
    return float(np.abs(scores[:, 0] - labels).mean())


def _rmse(scores: np.ndarray, labels: np.ndarray) -> float:
    return float(np.sqrt(np.square(scores[:, 0] - labels).mean()))


def squared_error(score: float, labels: np.ndarray) -> float:
    """The sum of squared errors behind an R² score on these labels.

    >>> squared_error(0.75, np.array([1.0, 3.0]))
    0.5
    """
    return (1.0 - score) * float(((labels - labels.mean()) ** 2).sum())


METRICS: Registry[Metric] = Registry(
    "metric",
    {
        "accuracy": Metric("accuracy", "classes", _accuracy, _counted_accuracy),
        "balanced_accuracy": Metric("balanced accuracy", "classes", _balanced_accuracy, _counted_balanced_accuracy),
        "macro_f1": Metric("macro F1", "classes", _macro_f1, _counted_macro_f1),
        "roc_auc": Metric("ROC-AUC", "classes", _roc_auc, needs_variety=True),
        "average_precision": Metric("average precision", "classes", _average_precision, needs_variety=True),
        "log_loss": Metric("log loss", "classes", _log_loss, larger_is_better=False),
        "brier": Metric("Brier score", "classes", _brier, larger_is_better=False),
        "calibration_error": Metric("calibration error", "classes", _calibration_error, larger_is_better=False),
        "r2": Metric("R²", "values", _r2, needs_variety=True),
        "mae": Metric("mean absolute error", "values", _mae, larger_is_better=False),
        "rmse": Metric("root mean squared error", "values", _rmse, larger_is_better=False),
    },
)


def fitting_metrics(labels: Literal["classes", "values"]) -> list[str]:
    """The names of the metrics that fit the labels.

    >>> fitting_metrics("values")
    ['r2', 'mae', 'rmse']
    """
    return [name for name in METRICS if METRICS[name].labels == labels]
