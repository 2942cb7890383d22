"""Feature columns as tables have them: missing numbers, dates, ids; and splits by time."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polyformer.columns import Column
from polyformer.errors import InvalidData
from polyformer.importing import ImportOptions, import_graph, open_source
from polyformer.tasks import Task
from tests.importing.example import write_table
from tests.listener import Listener

COUNT = 24
DAYS = [datetime.date(2020, 1, 1) + datetime.timedelta(days=7 * i % 50) for i in range(COUNT)]


def write(folder: Path, columns: dict[str, object], ending: str = ".csv", **edges: list[int]) -> Path:
    """A ring of nodes, each with a label, and these columns; ``source`` and ``target`` may be others."""
    folder.mkdir(exist_ok=True)
    ring = {"source": list(range(COUNT)), "target": [(i + 1) % COUNT for i in range(COUNT)]} | edges
    write_table(pa.table(ring), folder / f"edges{ending}")
    nodes = {"id": list(range(COUNT)), "label": ["a", "b"] * (COUNT // 2), **columns}
    write_table(pa.table(nodes), folder / f"nodes{ending}")
    return folder


def read(folder: Path, **options: object) -> tuple[Task, list[str]]:
    lines: list[str] = []
    return open_source(folder, ImportOptions(**options), reporter=Listener(on_say=lines.append)), lines  # type: ignore[arg-type]


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_missing_numbers_get_the_median_and_a_mark(tmp_path: Path, ending: str) -> None:
    ages = [None if i % 6 == 0 else float(i) / 2 for i in range(COUNT)]
    flags = [None, *[i % 3 == 0 for i in range(COUNT - 1)]]
    folder = write(tmp_path / "in", {"age": ages, "flag": flags}, ending)
    task, lines = read(folder)
    known = sorted(age for age in ages if age is not None)
    median = known[(len(known) - 1) // 2]
    expected = [[median if age is None else age, age is None] for age in ages]
    np.testing.assert_array_equal(task.graph.features[:, :2], np.float32(expected))
    assert set(task.graph.features[:, 2]) == {0.0, 1.0}
    assert task.columns == (Column("age", 2, indicator=True), Column("flag", 2, indicator=True))
    assert task.columns[0].median == median
    sentence = (
        f"4 missing values of 'age' are filled with the median, {median:g}; a column of zeros and ones marks them."
    )
    assert sentence in lines
    assert task.preprocessing[0] == sentence
    import_graph(folder, tmp_path / "graph")
    stored = Task.load(tmp_path / "graph")
    assert (stored.preprocessing, stored.columns) == (task.preprocessing, task.columns)
    assert stored.graph.fingerprint == task.graph.fingerprint
    with pytest.raises(InvalidData, match=r"'age' must be a number for every node. There is none in row 1 of 'nodes"):
        read(folder, missing="refuse")


def test_another_table_is_filled_as_in_training(tmp_path: Path) -> None:
    trained = (Column("age", 2, median=40.0, indicator=True), Column("size", 1, median=7.0))
    columns = {"size": [None, *range(1, COUNT)], "age": [None, *range(1, COUNT)]}
    task, lines = read(write(tmp_path / "in", columns), columns=trained)
    assert task.graph.features[0].tolist() == [40.0, 1.0, 7.0]
    assert task.graph.features[1].tolist() == [1.0, 0.0, 1.0]
    assert task.columns == trained
    assert "1 missing value of 'age' is filled with the median of the training, 40." in lines
    assert any(
        "the median of the training, 7; in training none was missing, so nothing marks them." in x for x in lines
    )
    with pytest.raises(InvalidData, match=r"'age' must be a number for every node"):
        read(tmp_path / "in", columns=trained, missing="refuse")
    empty = {"size": [None] * COUNT, "age": [1.0] * COUNT}
    assert set(read(write(tmp_path / "in", empty), columns=trained)[0].graph.features[:, 2]) == {7.0}
    old = (Column("age"), Column("size"))  # an earlier version kept no median
    with pytest.raises(InvalidData, match=r"'age' must be a number for every node. There is none in row 1"):
        read(write(tmp_path / "in", columns), columns=old)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([None] * COUNT, pa.float32()),
        pa.array([None] * COUNT, pa.string()),
        pa.array([None] * COUNT, pa.null()),
        pa.array([[]] * COUNT, pa.list_(pa.float32())),
    ],
)
def test_empty_columns_are_left_out(tmp_path: Path, column: pa.Array) -> None:
    task, lines = read(write(tmp_path / "in", {"size": [1.5] * COUNT, "nothing": column}, ".parquet"))
    assert task.columns == (Column("size"),)
    assert "'nothing' is left out: the column is empty." in lines


@pytest.mark.parametrize(
    ("values", "ending"),
    [
        (pa.array(DAYS), ".csv"),
        (pa.array(DAYS), ".parquet"),
        (pa.array(DAYS).cast(pa.timestamp("ns", "Europe/Berlin")), ".parquet"),
        (pa.array([day.isoformat() for day in DAYS]), ".parquet"),
        (pa.array([f"{day.isoformat()}T00:00:00Z" for day in DAYS]), ".csv"),
    ],
)
def test_dates_become_days(tmp_path: Path, values: pa.Array, ending: str) -> None:
    task, lines = read(write(tmp_path / "in", {"joined": values}, ending))
    days = [(day - datetime.date(1970, 1, 1)).days for day in DAYS]
    assert task.graph.features[:, 0].tolist() == days
    assert task.columns == (Column("joined", kind="date"),)
    assert "'joined' holds dates: they are read as days since 1970." in lines
    again, _ = read(write(tmp_path / "in", {"joined": values}, ending), columns=task.columns)
    np.testing.assert_array_equal(again.graph.features, task.graph.features)


def test_text_that_is_nearly_all_dates(tmp_path: Path) -> None:
    dates = [day.isoformat() for day in DAYS]
    task, _ = read(write(tmp_path / "in", {"joined": [*dates[:-1], "unknown"]}))
    assert task.columns == (Column("joined", 2, kind="date", indicator=True),)
    half, _ = read(write(tmp_path / "in", {"joined": ["soon" if i % 2 else dates[0] for i in range(COUNT)]}))
    assert half.columns is not None
    assert half.columns[0].categories == ("2020-01-01", "soon")


@pytest.mark.parametrize(
    ("name", "values", "kept", "note"),
    [
        ("user_id", [i * 7919 % 1000 for i in range(COUNT)], False, "'user_id' is left out: it looks like an id"),
        ("Unnamed: 0", list(range(COUNT)), False, "'Unnamed: 0' is left out"),
        ("views", [i * 7919 % 1000 for i in range(COUNT)], True, "'views' holds whole numbers that are all different"),
        ("paid", [i * 7919 % 1000 for i in range(COUNT)], True, "'paid' holds whole numbers that are all different"),
        ("user_id", [i % 5 for i in range(COUNT)], True, None),
        ("views", [i * 1.5 for i in range(COUNT)], True, None),
    ],
)
def test_columns_that_look_like_ids(
    tmp_path: Path, name: str, values: list[float], kept: bool, note: str | None
) -> None:
    folder = write(tmp_path / "in", {name: values, "flag": [True, False] * (COUNT // 2)})
    task, lines = read(folder)
    assert task.graph.num_features == 1 + kept
    assert any(note in line for line in lines) if note else not any("--features" in line for line in lines)
    assert read(folder, features=(name,))[0].graph.num_features == 1


def test_splits_by_time(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", {"joined": DAYS, "size": [1.5, 2.5] * (COUNT // 2)})
    task, lines = read(folder, split_by="joined")
    assert (task.protocol, task.columns) == ("by time", (Column("size"),))
    parts = [[DAYS[node] for node in part] for part in vars(task.splits[0]).values() if isinstance(part, np.ndarray)]
    assert max(parts[0]) < min(parts[1]) <= max(parts[1]) < min(parts[2])
    assert [len(part) for part in parts] == [14, 5, 5]
    assert any("Splits are by time" in line for line in lines)
    named, _ = read(folder, split_by="joined", features=("joined", "size"))
    assert named.graph.num_features == 2
    numbers, _ = read(write(tmp_path / "in", {"year": [2000] * 12 + [2001] * 6 + [2002] * 6}), split_by="year")
    assert [len(numbers.splits[0].train), len(numbers.splits[0].val)] == [12, 6]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({}, "has no column 'joined' to split by"),
        ({"joined": ["soon", "late"] * (COUNT // 2)}, "must hold numbers or dates to split by. It holds text"),
        ({"joined": [None, *range(1, COUNT)]}, "Row 1 of 'nodes.csv' has a label but no number or date in 'joined'"),
        ({"joined": [1, 2] * (COUNT // 2)}, "needs three different times at least. Got 2"),
    ],
)
def test_splits_by_time_that_cannot_be(tmp_path: Path, column: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidData) as error:
        read(write(tmp_path / "in", column), split_by="joined")
    assert message in str(error.value)


def test_a_direction_is_said_to_be_dropped(tmp_path: Path) -> None:
    sentence = "Edges are read without a direction: an edge joins its two ends alike."
    assert sentence in read(write(tmp_path / "one", {"size": [1.5] * COUNT}))[1]
    both = {"source": [0, 1, 1, 2], "target": [1, 0, 2, 1]}
    assert sentence not in read(write(tmp_path / "both", {"size": [1.5] * COUNT}, **both))[1]
    assert sentence in import_graph(tmp_path / "one", tmp_path / "graph").notes


def test_missing_values_of_a_wide_table(tmp_path: Path) -> None:
    """The pass that counts categories holds a bounded number of values."""
    random = np.random.default_rng(0)
    values = random.normal(size=(5000, 3))
    values[random.random((5000, 3)) < 0.1] = np.nan
    write_table(pa.table({"source": [0], "target": [1]}), tmp_path / "edges.parquet")
    columns = {"id": np.arange(5000)} | {f"x{i}": values[:, i] for i in range(3)}
    pq.write_table(pa.table(columns), tmp_path / "nodes.parquet")
    task, _ = read(tmp_path)
    assert task.columns is not None
    for column, known in zip(task.columns, values.T, strict=True):
        assert abs(column.median - np.nanmedian(known)) < 0.01
