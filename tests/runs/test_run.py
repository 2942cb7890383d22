"""The noun: a run that Python trains is the one that the command line trains, and all that hangs on it agrees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import polyformer as pf
from polyformer.errors import DataNotFound, FileCorrupt, InvalidData, InvalidParameter, PolyformerError
from polyformer.filters import filter_coefficients
from polyformer.models import NodeWiseFilter, Workload
from tests.cli.test_cli import BOARD, FAST, run

SETTINGS: dict[str, Any] = {"order": 3, "hidden_channels": 8, "heads": 2, "epochs": 3}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> pf.Run:
    return pf.train(BOARD, out=tmp_path_factory.mktemp("runs") / "run", **SETTINGS)


def ring(num_nodes: int = 60) -> pf.Graph:
    nodes = np.arange(num_nodes)
    features = np.stack([np.sin(nodes), nodes / num_nodes], axis=1)
    return pf.Graph(np.stack([nodes, (nodes + 1) % num_nodes]), features=features)


def test_python_and_the_command_line_leave_the_same_run(trained: pf.Run, tmp_path: Path) -> None:
    options = [f"--set={name}={value}" for name, value in SETTINGS.items()]
    assert run("train", BOARD, "--out", tmp_path / "run", *options, "--no-report") == 0
    other = pf.Run.open(tmp_path / "run")
    assert [record["loss"] for record in other.metrics] == [record["loss"] for record in trained.metrics]
    assert other.result is not None
    assert trained.result is not None
    assert other.result["test"] == trained.result["test"]
    same = ("data", "model", "settings", "card", "task", "split", "seed", "preset")
    assert {name: other.config[name] for name in same} == {name: trained.config[name] for name in same}
    names = [sorted(path.name for path in each.path.iterdir()) for each in (trained, other)]
    assert names[0] == names[1]


def test_what_hangs_on_a_run(trained: pf.Run) -> None:
    opened = pf.Run.open(str(trained.path))
    assert opened.request.data == BOARD
    assert opened.request.settings is not None
    assert opened.request.settings["order"] == 3
    assert (opened.card.model, opened.card.num_classes, opened.facts.nodes) == ("polyformer", 2, 300)
    assert [record["epoch"] for record in opened.metrics] == [1, 2, 3]
    task, split = opened.task_and_split()
    assert opened.task().metric == task.metric == opened.card.metric
    assert len(split.train) == opened.facts.train
    assert not opened.model().training


def test_predictions_are_those_of_the_table(trained: pf.Run, tmp_path: Path) -> None:
    assert run("predict", trained.path, "--out", tmp_path / "p.parquet") == 0
    table = pq.read_table(tmp_path / "p.parquet")
    expected = np.stack([table[f"probability_{name}"].to_numpy() for name in ("safe", "mine")], axis=1)
    probabilities = trained.predict()
    assert np.allclose(probabilities, expected, atol=1e-6)
    nodes = np.array([250, 3, 7])
    assert np.allclose(trained.predict(nodes), probabilities[nodes], atol=1e-5)
    mask = np.zeros(300, bool)
    mask[nodes] = True
    assert np.allclose(trained.predict(mask), probabilities[np.sort(nodes)], atol=1e-5)
    graph = pf.load_dataset(BOARD).graph
    assert np.allclose(trained.predict(nodes, graph), probabilities[nodes], atol=1e-5)


def test_filters_are_those_of_the_model(trained: pf.Run) -> None:
    nodes = np.array([250, 3, 7])
    filters = trained.filters(nodes, clusters=2)
    model, graph = trained.model(), trained.task().graph
    model.bind(graph, Workload(nodes))
    assert isinstance(model, NodeWiseFilter)
    assert np.allclose(filters.coefficients, filter_coefficients(model, nodes), atol=1e-5)
    assert filters.responses.shape == (3, 2, len(filters.lam))
    assert not filters.exact


@pytest.mark.parametrize("labels", ["classes", "values"])
def test_a_graph_of_ones_own_stays_beside_its_run(labels: str, tmp_path: Path) -> None:
    graph = ring()
    values = np.arange(60) // 30 if labels == "classes" else np.sin(np.arange(60) / 9)
    split = pf.Split(np.arange(0, 60, 2), np.arange(1, 60, 4), np.arange(3, 60, 4))
    first = pf.train(graph, out=tmp_path / "first", labels=values, split=split, **SETTINGS)
    again = pf.train(graph, "mlp", tmp_path / "again", labels=values, split=split, epochs=2)
    assert sorted(path.name.partition("-")[0] for path in tmp_path.iterdir()) == ["again", "data", "first"]
    opened = pf.Run.open(first.path)
    assert (opened.facts.train, opened.facts.val, opened.facts.test) == (30, 15, 15)
    assert opened.request.data == again.request.data
    scores = opened.predict()
    assert scores.shape == ((60, 2) if labels == "classes" else (60,))
    assert np.allclose(opened.predict(graph=graph), scores, atol=1e-5)
    assert run("predict", first.path, "--out", tmp_path / "p.csv") == 0


def test_a_task_counts_as_its_name(trained: pf.Run, tmp_path: Path) -> None:
    saved = pf.train(pf.load_dataset(BOARD), out=tmp_path / "run", **SETTINGS)
    assert [record["loss"] for record in saved.metrics] == [record["loss"] for record in trained.metrics]


def test_drawn_splits_are_those_of_an_import(tmp_path: Path) -> None:
    drawn = pf.train(ring(), "mlp", tmp_path / "run", labels=np.arange(60) % 2, epochs=1)
    assert (drawn.facts.train, drawn.facts.val, drawn.facts.test, drawn.facts.protocol) == (36, 12, 12, "uniform")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"data": ring()}, InvalidParameter, "'labels' must be given with a Graph"),
        ({"data": BOARD, "labels": [0, 1]}, InvalidParameter, "'labels' go with a Graph: str brings its own."),
        ({"data": ring(), "labels": [0, 1]}, InvalidData, "'labels' must have shape"),
        ({"data": ring(), "labels": np.arange(60) % 2, "odd": 1}, PolyformerError, "odd"),
        ({"data": BOARD, "model": "polyformr"}, PolyformerError, "polyformer"),
    ],
)
def test_what_cannot_be_trained_leaves_nothing(
    options: dict[str, Any], error: type[Exception], words: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=words):
        pf.train(out=tmp_path / "new" / "run", **options)
    assert not list(tmp_path.glob("new/*"))


def test_a_directory_without_a_run_is_refused(trained: pf.Run, tmp_path: Path) -> None:
    with pytest.raises(DataNotFound, match="There is no run directory"):
        pf.Run.open(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text(json.dumps({"card": {}}))
    with pytest.raises(FileCorrupt, match="is not a run directory"):
        pf.Run.open(tmp_path)
    with pytest.raises(InvalidParameter, match="'nodes' must name at least one node"):
        trained.predict([])


def test_a_model_without_node_wise_filters_says_so(tmp_path: Path) -> None:
    plain = pf.train(BOARD, "mlp", tmp_path / "run", epochs=1)
    with pytest.raises(InvalidParameter, match="The model 'mlp' has no filter for each node"):
        plain.filters([0])


def test_runs_go_on_where_they_were(trained: pf.Run, tmp_path: Path) -> None:
    assert run("train", "--resume", "--out", trained.path, *FAST) == 2  # other settings are refused
    assert pf.Run(tmp_path / "new").metrics == []


def test_removed_nodes_are_never_predicted(trained: pf.Run) -> None:
    """The rows of other nodes keep their places, so that row i is node i."""
    graph = trained.task().graph
    after = graph.updated(remove_nodes=[2, 5])
    probabilities = trained.predict(graph=after)
    assert probabilities.shape == (graph.num_nodes, 2)
    assert np.flatnonzero(np.isnan(probabilities).any(axis=1)).tolist() == [2, 5]
    assert np.isnan(trained.predict(nodes=[4, 5], graph=after)).all(axis=1).tolist() == [False, True]
