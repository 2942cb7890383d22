"""The page "Using the labels you have": its commands are typed, and its numbers are those on record."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest

from polyformer.runs.run import Run
from tests.documentation import marked_blocks, page
from tests.updates.test_command_line import run
from tools.label_curve import RECORDS, curve_table, plan_scores
from tools.label_gain import Gain, Pair, all_records, gain_table, gains

SMALL = "--set epochs=2 --set hidden_channels=8 --set num_layers=2 --no-report"


@pytest.mark.slow
def test_the_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["ann", *(f"p{number}" for number in range(40))]
    labels = ["", *("yes" if number % 3 else "no" for number in range(40))]
    rows = [f"{name},{number},{label}" for number, (name, label) in enumerate(zip(names, labels, strict=True))]
    Path("tables").mkdir()
    Path("tables/nodes.csv").write_text("id,age,label\n" + "\n".join(rows) + "\n")
    links = [f"{one},{other}" for one, other in zip(names, [*names[1:], names[0]], strict=True)]
    Path("tables/edges.csv").write_text("source,target\n" + "\n".join(links) + "\n")
    assert run("import", "tables", "my_graph") == 0
    Path("labels").mkdir()
    Path("labels/nodes.csv").write_text("action,id,label\nchange,ann,yes\n")
    commands = [block for language, block in marked_blocks("label-tokens.md") if language == "sh"]
    predictions = []
    for line in "\n".join(commands).replace(" && ", "\n").splitlines():
        words = shlex.split(line, comments=True)[1:]
        if not words:
            continue
        assert run(*words, *(shlex.split(SMALL) if words[0] == "train" else [])) == 0, line
        if words[0] == "predict":
            predictions.append(Path("predictions.csv").read_text())
    assert predictions[0] != predictions[1]
    task = Run.open("RUN").task()
    known = Run.open("RUN").shown_labels(task)
    assert known is not None
    assert task.ids is not None
    assert "ann" in task.ids[known.nodes]


@pytest.mark.slow
def test_the_python_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [example] = [block for language, block in marked_blocks("label-tokens.md") if language == "python"]
    names: dict[str, object] = {}
    exec(example, names)
    with_labels, without = names["with_labels"], names["without"]
    assert isinstance(with_labels, np.ndarray)
    assert isinstance(without, np.ndarray)
    assert with_labels.shape == without.shape == (900, 2)


def test_the_curve_is_what_the_records_hold() -> None:
    assert curve_table(RECORDS) in page("label-tokens.md")


def test_the_gains_are_what_the_records_hold() -> None:
    assert gain_table(gains(all_records())) in page("label-tokens.md")


def test_a_gain_pairs_runs_that_differ_in_labels_alone() -> None:
    def record(split: int, val: float, test: float, **settings: object) -> dict[str, object]:
        config = {"split": split, "seed": split, "protocol": None, "settings": {"lr": 0.1, **settings}}
        result = {"val": val, "test": test}
        return {"model": "gcn", "dataset": "tolokers", "config": config, "result": result}

    records = [
        record(0, 0.5, 0.6),  # of a version that knew no label_input
        record(0, 0.6, 0.5, label_input=0.5, label_masks=8),
        record(1, 0.7, 0.8, label_input=0.0, label_masks=8),
        record(1, 0.7, 0.9, label_input=0.5, label_masks=8),
        record(2, 0.9, 0.9, label_input=0.5, lr=0.2),
        record(2, 0.1, 0.1, label_input=0.0),
    ]
    [gain] = gains(records)
    assert gain == Gain("gcn", "tolokers", (Pair(0, 0.5, (50, 60), (60, 50)), Pair(1, 0.5, (70, 70), (80, 90))))
    assert gain.chooses_labels
    assert gain.row() == "| gcn | tolokers | 2 | 60.00 | 65.00 | labels | 70.00 | 70.00 | +0.00 |"


def test_the_scores_are_what_the_records_hold() -> None:
    text = page("label-tokens.md")
    for plan, words in (("label-tokens", "The cascade with labels"), ("label-tokens-polyformer", "with label tokens")):
        scores = plan_scores(plan)
        assert f"{words} reaches {np.mean(list(scores.values())):.2f} on" in text
        assert f"{len(scores)} " in text.split(words)[1].split("splits")[0]
