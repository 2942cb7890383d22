"""`polyformer update`, `tokens --update` and what they leave: tables in, a new version out, a journal beside it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from polyformer.cli import main
from polyformer.errors import InvalidData, OutputBusy
from polyformer.files import locked
from polyformer.graph import Graph
from polyformer.tasks import Task
from polyformer.tokens import compute_tokens, open_tokens
from polyformer.updates.change_tables import read_changes
from polyformer.updates.graph_directory import compact_graph, update_graph

NODES = """id,label,age,colour
ann,yes,10,red
bob,no,20,blue
cat,yes,30,red
dan,no,40,blue
eve,yes,,red
fay,no,60,blue
"""
EDGES = "source,target\nann,bob\nbob,cat\ncat,dan\ndan,eve\neve,fay\n"


def run(*arguments: object) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "nodes.csv").write_text(NODES)
    (tmp_path / "tables" / "edges.csv").write_text(EDGES)
    assert run("import", tmp_path / "tables", tmp_path / "graph") == 0
    return tmp_path / "graph"


def tables(folder: Path, **contents: str) -> Path:
    """A folder of tables of changes."""
    folder.mkdir()
    for name, text in contents.items():
        (folder / f"{name}.csv").write_text(text)
    return folder


def apply(graph: Path, changes: Path) -> dict:
    return update_graph(graph, lambda task: read_changes(changes, task), changes.name)


def edges_of(task: Task) -> set[tuple[str, str]]:
    """Edges by the user's ids."""
    assert task.ids is not None
    rows = np.repeat(np.arange(task.graph.num_nodes), np.diff(task.graph.indptr))
    return {(str(task.ids[i]), str(task.ids[j])) for i, j in zip(rows, task.graph.indices, strict=True) if i < j}


def test_tables_with_an_action_column(tmp_path: Path, graph: Path) -> None:
    changes = tables(
        tmp_path / "changes",
        nodes="action,id,label,age,colour\nadd,gus,yes,70,red\nadd,hal,,80,blue\nchange,bob,yes,25,red\nremove,fay,,,\n",
        edges="action,source,target\nadd,gus,ann\nadd,gus,hal\nremove,ann,bob\n",
    )
    assert run("update", graph, changes) == 0
    task = Task.load(graph)
    assert task.ids is not None
    assert task.graph.num_nodes == 8
    assert task.graph.removed.tolist() == [5]
    assert edges_of(task) == {("bob", "cat"), ("cat", "dan"), ("dan", "eve"), ("ann", "gus"), ("gus", "hal")}
    names = task.class_names
    assert names is not None
    assert [names[label] if label >= 0 else "" for label in task.labels] == [
        "yes", "yes", "yes", "no", "yes", "", "yes", ""
    ]  # fmt: skip
    fresh = Graph(np.array([[0], [1]]), np.asarray(task.graph.features)).features
    assert fresh is not None
    assert task.graph.features[1, 0] == 25  # type: ignore[index]
    assert (np.asarray(task.graph.features)[5] == 0).all()
    assert 6 in task.splits[0].train  # a new node with a label joins the training part
    assert Graph.load(graph, verify=True).version == 1


def test_one_file_for_each_kind_and_columns_left_out(tmp_path: Path, graph: Path) -> None:
    apply(
        graph, tables(tmp_path / "one", add_nodes="id,age,colour\ngus,,green\n", add_edges="source,target\ngus,eve\n")
    )
    apply(
        graph,
        tables(tmp_path / "two", change_nodes="id,label\ngus,no\nann,\n", remove_edges="source,target\neve,gus\n"),
    )
    task = Task.load(graph)
    features = np.asarray(task.graph.features)
    assert task.columns is not None
    assert features[6, 0] == task.columns[0].median  # a missing number is filled as the import filled it
    assert features[6, -2:].tolist() == [0, 0]  # a category that the import did not know
    assert task.labels[[0, 6]].tolist() == [-1, 0]
    assert 0 not in np.concatenate([task.splits[0].train, task.splits[0].val, task.splits[0].test])
    assert ("eve", "gus") not in edges_of(task)


def test_journal_and_json(tmp_path: Path, graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes = tables(tmp_path / "changes", add_edges="source,target\nann,fay\n")
    run("update", graph, changes)
    capsys.readouterr()
    assert run("update", graph, "--json") == 0
    versions = json.loads(capsys.readouterr().out)["versions"]
    assert [entry["version"] for entry in versions] == [1]
    assert versions[0]["counts"]["edges added or re-weighted"] == 1


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (
            {"add_edges": "source,target\nann,zoe\n"},
            "Row 1 of 'add_edges.csv' joins the node 'zoe', which is not in the graph",
        ),
        ({"add_nodes": "id,age,colour\nann,1,red\n"}, "adds the node 'ann', which is in the graph already"),
        ({"add_nodes": "id,age,colour\nzoe,1,red\nzoe,2,red\n"}, "has the node id 'zoe' twice"),
        ({"remove_nodes": "id\nzoe\n"}, "removes the node 'zoe'"),
        (
            {"remove_edges": "source,target\nann,fay\n"},
            "removes an edge between 'ann' and 'fay', which is not there. Leave it out",
        ),
        (
            {"change_edges": "source,target,weight\nann,fay,2\n"},
            "changes an edge between 'ann' and 'fay', which is not there",
        ),
        ({"edges": "source,target\nann,fay\n"}, "has no column 'action'"),
        ({"edges": "action,source,target\nadd,ann,fay\nremove,ann,eve\n"}, "Row 2 of 'edges.csv' removes an edge"),
        ({"edges": "action,source,target\njoin,ann,fay\n"}, "must be add, change or remove. Got 'join'"),
        ({"remove_nodes": "id\nann\n", "add_edges": "source,target\nann,fay\n"}, "which the same change removes"),
        ({"things": "a,b\n1,2\n"}, "is no table of changes by its name"),
    ],
)
def test_faults_change_nothing(tmp_path: Path, graph: Path, contents: dict[str, str], message: str) -> None:
    before = (graph / "manifest.json").read_bytes()
    with pytest.raises(InvalidData, match=message):
        apply(graph, tables(tmp_path / "changes", **contents))
    assert (graph / "manifest.json").read_bytes() == before
    assert run("update", graph, tmp_path / "changes") == 2


