"""The loop and the run directory: repeatable, resumable, honest about its splits."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polyformer.datasets import load_dataset
from polyformer.errors import (
    InvalidData,
    InvalidParameter,
    TrainingDiverged,
    UnknownName,
)
from polyformer.estimators import PolyFormerClassifier
from polyformer.graph import Graph
from polyformer.metrics import METRICS
from polyformer.runs.execution import execute_run
from polyformer.runs.prediction import predict_scores
from polyformer.runs.request import RunRequest
from polyformer.runs.run import Run
from polyformer.splits import Split, hold_out
from polyformer.tasks import Task, check_trainable
from polyformer.training import loop, steps
from polyformer.training.early_stopping import EarlyStopping
from polyformer.training.settings import TrainingSettings
from tests.edits import plain_json
from tests.training.runs import BOARD, losses, request


def test_a_run_leaves_everything(tmp_path: Path) -> None:
    result = execute_run(request(), tmp_path / "run")
    stored = plain_json(tmp_path / "run" / "result.json")
    assert {name: stored[name] for name in stored if name not in ("run", "history")} == result
    expected = {"metric", "val", "test", "best_epoch", "epochs", "seconds", "peak_memory_bytes", "versions"}
    assert expected <= set(result)
    records = Run(tmp_path / "run").metrics
    assert [record["epoch"] for record in records] == [1, 2, 3, 4, 5, 6]
    assert {"epoch", "loss", "val", "seconds"} == set(records[0])
    assert result["val"] == max(record["val"] for record in records)
    assert records[result["best_epoch"] - 1]["val"] == result["val"]
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["task"]["protocol"] == "random"
    assert config["settings"]["order"] == 3
    assert (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.parametrize("batch_size", [50, "full"])
def test_a_seed_repeats_the_run_and_another_does_not(tmp_path: Path, batch_size: int | str) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        execute_run(request(seed=seed, settings={"batch_size": batch_size}), tmp_path / name)
    assert losses(tmp_path / "a") == losses(tmp_path / "b")
    assert losses(tmp_path / "a") != losses(tmp_path / "c")


def test_training_does_not_disturb_the_global_generators(tmp_path: Path) -> None:
    torch.manual_seed(7)
    np_before, expected = np.random.get_state()[1].copy(), torch.rand(3)  # noqa: NPY002
    torch.manual_seed(7)
    execute_run(request(), tmp_path / "run")
    assert torch.equal(torch.rand(3), expected)
    assert np.array_equal(np.random.get_state()[1], np_before)  # noqa: NPY002


def test_a_schedule_lowers_the_rates_to_zero(tmp_path: Path) -> None:
    rates = []

    class Watched(torch.optim.Adam):
        def step(self, *arguments: Any, **named: Any) -> Any:
            rates.append([group["lr"] for group in self.param_groups])
            return super().step(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim, "Adam", Watched)
        settings = {"schedule": "cosine", "lr": 0.4, "attention_lr": 0.2, "batch_size": "full", "epochs": 4}
        execute_run(request(settings=settings), tmp_path / "run")
    expected = [0.5 * (1 + math.cos(math.pi * i / 4)) for i in range(4)]
    assert np.allclose([max(pair) for pair in rates], 0.4 * np.array(expected))
    assert np.allclose([min(pair) for pair in rates], 0.2 * np.array(expected))


@pytest.mark.slow
def test_lbfgs_fits_where_as_many_steps_of_adam_do_not(tmp_path: Path) -> None:
    """Small targets in their raw units: Adam's steps are too large for them, L-BFGS chooses its own."""
    image = {"data": "generated-images:image=0,filter=band", "model": "chebnetii", "protocol": "fit"}
    common = {"hidden_channels": 64, "dropout": 0.0, "weight_decay": 0.0, "batch_size": "full", "targets": "raw"}
    ways = {"lbfgs": {"epochs": 2, "optimizer": "lbfgs"}, "adam": {"epochs": 300, "patience": 300, "lr": 0.01}}
    error = {
        way: 1 - execute_run(RunRequest(**image, settings={**common, **settings}), tmp_path / way)["test"]
        for way, settings in ways.items()
    }
    assert error["lbfgs"] < 0.2 * error["adam"]


def test_a_run_that_diverges_keeps_its_best_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    differentiate = loop.Trainer._differentiate
    monkeypatch.setattr(
        loop.Trainer, "_differentiate", lambda self, rows: math.nan if self.epoch == 3 else differentiate(self, rows)
    )
    with pytest.raises(TrainingDiverged, match=r"The loss became nan in epoch 4\. .* The model of epoch \d is kept\."):
        execute_run(request(), tmp_path / "run")
    assert PolyFormerClassifier.load(tmp_path / "run").predict(load_dataset(BOARD).graph).shape == (300,)


