"""Rows that follow their neighbours: what each leaves out is bounded row by row, and little work is done anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyformer.graph import Graph
from polyformer.tokens import open_tokens, write_tokens
from polyformer.updates import moves, token_rows
from polyformer.updates.moves import Followed
from polyformer.updates.tokens import update_tokens
from tests.updates.random_changes import random_change, random_graph

ORDER = 4


@pytest.fixture(autouse=True)
def rows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Update rows however many are touched: the graphs of these tests are so small that most rows always are."""
    monkeypatch.setattr(token_rows, "_MOST_SHARE", 1)


def residuals(tokens: np.ndarray, graph: Graph, self_loops: bool) -> np.ndarray:
    """How far each row is from where its neighbours put it: (N, K+1, d) -> (K+1, N), zeros for order 0."""
    matrix = graph.adjacency().toarray().astype(np.float64) + self_loops * np.eye(graph.num_nodes)
    degrees = matrix.sum(axis=1)
    scale = 1 / np.sqrt(np.where(degrees > 0, degrees, 1.0))
    shifted = -scale[:, None] * matrix * scale
    result = np.zeros((tokens.shape[1], len(tokens)))
    for k in range(1, tokens.shape[1]):
        row = shifted @ tokens[:, k - 1]
        expected = row if k == 1 else 2 * row - tokens[:, k - 2]
        result[k] = np.linalg.norm(tokens[:, k] - expected, axis=1)
    return result


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_a_row_leaves_out_is_bounded_row_by_row(
    tmp_path: Path, kernel: str, weighted: bool, self_loops: bool, dtype: str
) -> None:
    random = np.random.default_rng([20, weighted, self_loops])
    graph = random_graph(random, weighted)
    write_tokens(graph, tmp_path / "t", order=ORDER, self_loops=self_loops, dtype=dtype)
    for step in range(15):
        graph = random_change(graph, random)
        update_tokens(tmp_path / "t", graph, 0.15 if step % 4 else 0.4)
        stored = open_tokens(tmp_path / "t", "chebyshev")
        tokens = stored[:].numpy().astype(np.float64)
        left_out = stored.layers.left_out(graph.num_nodes)
        assert np.all(residuals(tokens, graph, self_loops) <= left_out + 1e-5)


def test_rows_stay_follow_or_are_made_anew(tmp_path: Path, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way is gone often: a row that follows keeps what it left out, one that is made anew leaves out nothing."""
    counts = {"stays": 0, "follows": 0, "made": 0}

    def counted(*arguments: Any) -> Followed:
        followed = moves.follow_rows(*arguments)
        left_out = followed.left_out[followed.moved]
        counts["stays"] += int(np.count_nonzero(~followed.moved))
        counts["follows"] += int(np.count_nonzero(left_out))
        counts["made"] += int(np.count_nonzero(left_out == 0))
        return followed

    monkeypatch.setattr(token_rows, "follow_rows", counted)
    random = np.random.default_rng(21)
    graph = Graph(random.integers(0, 400, (2, 1200)), random.standard_normal((400, 20)))
    write_tokens(graph, tmp_path / "t", order=ORDER)
    for _ in range(20):
        graph = random_change(graph, random, growing=False)
        update_tokens(tmp_path / "t", graph, 0.02)
    assert min(counts.values()) > 100, counts


def test_rounding_of_rows_that_follow_is_in_the_bound(tmp_path: Path, kernel: str) -> None:
    """One neighbour goes to and fro: the rows around follow hundreds of times and are made anew before they drift."""
    random = np.random.default_rng(22)
    graph = Graph(random.integers(0, 30, (2, 60)), random.standard_normal((30, 140)))
    write_tokens(graph, tmp_path / "t", order=2)
    for _ in range(60):
        graph = graph.updated(set_features={0: random.standard_normal(140)})
        report = update_tokens(tmp_path / "t", graph, 1e-5)
    stored = open_tokens(tmp_path / "t", "chebyshev")
    left_out = stored.layers.left_out(30)
    assert 0 < left_out.max() <= 1e-5 * max(stored.manifest["rms"])
    assert np.all(residuals(stored[:].numpy().astype(np.float64), graph, False) <= left_out + 1e-5)
    assert report.error_bound < 1e-3
