"""From the user's tables to predictions with the user's ids, as typed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch

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


def test_a_metric_is_kept_with_the_graph(tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for metric, code in (("rmse", 2), ("f1", 2), ("macro_f1", 0)):
        assert run("import", tables, tmp_path / "graph", "--metric", metric) == code
        assert (tmp_path / "graph").exists() == (code == 0)
    assert run("import", tmp_path / "graph", tmp_path / "copy", "--metric", "log_loss") == 0
    assert [Task.load(tmp_path / name).metric for name in ("graph", "copy")] == ["macro_f1", "log_loss"]
    said = capsys.readouterr().err
    assert "The metric 'rmse' does not fit class labels. Use one of: accuracy" in said
    assert "Unknown metric 'f1'" in said


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


def _people(folder: Path, columns: dict[str, list[object]], *, parquet: bool = False, ids: str = "id") -> Path:
    """Twelve people in a ring, with these columns besides their ids."""
    folder.mkdir()
    ring = [f"p{i % 12}" for i in range(13)]
    pyarrow.csv.write_csv(pa.table({"source": ring[:-1], "target": ring[1:]}), folder / "edges.csv")
    nodes = pa.table({ids: ring[:-1], **columns})
    if parquet:
        pq.write_table(nodes, folder / "nodes.parquet")
    else:
        pyarrow.csv.write_csv(nodes, folder / "nodes.csv")
    return folder


COUNTRIES, AGES, LABELS = ["DE", "FR"] * 6, list(range(20, 32)), ["a", "b", "b", "a"] * 3


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """A run on people with a country and an age."""
    splits = ["train"] * 8 + ["val"] * 2 + ["test"] * 2
    columns = {"country": COUNTRIES, "age": AGES, "label": LABELS, "split": splits}
    assert run("train", _people(tmp_path / "people", columns), "--out", tmp_path / "run", *FAST) == 0
    return tmp_path / "run"


def _predicted(people: Path, data: Path) -> dict[str, list[object]]:
    out = data.with_suffix(".parquet")
    assert run("predict", people, data, "--out", out) == 0
    return pq.read_table(out).to_pydict()


def test_other_tables_are_read_as_those_of_the_training(
    people: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Columns are reordered and added, one category is missing and one is new; all nodes are test nodes."""
    same = _predicted(people, tmp_path / "people")
    columns = {"note": ["x"] * 12, "age": AGES, "country": COUNTRIES, "label": LABELS, "split": ["test"] * 12}
    assert _predicted(people, _people(tmp_path / "mixed", columns)) == same
    french = _people(tmp_path / "french", {"age": AGES, "country": ["FR"] * 12})
    german = _people(tmp_path / "foreign", {"age": AGES, "country": ["IT"] * 11 + ["FR"]})
    capsys.readouterr()
    assert _predicted(people, german)["probability_a"][:10] != _predicted(people, french)["probability_a"][:10]
    said = capsys.readouterr().out
    assert "'country' has values that were not in training: IT. They count as no category." in said
    assert "'country' → category of 2 (DE, FR)" in said
    assert "drawn by the protocol" not in said


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"age": AGES}, "'nodes.csv' has no column 'country', on which the model was trained"),
        ({"age": ["old"] * 12, "country": COUNTRIES}, "The column 'age' of 'nodes.csv' must hold numbers"),
    ],
)
def test_tables_that_do_not_have_what_was_trained_on(
    people: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], columns: dict[str, list[object]], message: str
) -> None:
    assert run("predict", people, _people(tmp_path / "other", columns), "--out", tmp_path / "p.parquet") == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("parquet", "trained", "given", "strange"),
    [
        (True, [1, 2] * 6, [1.0, 2.0] * 6, None),
        (True, [1, 2] * 6, ["1", "2"] * 6, None),
        (True, [2**53, 2**53 + 1] * 6, [str(2**53 + 1), "1.0"] * 6, "1.0"),
        (False, [1, 2] * 6, ["1", "2"] * 5 + ["1", "many"], "many"),
        (False, [1.5, 2.0] * 6, [3, 2] * 6, "3"),
        (True, [1.5, 2.0] * 6, [3, 2] * 6, "3"),
        (False, [True, False] * 6, [True, False] * 6, None),
        (True, ["DE", "FR"] * 6, [1, 2] * 6, "1, 2"),
        (True, ["DE", "FR"] * 6, [None] * 12, None),
        (True, [1.0, float("nan")] * 6, [1.0, None] * 6, None),
    ],
)
def test_a_category_is_known_by_its_value_whatever_its_type(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    parquet: bool,
    trained: list[object],
    given: list[object],
    strange: str | None,
) -> None:
    columns = {"zone": trained, "age": AGES, "label": LABELS}
    _people(tmp_path / "people", columns, parquet=parquet)
    assert run("import", tmp_path / "people", tmp_path / "graph", "--categories", "zone") == 0
    assert run("train", tmp_path / "graph", "--out", tmp_path / "run", *FAST) == 0
    capsys.readouterr()
    other = _people(tmp_path / "other", {"zone": given, "age": AGES}, parquet=parquet)
    assert run("import", other, tmp_path / "like", "--like", tmp_path / "run") == 0
    said = capsys.readouterr().out
    assert (f"'zone' has values that were not in training: {strange}. They" if strange else "age") in said
    assert ("were not in training" in said) == (strange is not None)
    zones = np.asarray(Task.load(tmp_path / "graph").graph.features)[:, :-1]
    assert zones.any(axis=0).all()
    rows = [[trained[j] == value or str(trained[j]) == str(value) for j in range(12)] for value in given]
    expected = [zones[row.index(True)] if any(row) else 0 * zones[0] for row in rows]
    np.testing.assert_array_equal(np.asarray(Task.load(tmp_path / "like").graph.features)[:, :-1], expected)
    assert run("predict", tmp_path / "run", other, "--out", tmp_path / "p.csv") == 0