@pytest.mark.parametrize(
    ("val", "metric", "message"),
    [
        ([], "roc_auc", "There are no validation nodes"),
        ([1, 2], "roc_auc", "All 2 validation nodes have the label 1, so the metric 'roc_auc' is not defined"),
        ([1], "r2", "the metric 'r2' is not defined on them. Add others."),
    ],
)
def test_without_a_score_no_epoch_is_chosen(val: list[int], metric: str, message: str) -> None:
    graph = Graph([[0, 1], [1, 2]], np.ones((4, 1), np.float32), 4)
    labels = np.array([0, 1, 1, 0]) if metric == "roc_auc" else np.arange(4.0)
    split = Split(np.array([0, 3]), np.array(val, np.int64), np.array([], np.int64))
    with pytest.raises(InvalidData, match=message):
        check_trainable(Task("t", graph, labels, [split], metric=metric), split)


def test_two_nodes_of_a_class_are_shared_with_validation() -> None:
    kept, drawn = hold_out(np.arange(12), np.array([0] * 10 + [1, 1]), seed=0)
    assert sorted(np.concatenate([kept, drawn])) == list(range(12))
    assert len(np.intersect1d(drawn, [10, 11])) == 1


def test_test_labels_change_nothing_in_training(tmp_path: Path) -> None:
    task = load_dataset(BOARD)
    split = task.splits[0]
    labels = task.labels.copy()
    labels[split.test] = 1 - labels[split.test]
    for name, values in (("a", task.labels), ("b", labels)):
        Task("board", task.graph, values, [split], metric="roc_auc").save(tmp_path / f"{name}.graph")
        execute_run(request(data=str(tmp_path / f"{name}.graph")), tmp_path / name)
    one, other = Run(tmp_path / "a").result, Run(tmp_path / "b").result
    assert losses(tmp_path / "a") == losses(tmp_path / "b")
    assert one is not None
    assert other is not None
    assert one["val"] == other["val"]
    assert one["test"] == pytest.approx(1 - other["test"])


@pytest.mark.parametrize("kind", ["binary", "multiclass", "regression"])
@pytest.mark.parametrize("class_weights", ["none", "balanced"])
def test_every_objective_learns(tmp_path: Path, kind: str, class_weights: str) -> None:
    """Labels that are a function of the node's own feature are learnt almost perfectly."""
    random = np.random.default_rng(0)
    features = random.standard_normal((400, 4))
    labels = {
        "binary": (features[:, 0] > 0.5).astype(int),
        "multiclass": np.digitize(features[:, 0], [-0.5, 0.5]),
        "regression": features[:, 0] + 0.5 * features[:, 1],
    }[kind]
    graph = Graph(random.integers(0, 400, (2, 300)), features)
    order = random.permutation(400)
    Task("made", graph, labels, [Split(order[:250], order[250:320], order[320:])]).save(tmp_path / "graph")
    settings = {"epochs": 40, "class_weights": class_weights, "lr": 5e-3}
    result = execute_run(request(data=str(tmp_path / "graph"), settings=settings), tmp_path / "run")
    assert result["metric"] == ("r2" if kind == "regression" else "accuracy")
    assert result["test"] > 0.8


