"""Edge and node tables in, the same graph out, on disk and in memory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polyformer.graph import Graph
from polyformer.importing import ImportOptions, import_graph, open_source
from polyformer.importing import tables as table_files
from polyformer.tasks import Task
from tests.importing.example import Example, make_example, write_table
from tests.listener import Listener


def expected(example: Example, weighted: bool) -> Graph:
    weights = example.weights if weighted else None
    return Graph(example.edge_index, example.features, len(example.ids), weights)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["string", "integer", "wide"])
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_tables_become_the_graph_they_describe(tmp_path: Path, ending: str, kind: str, weighted: bool) -> None:
    example = make_example(kind)
    write_table(example.edges(weighted), tmp_path / f"edges{ending}")
    write_table(example.nodes(), tmp_path / f"nodes{ending}")
    summary = import_graph(tmp_path, tmp_path / "out" / "graph")
    task = Task.load(tmp_path / "out" / "graph")
    graph = expected(example, weighted)
    assert task.graph.fingerprint == graph.fingerprint
    assert Graph.load(tmp_path / "out" / "graph", verify=True).num_edges == graph.num_edges == summary.num_edges
    assert task.ids is not None
    assert task.ids.tolist() == example.ids.tolist()
    assert task.class_names == ("cat", "dog", "owl")
    assert [None if i < 0 else task.class_names[i] for i in task.labels] == example.labels
    lower = [word and word.lower() for word in example.splits]
    assert task.splits[0].train.tolist() == [i for i, word in enumerate(lower) if word == "train"]
    assert task.splits[0].val.tolist() == [i for i, word in enumerate(lower) if word == "valid"]
    assert (task.protocol, summary.edges_read) == ("fixed", 200)
    assert summary.self_loops == int((example.edge_index[0] == example.edge_index[1]).sum())


def test_memory_and_disk_give_the_same_directory(tables: Path, tmp_path: Path) -> None:
    import_graph(tables, tmp_path / "a")
    open_source(tables).save(tmp_path / "b")
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "b").iterdir())
    for name in names:
        if name != "splits.npz":  # a zip carries the time
            assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_a_graph_directory_is_opened_as_it_is_and_copied(tables: Path, tmp_path: Path) -> None:
    import_graph(tables, tmp_path / "a")
    assert open_source(tmp_path / "a").graph.fingerprint == Task.load(tmp_path / "a").graph.fingerprint
    summary = import_graph(tmp_path / "a", tmp_path / "b")
    manifests = [json.loads((tmp_path / name / "manifest.json").read_text()) for name in "ab"]
    assert manifests[0] == manifests[1]
    assert summary.num_nodes == 40
    Graph([[0, 1], [1, 2]]).save(tmp_path / "bare")
    bare = open_source(tmp_path / "bare")
    assert (bare.labels.tolist(), len(bare.splits)) == ([-1, -1, -1], 0)


def test_the_summary_shows_what_was_matched(tables: Path, tmp_path: Path) -> None:
    lines = import_graph(tables, tmp_path / "graph").lines()
    assert "edges.csv: 'source' → source" in lines
    assert "nodes.csv: 'label' → label" in lines
    assert "nodes.csv: 'colour' → category of 3 (blue, green, red)" in lines
    shown: list[str] = []
    open_source(tables, reporter=Listener(on_say=shown.append))
    assert shown[:2] == lines[:2]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_first_column_is_the_id_where_no_name_says_so(tmp_path: Path, example: Example, ending: str) -> None:
    write_table(example.edges(), tmp_path / "edges.csv")
    nodes = example.nodes()
    write_table(nodes.rename_columns(["customer", *nodes.column_names[1:]]), tmp_path / f"nodes.{ending}")
    lines = import_graph(tmp_path, tmp_path / "graph").lines()
    assert f"nodes.{ending}: 'customer' → id" in lines
    assert any("'customer' is read as the id" in line for line in lines)
    assert Graph.load(tmp_path / "graph").structure_fingerprint == expected(example, False).structure_fingerprint


def test_a_column_of_labels_is_proposed_where_there_is_none(tmp_path: Path, example: Example) -> None:
    write_table(example.edges(), tmp_path / "edges.csv")
    write_table(example.nodes().drop_columns(["label", "split"]), tmp_path / "nodes.csv")
    lines = import_graph(tmp_path, tmp_path / "graph").lines()
    assert any("--label-column, such as 'colour'" in line for line in lines)


def test_options_overrule_names(tmp_path: Path, example: Example) -> None:
    edges = example.edges(weighted=True).rename_columns(["who", "whom", "strength"])
    nodes = example.nodes().rename_columns(["key", "species", "part", "age", "colour"])
    write_table(edges, tmp_path / "follows.parquet")
    write_table(nodes, tmp_path / "people.csv")
    options = ImportOptions(
        edges=Path("follows.parquet"),
        nodes=Path("people.csv"),
        source_column="who",
        target_column="whom",
        weight_column="strength",
        id_column="key",
        label_column="species",
        split_column="part",
        features=("age",),
        name="people",
    )
    task = open_source(tmp_path, options)
    assert task.name == "people"
    assert task.graph.structure_fingerprint == expected(example, True).structure_fingerprint
    assert task.graph.num_features == 1
    assert task.protocol == "fixed"


def test_labels_weights_and_splits_can_be_ignored(tmp_path: Path, example: Example) -> None:
    write_table(example.edges(weighted=True), tmp_path / "edges.csv")
    write_table(example.nodes(), tmp_path / "nodes.csv")
    options = ImportOptions(weight_column="", split_column="", protocol="balanced", seed=3, num_splits=2, features=())
    task = open_source(tmp_path, options)
    assert task.graph.weights is None
    assert task.graph.features is None
    assert (task.protocol, len(task.splits)) == ("balanced", 2)
    assert not np.isin(5, np.concatenate([task.splits[0].train, task.splits[0].val, task.splits[0].test]))


def test_missing_splits_are_drawn_by_seed(tmp_path: Path, example: Example) -> None:
    write_table(example.edges(), tmp_path / "edges.csv")
    write_table(example.nodes().drop_columns(["split"]), tmp_path / "nodes.csv")
    first, again, other = (open_source(tmp_path, ImportOptions(seed=seed)).splits[0] for seed in (0, 0, 1))
    assert first.train.tolist() == again.train.tolist() != other.train.tolist()
    assert (len(first.train), len(first.val), len(first.test)) == (23, 8, 8)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_edges_alone_with_string_ids(tmp_path: Path, ending: str, example: Example) -> None:
    write_table(example.edges(), tmp_path / f"edges{ending}")
    summary = import_graph(tmp_path / f"edges{ending}", tmp_path / "graph")
    task = Task.load(tmp_path / "graph")
    assert task.ids is not None
    assert task.ids.tolist() == sorted(set(example.ids[example.edge_index.ravel()].tolist()))
    assert (len(task.splits), summary.num_classes) == (0, 0)
    assert "There are no features; training and tokens make some from the structure." in summary.notes


def test_edges_alone_with_integer_ids(tmp_path: Path) -> None:
    write_table(pa.table({"u": [0, 5, 2], "v": [1, 2, 2]}), tmp_path / "edges.csv")
    dense = open_source(tmp_path / "edges.csv")
    assert (dense.graph.num_nodes, dense.ids) == (6, None)
    assert open_source(tmp_path / "edges.csv", ImportOptions(num_nodes=9)).graph.num_nodes == 9
    write_table(pa.table({"u": [10**9, 7, -2], "v": [7, -2, -2]}), tmp_path / "far.parquet")
    import_graph(tmp_path / "far.parquet", tmp_path / "far")
    far = Task.load(tmp_path / "far")
    assert far.ids is not None
    assert far.ids.tolist() == [-2, 7, 10**9]
    assert far.graph.num_edges == 2


def test_published_edge_lists_without_a_header(tmp_path: Path) -> None:
    (tmp_path / "web.txt").write_text("# Nodes: 4\n# FromNodeId\tToNodeId\n0\t1\n1\t2\n3\t0\n")
    assert open_source(tmp_path / "web.txt").graph.num_edges == 3
    (tmp_path / "weighted.txt").write_text("0 1 0.5\n1 2 2\n")
    weights = open_source(tmp_path / "weighted.txt").graph.weights
    assert weights is not None
    assert weights.tolist() == [0.5, 0.5, 2.0, 2.0]


def test_parts_in_a_folder_are_one_table(tmp_path: Path, example: Example) -> None:
    (tmp_path / "edges").mkdir()
    edges = example.edges()
    pq.write_table(edges.slice(0, 90), tmp_path / "edges" / "part-0.parquet")
    pq.write_table(edges.slice(90), tmp_path / "edges" / "part-1.parquet")
    write_table(example.nodes(), tmp_path / "nodes.parquet")
    assert open_source(tmp_path).graph.fingerprint == expected(example, False).fingerprint


def test_numbers_and_words_that_change_further_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first block of a CSV does not fix types: fractions may follow whole numbers, and digits words."""
    monkeypatch.setattr(table_files, "CSV_BLOCK", 256)
    numbers = [*range(60), 0.5, 2e18]
    words = ["red" if i < 60 else "7" for i in range(62)]
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    rows = [f"{i},{number},{word}\n" for i, (number, word) in enumerate(zip(numbers, words, strict=True))]
    (tmp_path / "nodes.csv").write_text("id,age,colour\n" + "".join(rows))
    features = open_source(tmp_path).graph.features
    assert isinstance(features, np.ndarray)
    assert features[:, 0].tolist() == np.float32(numbers).tolist()
    assert features[:, 1].tolist() == [float(word == "7") for word in words]