@pytest.mark.parametrize("besides", [{}, {"label": LABELS}, {"label": LABELS, "target": LABELS}])
def test_a_feature_may_have_the_name_of_a_role(tmp_path: Path, besides: dict[str, list[object]]) -> None:
    """A column of travel classes is a feature if another column is the label, and stays one in other tables."""
    people = _people(tmp_path / "people", {"class": COUNTRIES, "age": AGES, "survived": LABELS})
    assert run("import", people, tmp_path / "graph", "--label-column", "survived") == 0
    assert run("train", tmp_path / "graph", "--out", tmp_path / "run", *FAST) == 0
    other = _people(tmp_path / "other", {"class": COUNTRIES, "age": AGES, **besides})
    assert run("predict", tmp_path / "run", "--out", tmp_path / "same.parquet") == 0
    same = pq.read_table(tmp_path / "same.parquet").to_pydict()
    assert _predicted(tmp_path / "run", other) == same


def test_tables_with_names_of_their_own_are_imported_like_those_of_a_run(
    people: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = _people(tmp_path / "other", {"age": AGES, "country": ["FR"] * 12}, ids="user")
    assert run("import", other, tmp_path / "plain", "--id-column", "user") == 0
    assert run("predict", people, tmp_path / "plain", "--out", tmp_path / "p.parquet") == 2
    assert "import them with --like and the run" in capsys.readouterr().err
    assert run("import", other, tmp_path / "like", "--id-column", "user", "--like", people) == 0
    french = _people(tmp_path / "french", {"country": ["FR"] * 12, "age": AGES})
    assert _predicted(people, tmp_path / "like") == _predicted(people, french)
    assert run("import", other, tmp_path / "both", "--like", people, "--features", "age") == 2
    assert "Leave out --features and --categories." in capsys.readouterr().err


def test_imported_graphs_with_other_features_are_refused(
    people: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two tables with three features each that mean different things."""
    other = _people(tmp_path / "other", {"age": AGES, "country": COUNTRIES})
    for name in ("people", "other"):
        assert run("import", tmp_path / name, tmp_path / f"{name}.graph") == 0
    assert run("predict", people, tmp_path / "people.graph", "--out", tmp_path / "p.parquet") == 0
    assert run("predict", people, tmp_path / "other.graph", "--out", tmp_path / "q.parquet") == 2
    message = "column 1 is 'age', in training it was 'country' with the 2 categories DE, FR"
    assert message in capsys.readouterr().err
    assert other.is_dir()


def test_what_looks_like_a_label_or_split_is_no_feature_by_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    people = _people(tmp_path / "people", {"age": AGES, "y": LABELS, "split": ["test"] * 12})
    assert run("import", people, tmp_path / "a", "--label-column", "", "--split-column", "") == 0
    assert "'y' is left out; name it in --features to have it as one." in capsys.readouterr().out
    assert Task.load(tmp_path / "a").graph.num_features == 1
    assert run("import", people, tmp_path / "b", "--label-column", "", "--split-column", "", "--features", "age,y") == 0
    assert Task.load(tmp_path / "b").graph.num_features == 3


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"label": ["a"] * 12, "age": AGES}, "All labels are of one class, 'a', so there is nothing to tell apart"),
    ],
)
def test_nothing_to_learn_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], columns: dict[str, list[object]], message: str
) -> None:
    assert run("train", _people(tmp_path / "people", columns), "--out", tmp_path / "run", *FAST) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_path_with_a_colon_is_a_path(people: Path, tmp_path: Path) -> None:
    place = _people(tmp_path / "2024-01-01T12:00", {"age": AGES, "country": COUNTRIES, "label": LABELS})
    assert len(_predicted(people, place)["node"]) == 12
    assert run("train", place, "--out", tmp_path / "second", *FAST) == 0
    assert load_dataset(str(place)).ids[3] == "p3"


def test_predictions_as_csv_and_under_no_other_name(
    people: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("p.csv", "p.parquet"):
        assert run("predict", people, "--out", tmp_path / name) == 0
    text, binary = pyarrow.csv.read_csv(tmp_path / "p.csv"), pq.read_table(tmp_path / "p.parquet")
    assert text["prediction"].to_pylist() == binary["prediction"].to_pylist()
    np.testing.assert_allclose(text["probability_a"], binary["probability_a"])
    assert run("predict", people, "--out", tmp_path / "p.txt") == 2
    assert "'--out' must end in .parquet or .csv." in capsys.readouterr().err
    assert run("filters", people, "--out", tmp_path / "f.csv") == 2
    assert "'--out' must end in .parquet." in capsys.readouterr().err


@pytest.mark.parametrize("model", ["mlp", "gcn", "polyformer"])
def test_no_read_only_array_becomes_a_tensor(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch warns only once in a process, so each conversion is checked."""
    convert = torch.from_numpy

    def checked(array: np.ndarray) -> torch.Tensor:
        assert array.flags.writeable
        return convert(array)

    load_dataset("minefield:width=15,height=12").save(tmp_path / "graph")
    monkeypatch.setattr(torch, "from_numpy", checked)
    route = ["--set=token_route=projected"] if model == "polyformer" else []
    settings = ["--set=epochs=1", "--set=hidden_channels=8", "--no-report", *route]
    assert run("train", tmp_path / "graph", "--model", model, "--out", tmp_path / "run", *settings) == 0
    assert run("predict", tmp_path / "run", "--out", tmp_path / "p.csv") == 0


def test_many_columns_are_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = {"id": range(30), "label": [i % 2 for i in range(30)], **{f"g{i}": np.arange(30.0) for i in range(40)}}
    nodes |= {f"h{i}": np.sqrt(np.arange(30.0)) for i in range(200)}
    edges = {"source": range(29), "target": range(1, 30)}
    for name, columns in (("nodes", nodes), ("edges", edges)):
        pq.write_table(pa.table({key: list(values) for key, values in columns.items()}), tmp_path / f"{name}.parquet")
    assert run("train", tmp_path, "--out", tmp_path / "run", "--model", "mlp", "--set=epochs=1", "--no-report") == 0
    said = capsys.readouterr().out
    assert "nodes.parquet: 200 columns → features (h0, h1, h2, …)\n" in said
    assert said.count("looks like an id") == 3
    assert "Likewise 37 more columns: g3, g4, g5, …." in said
    assert run("predict", tmp_path / "run", tmp_path, "--out", tmp_path / "p.csv") == 0
    assert capsys.readouterr().out.count("→") == 5


def test_options_for_missing_numbers_and_splits_by_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ages = [None, *AGES[1:]]
    people = _people(tmp_path / "people", {"age": ages, "joined": AGES, "label": LABELS})
    assert run("import", people, tmp_path / "refused", "--missing", "refuse") == 2
    assert "The feature 'age' must be a number for every node. There is none in row 1" in capsys.readouterr().err
    assert not (tmp_path / "refused").exists()
    assert run("import", people, tmp_path / "graph", "--split-by", "joined") == 0
    said = capsys.readouterr().out
    assert "1 missing value of 'age' is filled with the median, 26" in said
    assert "Splits are by time, the oldest nodes for training, the newest for testing: 7 / 3 / 2 nodes." in said
    task = Task.load(tmp_path / "graph")
    assert (task.protocol, task.graph.num_features, task.splits[0].test.tolist()) == ("by time", 2, [10, 11])
    assert run("train", tmp_path / "graph", "--out", tmp_path / "run", *FAST) == 0
    assert "by protocol 'by time'" in capsys.readouterr().out