@pytest.mark.slow
def test_real_labels_are_learned_alike_whatever_their_units(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    features, order = random.standard_normal((400, 4)), random.permutation(400)
    graph, split = Graph(random.integers(0, 400, (2, 300)), features), Split(order[:250], order[250:320], order[320:])
    labels = features[:, 0] + 0.5 * features[:, 1]
    scores = {}
    for centre, scale, targets in [
        (0, 1, "standard"),
        (200_000, 50_000, "standard"),
        (-3, 1e-4, "standard"),
        (200_000, 50_000, "raw"),
    ]:
        name = f"{centre}-{targets}"
        task = Task("made", graph, centre + scale * labels, [split])
        task.save(tmp_path / name)
        settings = {"epochs": 40, "lr": 5e-3, "targets": targets}
        out = tmp_path / f"run-{name}"
        scores[name] = execute_run(request(data=str(tmp_path / name), settings=settings), out)["test"]
        card, model = Run(out).load()
        predicted = predict_scores(model, card.reader, card.prepare(graph), split.test)
        assert METRICS["r2"](predicted, task.labels[split.test]) == pytest.approx(scores[name], abs=1e-6)
    assert scores["0-standard"] > 0.8
    assert scores["200000-standard"] == pytest.approx(scores["0-standard"], abs=1e-3)
    assert scores["-3-standard"] == pytest.approx(scores["0-standard"], abs=1e-3)
    assert scores["200000-raw"] < scores["0-standard"] - 0.05


def test_a_class_without_nodes_has_a_name_and_a_weight(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    graph = Graph(random.integers(0, 60, (2, 90)), random.standard_normal((60, 4)))
    split = Split(np.arange(30), np.arange(30, 45), np.arange(45, 60))
    labels = random.integers(0, 3, 60)
    Task("made", graph, labels, [split], class_names=["a", "b", "c", "never"]).save(tmp_path / "graph")
    settings = {"epochs": 2, "class_weights": "balanced"}
    assert execute_run(request(data=str(tmp_path / "graph"), settings=settings), tmp_path / "run")["test"] is not None


def test_class_weights_are_inverse_to_frequency() -> None:
    weights = steps.class_weights(np.array([0, 0, 0, 1]), 2)
    assert weights.tolist() == pytest.approx([4 / 6, 2.0])


def test_shuffling_of_nodes_and_of_batches() -> None:
    task = load_dataset(BOARD)
    split = Split(np.arange(10), np.arange(10, 20), np.arange(20, 30))
    from polyformer.models import Workload
    from polyformer.models.polyformer import PolyFormerModel, PolyFormerSettings

    model = PolyFormerModel(7, 1, PolyFormerSettings(order=1, hidden_channels=8))
    model.bind(task.graph, Workload(None, 30))
    for shuffle in ("nodes", "batches"):
        settings = TrainingSettings(batch_size=4, shuffle=shuffle)
        trainer = loop.Trainer(model, task.objective, "roc_auc", task.labels, split, settings)
        batches = [rows.tolist() for rows in trainer._batches(np.random.default_rng(1))]
        assert sorted(row for rows in batches for row in rows) == list(range(10))
        contiguous = sorted(batches) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert contiguous == (shuffle == "batches")


def test_no_batch_is_empty() -> None:
    """Pieces smaller than a batch, as tokens on disk give them, are put together."""
    pieces = [torch.arange(0, 3), torch.arange(3, 5), torch.arange(5, 14), torch.arange(14, 16)]
    assert [rows.tolist() for rows in steps.cut_batches(pieces, 4)] == [[4 * i + j for j in range(4)] for i in range(4)]
    assert [len(rows) for rows in steps.cut_batches(pieces, 7)] == [7, 7, 2]


def test_batch_size_is_resolved() -> None:
    def size(batch_size: int | str, num_train: int, num_features: int) -> int | str:
        return TrainingSettings(batch_size=batch_size).resolve(num_train, num_features).batch_size  # type: ignore[arg-type]

    assert size("full", 5000, 7) == 5000
    assert size("auto", 5000, 7) == 256
    assert size("auto", 100, 7) == 100
    assert size("auto", 11_000, 6805) == 1375
    assert size("auto", 445, 2325) == 256
    assert size(64, 5000, 6805) == 64
    assert TrainingSettings(optimizer="lbfgs").resolve(5000, 7).batch_size == 5000


@pytest.mark.parametrize("larger", [True, False])
def test_early_stopping_needs_a_strictly_better_score(larger: bool) -> None:
    stopping = EarlyStopping(2, larger)
    assert stopping.update(1, math.nan)
    assert stopping.update(2, 0.5)
    assert not stopping.update(3, 0.5 if larger else 0.6)
    assert not stopping.should_stop(3)
    assert not stopping.update(4, math.nan)
    assert stopping.should_stop(4)
    assert (stopping.best_epoch, stopping.best_score) == (2, 0.5)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"split": 10}, InvalidParameter, r"has 10 splits, numbers 0 to 9\. Got 10"),
        ({"settings": {"epochs": 0}}, InvalidParameter, "'epochs' must be 1 or more"),
        ({"settings": {"lr": "fast"}}, InvalidParameter, "'lr' must be a number. Got 'fast'"),
        ({"settings": {"batch_size": 0}}, InvalidParameter, "'batch_size' must be 1 or more"),
        ({"settings": {"optimizer": "lbfgs"}}, InvalidParameter, "needs full batches. Got batch_size=50"),
        (
            {"settings": {"optimizer": "lbfgs", "batch_size": "full", "weight_decay": 0.1}},
            InvalidParameter,
            "'weight_decay' must be 0 with",
        ),
        (
            {"settings": {"optimizer": "lbfgs", "batch_size": "full", "attention_weight_decay": 0.1}},
            InvalidParameter,
            "'weight_decay' must be 0 with",
        ),
        ({"settings": {"lerning_rate": 1}}, UnknownName, "Unknown setting 'lerning_rate'"),
        ({"settings": {"basis": "fourier"}}, UnknownName, "Unknown basis 'fourier'"),
        ({"settings": {"basis": "optimal", "token_route": "projected"}}, InvalidParameter, "must be 'stored'"),
        ({"model": "polyforme"}, UnknownName, "Did you mean 'polyformer'"),
        ({"device": "tpu"}, InvalidParameter, "'device' must be auto, cpu, cuda or mps"),
        ({"protocol": "fixed"}, UnknownName, "no split protocol 'fixed'"),
        ({"data": "minefield:width=1"}, InvalidParameter, "'width' of minefield must be"),
        ({"data": "nowhere/graph"}, FileNotFoundError, "no graph at 'nowhere/graph'"),
        ({"settings": {"metric": "r2"}}, InvalidData, "does not fit class labels"),
    ],
)
def test_bad_requests_leave_nothing_behind(tmp_path: Path, changes: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        execute_run(request(**changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_tensorboard_events(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from polyformer.training.tensorboard import TensorBoard

    execute_run(request(), tmp_path / "run", reporter=TensorBoard(tmp_path / "run" / "tensorboard"))
    assert list((tmp_path / "run" / "tensorboard").glob("events*"))