def test_feature_columns_of_every_kind(tmp_path: Path) -> None:
    write_table(pa.table({"source": [0, 1], "target": [1, 2]}), tmp_path / "edges.parquet")
    nodes = pa.table(
        {
            "id": [0, 1, 2],
            "flag": [True, False, True],
            "vector": pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float32())),
            "kind": pa.array(["b", None, "a"]).dictionary_encode(),
            "zip": [12, 10, 12],
        }
    )
    pq.write_table(nodes, tmp_path / "nodes.parquet")
    task = open_source(tmp_path, ImportOptions(categories=("zip",)))
    wanted = [[1, 1, 2, 0, 1, 0, 1], [0, 3, 4, 0, 0, 1, 0], [1, 5, 6, 1, 0, 0, 1]]
    assert np.asarray(task.graph.features).tolist() == wanted


@pytest.mark.parametrize(
    ("values", "labels", "names"),
    [
        ([0, 1, None, 1], [0, 1, -1, 1], None),
        ([3, 5, -1, 3], [0, 1, -1, 0], ("3", "5")),
        ([True, False, None, True], [1, 0, -1, 1], ("false", "true")),
    ],
)
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_class_labels(tmp_path: Path, values: list, labels: list, names: tuple | None, ending: str) -> None:
    write_table(pa.table({"source": [0, 1], "target": [1, 2]}), tmp_path / "edges.csv")
    write_table(pa.table({"id": [0, 1, 2, 3], "y": values}), tmp_path / f"nodes{ending}")
    task = open_source(tmp_path)
    assert (task.labels.tolist(), task.class_names) == (labels, names)


