"""The temperature against an exhaustive search, what it leaves alone, and files of earlier versions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from polyformer.calibration import (
    HELD_OUT_NODES,
    Calibration,
    calibrate,
    calibration_sentence,
    fit_temperature,
    nonconformity,
    soften,
    split_validation,
)
from polyformer.errors import FileCorrupt
from polyformer.evaluation import Judge
from polyformer.files import read_tensors, write_tensors
from polyformer.files.run_schemas import WEIGHTS
from polyformer.metrics import METRICS
from polyformer.objectives import OBJECTIVES
from polyformer.runs.execution import execute_run
from polyformer.runs.run import Run
from tests.cli.test_cli import run
from tests.training.runs import request


def _drawn(temperature: float, classes: int, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Labels that follow a model's outputs at a temperature, and the probabilities that it gives at temperature 1."""
    random = np.random.default_rng(seed)
    outputs = random.standard_normal((count, classes)) * 3
    true = np.exp(outputs / temperature)
    true /= true.sum(axis=1, keepdims=True)
    labels = (random.random((count, 1)) > true.cumsum(axis=1)).sum(axis=1)
    given = np.exp(outputs)
    return given / given.sum(axis=1, keepdims=True), labels


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_the_temperature_that_labels_follow_is_found(temperature: float, classes: int) -> None:
    probabilities, labels = _drawn(temperature, classes, 20_000)
    assert fit_temperature(probabilities, labels) == pytest.approx(temperature, rel=0.1)
    others = [METRICS["log_loss"](soften(probabilities, t), labels) for t in np.geomspace(0.1, 10, 101)]
    best = METRICS["log_loss"](soften(probabilities, fit_temperature(probabilities, labels)), labels)
    assert best <= min(others) + 1e-4
    fresh, fresh_labels = _drawn(temperature, classes, 20_000, seed=1)
    after = soften(fresh, fit_temperature(probabilities, labels))
    assert METRICS["calibration_error"](after, fresh_labels) < 0.02


def test_few_nodes_that_are_all_right_do_not_make_a_model_sure() -> None:
    probabilities = np.tile([0.9, 0.1], (20, 1))
    assert soften(probabilities, fit_temperature(probabilities, np.zeros(20, np.int64))).max() < 0.99
    assert fit_temperature(np.full((5, 2), np.nan), np.zeros(5, np.int64)) == 1.0


@pytest.mark.parametrize("temperature", [0.2, 1.0, 7.0])
def test_softening_is_dividing_outputs_and_keeps_the_order(temperature: float) -> None:
    import torch

    outputs = torch.linspace(-30, 30, 61)[:, None]
    binary = OBJECTIVES["binary"]
    assert np.allclose(soften(binary.scores(outputs), temperature), binary.at_temperature(temperature).scores(outputs))
    several = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)) * 5
    multiclass = OBJECTIVES["multiclass"]
    after = multiclass.at_temperature(temperature).scores(several)
    assert np.allclose(soften(multiclass.scores(several), temperature), after)
    assert np.array_equal(after.argmax(axis=1), several.numpy().argmax(axis=1))
    assert np.allclose(after.sum(axis=1), 1)


@pytest.mark.parametrize("count", [0, 1, 2, 61, 5000])
def test_validation_is_cut_in_two_by_the_seed(count: int) -> None:
    chosen_by, held_out = split_validation(count, seed=3)
    assert len(held_out) == min(count // 2, HELD_OUT_NODES)
    assert np.array_equal(np.union1d(chosen_by, held_out), np.arange(count))
    assert len(chosen_by) + len(held_out) == count
    again = split_validation(count, seed=3)
    assert np.array_equal(again[1], held_out)
    if count > 10:
        assert not np.array_equal(split_validation(count, seed=4)[1], held_out)


def test_what_is_held_out_was_not_chosen_by() -> None:
    """Labels of nodes that are held out change neither temperature nor threshold."""
    probabilities, labels = _drawn(2.0, 2, 400)
    labels[probabilities[:, 1] < 0.5] = 0
    judge = Judge(METRICS["accuracy"], adjusts=True)
    before = calibrate(probabilities, labels, judge, seed=0)
    chosen_by, held_out = split_validation(400, seed=0)
    flipped = labels.copy()
    flipped[held_out] = 1 - flipped[held_out]
    after = calibrate(probabilities, flipped, judge, seed=0)
    assert (after.temperature, after.threshold, after.nodes) == (before.temperature, before.threshold, 200)
    assert after.held_out != before.held_out
    softened = soften(probabilities, before.temperature)
    assert before.held_out == tuple(np.sort(nonconformity(softened[held_out], labels[held_out])))
    assert before.threshold == judge.threshold(softened[chosen_by], labels[chosen_by])
    assert calibrate(probabilities, labels, judge, seed=0, seen=True).held_out == ()


def test_a_run_shows_before_and_after_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    board = "minefield:width=30,height=30"
    options = ["--set=epochs=5", "--set=order=3", "--set=lr=0.02", "--set=hidden_channels=16"]
    assert run("train", board, *options, "--out", tmp_path / "run") == 0
    result, out = json.loads((tmp_path / "run/result.json").read_text()), capsys.readouterr().out
    about = result["calibration"]
    assert (about["measured_on"], about["nodes"], about["fitted_on"], result["coverage_nodes"]) == (
        "test",
        225,
        113,
        112,
    )
    assert about["temperature"] != 1
    sentence = calibration_sentence(result)
    assert sentence is not None
    assert sentence in out
    assert sentence[1:] in (tmp_path / "run/report.html").read_text()
    for name in ("log_loss", "calibration_error"):
        before, after = about[name]
        assert before != after == pytest.approx(result["scores"][name])
    card, _ = Run.open(tmp_path / "run").load()
    assert card.calibration.temperature == about["temperature"]


def test_a_run_of_an_earlier_version_predicts_as_before(tmp_path: Path) -> None:
    execute_run(request(data="minefield:width=30,height=30"), tmp_path / "run")
    file = tmp_path / "run" / "model.safetensors"
    tensors, about = read_tensors(file, WEIGHTS)
    assert about["calibration"]["temperature"] != 1
    for header in ({"format": 1, "threshold": 0.25}, {"format": 1}):
        write_tensors(file, tensors, header)
        card, _ = Run.open(tmp_path / "run").load()
        assert card.calibration == Calibration(threshold=header.get("threshold"))
        assert card.reader.temperature == 1.0
        table = tmp_path / "predictions.csv"
        assert run("predict", tmp_path / "run", "--out", table) == 0
        assert run("predict", tmp_path / "run", "--out", table, "--coverage", "0.9") == 2
    for wrong, message in ({"heat": 3}, "calibration"), (about["calibration"] | {"temperature": 0}, "must be positive"):
        write_tensors(file, tensors, {"format": 1, "calibration": wrong})
        with pytest.raises(FileCorrupt, match=message):
            Run.open(tmp_path / "run").load()


def test_results_of_earlier_versions_say_nothing() -> None:
    assert calibration_sentence({"metric": "accuracy"}) is None
    assert calibration_sentence({"calibration": None}) is None
    few = {"temperature": 1.0, "fitted_on": 4, "measured_on": "test", "nodes": 9}
    assert "a temperature needs 20 validation nodes, and there are 4" in str(calibration_sentence({"calibration": few}))
