"""CSV files as programs of all kinds write them: encodings, decimal marks, long ids; sentences that name the cell."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polyformer.errors import InvalidData, InvalidParameter, UnknownName
from polyformer.importing import ImportOptions, open_source
from tests.listener import Listener

EDGES = "source,target\nä,b\nb,ç\n"
NODES = "id,label,größe\nä,x,1.5\nb,y,2.5\nç,x,3.5\n"


def write(folder: Path, edges: str, nodes: str, encoding: str = "utf-8") -> Path:
    (folder / "edges.csv").write_bytes(edges.encode(encoding))
    (folder / "nodes.csv").write_bytes(nodes.encode(encoding))
    return folder


@pytest.mark.parametrize(
    ("written", "told"),
    [("utf-8", ""), ("utf-8-sig", ""), ("utf-16", ""), ("utf-16-le", "utf-16-le"), ("latin-1", "latin-1")],
)
def test_encodings(written: str, told: str, tmp_path: Path) -> None:
    task = open_source(write(tmp_path, EDGES, NODES, written), ImportOptions(encoding=told))
    assert task.ids is not None
    assert task.ids.tolist() == ["ä", "b", "ç"]
    assert task.columns is not None
    assert [column.name for column in task.columns] == ["größe"]
    assert np.asarray(task.graph.features).ravel().tolist() == [1.5, 2.5, 3.5]


@pytest.mark.parametrize(
    ("written", "options", "sentence"),
    [
        ("latin-1", {}, r"nodes.csv' is not written in UTF-8: its header holds the byte 0xf6\. .*--encoding latin-1$"),
        ("utf-16-be", {}, r"looks like UTF-16 without a mark .* --encoding utf-16-be$"),
        ("latin-1", {"encoding": "ascii"}, r"is not written in ASCII.*Name the encoding that it was written in"),
        ("latin-1", {"encoding": "latin-11"}, r"Unknown encoding 'latin-11'\. Try utf-8, latin-1"),
        ("utf-8", {"decimal": "·"}, r"'decimal' must be \. or , and nothing else\. Got '·'"),
    ],
)
def test_encodings_that_cannot_be_read(written: str, options: dict[str, str], sentence: str, tmp_path: Path) -> None:
    with pytest.raises((InvalidData, InvalidParameter, UnknownName), match=sentence):
        open_source(write(tmp_path, EDGES, NODES, written), ImportOptions(**options))


def test_the_first_row_in_another_encoding_is_named(tmp_path: Path) -> None:
    write(tmp_path, "source,target\n1,2\n", "id,label,city\n1,x,Bonn\n2,y,Köln\n", "latin-1")
    with pytest.raises(InvalidData, match=r"row 2 of 'nodes.csv' \(the header not counted\) holds the byte 0xf6"):
        open_source(tmp_path)


@pytest.mark.parametrize(
    ("nodes", "decimal", "labels"),
    [
        ("id;label;x\n0;1,5;3,14\n1;2,5;-2,5\n2;4;7\n", "", [1.5, 2.5, 4.0]),
        ('id,label,x\n0,1.5,"3,14"\n1,2.5,"-2,5"\n2,4,7\n', ",", [1.5, 2.5, 4.0]),
        ("id\tlabel\tx\n0\ta\t3,14\n1\tb\t-2,5\n2\tb\t7\n", "", [0, 1, 1]),
    ],
)
def test_decimal_commas(nodes: str, decimal: str, labels: list[float], tmp_path: Path) -> None:
    lines: list[str] = []
    write(tmp_path, "source;target;weight\n0;1;0,5\n1;2;0,25\n", nodes)
    task = open_source(tmp_path, ImportOptions(decimal=decimal), reporter=Listener(on_say=lines.append))
    assert np.asarray(task.graph.features).ravel().tolist() == pytest.approx([3.14, -2.5, 7.0])
    assert task.labels.tolist() == labels
    assert task.graph.weights is not None
    assert sorted(set(task.graph.weights.tolist())) == [0.25, 0.5]
    assert any("'edges.csv' have a decimal comma, such as '0,5'" in line for line in lines) == (not decimal)


@pytest.mark.parametrize("cell", ["3,14", "1,234"])
def test_a_comma_that_may_be_a_decimal_mark_is_asked_about(cell: str, tmp_path: Path) -> None:
    write(tmp_path, "source,target\n0,1\n", f'id,label,x\n0,a,"{cell}"\n1,b,2\n')
    with pytest.raises(InvalidData, match=f"'x' of 'nodes.csv' writes numbers .* such as '{cell}'.*--decimal ,"):
        open_source(tmp_path)
    assert open_source(tmp_path, ImportOptions(decimal=".")).graph.num_features == 2  # two words


def test_long_ids_are_read_as_text(tmp_path: Path) -> None:
    first, second = "1" * 20, "2" * 20
    write(tmp_path, f"source,target\n{first},{second}\n", f"id,label,x\n{first},a,1\n{second},b,2\n")
    with pytest.raises(InvalidData, match=f"'{first}' in the column 'id', row 1 .*too many digits.*--id-type string"):
        open_source(tmp_path)
    task = open_source(tmp_path, ImportOptions(id_type="string"))
    assert task.ids is not None
    assert task.ids.tolist() == [first, second]


def test_the_row_of_a_cell_counts_no_comment_and_no_header(tmp_path: Path) -> None:
    write(tmp_path, "# made by hand\nnote,source,target\na,0,1\nb,1,x\n", "id,label,a\n0,x,1\n1,y,1\n")
    with pytest.raises(InvalidData, match=r"'x' in the column 'target', row 2 of 'edges.csv' \(the header"):
        open_source(tmp_path)


def test_types_have_plain_names(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    dates = pa.array([0, 1], pa.date32())
    for columns in ({"id": dates}, {"id": [0, 1], "label": dates}, {"id": [0, 1], "label": [0, 1], "split": dates}):
        pq.write_table(pa.table(columns), tmp_path / "nodes.parquet")
        with pytest.raises(InvalidData, match=r"(Got|holds) dates"):
            open_source(tmp_path)
