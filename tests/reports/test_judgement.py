"""What a report says about how good a run is: guessing, warnings, columns that matter, kinds that are alike."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from polyformer.columns import Column
from polyformer.filters import FilterClusters, Filters, frequency_grid
from polyformer.graph import Graph
from polyformer.models import Workload
from polyformer.reports import importance, write_report
from polyformer.reports import outcome as found
from polyformer.reports.explorer import explorer_data
from polyformer.reports.findings import gather
from polyformer.reports.importance import ColumnGroup, column_groups, feature_importance, shuffled
from polyformer.reports.words import alike_kinds, first_words
from polyformer.runs.execution import execute_run
from polyformer.runs.request import RunRequest
from polyformer.runs.run import Run
from polyformer.splits import Split
from polyformer.tasks import Task
from tests.edits import adopt, plain_json

COLUMNS = (Column("noise"), Column("<colour>", 3, ("r", "g", "b")), Column("more noise", 2))


def _task(skill: bool, sparse: bool = False) -> Task:
    """Write tables of named nodes whose label is the second column; without ``skill``, test nodes have other labels."""
    random = np.random.default_rng(0)
    colours = random.integers(0, 3, 240)
    features = np.concatenate(
        [random.standard_normal((240, 1)), np.eye(3)[colours], random.standard_normal((240, 2))], axis=1
    ).astype(np.float32)
    graph = Graph(random.integers(0, 240, (2, 400)), sp.csr_matrix(features) if sparse else features, 240)
    nodes = random.permutation(240)
    split = Split(nodes[:120], nodes[120:180], nodes[180:])
    labels = colours.copy()
    if not skill:
        labels[split.test] = (labels[split.test] + 1) % 3
    return Task("t", graph, labels, [split], "given", ids=np.array([f"n{i}" for i in range(240)]), columns=COLUMNS)


def _run(task: Task, folder: Path, **settings: Any) -> Path:
    task.save(folder / "graph")
    execute_run(RunRequest(str(folder / "graph"), "mlp", settings={"epochs": 20, **settings}), folder / "run")
    return folder / "run"


@pytest.mark.parametrize("sparse", [False, True])
def test_only_the_column_that_tells_the_label_matters(tmp_path: Path, sparse: bool) -> None:
    run = _run(_task(True, sparse), tmp_path)
    findings = gather(run)
    assert findings.outcome is not None
    importance = findings.outcome.importance
    assert importance is not None
    assert importance.names[0] == "<colour>", "its three features are shuffled together"
    assert set(importance.names) == {column.name for column in COLUMNS}
    assert importance.losses[0] > 0.3
    assert (np.abs(importance.losses[1:]) < 0.1).all()
    assert findings.run.result is not None
    assert importance.score == pytest.approx(findings.run.result["val"])
    write_report(findings, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert 'id="chart-importance"' in page
    assert re.search("matters? most: &lt;colour&gt;", page)
    assert "<colour>" not in page


def test_time_and_the_number_of_columns_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, task = _run(_task(True), tmp_path), _task(True)
    card, model = Run(run).load()

    def compute(seconds: float) -> Any:
        return feature_importance(model, card, replace(task, columns=None), task.splits[0], Workload(), seconds)

    assert "It was not computed: shuffling one column would take about" in compute(0.0).remark
    monkeypatch.setattr(importance, "_COLUMNS", 2)
    limited = compute(20.0)
    assert sorted(limited.names) == ["feature 0", "feature 4"], "those of the largest variance"
    assert limited.remark.startswith("Only the 2 of 6 columns with the largest variance")


def test_features_without_a_table_go_by_number() -> None:
    task = _task(True)
    assert column_groups(task)[1] == ColumnGroup("<colour>", 1, 4)
    assert column_groups(replace(task, columns=None))[5] == ColumnGroup("feature 5", 5, 6)
    assert column_groups(replace(task, columns=COLUMNS[:2]))[0].name == "feature 0", (
        "the columns are not these features"
    )


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_shuffling_moves_the_rows_of_one_column(kind: Any) -> None:
    features, order = np.arange(12.0).reshape(3, 4), np.array([2, 0, 1])
    changed = shuffled(kind(features), ColumnGroup("b", 1, 3), order)
    changed = changed.toarray() if sp.issparse(changed) else changed
    assert np.array_equal(changed[:, 1:3], features[order, 1:3])
    assert np.array_equal(changed[:, [0, 3]], features[:, [0, 3]])


def test_the_first_words_and_warnings_of_a_run_without_skill(tmp_path: Path) -> None:
    run = _run(_task(False), tmp_path, metric="log_loss")
    config = plain_json(run / "config.json")
    config["task"]["preprocessing"] = ["The column 'age' was <scaled>."]
    (run / "config.json").write_text(json.dumps(config))
    adopt(run)
    findings = gather(run)
    write_report(findings, tmp_path / "r.html")
    page, result = (tmp_path / "r.html").read_text(), findings.run.result
    assert result is not None
    assert page.count('<p class="note warning">') == len(result["warnings"]) == 1
    assert page.index("note warning") < page.index('id="first-words"')
    words = first_words(findings)
    assert f"scores {result['test']:.4f} in log loss (smaller is better, 0 is perfect)" in words
    assert f"reaches {result['baseline']:.4f}. So the model is no better than guessing." in words
    assert "The column &#39;age&#39; was &lt;scaled&gt;." in page
    assert f"{result['scores']['brier']:.4f}" in page


def test_the_first_words_of_a_good_run(tmp_path: Path) -> None:
    words = first_words(gather(_run(_task(True), tmp_path), importance=False))
    assert "in accuracy (1 is perfect)" in words
    assert "So the model is better than guessing: it closes" in words


def test_kinds_that_are_nearly_the_same_are_called_so() -> None:
    lam = frequency_grid(9)
    curves = np.stack([lam, 1.05 * lam, 2 - lam])  # (C, L), in the basis of the grid itself
    kinds = np.array([0, 0, 1, 2])
    coefficients = curves[kinds][:, None]
    parts = (np.zeros((4, 3)), np.zeros((4, 9)), FilterClusters(curves[:, None]), kinds)
    filters = Filters(lam, np.eye(9), coefficients, *parts, 1, True, None)
    assert alike_kinds(filters) == ["Kinds 1 and 2 are nearly the same: their mean curves differ by 5 % of the larger."]


def test_the_explorer_starts_at_a_test_node_and_names_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found, "_MAP_NODES", 40)
    findings = gather(_run(_task(True), tmp_path), importance=False)
    outcome = findings.outcome
    assert outcome is not None
    assert len(outcome.shown) == 40
    data = explorer_data(outcome)
    assert outcome.shown[data["first"]] in outcome.split.test
    neighbours = np.frombuffer(base64.b64decode(data["neighbours"]["nodes"]), np.uint16)
    absent = set(neighbours.tolist()) - set(outcome.shown.tolist())
    assert data["elsewhere"] == {str(node): f"n{node}" for node in absent}
    wrong, right = data["columns"]["correct"]["colours"]
    assert (wrong, right) == ("#D55E00", "#0072B2")
