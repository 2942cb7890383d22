"""What the pages show is typed here as it stands."""

from __future__ import annotations

import doctest
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks.table_graphs import GRAPHS
from benchmarks.tables import line as table_line
from polyformer import calibration, evaluation
from polyformer.experiments import EXPERIMENTS
from polyformer.metrics import METRICS
from polyformer.reports import importance
from tests.cli.test_cli import BOARD, FAST, run
from tests.documentation import blocks, marked_blocks, page
from tools import rooms


def test_every_experiment_has_its_row() -> None:
    rows = "\n".join(line.split("|")[1] for line in page("reproduce.md").splitlines() if line.startswith("| `"))
    assert sorted(re.findall(r"`(.+?)`", rows)) == sorted(EXPERIMENTS)


def test_what_a_newcomer_is_told_to_change_is_there() -> None:
    """Every file that the table of CONTRIBUTING.md names exists, and the tables that it names are in one of them."""
    root = Path(__file__).parents[1]
    section = page("../CONTRIBUTING.md").split("## Add something else")[1].split("##")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 5
    for row in rows:
        names = re.findall(r"`([^`]+)`", row)
        paths = [name for name in names if re.fullmatch(r"[\w./-]+\.(py|html|md)", name)]
        files = [(root if (root / name).exists() else root / "src/polyformer") / name for name in paths]
        text = "".join(file.read_text(encoding="utf-8") for file in files)
        missing = [name for name in names if re.fullmatch(r"_?[A-Z_]{4,}|_[a-z_]+", name) and name not in text]
        assert missing == [], row


def test_the_map_of_the_rooms_shows_the_real_imports() -> None:
    text = rooms.PAGE.read_text(encoding="utf-8")
    assert doctest.testmod(rooms).failed == 0
    assert rooms.page_with_map(text) == text, "The rooms have changed. Run `make rooms`, which draws the map again."


@pytest.mark.parametrize("room", rooms.ordered_rooms())
def test_the_text_of_a_room_is_one_sentence(room: str) -> None:
    assert re.fullmatch(r"[^.]*(\w\.\w[^.]*)*\.", rooms.room_text(room)), "Let the docstring begin with one sentence."


def test_every_metric_and_every_rule_of_a_warning_is_told() -> None:
    text = page("evaluation.md")
    rows = [[part.strip(" `") for part in line.split("|")[1:4]] for line in text.splitlines() if line.startswith("| `")]
    told = {name: (labels, better) for name, labels, better in rows if better in ("larger", "smaller")}
    assert told == {
        name: (METRICS[name].labels, "larger" if METRICS[name].larger_is_better else "smaller") for name in METRICS
    }
    for rule in (
        f"fewer than {evaluation.FEW_VALIDATION_NODES} nodes",
        f"fewer than {evaluation.FEW_NODES_OF_A_CLASS} training nodes",
        f"less than {100 * evaluation.UNEQUAL_SHARE:.0f} % of the training nodes",
        f"at least {evaluation.THRESHOLD_NODES} nodes of each class",
        f"drawn again {evaluation.RESAMPLES} times",
        f"{importance.SECONDS:.0f} seconds",
    ):
        assert rule in text


def test_the_tables_of_your_own_graph_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    edges, nodes, commands, more = blocks("your-graph.md")[:4]
    for folder in ("mytables", "othertables"):
        Path(folder).mkdir()
        Path(folder, "edges.csv").write_text(edges)
        Path(folder, "nodes.csv").write_text(nodes)
    options = {"train": ["--out", "RUN", *FAST]}
    for line in (commands + more).splitlines():
        program, verb, *arguments = shlex.split(line, comments=True)
        assert program == "polyformer"
        assert run(verb, *arguments, *options.get(verb, [])) == 0
    assert "2 val, 2 test" in capsys.readouterr().out
    assert "ann" in pq.read_table("predictions.parquet")["node"].to_pylist()


