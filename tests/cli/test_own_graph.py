"""From the user's tables to predictions with the user's ids, as typed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from polyformer.datasets import load_dataset
from polyformer.tasks import Task
from tests.cli.test_cli import FAST, run


@pytest.fixture(params=["parquet", "csv"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A Minesweeper board as two tables with ids of words and a label of words, a few of them missing."""
    board = load_dataset("minefield:width=15,height=12")
    folder = tmp_path / "tables"
    folder.mkdir()
    names = np.array([f"cell-{i:03d}" for i in range(board.graph.num_nodes)])
    adjacency = board.graph.adjacency().tocoo()
    upper = adjacency.row < adjacency.col
    edges = pa.table({"from": names[adjacency.row[upper]], "to": names[adjacency.col[upper]]})
    labels = [None if i % 9 == 0 else ["safe", "mine"][y] for i, y in enumerate(board.labels)]
    features = {f"f{i}": board.graph.features[:, i] for i in range(7)}
    nodes = pa.table({"node_id": names, "class": pa.array(labels), **features})
    for name, table in (("edges", edges), ("nodes", nodes)):
        if request.param == "parquet":
            pq.write_table(table, folder / f"{name}.parquet")
        else:
            pyarrow.csv.write_csv(table, folder / f"{name}.csv")
    return folder


def test_import_train_predict_with_ids(tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph, out = tmp_path / "graph", tmp_path / "run"
    assert run("import", tables, graph, "--seed", 3) == 0
    said = capsys.readouterr().out
    assert "'node_id' → id" in said
    assert "'class' → label" in said
    assert "drawn by the protocol 'uniform'" in said
    assert f"next: polyformer train {graph}" in said
    assert run("train", graph, "--out", out, *FAST) == 0
    assert run("predict", out, "--out", tmp_path / "p.parquet") == 0
    table = pq.read_table(tmp_path / "p.parquet").to_pydict()
    assert sorted(table["node"]) == [f"cell-{i:03d}" for i in range(180)]
    assert set(table) == {"node", "prediction", "probability_mine", "probability_safe"}
    assert json.loads((out / "config.json").read_text())["task"]["protocol"] == "uniform"


def test_tables_are_read_without_import(tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", tables, "--out", tmp_path / "run", *FAST) == 0
    assert "'from' → source" in capsys.readouterr().out
    assert run("predict", tmp_path / "run", "--out", tmp_path / "p.parquet") == 0
    assert pq.read_table(tmp_path / "p.parquet")["node"].to_pylist()[7] == "cell-007"
    capsys.readouterr()
    assert run("import", tables, tmp_path / "graph", "--json") == 0
    assert json.loads(capsys.readouterr().out)["num_nodes"] == 180
    assert run("train", tables, "--protocol", "balanced", "--out", tmp_path / "b", *FAST) == 0
    direct, imported = Task.load(tmp_path / "graph"), load_dataset("minefield:width=15,height=12")
    assert direct.graph.num_edges == imported.graph.num_edges


def test_a_run_finds_its_graph_from_anywhere(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tables.parent)
    assert run("train", "tables", "--out", tmp_path / "run", *FAST) == 0
    assert run("train", "tables", "--out", tmp_path / "run", "--resume") == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert run("predict", tmp_path / "run", "--out", "p.parquet") == 0
    assert pq.read_table("p.parquet").num_rows == 180


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--label-column", "colour"], "has no column 'colour' for the label"),
        (["--protocol", "fair"], "Unknown protocol 'fair'"),
        (["--memory", "plenty"], "A size must read like 8GiB"),
        (["--edges", "nowhere.csv"], "nowhere.csv"),
    ],
)
def test_bad_imports(
    tables: Path, tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("import", tables, tmp_path / "graph", *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "graph").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["tables"]


def test_unlabelled_graph_cannot_be_trained_on(
    tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("import", tables, tmp_path / "graph", "--label-column", "") == 0
    assert run("train", tmp_path / "graph", "--out", tmp_path / "run") == 2
    assert "has no labelled splits, so nothing can be trained on it." in capsys.readouterr().err
