"""A day in the life of a graph: import, train, then thirty updates with predictions after each."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from polyformer.graph import Graph
from polyformer.runs.prediction import predict_scores
from polyformer.runs.run import Run
from polyformer.tasks import Task
from tests.updates.test_command_line import run

PEOPLE = 40
UPDATES = 30


def tables(folder: Path, random: np.random.Generator) -> Path:
    """People with an age, a city and a label, and who knows whom."""
    folder.mkdir()
    rows = [f"p{i},{random.integers(18, 80)},c{i % 3},{'yes' if i % 2 else 'no'}" for i in range(PEOPLE)]
    (folder / "nodes.csv").write_text("id,age,city,label\n" + "\n".join(rows) + "\n")
    edges = [f"p{i},p{random.integers(PEOPLE)}" for i in range(PEOPLE) for _ in range(2)]
    (folder / "edges.csv").write_text("source,target\n" + "\n".join(edges) + "\n")
    return folder


def changes(folder: Path, step: int, graph: Path, random: np.random.Generator) -> Path:
    """One new person, a few new friendships, one that ended, one birthday; now and then somebody leaves."""
    task = Task.load(graph)
    assert task.ids is not None
    alive = np.setdiff1d(np.arange(task.graph.num_nodes), task.graph.removed)
    gone = str(task.ids[random.choice(alive)]) if step % 5 == 4 else ""
    names = [str(name) for name in task.ids[alive] if str(name) != gone]
    nodes = [f"add,n{step},{random.integers(18, 80)},c{random.integers(4)},", f"change,{random.choice(names)},,c1,yes"]
    nodes += [f"remove,{gone},,,"] if gone else []
    rows = np.repeat(np.arange(task.graph.num_nodes), np.diff(task.graph.indptr))
    known = [(str(task.ids[i]), str(task.ids[j])) for i, j in zip(rows, task.graph.indices, strict=True) if i < j]
    ended = [pair for pair in known if gone not in pair]
    edges = [f"add,n{step},{random.choice(names)}" for _ in range(3)]
    edges += [f"remove,{one},{other}" for one, other in [ended[random.integers(len(ended))]]]
    folder.mkdir()
    (folder / "nodes.csv").write_text("action,id,age,city,label\n" + "\n".join(nodes) + "\n")
    (folder / "edges.csv").write_text("action,source,target\n" + "\n".join(edges) + "\n")
    return folder


@pytest.mark.slow
def test_a_day_in_the_life(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    graph, place, tokens = tmp_path / "graph", tmp_path / "run", tmp_path / "tokens"
    assert run("import", tables(tmp_path / "tables", random), graph) == 0
    small = ["--set", "epochs=3", "--set", "hidden_channels=8", "--set", "heads=2", "--no-report"]
    assert run("train", graph, "--order", 2, "--out", place, *small) == 0
    assert run("tokens", graph, "--like", place, "--order", 2, "--out", tokens) == 0
    for step in range(UPDATES):
        capsys.readouterr()
        checked = ["--check", place, "--json"] if step % 10 == 0 else []
        assert run("update", graph, changes(tmp_path / f"c{step}", step, graph, random), *checked) == 0
        if checked:
            report = json.loads(capsys.readouterr().out)["runs"][0]
            assert report["nodes"] > 0
            assert report["since_training"]
        assert run("tokens", graph, "--update", tokens) == 0
        assert run("predict", place, graph, "--tokens", tokens, "--out", tmp_path / "p.parquet") == 0
        table = pq.read_table(tmp_path / "p.parquet")
        card, model = Run.open(place).load()
        task = Run.open(place).task(str(graph))
        alive = np.setdiff1d(np.arange(task.graph.num_nodes), task.graph.removed)
        scores = predict_scores(model, card.reader, task.graph, alive)
        assert table.num_rows == len(alive)  # those who left are not predicted
        assert np.allclose(table.column("probability_yes").to_numpy(), scores[:, 1], atol=1e-5)
    assert Graph.load(graph).version == UPDATES
    assert run("filters", place, graph, "--tokens", tokens, "--out", tmp_path / "filters.parquet") == 0
    assert pq.read_table(tmp_path / "filters.parquet").num_rows == len(alive)
    assert run("report", place, "--out", tmp_path / "report.html") == 0
    assert (
        run("train", graph, "--start-from", place, "--set", "epochs=1", "--out", tmp_path / "again", "--no-report") == 0
    )
    again = Run.open(tmp_path / "again")
    assert again.card.scaling == Run.open(place).card.scaling
    assert again.facts.fingerprint != Run.open(place).facts.fingerprint
    assert run("compare", place, tmp_path / "again", "--out", tmp_path / "comparison.html") == 0