def test_the_same_tables_twice_are_refused(tmp_path: Path, graph: Path) -> None:
    changes = tables(tmp_path / "changes", add_edges="source,target\nann,fay\n")
    apply(graph, changes)
    with pytest.raises(InvalidData, match=r"was applied already, on .* as version 1"):
        apply(graph, changes)
    assert run("update", graph, changes, "--again") == 0
    assert Graph.load(graph).version == 2


def test_removals_twice_are_known_by_their_hash_too(
    tmp_path: Path, graph: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = tables(tmp_path / "changes", remove_nodes="id\nbob\n")
    assert run("update", graph, changes) == 0
    assert "1 node removed" in capsys.readouterr().out
    assert run("update", graph, changes) == 2
    assert "was applied already" in capsys.readouterr().err


def test_two_updates_at_once_are_refused(tmp_path: Path, graph: Path) -> None:
    changes = tables(tmp_path / "changes", add_edges="source,target\nann,fay\n")
    with locked(graph / "update.lock", None), pytest.raises(OutputBusy, match="Another process is updating"):
        apply(graph, changes)


def test_compacting_keeps_ids(tmp_path: Path, graph: Path) -> None:
    apply(graph, tables(tmp_path / "changes", remove_nodes="id\nbob\n"))
    before = Task.load(graph)
    compact_graph(graph)
    task = Task.load(graph)
    assert task.ids is not None
    assert task.ids.tolist() == ["ann", "cat", "dan", "eve", "fay"]
    assert edges_of(task) == {("cat", "dan"), ("dan", "eve"), ("eve", "fay")}
    assert task.graph.history == ()
    assert len(before.graph.removed) == 1
    apply(graph, tables(tmp_path / "more", add_nodes="id,age,colour\nbob,5,blue\n"))  # the id is free again
    assert run("update", graph, "--compact") == 2


def test_readers_keep_their_version_of_the_graph(tmp_path: Path, graph: Path) -> None:
    reader = Task.load(graph)
    expected = reader.graph.adjacency().toarray(), np.array(reader.graph.features), np.array(reader.labels)
    for number in range(3):
        apply(graph, tables(tmp_path / f"c{number}", nodes=f"action,id,age,colour,label\nadd,n{number},1,red,no\n"))
    actual = reader.graph.adjacency().toarray(), reader.graph.features, reader.labels
    assert all(np.array_equal(one, other) for one, other in zip(expected, actual, strict=True))
    assert not list(graph.glob("*-1.npy"))  # files of earlier versions are gone


def test_tokens_follow_the_directory(tmp_path: Path, graph: Path) -> None:
    assert run("tokens", graph, "--order", 3, "--out", tmp_path / "tokens") == 0
    for number in range(3):
        contents = {"nodes": f"action,id,age,colour\nadd,n{number},{number},red\nchange,ann,{number},blue\n"}
        contents["edges"] = f"action,source,target\nadd,n{number},ann\nadd,n{number},fay\n"
        assert run("update", graph, tables(tmp_path / f"c{number}", **contents)) == 0
        if number == 1:
            continue  # two versions at once
        assert run("tokens", graph, "--update", tmp_path / "tokens") == 0
    stored = open_tokens(tmp_path / "tokens")
    from polyformer.feature_scaling import FeatureScaling

    scaled = Graph.load(graph).scaled(FeatureScaling.from_json(stored.manifest["scaling"]))
    assert np.allclose(stored[:], compute_tokens(scaled, order=3), atol=1e-5)


def test_integer_ids_that_are_node_numbers(tmp_path: Path) -> None:
    Graph([[0, 1, 2], [1, 2, 3]], features=np.eye(4)).save(tmp_path / "graph")
    contents = {"add_nodes": "id,a,b,c,d\n4,1,2,3,4\n", "add_edges": "source,target,weight\n4,0,2.5\n"}
    apply(tmp_path / "graph", tables(tmp_path / "c", **contents))
    task = Task.load(tmp_path / "graph")
    assert task.ids is None
    assert task.graph.weights is not None
    assert task.graph.adjacency().toarray()[4].tolist() == [2.5, 0, 0, 0, 0]
    apply(tmp_path / "graph", tables(tmp_path / "d", change_edges="source,target,weight\n0,4,7\n"))
    assert Task.load(tmp_path / "graph").graph.adjacency()[0, 4] == 7


def test_a_table_without_rows_changes_nothing(tmp_path: Path, graph: Path) -> None:
    before = edges_of(Task.load(graph))
    assert run("update", graph, tables(tmp_path / "changes", edges="action,source,target\n")) == 0
    assert edges_of(Task.load(graph)) == before
