"""Whatever is wrong with a source is said in one sentence, and nothing is left at the destination."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import torch

from polyformer.errors import (
    DataNotFound,
    FileCorrupt,
    InvalidData,
    InvalidParameter,
    OutOfResources,
    OutputExists,
    PolyformerError,
)
from polyformer.files import NpyWriter
from polyformer.importing import ImportOptions, import_graph, open_source
from tests.importing.example import Example, write_table

EDGES = "source,target\na,b\nb,c\nc,a\n"
NODES = "id,label,split,age\na,x,train,1\nb,y,train,2\nc,x,test,3\n"

TABLES: dict[str, tuple[str, str, str]] = {
    "unknown ids": (EDGES + "a,z\nq,r\n", NODES, r"2 edges name ids that no node has; .* 'z', 'q', 'r'\. Add"),
    "one unknown id": (EDGES + "a,z\n", NODES, r"1 edge names ids"),
    "repeated id": (EDGES, NODES + "a,x,,1\n", r"has the node id 'a' twice, in rows 1 and 4\. Keep"),
    "conflicting id": (EDGES, NODES + "a,y,,1\n", r"twice, in rows 1 and 4 with different labels, 'x' and 'y'"),
    "long id": (EDGES, NODES + "x" * 1001 + ",x,,1\n", r"at most 1,000 characters\. Got one of 1,001 .* 'xxx"),
    "missing id": (EDGES, NODES + ",x,,1\n", r"no id in the column 'id' of row 4 of 'nodes.csv' \(the header"),
    "missing end": (EDGES + "a,\n", NODES, r"no id in the column 'target' of row 4 of 'edges.csv'"),
    "ragged edges": (EDGES + "a,b,c\n", NODES, r"are 3 cells instead of 2 in row 4 of 'edges.csv'.*: a,b,c\."),
    "ragged nodes": (EDGES, NODES + "d,x\n", r"are 2 cells instead of 4 in row 4 of 'nodes.csv'.*: d,x\."),
    "no edges": ("source,target\n", NODES, r"'edges.csv' has no edges"),
    "empty edges": ("", NODES, r"edges.csv' is an empty table"),
    "no nodes": (EDGES, "id,label\n", r"The column 'id' of 'nodes.csv' is empty"),
    "empty nodes": (EDGES, "", r"nodes.csv' is an empty table"),
    "no source": ("a1,target,b1\na,b,0\n", NODES, r"looks like the source\. Its columns are: a1, target, b1"),
    "no id": (EDGES, NODES.replace("id,", "key,") + "a,x,,4\n", r"the id\. Its columns are: key, label, split, age\."),
    "two labels": (EDGES, NODES.replace("age", "class"), r"Both 'label' and 'class' of 'nodes.csv' could be the label"),
    "same column twice": (EDGES, NODES.replace("age", "id"), r"more than one column 'id'"),
    "infinite feature": (EDGES, NODES.replace(",2\n", ",inf\n"), r"Got inf in row 2 of 'nodes.csv'"),
    "strange split": (EDGES, NODES.replace("test", "holdout"), r"row 3 .* must be train, val or test\. Got 'holdout'"),
    "unlabelled training": (EDGES, NODES.replace("b,y", "b,"), r"no label in row 2 .*, which is in the train split"),
    "label not in training": (EDGES, NODES.replace("c,x", "c,rare"), r"The label 'rare' is in no training node"),
    "no training nodes": (EDGES, NODES.replace("train", "val"), r"in no training node"),
    "no labels to split": (EDGES, "id,split\na,train\nb,val\nc,test\n", r"has a split column but no label column"),
    "mixed ids": ("source,target\n1,2\n", NODES, r"2? edges? names? ids"),
    "text in an integer column": ("source,target\n1,2\n2,b\n", "id,label\n1,x\n2,y\n", r"'b' .* no whole number"),
    "negative weight": ("source,target,weight\na,b,1\nb,c,-2\n", NODES, r"Got -2.0 in row 2 of 'edges.csv'"),
    "missing weight": ("source,target,weight\na,b,1\nb,c,\n", NODES, r"Got nan in row 2"),
    "text weight": ("source,target,weight\na,b,heavy\n", NODES, r"'heavy' in the .* as a number"),
    "minus one and one": (EDGES, "id,label\na,-1\nb,1\nc,1\n", r"-1 means unlabelled"),
    "infinite label": (EDGES, "id,label\na,0.5\nb,inf\nc,1\n", r"Labels must be finite\. Got infinity in row 2"),
    "huge feature": (EDGES, NODES.replace(",2\n", ",1e26\n"), r"'age' must be a number .* Got 1e\+26 in row 2"),
}  # fmt: skip


def refuse(source: Path, message: str, kind: type[PolyformerError], options: ImportOptions | None = None) -> None:
    """Importing and opening both refuse the source with this sentence, and leave no file behind."""
    destination = source.parent / "out" / "graph"
    for run in (lambda: import_graph(source, destination, options), lambda: open_source(source, options)):
        with pytest.raises(kind, match=message) as caught:
            run()
        assert "\n" not in str(caught.value)
        assert caught.value.exit_code == 2
    assert not destination.parent.exists() or list(destination.parent.iterdir()) == []


@pytest.mark.parametrize("name", TABLES)
def test_bad_tables(tmp_path: Path, name: str) -> None:
    edges, nodes, message = TABLES[name]
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "edges.csv").write_text(edges)
    (folder / "nodes.csv").write_text(nodes)
    refuse(folder, message, InvalidData)


def test_long_ids_of_edges_alone(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text(EDGES + "a," + "z" * 2000 + "\n")
    refuse(tmp_path / "edges.csv", r"Got one of 2,000 that begins with 'zzz", InvalidData)


def test_free_text_is_refused_with_a_hint(tmp_path: Path, example: Example) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write_table(example.edges(), folder / "edges.csv")
    nodes = example.nodes().append_column("bio", pa.array([f"I like {i} things" for i in range(40)]))
    write_table(nodes, folder / "nodes.parquet")
    refuse(folder, r"'bio' of 'nodes.parquet' looks like free text: it has 40 distinct.*--features", InvalidData)
    assert open_source(folder, ImportOptions(features=("age", "colour"))).graph.num_features == 4


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([b"0", b"1", b"2"]), r"cannot be a feature: it holds raw bytes"),
        (pa.array([0, 1, 2], pa.time32("s")), r"cannot be a feature: it holds times of day"),
        (pa.array([[1.0], [1.0, 2.0], [1.0]]), r"must all have 1 numbers\. Got 2 in row 2"),
        (pa.array([[1.0, None], [1.0, 2.0], [1.0, 2.0]]), r"must be a number for every node. There is none in row 1"),
        (pa.array([None, [1.0], [1.0]]), r"must all have 1 numbers\. Got 0 in row 1"),
        (pa.array([["a"], ["b"], ["c"]]), r"cannot be a feature: it holds lists of text"),
        (pa.array([[[1.0]], [[2.0]], [[3.0]]]), r"cannot be a feature: it holds lists of lists of numbers"),
    ],
)
def test_bad_feature_types(tmp_path: Path, column: pa.Array, message: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "edges.csv").write_text("source,target\n0,1\n")
    pq.write_table(pa.table({"id": [0, 1, 2], "extra": column}), folder / "nodes.parquet")
    refuse(folder, message, InvalidData)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ImportOptions(source_column="from"), r"no column 'from' for the source\. Its columns are: source, target"),
        (ImportOptions(label_column="kind"), r"no column 'kind' for the label"),
        (ImportOptions(features=("height",)), r"no column 'height'\. Its columns are: id, label, split, age"),
        (ImportOptions(label_kind="values"), r"must be numbers to be predicted"),
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, options: ImportOptions, message: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "edges.csv").write_text(EDGES)
    (folder / "nodes.csv").write_text(NODES)
    refuse(folder, message, InvalidData, options)


def test_options_are_checked() -> None:
    for options, message in (
        ({"protocol": "unifrom"}, "Did you mean 'uniform'"),
        ({"id_type": "float"}, "Unknown id_type"),
        ({"num_splits": 0}, "'num_splits' must be 1 or more"),
    ):
        with pytest.raises(InvalidParameter, match=message):
            ImportOptions(**options)  # type: ignore[arg-type]


class Bomb:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch exploded",)


def write_bad_file(path: Path, name: str) -> None:
    if name == "bomb":
        torch.save({"edge_index": Bomb()}, path)
    elif name == "object array":
        np.savez(path, edges=np.array([Bomb()], dtype=object))
    elif name == "garbage":
        path.write_bytes(b"this is not what its name says" * 50)
    elif name == "truncated":
        pq.write_table(pa.table({"source": range(1000), "target": range(1000)}), path)
        path.write_bytes(path.read_bytes()[:-200])
    elif name == "truncated raw":
        np.save(path, np.zeros((2, 1000), np.int64))
        path.write_bytes(path.read_bytes()[:-200])


@pytest.mark.parametrize(
    ("name", "ending", "kind", "message"),
    [
        ("bomb", ".pt", InvalidData, r"would have to run code to be read, which is refused"),
        ("object array", ".npz", FileCorrupt, r"cannot be read \(it holds no plain arrays"),
        ("garbage", ".pt", FileCorrupt, r"no file that torch.save wrote, or is truncated"),
        ("garbage", ".npz", FileCorrupt, r"cannot be read"),
        ("garbage", ".parquet", FileCorrupt, r"cannot be read \(Parquet"),
        ("garbage", ".npy", FileCorrupt, r"cannot be read"),
        ("garbage", ".xlsx", InvalidData, r"is of no format that can be read\. Save the sheet of edges as edges.csv"),
        (
            "garbage",
            ".graphml",
            InvalidData,
            r"networkx\.read_graphml, .* polyformer\.Graph\.from_networkx",
        ),
        ("garbage", ".gpickle", InvalidData, r"A pickle can run any code when it is opened, so it is not opened here"),
        ("garbage", ".json", InvalidData, r"JSON has no agreed form for graphs"),
        ("garbage", ".xyz", InvalidData, r"Give a folder of tables, or a file in .*\.mat"),
        ("garbage", ".mat", FileCorrupt, r"cannot be read"),
        ("garbage", ".mtx", FileCorrupt, r"cannot be read"),
        ("truncated", ".parquet", FileCorrupt, r"cannot be read"),
        ("truncated raw", ".npy", FileCorrupt, r"is truncated: it has"),
        ("missing", ".csv", DataNotFound, r"There is nothing at"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, ending: str, kind: type[PolyformerError], message: str) -> None:
    path = tmp_path / f"file{ending}"
    write_bad_file(path, name)
    refuse(path, message, kind)
    assert not Path("exploded").exists()


def test_bad_arrays(tmp_path: Path) -> None:
    edges = np.array([[0, 1], [1, 2]])
    for arrays, message in (
        ({"nodes": edges}, r"must hold 'edges'.*Its keys are: nodes"),
        ({"edges": edges.astype(float)}, r"must be pairs of integers\. Got float64"),
        ({"edges": edges, "node_features": np.full((3, 2), np.nan)}, r"finite numbers\. Got nan"),
        ({"edges": edges, "node_features": np.ones((3, 2)), "node_labels": np.ones(4, int)}, r"one row per node"),
        ({"edges": edges, "node_labels": np.ones((3, 2))}, r"one class or number per node"),
        ({"edges": edges, "node_labels": np.array([0, 1, 2**63], np.uint64)}, r"below 2\^63\. Got 9223372036854775808"),
        ({"edges": edges * 9, "node_labels": np.arange(3)}, r"edges? names? ids that no node has; .*'9', '18'"),
        ({"edges": edges, "node_labels": np.arange(3), "train_masks": np.ones((2, 5), bool)}, r"one truth value"),
    ):  # fmt: skip
        np.savez(tmp_path / "a.npz", **arrays)
        refuse(tmp_path / "a.npz", message, InvalidData)
    huge = np.array([[0, 1], [1, 2**63]], np.uint64)
    np.savez(tmp_path / "a.npz", edges=huge)
    np.save(tmp_path / "a.npy", huge)
    for name in ("a.npz", "a.npy"):
        refuse(tmp_path / name, r"must be below 2\^63\. Got 9223372036854775808", InvalidData)
    sp.save_npz(tmp_path / "a.npz", sp.random(3, 4, 0.5, "csr"))
    refuse(tmp_path / "a.npz", r"must be square", InvalidData)
    matrix = sp.csr_matrix(np.eye(3))
    matrix.indices[1] = 10**8
    sp.save_npz(tmp_path / "a.npz", matrix)
    refuse(tmp_path / "a.npz", r"a\.npz' cannot be read \(.*indices", FileCorrupt)
    torch.save({"x": torch.ones(3, 2)}, tmp_path / "a.pt")
    refuse(tmp_path / "a.pt", r"holds no edge_index", InvalidData)
    (tmp_path / "a.i32").write_bytes(b"1234567")
    refuse(tmp_path / "a.i32", r"must divide by 8", FileCorrupt)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"num_nodes": "many"}, r"'num_nodes' of '.*' must be a whole number, 1 or more\. Got 'many'"),
        ({"num_nodes": torch.tensor([3, 3])}, r"'num_nodes' of '.*' must be a whole number"),
        ({"num_nodes": -3}, r"'num_nodes' of '.*' must be a whole number, 1 or more\. Got -3"),
        ({"edge_index": torch.eye(2).to_sparse()}, r"'edge_index' must be a dense tensor .*sparse_coo"),
        ({"y": torch.eye(3).to_sparse()}, r"'y' must be a dense tensor"),
        ({"x": [[1.0], [2.0]]}, r"one row per node"),
        ({"x": torch.tensor(1.0)}, r"'features' must have shape \(N, d\)"),
        ({"y": torch.tensor(1)}, r"one class or number per node"),
    ],
)  # fmt: skip
def test_bad_tensors(tmp_path: Path, content: dict[str, Any], message: str) -> None:
    torch.save({"edge_index": torch.tensor([[0, 1], [1, 2]]), "num_nodes": 3} | content, tmp_path / "a.pt")
    refuse(tmp_path / "a.pt", message, InvalidData)


def test_tensors_that_are_not_asked_for_or_are_of_other_kinds(tmp_path: Path) -> None:
    content = {"edge_index": torch.tensor([[0, 1], [1, 2]]), "x": torch.ones(3, 2, dtype=torch.bfloat16)}
    torch.save(content | {"y": torch.tensor(1)}, tmp_path / "a.pt")
    graph = open_source(tmp_path / "a.pt", ImportOptions(label_column="")).graph
    assert np.array_equal(graph.features, np.ones((3, 2), np.float32))
    torch.save(content | {"x": [[1.0], [2.0], [3.0]], "num_nodes": torch.tensor(3)}, tmp_path / "a.pt")
    assert open_source(tmp_path / "a.pt").graph.num_features == 1
    assert open_source(tmp_path / "a.pt", ImportOptions(features=())).graph.num_nodes == 3


def test_a_pickle_that_is_no_torch_file(tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(pickle.dumps(Bomb()))
    refuse(tmp_path / "a.pt", r"a.pt' (would have to run code|is no file that torch.save wrote)", PolyformerError)
    assert not Path("exploded").exists()


def test_the_destination_is_never_overwritten(tables: Path, tmp_path: Path) -> None:
    import_graph(tables, tmp_path / "graph")
    with pytest.raises(OutputExists, match="already exists"):
        import_graph(tables, tmp_path / "graph")


def test_a_full_disk(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: NpyWriter, rows: np.ndarray) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(NpyWriter, "append", full)
    with pytest.raises(OutOfResources, match="No space left on the disk") as caught:
        import_graph(tables, tmp_path / "out" / "graph")
    assert caught.value.exit_code == 1
    assert list((tmp_path / "out").iterdir()) == []


def test_a_disk_that_is_too_small_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.zeros((1000, 2), np.int32).tofile(tmp_path / "edges.i32")
    usage = type("usage", (), {"free": 1000})
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(OutOfResources, match=r"needs about 23\.4 KiB of disk"):
        import_graph(tmp_path / "edges.i32", tmp_path / "out" / "graph")


def test_memory_that_cannot_hold_the_program(tables: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match=r"'memory' must be at least \d+ MiB"):
        import_graph(tables, tmp_path / "graph", ImportOptions(memory=1 << 20))


def test_folders_that_do_not_say_which(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "notes.md").write_text("nothing here")
    refuse(folder, r"holds no table of edges .* It holds: notes.md", DataNotFound)
    (folder / "edges.csv").write_text(EDGES)
    (folder / "edges.tsv").write_text(EDGES)
    refuse(folder, r"Both 'edges.csv' and 'edges.tsv'", InvalidData)


def test_labels_in_wider_numbers_than_arrow_has(tmp_path: Path) -> None:
    edges = np.array([[0, 1], [1, 2], [2, 3]])
    np.savez(tmp_path / "a.npz", edges=edges, node_labels=np.array([0, 1, 0, 1], np.longdouble))
    assert open_source(tmp_path / "a.npz").labels.tolist() == [0, 1, 0, 1]
