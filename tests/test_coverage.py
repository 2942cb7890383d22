"""Sets and intervals hold the truth as often as they promise, over redrawn splits with a model trained on each."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import polyformer as pf
from polyformer.calibration import Calibration, nonconformity
from polyformer.coverage import Coverage
from polyformer.errors import InvalidParameter
from polyformer.runs.execution import execute_run
from polyformer.runs.request import RunRequest
from polyformer.tasks import Task
from tests.cli.test_cli import run

SPLITS, NODES, HELD_OUT = 100, 700, 100


def _graph() -> tuple[pf.Graph, np.ndarray, np.ndarray]:
    """A graph whose classes, and values, its features tell only in part."""
    random = np.random.default_rng(5)
    features = random.standard_normal((NODES, 3))
    noisy = features + random.standard_normal((NODES, 3))
    return pf.Graph(random.integers(0, NODES, (2, NODES)), features), noisy.argmax(axis=1), noisy[:, 0]


@cache
def _covered(kind: Any) -> dict[str, np.ndarray]:
    """How often the truth of test nodes is covered in each split, for each frequency asked for.

    And, as a control, how often it is where training nodes stand in for those held out, at 0.9.
    """
    graph, classes, values = _graph()
    labels = classes if kind is pf.PolyFormerClassifier else values
    shares: dict[str, list[float]] = {"0.8": [], "0.9": [], "control": []}
    for seed in range(SPLITS):
        train, val, test = np.split(np.random.default_rng(seed).permutation(NODES), [200, 200 + 2 * HELD_OUT])
        # Trained long, the model knows its training nodes better than others.
        estimator = kind(graph=graph, model="mlp", hidden_channels=32, epochs=12, lr=0.03, dropout=0.0, seed=seed)
        estimator.fit(np.concatenate([train, val]), labels[np.concatenate([train, val])], train=train, val=val)
        scores, seen = estimator._scores(None, test), nonconformity(estimator._scores(None, train), labels[train])
        coverages = {share: estimator._trained.card.coverage(float(share)) for share in ("0.8", "0.9")}
        control = Calibration(held_out=tuple(np.sort(seen[:HELD_OUT]).tolist()))
        coverages["control"] = Coverage.of(control, 0.9, of_values=labels.dtype.kind == "f")
        for name, coverage in coverages.items():
            if coverage.of_values:
                low, high = coverage.intervals(scores).T
                inside = (low <= labels[test]) & (labels[test] <= high)
            else:
                inside = coverage.sets(scores)[np.arange(len(test)), labels[test]]
            shares[name].append(float(inside.mean()))
    return {name: np.array(values) for name, values in shares.items()}


@pytest.mark.slow
@pytest.mark.parametrize("coverage", [0.8, 0.9])
@pytest.mark.parametrize("kind", [pf.PolyFormerClassifier, pf.PolyFormerRegressor])
def test_the_truth_is_covered_as_often_as_promised(kind: Any, coverage: float) -> None:
    """The mean over the splits lies within three of its standard errors of [coverage, coverage + 1 / (n + 1)]."""
    shares = _covered(kind)[str(coverage)]
    error = 3 * shares.std(ddof=1) / math.sqrt(SPLITS)
    assert error < 0.02, "so that a promise that is broken by two points is noticed"
    assert coverage - error < shares.mean() < coverage + 1 / (HELD_OUT + 1) + error


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pf.PolyFormerClassifier, pf.PolyFormerRegressor])
def test_nodes_that_were_trained_on_would_break_the_promise(kind: Any) -> None:
    """The control: with training nodes in place of those held out, the same test fails."""
    shares = _covered(kind)["control"]
    assert shares.mean() < 0.9 - 3 * shares.std(ddof=1) / math.sqrt(SPLITS)


@pytest.mark.parametrize("count", [1, 9, 10, 19, 99, 1000])
@pytest.mark.parametrize("coverage", [Fraction(1, 2), Fraction(8, 10), Fraction(9, 10), Fraction(95, 100)])
def test_the_rank_is_exact_and_too_few_nodes_are_refused(count: int, coverage: Fraction) -> None:
    calibration = Calibration(held_out=tuple(range(1, count + 1)))
    rank = math.ceil((count + 1) * coverage)
    if rank <= count:
        assert Coverage.of(calibration, float(coverage), of_values=True).bound == rank
        return
    least = next(n for n in range(2000) if math.ceil((n + 1) * coverage) <= n)
    with pytest.raises(
        InvalidParameter, match=rf"needs {least} validation nodes.* This model has {count}\. Ask for"
    ) as e:
        Coverage.of(calibration, float(coverage), of_values=True)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("coverage", [0, 1, -0.5, 1.5, float("nan"), "much", True, None])
def test_a_frequency_lies_between_zero_and_one(coverage: Any) -> None:
    with pytest.raises(InvalidParameter, match="'coverage' must lie between 0 and 1"):
        Coverage.of(Calibration(held_out=(1.0,)), coverage, of_values=False)


def test_sets_grow_with_the_frequency() -> None:
    random = np.random.default_rng(0)
    calibration = Calibration(held_out=tuple(np.sort(random.random(200)).tolist()))
    scores = random.dirichlet([1, 1, 1], 50)
    sets = [Coverage.of(calibration, share, of_values=False).sets(scores) for share in (0.5, 0.8, 0.9, 0.99)]
    for small, large in itertools.pairwise(sets):
        assert (small <= large).all()
    assert sets[0].sum() < sets[-1].sum()


def _run(folder: Path, labels: np.ndarray, names: tuple[str, ...] | None = None) -> Path:
    graph = _graph()[0]
    parts = np.split(np.random.default_rng(0).permutation(NODES), [300, 500])
    Task("t", graph, labels, [pf.Split(*map(np.sort, parts))], "given", class_names=names).save(folder / "graph")
    settings = {"epochs": 5, "hidden_channels": 8, "lr": 0.02}
    execute_run(RunRequest(str(folder / "graph"), "mlp", settings=settings), folder / "run")
    return folder / "run"


def test_predictions_of_classes_have_a_column_of_sets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("a|b", 'say "c"', "d")
    made = _run(tmp_path, _graph()[1], names)
    assert run("predict", made, "--out", tmp_path / "p.csv", "--coverage", "0.9") == 0
    assert (
        "holds the truth in at least 90 % of nodes, by 100 validation nodes held out for it" in capsys.readouterr().out
    )
    assert run("predict", made, "--out", tmp_path / "p.parquet", "--coverage", "0.9", "--json") == 0
    about = json.loads(capsys.readouterr().out)
    assert (about["coverage"], about["coverage_nodes"]) == (0.9, 100)
    table = pq.read_table(tmp_path / "p.parquet").to_pydict()
    texts = pyarrow.csv.read_csv(tmp_path / "p.csv").to_pydict()["set"]
    assert [json.loads(text) for text in texts] == table["set"]
    clf = pf.PolyFormerClassifier.load(made)
    members = clf.predict_set(pf.Graph.load(tmp_path / "graph"), coverage=0.9)
    assert table["set"] == [[names[c] for c in np.flatnonzero(row)] for row in members]
    assert np.array_equal(pf.Run.open(made).predict_set(coverage=0.9), members)
    assert about["coverage_bound"] == clf._trained.card.coverage(0.9).bound
    covered = members[np.arange(NODES), _graph()[1]].mean()
    assert 0.8 < covered < 0.98
    assert run("predict", made, "--out", tmp_path / "p.csv", "--coverage", "0.999") == 2
    assert "needs 999 validation nodes that were held out, half of all. This model has 100" in capsys.readouterr().err


def test_predictions_of_values_have_the_ends_of_an_interval(tmp_path: Path) -> None:
    made = _run(tmp_path, _graph()[2])
    assert run("predict", made, "--out", tmp_path / "p.parquet", "--coverage", "0.8") == 0
    table = pq.read_table(tmp_path / "p.parquet").to_pandas()
    assert np.allclose((table["low"] + table["high"]) / 2, table["prediction"])
    inside = (table["low"] <= _graph()[2]) & (_graph()[2] <= table["high"])
    assert 0.7 < inside.mean() < 0.9
    model = pf.PolyFormerRegressor.load(made)
    ends = model.predict_interval(pf.Graph.load(tmp_path / "graph"), nodes=[5, 1], coverage=0.8)
    assert np.allclose(ends, table[["low", "high"]].to_numpy()[[5, 1]])
    assert np.allclose(pf.Run.open(made).predict_set(nodes=[5, 1], coverage=0.8), ends)
    assert json.loads((made / "result.json").read_text())["calibration"] is None
