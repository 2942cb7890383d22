"""What the pages show is typed here as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from polyformer import evaluation
from polyformer.experiments import EXPERIMENTS
from polyformer.metrics import METRICS
from polyformer.reports import importance
from tests.cli.test_cli import BOARD, FAST, run
from tests.documentation import blocks, page


def test_every_experiment_has_its_row() -> None:
    rows = "\n".join(line.split("|")[1] for line in page("reproduce.md").splitlines() if line.startswith("| `"))
    assert sorted(re.findall(r"`(.+?)`", rows)) == sorted(EXPERIMENTS)


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
