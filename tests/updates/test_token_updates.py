"""Tokens that follow a changed graph: equal to tokens computed from nothing, or within the bound that is stated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from polyformer.errors import FileCorrupt, InvalidData, InvalidParameter, OutputBusy
from polyformer.feature_scaling import FeatureScaling
from polyformer.files import locked
from polyformer.graph import Graph
from polyformer.propagation.disk import DiskEngine
from polyformer.stores import folding
from polyformer.structure_features import structure_features
from polyformer.tokens import compute_tokens, open_tokens, write_tokens
from polyformer.updates import token_rows, tokens
from polyformer.updates.tokens import TokenUpdate, update_tokens
from tests.updates.random_changes import random_change, random_graph

ORDER = 4


@pytest.fixture(autouse=True)
def rows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Update rows however many are touched: the graphs of these tests are so small that most rows always are."""
    monkeypatch.setattr(token_rows, "_MOST_SHARE", 1)


def check(directory: Path, graph: Graph, report: TokenUpdate, self_loops: bool) -> None:
    """Hold stored tokens to tokens that are computed from nothing."""
    exact = compute_tokens(graph, order=ORDER, self_loops=self_loops).double()
    error = open_tokens(directory, "chebyshev")[:].double() - exact
    if report.tolerance == 0:
        assert report.error_bound == 0
        assert float(error.abs().max()) <= 1e-6 * float(exact.abs().max())
    for k in range(ORDER + 1):
        assert float(error[:, k].norm()) <= report.error_bounds[k] + 1e-5


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("tolerance", [0.0, 1e-2, 0.2])
def test_equal_to_computing_from_nothing(
    tmp_path: Path, kernel: str, weighted: bool, self_loops: bool, tolerance: float
) -> None:
    random = np.random.default_rng([weighted, self_loops, int(100 * tolerance)])
    graph = random_graph(random, weighted)
    write_tokens(graph, tmp_path / "t", order=ORDER, self_loops=self_loops)
    for step in range(12):
        graph = random_change(graph, random)
        if step % 3 == 0:  # two changes reach the tokens at once
            graph = random_change(graph, random)
        report = update_tokens(tmp_path / "t", graph, tolerance)
        check(tmp_path / "t", graph, report, self_loops)
        assert len(report.rows_touched) == ORDER + 1
        assert not report.recomputed


@pytest.mark.parametrize("tolerance", [1e-2, 0.2])
def test_half_precision_keeps_its_bound(tmp_path: Path, tolerance: float) -> None:
    random = np.random.default_rng(3)
    graph = random_graph(random, weighted=True)
    write_tokens(graph, tmp_path / "t", order=ORDER, dtype="float16")
    for _ in range(8):
        graph = random_change(graph, random)
        check(tmp_path / "t", graph, update_tokens(tmp_path / "t", graph, tolerance), self_loops=False)


