"""What a run says about how good it is: scores, guessing, warnings, the threshold, and selection by a loss."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from polyformer.calibration import split_validation
from polyformer.cli import main
from polyformer.datasets import load_dataset
from polyformer.errors import InvalidData, TrainingInterrupted, UnknownName
from polyformer.estimators import PolyFormerClassifier
from polyformer.graph import Graph
from polyformer.metrics import METRICS, fitting_metrics, predicted_classes
from polyformer.runs.execution import execute_run
from polyformer.runs.run import Run
from polyformer.splits import Split
from polyformer.tasks import Task
from tests.edits import plain_result
from tests.listener import Listener
from tests.training.runs import request

UNEQUAL = "minefield:width=30,height=30"
"""A fifth of the nodes are mines, 45 of them for validation."""


def test_a_result_holds_every_fitting_metric_and_guessing(tmp_path: Path) -> None:
    result = execute_run(request(), tmp_path / "run")
    assert list(result["scores"]) == fitting_metrics("classes")
    assert result["scores"]["roc_auc"] == result["test"]
    assert result["baseline"] == 0.5
    least, most = result["test_interval"]
    assert least <= result["test"] <= most
    assert result["warnings"] == []
    assert plain_result(tmp_path / "run" / "result.json") == result


@pytest.mark.parametrize(("kind", "metric"), [("classes", "accuracy"), ("classes", "brier"), ("values", "mae")])
def test_noise_does_not_beat_guessing_and_that_is_said(tmp_path: Path, kind: str, metric: str, capsys) -> None:
    random = np.random.default_rng(0)
    graph = Graph(random.integers(0, 90, (2, 200)), random.standard_normal((90, 4)), 90)
    labels = (random.random(90) < 0.25).astype(np.int64) if kind == "classes" else random.standard_normal(90)
    parts = np.split(random.permutation(90), [45, 55])
    Task("noise", graph, labels, [Split(*map(np.sort, parts))], "given").save(tmp_path / "noise")
    command = ["train", tmp_path / "noise", "--metric", metric, "--set=epochs=2", "--set=order=2", "--no-report"]
    with pytest.raises(SystemExit) as exit_:
        main([*map(str, command), "--out", str(tmp_path / "run")])
    assert not exit_.value.code
    result, out = json.loads((tmp_path / "run" / "result.json").read_text()), capsys.readouterr().out
    assert any("guessing: its test" in warning for warning in result["warnings"])
    assert any(warning.startswith("Validation has 10 nodes, fewer than 30") for warning in result["warnings"])
    assert [line for line in out.splitlines() if line.startswith("warning: ")] == [
        f"warning: {warning}" for warning in result["warnings"]
    ]
    assert f"guessing: test {result['baseline']:.4f}" in out


@pytest.mark.parametrize("metric", ["log_loss", "brier"])
def test_a_loss_is_selected_by_its_minimum_also_after_resuming(tmp_path: Path, metric: str) -> None:
    asked = request(settings={"metric": metric, "epochs": 12, "patience": 12, "lr": 0.03})
    whole = execute_run(asked, tmp_path / "whole")
    values = [record["val"] for record in Run(tmp_path / "whole").metrics]
    assert whole["val"] == min(values)
    assert whole["best_epoch"] == 1 + int(np.argmin(values))
    count = iter(range(100))
    with pytest.raises(TrainingInterrupted):
        execute_run(asked, tmp_path / "parts", reporter=Listener(stop=lambda: next(count) == whole["best_epoch"] - 1))
    parts = execute_run(asked, tmp_path / "parts", resume=True)
    for name in ("val", "test", "best_epoch", "scores"):
        assert parts[name] == whole[name]


@pytest.mark.parametrize("metric", ["accuracy", "roc_auc"])
def test_the_threshold_of_unequal_classes_is_the_same_everywhere(tmp_path: Path, metric: str) -> None:
    result = execute_run(request(data=UNEQUAL, settings={"metric": metric}), tmp_path / "run")
    task = load_dataset(UNEQUAL)
    threshold, test = result["threshold"], task.splits[0].test
    clf = PolyFormerClassifier.load(tmp_path / "run")
    probabilities = clf.predict_proba(task.graph)
    assert clf.threshold_ == threshold is not None
    expected = predicted_classes(probabilities, threshold)
    assert np.array_equal(clf.predict(task.graph), expected)
    for name in fitting_metrics("classes"):
        ours = METRICS[name](probabilities[test], task.labels[test], threshold)
        assert result["scores"][name] == pytest.approx(ours, abs=1e-6)
    with pytest.raises(SystemExit):
        main(["predict", str(tmp_path / "run"), "--out", str(tmp_path / "p.parquet")])
    table = pq.read_table(tmp_path / "p.parquet")
    assert table["prediction"].to_pylist() == [task.shown_classes[c] for c in expected]
    chosen_by, _ = split_validation(len(task.splits[0].val), seed=0)
    val = task.splits[0].val[chosen_by]
    judged = METRICS["accuracy" if metric == "accuracy" else "balanced_accuracy"]
    assert judged(probabilities[val], task.labels[val], threshold) >= judged(probabilities[val], task.labels[val])


def test_a_classifier_keeps_its_threshold(tmp_path: Path) -> None:
    task, split = load_dataset(UNEQUAL), load_dataset(UNEQUAL).splits[0]
    clf = PolyFormerClassifier(order=2, hidden_channels=8, epochs=2)
    clf.fit(task.graph, task.labels, train=split.train, val=split.val).save(tmp_path / "clf")
    loaded = PolyFormerClassifier.load(tmp_path / "clf")
    assert loaded.threshold_ == clf.threshold_ is not None
    assert np.array_equal(loaded.predict(task.graph), clf.predict(task.graph))


@pytest.mark.parametrize(
    ("metric", "error", "message"),
    [
        ("mae", InvalidData, "The metric 'mae' does not fit class labels. Use one of: accuracy, balanced_accuracy"),
        ("f1", UnknownName, "Unknown metric 'f1'. There are: accuracy"),
        ("macro_f2", UnknownName, "Did you mean 'macro_f1'?"),
    ],
)
def test_a_metric_that_does_not_fit(tmp_path: Path, metric: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message.replace("?", r"\?")):
        execute_run(request(settings={"metric": metric}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
