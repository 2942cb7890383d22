"""Whether a result is any good: guessing, intervals, thresholds and warnings."""

from __future__ import annotations

import numpy as np
import pytest

from polyformer import evaluation
from polyformer.evaluation import Judge, data_warnings, guess, judge
from polyformer.metrics import METRICS
from polyformer.splits import Split

RANDOM = np.random.default_rng(1)


def _split(train: int, val: int, test: int) -> Split:
    return Split(*np.split(np.arange(train + val + test), [train, train + val]))


def _scores(labels: np.ndarray, skill: float) -> np.ndarray:
    """Probabilities of two classes; with ``skill`` 0 they know nothing of the labels."""
    second = np.clip(0.5 + skill * (labels - 0.5) + 0.2 * RANDOM.standard_normal(len(labels)), 0.01, 0.99)
    return np.stack([1 - second, second], axis=1)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [("accuracy", 0.75), ("balanced_accuracy", 0.5), ("roc_auc", 0.5), ("average_precision", 0.25), ("brier", 0.1875)],
)
def test_guessing_is_the_most_common_class_or_its_share(metric: str, expected: float) -> None:
    labels = np.array([0, 0, 0, 1] * 25)
    assert judge(metric, _scores(labels, 1.0), labels, guess(labels, 2)).baseline == pytest.approx(expected)


def test_guessing_a_value_is_the_mean_of_training() -> None:
    labels = RANDOM.standard_normal(100)
    verdict = judge("r2", labels[:, None] * 0.9, labels, guess(np.array([labels.mean()]), 0))
    assert verdict.baseline == pytest.approx(0.0, abs=1e-12)
    assert set(verdict.scores) == {"r2", "mae", "rmse"}
    assert verdict.gain is not None
    assert verdict.gain[0] > 0


@pytest.mark.parametrize("metric", ["accuracy", "roc_auc", "log_loss"])
def test_only_a_model_without_skill_is_warned_of(metric: str) -> None:
    labels = RANDOM.integers(0, 2, 200)
    for skill, words in ((0.6, 0), (0.0, 1)):
        verdict = judge(metric, _scores(labels, skill), labels, guess(labels, 2))
        assert verdict.interval is not None
        assert verdict.score is not None
        assert verdict.interval[0] <= verdict.score <= verdict.interval[1]
        warnings = verdict.warnings("always answering 'a'")
        assert len(warnings) == words
        assert all("guessing: its test" in warning and "'a' reaches" in warning for warning in warnings)


def test_intervals_hold_what_they_promise() -> None:
    """The accuracy of all nodes lies inside the interval of a part of them 95 times in a hundred."""
    labels = RANDOM.integers(0, 2, 100_000)
    scores, row = _scores(labels, 0.3), guess(labels, 2)
    truth, inside = METRICS["accuracy"](scores, labels), 0
    for _ in range(60):
        part = RANDOM.integers(0, len(labels), 150)
        interval = judge("accuracy", scores[part], labels[part], row).interval
        assert interval is not None
        inside += interval[0] <= truth <= interval[1]
    assert inside >= 51


def test_large_parts_are_drawn_from_and_give_the_same_width(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = RANDOM.integers(0, 2, 4000)
    scores, widths = _scores(labels, 0.3), []
    for entries in (40_000, 1000):
        monkeypatch.setattr(evaluation, "_DRAWN_ENTRIES", entries)
        interval = judge("accuracy", scores, labels, guess(labels, 2)).interval
        assert interval is not None
        widths.append(interval[1] - interval[0])
    assert widths[1] == pytest.approx(widths[0], rel=0.3)


def test_undefined_scores_are_none() -> None:
    labels = np.zeros(40, np.int64)
    verdict = judge("roc_auc", _scores(labels, 0.5), labels, guess(np.array([0, 1]), 2))
    assert (verdict.score, verdict.baseline, verdict.interval, verdict.scores["roc_auc"]) == (None,) * 4
    assert verdict.warnings("") == []
    assert verdict.scores["accuracy"] is not None


@pytest.mark.parametrize(
    ("share", "validation", "adjusts"), [(0.1, 400, True), (0.45, 400, False), (0.1, 60, False), (0.0, 400, False)]
)
def test_a_threshold_is_chosen_for_unequal_classes_with_enough_validation(
    share: float, validation: int, adjusts: bool
) -> None:
    split = _split(1000, validation, 0)
    labels = (np.arange(1000 + validation) % 100 < 100 * share).astype(np.int64)
    assert Judge.of("accuracy", labels, split, two_classes=True).adjusts == adjusts
    assert not Judge.of("accuracy", labels, split, two_classes=False).adjusts


def test_the_threshold_follows_the_metric() -> None:
    labels = (np.arange(1000) % 10 == 0).astype(np.int64)
    second = np.clip(0.05 + 0.15 * labels + 0.05 * RANDOM.standard_normal(1000), 0, 1)
    scores = np.stack([1 - second, second], axis=1)
    assert METRICS["balanced_accuracy"](scores, labels) == 0.5, "no probability reaches one half"
    best = {name: Judge(METRICS[name], True) for name in ("accuracy", "balanced_accuracy", "roc_auc")}
    thresholds = {name: each.threshold(scores, labels) for name, each in best.items()}
    assert thresholds["roc_auc"] == thresholds["balanced_accuracy"]
    assert best["balanced_accuracy"].score(scores, labels) > 0.8
    for name in ("accuracy", "balanced_accuracy"):
        assert best[name].score(scores, labels) == METRICS[name](scores, labels, thresholds[name])
    assert best["roc_auc"].score(scores, labels) == METRICS["roc_auc"](scores, labels)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([(50, 50), (20, 20), (9, 9)], []),
        ([(50, 50), (9, 9), (9, 9)], ["Validation has 18 nodes, fewer than 30"]),
        ([(50, 50), (40, 2), (9, 9)], ["Validation has fewer than 5 nodes of the class 'b' (2)"]),
        ([(50, 1), (40, 9), (9, 9)], ["Training has fewer than 5 nodes of the class 'b' (1)"]),
        ([(50, 0), (40, 9), (0, 9)], ["Training has fewer than 5 nodes of the class 'b' (0)"]),
        ([(50, 0), (40, 0), (9, 0)], []),
    ],
)
def test_warnings_about_small_parts(counts: list[tuple[int, int]], expected: list[str]) -> None:
    labels = np.concatenate([np.repeat([0, 1], pair) for pair in counts])
    warnings = data_warnings(labels, _split(*(sum(pair) for pair in counts)), ["a", "b"])
    assert [any(text in warning for warning in warnings) for text in expected] == [True] * len(expected)
    assert len(warnings) == len(expected)


def test_many_rare_classes_are_one_sentence() -> None:
    labels = np.concatenate([np.arange(12), np.repeat(np.arange(12), 6)])
    [warning] = data_warnings(labels, _split(12, 72, 0), [str(c) for c in range(12)])
    assert warning.startswith("Training has fewer than 5 nodes of the classes '0' (1), '1' (1)")
    assert "'4' (1) and 7 more" in warning
