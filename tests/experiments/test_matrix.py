"""Matrices of results and ranks of models: what a cell says, and the tests behind the ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from polyformer.experiments.matrix import standing, to_matrix
from polyformer.experiments.ranks import draw_ranks, rank_models
from polyformer.experiments.summary import Row

ROW = Row("gcn", None, "cora", "accuracy", 0.80, 0.01, 0.02, 10, 0.82, 0.015, -0.02, 3.0, 1 << 20, 0, "")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "below"),
        ({"published_interval": 0.03}, "inside"),
        ({"mean": 0.9}, "above"),
        ({"published": None}, "alone"),
        ({"published_interval": None, "mean": 0.8201}, "inside"),
        ({"metric": "squared_error", "mean": 2.0, "published": 3.0, "published_interval": None}, "above"),
        ({"metric": "squared_error", "mean": 2.077, "published": 2.0766, "published_interval": None}, "inside"),
        ({"metric": "squared_error", "mean": 4.0, "published": 3.0, "published_interval": None}, "below"),
    ],
)
def test_where_a_mean_stands(changes: dict[str, object], expected: str) -> None:
    assert standing(replace(ROW, **changes)) == expected  # type: ignore[arg-type]


def test_a_matrix_has_a_cell_for_each_pair_and_escapes_names() -> None:
    rows = [ROW, replace(ROW, dataset="pubmed", mean=0.9), replace(ROW, model="<b>", basis="chebyshev", outdated=1)]
    text = to_matrix(rows)
    assert text.count("<tr><th scope='row'>") == 2
    assert "&lt;b&gt; (chebyshev)" in text
    assert "<td class='below'>80.00 ± 1.00 ▼<br><small>10 runs; 82.00 ± 1.50</small></td>" in text
    assert "10† runs" in text
    assert "<td>–</td>" in text  # the second model has no run on pubmed


def test_each_metric_has_a_matrix_and_errors_come_last() -> None:
    text = to_matrix([replace(ROW, metric="squared_error"), replace(ROW, metric="r2")])
    assert text.count("<table") == 2
    assert text.index(">r2<") < text.index(">squared_error<")


def rows_of(scores: np.ndarray, runs: int = 3) -> list[Row]:
    """Rows of models a, b, … on data sets 0, 1, …: (k, n) means."""
    return [
        replace(ROW, model=chr(97 + i), dataset=str(j), mean=float(mean), runs=runs)
        for i, means in enumerate(scores)
        for j, mean in enumerate(means)
        if np.isfinite(mean)
    ]


def test_ranks_are_means_over_the_data_sets_that_all_ranked_models_have() -> None:
    missing = np.nan
    scores = np.array(
        [[0.9, 0.8, 0.7, 0.6], [0.8, 0.9, 0.6, missing], [0.7, 0.7, 0.6, missing], [0.9, 0.1, missing, 0.1]]
    )
    ranks = rank_models(rows_of(scores))
    assert ranks is not None
    assert ranks.datasets == ("0", "1", "2")
    assert dict(ranks.mean_ranks) == pytest.approx({"a": 4 / 3, "b": 5.5 / 3, "c": 8.5 / 3})
    assert list(ranks.mean_ranks) == ["a", "b", "c"]
    assert 0 < ranks.p_value < 1


def test_means_of_few_runs_are_not_ranked() -> None:
    assert rank_models(rows_of(np.random.default_rng(0).random((5, 4)), runs=2)) is None


def test_equal_models_are_told_apart_in_one_of_twenty_draws() -> None:
    """By chance alone, some pair of equal models is further apart than the critical difference in 5 % of cases."""
    random = np.random.default_rng(0)
    apart = []
    for _ in range(300):
        ranks = rank_models(rows_of(random.random((4, 12))))
        assert ranks is not None
        values = list(ranks.mean_ranks.values())
        apart.append(values[-1] - values[0] > ranks.critical_difference)
    assert 0.01 < np.mean(apart) < 0.10


def test_the_chart_names_every_model() -> None:
    ranks = rank_models(rows_of(np.random.default_rng(1).random((6, 5))))
    assert ranks is not None
    chart = draw_ranks(ranks, "Ranks & models")
    assert all(f">{name}</text>" in chart for name in "abcdef")
    assert "Ranks &amp; models" in chart
