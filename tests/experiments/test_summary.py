from __future__ import annotations

import csv
from typing import Any

import numpy as np
import pytest

from polyformer.experiments.plan import Job, load_plan, select
from polyformer.experiments.summary import (
    bootstrap_interval,
    load_remarks,
    mean_interval,
    summarise,
    to_csv,
    to_markdown,
)


def record(test: float | None, name: str = "citeseer", **settings: Any) -> dict[str, Any]:
    result = {"metric": "accuracy", "test": test, "seconds": 12.0, "peak_memory_bytes": 1 << 28}
    return {"result": result, "config": {"task": {"name": name}, "settings": settings}}


def test_interval_is_near_the_normal_one_and_covers() -> None:
    values = np.random.default_rng(0).normal(0.8, 0.02, 10)
    expected = 1.96 * values.std() / np.sqrt(10)
    assert bootstrap_interval(values.tolist()) == pytest.approx(expected, rel=0.25)
    assert bootstrap_interval([0.5]) == 0


@pytest.mark.parametrize(("runs", "least"), [(2, 0.93), (3, 0.93), (4, 0.93), (5, 0.80), (10, 0.85)])
def test_intervals_cover_what_they_say(runs: int, least: float) -> None:
    random = np.random.default_rng(1)
    samples = [random.normal(0.8, 0.02, runs) for _ in range(500)]
    assert np.mean([abs(sample.mean() - 0.8) <= mean_interval(sample.tolist()) for sample in samples]) >= least


def test_rows_stand_beside_the_published_ones() -> None:
    series = select(load_plan("table5-polyformer-paper").series(), ["citeseer"])
    scores = [0.82, 0.83, 0.84]
    records = [(Job(series[0], run), record(score)) for run, score in enumerate(scores)]
    first, second = summarise(series, records, "node-classification")
    assert (first.model, first.basis, first.dataset, first.runs) == ("polyformer", "monomial", "citeseer", 3)
    assert first.mean == pytest.approx(0.83)
    assert first.deviation == pytest.approx(0.01)
    assert (first.published, first.published_interval) == (0.8237, 0.0065)
    assert first.difference == pytest.approx(0.83 - 0.8237)
    assert (second.mean, second.runs, second.difference, second.published) == (None, 0, None, 0.8180)
    lines = to_markdown([first, second]).splitlines()
    assert lines[2].startswith("| polyformer (monomial) | citeseer | accuracy | 83.00 ± ")
    assert lines[2].endswith("| 1.00 | 3 | 82.37 ± 0.65 | +0.63 | 12 | 256.0 MiB | 1 |")
    assert "| – | – | 0 | 81.80 ± 0.76 | – | – | – |  |" in lines[3]
    assert lines[-1].startswith("1. published settings")
    table = list(csv.DictReader(to_csv([("table5", [first, second])]).splitlines()))
    assert float(table[0]["mean"]) == pytest.approx(0.83)
    assert table[1]["mean"] == ""


def test_another_metric_than_the_published_one_stands_alone() -> None:
    [series] = select(load_plan("table5-baselines").series(), ["minesweeper"], ["mlp"])
    [row] = summarise([series], [(Job(series, 0), record(0.9, "minesweeper"))], "node-classification")
    assert (row.metric, row.mean, row.published) == ("accuracy", 0.9, None)


def test_one_run_has_no_interval_and_no_test_score_no_row() -> None:
    [series] = select(load_plan("table5-baselines").series(), ["physics"], ["transformer"])
    runs = [(Job(series, run), record(score, "physics")) for run, score in enumerate((0.97, None))]
    [row] = summarise([series], runs, "node-classification")
    assert (row.runs, row.interval, row.deviation, row.published, row.difference) == (1, None, None, None, None)
    assert row.note.endswith("paper: out of memory")


def test_what_stands_in_is_told() -> None:
    [series] = select(load_plan("synthetic-selfattn").series(), ["mixed-low-pass"], bases=["optimal"])
    runs = [record(0.9, "2Dgrid"), record(0.8, "generated-images")]
    [row] = summarise([series], [(Job(series, i), run) for i, run in enumerate(runs)])
    assert row.note == f"{series.note}; 1 of 2 runs on generated-images"
    [series] = select(load_plan("fig3").series(), ["tolokers"], ["unifilter"])
    [row] = summarise([series], [])
    assert row.note.endswith("; tolokers stands in for questions")


def test_runs_with_older_settings_are_marked() -> None:
    """A changed default makes no test fail: the row says which runs are older than the change."""
    [series] = select(load_plan("table5-baselines").series(), ["cs"], ["gcn"])
    today = Job(series, 0).request.resolve_settings()
    runs = [record(0.9, "cs", **today), record(0.8, "cs", **today | {"dropout": 0.123, "gone": 1})]
    [row] = summarise([series], [(Job(series, i), run) for i, run in enumerate(runs)])
    assert (row.runs, row.outdated) == (2, 1)
    assert row.note.endswith("; 1 of 2 runs with older settings: dropout=0.123")
    assert "| 2† |" in to_markdown([row])
    assert "| 1 |" in to_markdown(summarise([series], [(Job(series, 0), runs[0])]))


def test_remarks_are_about_rows_that_there_are() -> None:
    for key in load_remarks():
        assert key in {entry.key for entry in load_plan(key[0]).series()}