def test_predicting_by_blocks_as_the_page_on_streaming_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("train", BOARD, "--out", "RUN", *FAST) == 0
    assert run("tokens", BOARD, "--order", 3, "--out", "tokens") == 0
    capsys.readouterr()
    [example] = [block for block in blocks("streaming.md") if "predict_blocks" in block]
    exec(example, {})
    assert capsys.readouterr().out == "(300,) (300, 2)\n"


@pytest.mark.slow
@pytest.mark.xdist_group("recording")
def test_the_page_on_exporting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its blocks are run from top to bottom; the example is run in tests/runs/test_exporting.py."""
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for kind, block in marked_blocks("export.md"):
        if kind == "python":
            exec(block, names)
        for line in block.splitlines() if kind == "sh" else ():
            program, verb, *arguments = shlex.split(line, comments=True)
            if program == "polyformer":
                assert run(verb, *arguments, *(["--set=epochs=2"] if verb == "train" else [])) == 0
    assert "['safe', 'mine'] (3, 2)" in capsys.readouterr().out
    assert names["logits"].shape == (600, 1)
    lines = [line.split("|")[1] for line in page("export.md").splitlines() if line.startswith("| `")]
    described = {name for cell in lines for name in re.findall(r"`(\w+)`", cell)}
    recipe = json.loads(Path("model.onnx.json").read_text())
    assert described == set(recipe) - {"format", "polyformer", "file", "model"}


def test_the_page_on_tables_shows_what_was_measured() -> None:
    rows = json.loads((Path(__file__).parents[1] / "benchmarks" / "results" / "tables.json").read_text())
    assert [row["graph"] for row in rows][:-1] == list(GRAPHS)
    lines = page("tables.md").splitlines()
    assert all(table_line(row) in lines for row in rows)


def test_the_tutorial_from_two_tables_to_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its blocks are run from top to bottom, and what it shows is what is printed."""
    monkeypatch.chdir(tmp_path)
    printed = ""
    for kind, block in marked_blocks("tutorial.md"):
        if kind == "python":
            exec(block, {})
        for line in block.splitlines() if kind == "sh" else ():
            _, verb, *arguments = shlex.split(line)
            assert run(verb, *arguments, *(["--no-report"] if verb == "train" else [])) == 0
        printed += capsys.readouterr().out
        assert kind != "text" or all(line in printed for line in block.splitlines())
    result = json.loads(Path("shop_run/result.json").read_text())
    assert result["test"] > 0.7
    assert float(re.findall(r"(0\.\d+) of the test customers are right", printed)[0]) > 0.7
    assert "600 customers; the first without a label: c400 buys" in printed


@pytest.mark.slow
def test_the_page_on_python_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    printed = ""
    for kind, block in marked_blocks("python.md"):
        if kind == "python":
            exec(block, names)
            printed = capsys.readouterr().out
        else:
            assert (kind, block) == ("text", printed)
    assert names["probabilities"].shape == names["sets"].shape == (900, 2)
    assert names["accuracy"] > 0.7
    assert names["some"].shape == (3,)
    assert np.isfinite(names["scores"]).all()
    assert 0.8 < names["held"].mean() < 0.98
    assert names["before"] != names["after"]
    assert names["response"].shape == (3, 8, 5)


def test_the_rules_of_calibration_are_told() -> None:
    text = page("evaluation.md")
    assert f"fewer than {calibration.TEMPERATURE_NODES} validation nodes" in text
    assert f"Half of the validation nodes, at most {calibration.HELD_OUT_NODES:,}" in text


def test_a_column_of_sets_as_the_page_on_results_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("train", BOARD, "--out", "RUN", "--no-report", *FAST) == 0
    [command] = [block for kind, block in marked_blocks("evaluation.md") if kind == "sh"]
    _, verb, *arguments = shlex.split(command)
    assert run(verb, *arguments) == 0
    assert "set" in pq.read_table("predictions.parquet").column_names