def test_real_labels_are_values_unless_said_otherwise(tmp_path: Path) -> None:
    write_table(pa.table({"source": [0, 1], "target": [1, 2]}), tmp_path / "edges.csv")
    write_table(pa.table({"id": [0, 1, 2, 3], "y": [1.0, 2.0, None, 2.0]}), tmp_path / "nodes.parquet")
    summary = import_graph(tmp_path, tmp_path / "graph")
    task = Task.load(tmp_path / "graph")
    assert (task.is_regression, task.metric) == (True, "r2")
    assert any("--label-kind classes" in note for note in summary.notes)
    assert open_source(tmp_path, ImportOptions(label_kind="classes")).labels.tolist() == [0, 1, -1, 1]
    assert np.isnan(open_source(tmp_path, ImportOptions(label_kind="values")).labels[2])


def test_leading_zeros_survive_where_ids_are_text(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("source,target\n007,010\n")
    (tmp_path / "nodes.csv").write_text("id,label\n007,spy\n010,cook\n")
    task = open_source(tmp_path, ImportOptions(id_type="string"))
    assert task.ids is not None
    assert task.ids.tolist() == ["007", "010"]


def test_unlabelled_test_nodes_are_left_out_of_the_score(tmp_path: Path) -> None:
    write_table(pa.table({"source": [0, 1], "target": [1, 2]}), tmp_path / "edges.csv")
    nodes = {"id": [0, 1, 2], "label": ["a", "b", None], "split": ["train", "train", "test"]}
    write_table(pa.table(nodes), tmp_path / "nodes.csv")
    summary = import_graph(tmp_path, tmp_path / "graph")
    assert len(Task.load(tmp_path / "graph").splits[0].test) == 0
    assert "1 test nodes have no label: they are predicted, but not scored." in summary.notes


@pytest.mark.parametrize("protocol", ["uniform", "balanced"])
def test_split_i_is_drawn_with_the_seed_plus_i(protocol: str, tables: Path) -> None:
    drawn = ImportOptions(split_column="", protocol=protocol, seed=3, num_splits=3)
    splits = open_source(tables, drawn).splits
    alone = [open_source(tables, replace(drawn, seed=seed, num_splits=1)).splits[0] for seed in (3, 4, 5)]
    for one, other in zip(splits, alone, strict=True):
        assert np.array_equal(one.train, other.train)
    assert not np.array_equal(splits[0].train, splits[1].train)


def test_ids_in_a_column_without_a_name(tmp_path: Path) -> None:
    """So ``DataFrame.to_csv`` writes the index."""
    (tmp_path / "nodes.csv").write_text(",age,label\nann,1,x\nbob,2,y\ncat,3,x\ndan,5,y\n")
    (tmp_path / "edges.csv").write_text("source,target\nann,bob\nbob,cat\ncat,dan\n")
    task = open_source(tmp_path)
    assert list(np.asarray(task.ids)) == ["ann", "bob", "cat", "dan"]
    assert task.graph.num_features == 1
