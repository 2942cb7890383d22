"""Metrics against scikit-learn's, and the threshold against trying every one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sk

from polyformer.metrics import METRICS, best_threshold, fitting_metrics, predicted_classes

RANDOM = np.random.default_rng(0)


def _probabilities(classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores with ties that are correlated with the labels."""
    labels = RANDOM.integers(0, classes, 300)
    scores = RANDOM.random((300, classes)).round(1) + 0.5 * (labels[:, None] == np.arange(classes)) + 0.01
    return scores / scores.sum(axis=1, keepdims=True), labels


def _one_hot(labels: np.ndarray, classes: int) -> np.ndarray:
    return (labels[:, None] == np.arange(classes)).astype(float)


def _sk_roc_auc(scores: np.ndarray, labels: np.ndarray) -> float:
    if scores.shape[1] == 2:
        return float(sk.roc_auc_score(labels, scores[:, 1]))
    return float(sk.roc_auc_score(labels, scores, multi_class="ovr", average="macro"))


def _sk_average_precision(scores: np.ndarray, labels: np.ndarray) -> float:
    if scores.shape[1] == 2:
        return float(sk.average_precision_score(labels, scores[:, 1]))
    return float(sk.average_precision_score(_one_hot(labels, scores.shape[1]), scores, average="macro"))


def _brier(scores: np.ndarray, labels: np.ndarray) -> float:
    squares = np.square(scores - _one_hot(labels, scores.shape[1])).sum(axis=1).mean()
    return float(squares / 2 if scores.shape[1] == 2 else squares)


def _calibration_error(scores: np.ndarray, labels: np.ndarray) -> float:
    confidence, right = scores.max(axis=1), scores.argmax(axis=1) == labels
    edges = np.linspace(0, 1, 16)
    total = 0.0
    for low, high in itertools.pairwise(edges):
        inside = (confidence >= low) & ((confidence < high) | (high == 1))
        if inside.any():
            total += abs(confidence[inside].mean() - right[inside].mean()) * inside.sum()
    return total / len(labels)


EXPECTED: dict[str, Callable[[Any, Any], float]] = {
    "accuracy": lambda scores, labels: sk.accuracy_score(labels, scores.argmax(1)),
    "balanced_accuracy": lambda scores, labels: sk.balanced_accuracy_score(labels, scores.argmax(1)),
    "macro_f1": lambda scores, labels: sk.f1_score(labels, scores.argmax(1), average="macro"),
    "roc_auc": _sk_roc_auc,
    "average_precision": _sk_average_precision,
    "log_loss": lambda scores, labels: sk.log_loss(labels, scores),
    "brier": _brier,
    "calibration_error": _calibration_error,
    "r2": lambda scores, labels: sk.r2_score(labels, scores[:, 0]),
    "mae": lambda scores, labels: sk.mean_absolute_error(labels, scores[:, 0]),
    "rmse": lambda scores, labels: math.sqrt(sk.mean_squared_error(labels, scores[:, 0])),
}


@pytest.mark.parametrize("name", METRICS)
def test_metrics_equal_scikit_learn_or_their_formula(name: str) -> None:
    metric = METRICS[name]
    if metric.labels == "values":
        cases = [(RANDOM.standard_normal((200, 1)), RANDOM.standard_normal(200))]
    else:
        cases = [_probabilities(2), _probabilities(4)]
    for scores, labels in cases:
        assert metric(scores, labels) == pytest.approx(EXPECTED[name](scores, labels), abs=1e-12)
        assert math.isnan(metric(scores * np.nan, labels))
    assert metric.gain(0.4, 0.3) == pytest.approx(0.1 if metric.larger_is_better else -0.1)
    if metric.needs_variety:
        assert math.isnan(metric(cases[0][0], np.zeros_like(cases[0][1])))


def test_a_class_without_labels_leaves_scores_defined() -> None:
    scores, labels = _probabilities(4)
    few = labels < 3
    for name in fitting_metrics("classes"):
        assert math.isfinite(METRICS[name](scores[few], labels[few]))


@pytest.mark.parametrize("name", [name for name in METRICS if METRICS[name].counts is not None])
@pytest.mark.parametrize("positives", [0.05, 0.5, 0.0])
def test_no_threshold_is_better_than_the_best(name: str, positives: float) -> None:
    metric = METRICS[name]
    labels = (RANDOM.random(120) < positives).astype(np.int64)
    second = np.clip(RANDOM.random(120).round(2) * 0.4 + 0.1 * labels, 0, 1)
    scores = np.stack([1 - second, second], axis=1)
    threshold, value = best_threshold(metric, scores, labels)
    assert value == pytest.approx(metric(scores, labels, threshold))
    tried = [metric(scores, labels, each) for each in np.linspace(0, 1, 1001)]
    assert value >= max(tried) - 1e-12


def test_the_threshold_stays_at_one_half_where_that_is_as_good() -> None:
    second = np.array([0.1, 0.2, 0.8, 0.9])
    scores = np.stack([1 - second, second], axis=1)
    assert best_threshold(METRICS["accuracy"], scores, np.array([0, 0, 1, 1])) == (0.5, 1.0)
    assert np.array_equal(predicted_classes(scores, 0.5), predicted_classes(scores))