def test_many_changes_do_not_drift(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fdatasync", lambda _: None)  # durability is tested elsewhere, and takes milliseconds
    random = np.random.default_rng(4)
    changed = {tolerance: random_graph(np.random.default_rng(5), weighted=False) for tolerance in (0.0, 0.05)}
    for tolerance, graph in changed.items():
        place = tmp_path / str(tolerance)
        write_tokens(graph, place, order=ORDER)
        for _ in range(60):
            graph = random_change(graph, random, growing=False)
            report = update_tokens(place, graph, tolerance)
        check(place, graph, report, self_loops=False)


def test_exact_after_tolerance_is_exact(tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    graph = random_graph(random, weighted=False)
    write_tokens(graph, tmp_path / "t", order=ORDER)
    for _ in range(5):
        graph = random_change(graph, random)
        update_tokens(tmp_path / "t", graph, 0.3)
    assert update_tokens(tmp_path / "t", graph, 0.3).error_bound > 0
    check(tmp_path / "t", graph, update_tokens(tmp_path / "t", graph), self_loops=False)


@pytest.mark.parametrize("basis", ["monomial", "bernstein", "jacobi:a=1,b=0.5"])
def test_views_follow_within_the_bound_of_their_mixing(tmp_path: Path, basis: str) -> None:
    random = np.random.default_rng(7)
    graph = random_graph(random, weighted=False)
    write_tokens(graph, tmp_path / "t", basis, ORDER)
    graph = random_change(graph, random)
    report = update_tokens(tmp_path / "t", graph, 0.1)
    error = (open_tokens(tmp_path / "t")[:] - compute_tokens(graph, basis, ORDER)).double()
    assert max(float(error[:, k].norm()) for k in range(ORDER + 1)) <= report.bound_in(basis) + 1e-5


@pytest.mark.parametrize("engine", ["memory", DiskEngine(memory=64 << 20)])
def test_all_rows_are_computed_anew_where_most_are_touched(
    tmp_path: Path, engine: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_rows, "_MOST_SHARE", 0.001)
    random = np.random.default_rng(8)
    graph = Graph(random.integers(0, 400, (2, 1200)), random.standard_normal((400, 3)))
    write_tokens(graph, tmp_path / "t", order=ORDER)
    for _ in range(2):
        graph = graph.updated(add_edges=random.integers(0, 400, (40, 2)))
        report = update_tokens(tmp_path / "t", graph, 0.0, engine)  # type: ignore[arg-type]
        assert report.recomputed
        check(tmp_path / "t", graph, report, self_loops=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t"]


def test_layers_are_folded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "MOST_RECORDS", 4)
    random = np.random.default_rng(9)
    ring = np.stack([np.arange(200), (np.arange(200) + 1) % 200])
    graph = Graph(ring, random.standard_normal((200, 3)))
    write_tokens(graph, tmp_path / "t", order=ORDER)
    folded = 0
    for step in range(40):
        graph = graph.updated(set_features={(7 * step) % 200: random.standard_normal(3)})
        report = update_tokens(tmp_path / "t", graph, 0.05 if step % 2 else 0.0)
        check(tmp_path / "t", graph, report, self_loops=False)
        folded += len(open_tokens(tmp_path / "t").layers.records) == 1
    assert folded > 5
    assert len(list((tmp_path / "t").glob("changes*.log"))) == 1


def test_readers_keep_what_they_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "MOST_RECORDS", 3)
    random = np.random.default_rng(10)
    graph = random_graph(random, weighted=False)
    write_tokens(graph, tmp_path / "t", order=ORDER)
    readers, expected = [], []
    for _ in range(8):
        readers.append(open_tokens(tmp_path / "t"))
        expected.append(readers[-1][:])
        graph = random_change(graph, random)
        update_tokens(tmp_path / "t", graph)
    for reader, rows in zip(readers, expected, strict=True):
        assert np.array_equal(reader[:].numpy(), rows.numpy())
        assert len(reader) == len(rows)


def test_scaled_features_are_scaled_like_the_tokens(tmp_path: Path) -> None:
    random = np.random.default_rng(11)
    raw = Graph(random.integers(0, 60, (2, 90)), 100 * random.standard_normal((60, 3)) ** 3)
    scaled = raw.scaled(FeatureScaling.fit(raw.features))
    write_tokens(scaled, tmp_path / "t", order=ORDER)
    changed = raw.updated(add_edges=[[0, 60]], add_features=[[5.0, -300.0, 2.0]])
    report = update_tokens(tmp_path / "t", changed)
    check(tmp_path / "t", changed.scaled(scaled.scaling), report, self_loops=False)
    other = changed.scaled(FeatureScaling.fit(changed.features))
    with pytest.raises(InvalidParameter, match="scaled in another way"):
        update_tokens(tmp_path / "t", other)


def test_features_from_the_structure_are_compared(tmp_path: Path) -> None:
    random = np.random.default_rng(12)
    bare = Graph(random.integers(0, 60, (2, 90)), num_nodes=60)
    write_tokens(bare.with_features(structure_features(bare)), tmp_path / "t", order=ORDER)
    changed = bare.updated(add_edges=[[3, 60], [4, 60]], add_features=np.empty((1, 0)))
    changed = changed.with_features(structure_features(changed))
    check(tmp_path / "t", changed, update_tokens(tmp_path / "t", changed), self_loops=False)


def test_what_cannot_be_updated_is_said(tmp_path: Path) -> None:
    random = np.random.default_rng(13)
    graph = random_graph(random, weighted=False)
    changed = random_change(graph, random)
    write_tokens(graph, tmp_path / "optimal", "optimal", ORDER)
    write_tokens(graph, tmp_path / "some", order=ORDER, nodes=[1, 2])
    write_tokens(graph, tmp_path / "half", order=ORDER, dtype="float16")
    write_tokens(graph, tmp_path / "t", order=ORDER)
    for name, message in (
        ("optimal", "depend on all nodes at once"),
        ("some", "--nodes all"),
        ("half", "Give a tolerance such as 1e-2"),
    ):
        with pytest.raises(InvalidParameter, match=message):
            update_tokens(tmp_path / name, changed)
    with pytest.raises(InvalidParameter, match="'tolerance' must be 0 or a positive number"):
        update_tokens(tmp_path / "t", changed, -1.0)
    with pytest.raises(FileCorrupt, match="made from another graph"):
        update_tokens(tmp_path / "t", random_graph(np.random.default_rng(99), weighted=False))
    with pytest.raises(InvalidData, match="features per node"):
        update_tokens(tmp_path / "t", changed.with_features(np.ones((changed.num_nodes, 1))))
    with locked(tmp_path / "t" / "update.lock", None), pytest.raises(OutputBusy, match="Another process is updating"):
        update_tokens(tmp_path / "t", changed)


@pytest.mark.parametrize("cut", [1, 20, 200, 1000])
def test_a_record_that_was_cut_off_leaves_the_version_before_it(tmp_path: Path, cut: int) -> None:
    random = np.random.default_rng(14)
    graph = random_graph(random, weighted=False)
    write_tokens(graph, tmp_path / "t", order=ORDER)
    versions = [graph]
    for _ in range(2):
        versions.append(random_change(versions[-1], random))
        update_tokens(tmp_path / "t", versions[-1])
    log = tmp_path / "t" / "changes.log"
    log.write_bytes(log.read_bytes()[:-cut])
    stored = open_tokens(tmp_path / "t")
    assert stored.manifest["graph"] == versions[1].fingerprint
    assert np.allclose(stored[:], compute_tokens(versions[1], order=ORDER), atol=1e-5)
    check(tmp_path / "t", versions[2], update_tokens(tmp_path / "t", versions[2]), self_loops=False)


def test_the_map_of_the_last_update_is_used_again(tmp_path: Path) -> None:
    random = np.random.default_rng(15)
    graph = random_graph(random, weighted=False)
    write_tokens(graph, tmp_path / "t", order=ORDER)
    for _ in range(2):
        graph = random_change(graph, random)
        update_tokens(tmp_path / "t", graph)
    assert len(tokens._last_mapped) == 1
