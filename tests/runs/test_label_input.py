"""Runs whose model reads known labels: resumed, streamed, shared, saved, applied to new nodes and to changed graphs."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import polyformer as pf
from polyformer.datasets import load_dataset
from polyformer.errors import FileCorrupt, InvalidParameter, TrainingInterrupted
from polyformer.files.run_names import LABELS
from polyformer.graph import Graph
from polyformer.importing import import_graph
from polyformer.inputs import streamed_tokens
from polyformer.inputs.label_tokens import LabelledInput
from polyformer.label_input import KnownLabels, LabelMasks
from polyformer.models import Workload
from polyformer.models.parts import token_binding
from polyformer.reports.findings import gather
from polyformer.runs import known_labels
from polyformer.runs import run as run_module
from polyformer.runs.drift import drift_of_run, keep_baseline
from polyformer.runs.execution import execute_run
from polyformer.runs.known_labels import StoredLabels
from polyformer.runs.run import Run
from polyformer.splits import Split
from polyformer.tasks import Task
from polyformer.updates.graph_directory import compact_graph, update_graph
from polyformer.updates.task_changes import TaskChange
from polyformer.verification import verify_directory
from tests.listener import Listener
from tests.training.runs import losses, request
from tests.updates.test_command_line import run as command

LABELLED = {"label_input": 0.5, "label_masks": 3}
SMALL = {"order": 2, "hidden_channels": 8, "heads": 2, "epochs": 3}
MODELS = ("polyformer", "cascade")


@pytest.mark.parametrize("model", MODELS)
def test_interrupt_and_resume_equal_an_uninterrupted_run(tmp_path: Path, model: str) -> None:
    asked_for = request(model=model, settings=LABELLED | {"num_layers": 2})
    whole = execute_run(asked_for, tmp_path / "whole")
    asked = iter([False, True])
    with pytest.raises(TrainingInterrupted):
        execute_run(asked_for, tmp_path / "run", reporter=Listener(stop=lambda: next(asked)))
    resumed = execute_run(asked_for, tmp_path / "run", resume=True)
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")
    assert all(resumed[key] == whole[key] for key in ("val", "test", "best_epoch"))
    assert np.array_equal(Run(tmp_path / "run").predict(), Run(tmp_path / "whole").predict())


def test_tokens_on_disk_give_the_same_predictions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed_tokens, "CHUNK_BYTES", 1024)
    monkeypatch.setattr(streamed_tokens, "WINDOW_BYTES", (4096, 4096))
    streamed = LABELLED | {"token_route": "streamed"}
    result = execute_run(request(settings=streamed, memory=1 << 30), tmp_path / "run")
    assert result["token_route"] == "streamed"
    folders = sorted(path.name for path in (tmp_path / "run").iterdir() if path.is_dir() and "tokens" in path.name)
    assert folders == ["label-tokens-known", *(f"label-tokens-mask-{number}" for number in range(3)), "tokens"]
    assert sum("holds the tokens" in sentence for sentence in verify_directory(tmp_path / "run")) == 5
    run = Run(tmp_path / "run")
    card, model = run.load()
    task = run.task()
    workload = Workload(None, task.graph.num_nodes, labels=run.shown_labels(task))
    model.settings = type(model.settings)(**vars(model.settings) | {"token_route": "stored"})  # type: ignore[operator]
    model.bind(task.graph, workload)
    with torch.no_grad():
        stored = card.reader.scores(model(torch.arange(task.graph.num_nodes)))
    assert np.allclose(stored, run.predict(), atol=1e-6)


@pytest.mark.parametrize("fits", [True, False])
def test_tokens_of_labels_go_to_disk_where_memory_does_not_suffice(
    tmp_path: Path, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens of the features may fit where those of the labels do not."""
    task = load_dataset("minefield:width=20,height=15")
    run = pf.train(task, out=tmp_path / "run", **SMALL, **LABELLED)
    card, model = run.load()
    known = run.shown_labels(task)
    assert known is not None
    real = token_binding.token_bytes

    def size(rows: int, order: int, width: int) -> int:
        return real(rows, order, width) if fits or width != known.width else 1 << 40

    monkeypatch.setattr(token_binding, "token_bytes", size)
    drawn = LabelMasks(0.5, len(known.nodes), 0, 2).drawn
    work = Workload(np.arange(300), 300, memory=1 << 30, scratch=tmp_path / "tokens", labels=known, label_masks=drawn)
    model.bind(task.graph, work)
    source = model._tokens.source  # type: ignore[union-attr,operator]
    assert isinstance(source, LabelledInput)
    assert (source.features.route, source.known.route) == ("stored", "stored" if fits else "streamed")
    with torch.no_grad():
        scores = card.reader.scores(model.eval()(torch.arange(300)))
    assert np.allclose(scores, run.predict(), atol=1e-6)


def made_task() -> Task:
    """A ring whose labels come in stretches of five: 40 for training, 20 held out, 60 unlabelled."""
    ring = np.arange(120)
    graph = Graph([ring, (ring + 1) % 120], np.random.default_rng(0).standard_normal((120, 3)))
    labels = np.where(np.isin(ring % 6, (1, 3, 5)), -1, ring // 5 % 2)
    labelled = np.flatnonzero(labels >= 0)
    train, val, test = labelled[labelled % 6 != 4], labelled[labelled % 12 == 4], labelled[labelled % 12 == 10]
    return Task("ring", graph, labels, [Split(train, val, test)])


@pytest.mark.parametrize("model", MODELS)
def test_labels_that_arrive_later_are_used(tmp_path: Path, model: str) -> None:
    """After `update`, a new label changes predictions near it without training; held-out labels never count."""
    made_task().save(tmp_path / "graph")
    run = pf.train(tmp_path / "graph", model, tmp_path / "run", **SMALL, **LABELLED)
    before, weights = run.predict(), (tmp_path / "run" / "model.safetensors").read_bytes()
    known = run.shown_labels(run.task())
    assert known is not None
    assert np.array_equal(np.sort(known.nodes), np.sort(made_task().splits[0].train))
    held_out = int(made_task().splits[0].test[0])
    update_graph(tmp_path / "graph", lambda task: (TaskChange(labels={held_out: 1 - task.labels[held_out]}), "a"))
    assert np.array_equal(Run.open(run.path).predict(), before)
    update_graph(tmp_path / "graph", lambda task: (TaskChange(labels={61: 1}), "b"))
    after = Run.open(run.path).predict()
    changed = np.flatnonzero(np.abs(after - before).max(axis=1) > 1e-6)
    assert {60, 62} <= set(changed)
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == weights


def test_a_compacted_graph_keeps_its_labels(tmp_path: Path) -> None:
    """Rows of removed nodes are taken out, so that all numbers change; labels follow the ids."""
    made_task().save(tmp_path / "graph")
    run = pf.train(tmp_path / "graph", "cascade", tmp_path / "run", **SMALL, **LABELLED)
    update_graph(tmp_path / "graph", lambda task: (TaskChange(remove_nodes=np.array([0, 1])), "c"))
    removed = Run.open(run.path).predict()
    compact_graph(tmp_path / "graph")
    opened = Run.open(run.path)
    known, task = opened.shown_labels(opened.task()), opened.task()
    assert known is not None
    assert task.ids is not None
    assert set(task.ids[known.nodes]) == set(made_task().splits[0].train) - {0, 1}
    assert np.allclose(opened.predict(), removed[2:], atol=1e-5)


def test_a_graph_that_the_labels_do_not_belong_to_is_shown_none(tmp_path: Path) -> None:
    task = made_task()
    run = pf.train(task, "cascade", tmp_path / "run", **SMALL, **LABELLED)
    assert np.array_equal(run.predict(graph=task.graph), run.predict())
    longer = task.graph.updated(add_edges=[[119, 120]], add_features=[[0.0, 0.0, 0.0]])
    assert not np.array_equal(run.predict(graph=longer)[:100], run.predict(graph=longer, show_labels=False)[:100])
    other = Graph([[0, 1], [1, 2]], np.ones((3, 3)))
    assert np.array_equal(run.predict(graph=other), run.predict(graph=other, show_labels=False))


@pytest.mark.parametrize("model", MODELS)
def test_new_nodes_see_the_labels_of_their_neighbours(tmp_path: Path, model: str) -> None:
    """The full way equals the larger graph; the frozen way of a model on tokens sees its neighbours' labels too."""
    task = made_task()
    run = pf.train(task, model, tmp_path / "run", **SMALL, **LABELLED)
    features, edges = np.zeros((1, 3)), [[0, 120], [2, 120]]
    larger = task.graph.updated(add_edges=edges, add_features=features)
    full = run.predict_new(features, edges, "full")
    assert np.allclose(full, run.predict([120], larger), atol=1e-5)
    assert not np.allclose(full, run.predict([120], larger, show_labels=False), atol=1e-5)
    if model == "polyformer":
        assert run.predict_new(features, edges).shape == (1, 2)


def test_a_damaged_file_of_labels_is_refused(tmp_path: Path) -> None:
    run = pf.train(made_task(), "cascade", tmp_path / "run", **SMALL, **LABELLED)
    path = run.path / LABELS
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(FileCorrupt, match="changed or damaged"):
        Run.open(run.path).predict()
    with pytest.raises(FileCorrupt, match="changed or damaged"):
        verify_directory(run.path)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"label_input": 1.0}, r"must lie in \[0, 1\)"),
        ({"label_input": 0.5, "label_masks": 0}, "label_masks"),
        ({"label_input": 0.5, "basis": "optimal"}, "needs a fixed basis"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidParameter, match=sentence):
        pf.train(made_task(), out=tmp_path / "run", **SMALL | settings)
    assert not (tmp_path / "run").exists()


def test_exports_are_refused(tmp_path: Path) -> None:
    run = pf.train(made_task(), out=tmp_path / "run", **SMALL, **LABELLED)
    with pytest.raises(InvalidParameter, match="reads known labels"):
        run.export(tmp_path / "model.onnx")


def test_real_values_are_standardised_and_flagged(tmp_path: Path) -> None:
    task = made_task()
    values = np.where(task.labels >= 0, 100.0 + 7 * np.sin(np.arange(120) / 5), np.nan)
    run = pf.train(Task("ring", task.graph, values, task.splits), "cascade", tmp_path / "run", **SMALL, **LABELLED)
    known = run.shown_labels(run.task())
    assert known is not None
    assert known.width == 2
    assert np.allclose([known.columns[:, 0].mean(), known.columns[:, 0].std()], [0, 1], atol=1e-5)
    assert (known.columns[:, 1] == 1).all()
    assert np.isfinite(run.predict()).all()


@pytest.mark.parametrize("model", MODELS)
def test_estimators_know_their_training_labels(tmp_path: Path, model: str) -> None:
    task = made_task()
    split = task.splits[0]
    clf = pf.PolyFormerClassifier(model=model, **SMALL, **LABELLED)
    clf.fit(task.graph, task.labels, train=split.train, val=split.val)
    scores = clf.predict_proba(task.graph)
    hidden = task.labels.copy()
    hidden[split.test] = 1 - hidden[split.test]
    twin = pf.PolyFormerClassifier(model=model, **SMALL, **LABELLED)
    assert np.array_equal(twin.fit(task.graph, hidden, train=split.train, val=split.val).predict_proba(), scores)
    clf.save(tmp_path / "saved")
    for other in (pf.PolyFormerClassifier.load(tmp_path / "saved"), pickle.loads(pickle.dumps(clf))):
        assert np.allclose(other.predict_proba(task.graph), scores, atol=1e-6)
    assert np.allclose(Run.open_model(tmp_path / "saved").predict(graph=task.graph), scores, atol=1e-6)


def test_known_labels_of_other_classes_are_left_out(tmp_path: Path) -> None:
    """Another graph may name its classes in another order, and have classes that the model does not know."""
    task = made_task()
    named = Task("ring", task.graph, task.labels, task.splits, class_names=("no", "yes"))
    run = pf.train(named, "cascade", tmp_path / "run", **SMALL, **LABELLED)
    graph = Graph([[0, 1], [1, 2]], np.ones((3, 3)))
    other = Task("other", graph, np.arange(3), [], class_names=("yes", "maybe", "no"))
    known = run.shown_labels(other, "elsewhere")
    assert isinstance(known, KnownLabels)
    assert known.nodes.tolist() == [0, 2]
    assert known.columns.tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_the_report_tells_which_predictions_rest_on_labels(tmp_path: Path) -> None:
    run = pf.train(made_task(), "cascade", tmp_path / "run", **SMALL, **LABELLED)
    findings = gather(run.path, importance=False)
    effect = findings.label_effect
    assert effect is not None
    test = np.sort(made_task().splits[0].test)
    shown, blank = run.predict(test), run.predict(test, show_labels=False)
    assert (effect.shown, effect.part, effect.nodes) == (40, "test", len(test))
    assert effect.changed == (shown.argmax(axis=1) != blank.argmax(axis=1)).sum()
    assert effect.without == (blank.argmax(axis=1) == made_task().labels[test]).mean()
    plain = pf.train(made_task(), "cascade", tmp_path / "plain", **SMALL)
    assert gather(plain.path, importance=False).label_effect is None


@pytest.mark.parametrize("model", MODELS)
def test_a_whole_run_knows_no_label_of_a_test_node(tmp_path: Path, model: str) -> None:
    """From reading to calibration and predictions: other labels of test nodes leave every file of the model the same.

    A validation label selects the epoch and the temperature, which is what validation is for; with one epoch it changes
    no parameter.
    """
    task, split = made_task(), made_task().splits[0]
    runs = {}
    for name, nodes in (("as they are", split.test[:0]), ("other test", split.test), ("other val", split.val)):
        labels = task.labels.copy()
        labels[nodes] = 1 - labels[nodes]
        other = Task("ring", task.graph, labels, task.splits)
        epochs = {"epochs": 1} if name == "other val" else {}
        runs[name] = pf.train(other, model, tmp_path / name, **SMALL | epochs, **LABELLED)
    first = pf.train(task, model, tmp_path / "one epoch", **SMALL | {"epochs": 1}, **LABELLED)
    assert _same_parameters(runs["other val"], first)
    assert _same_parameters(runs["other test"], runs["as they are"])
    assert np.array_equal(runs["other test"].predict(), runs["as they are"].predict())
    results = [runs[name].result for name in ("as they are", "other test")]
    assert results[0] is not None
    assert results[1] is not None
    for key in ("val", "best_epoch"):
        assert results[0][key] == results[1][key]
    assert runs["other test"].load()[0].calibration == runs["as they are"].load()[0].calibration


def _same_parameters(one: Run, other: Run) -> bool:
    parameters, others = one.model().state_dict(), other.model().state_dict()
    return all(torch.equal(value, others[name]) for name, value in parameters.items())


@pytest.mark.parametrize("part", ["train", "val", "test", "new"])
def test_a_resumed_run_is_trained_on_the_labels_of_its_start(tmp_path: Path, part: str) -> None:
    """Other labels of its split are refused; a label that arrived meanwhile is shown once the run has ended."""
    made_task().save(tmp_path / "graph")
    asked_for = request(data=str(tmp_path / "graph"), model="cascade", settings=LABELLED | {"num_layers": 2})
    with pytest.raises(TrainingInterrupted):
        execute_run(asked_for, tmp_path / "run", reporter=Listener(stop=lambda: True))
    execute_run(asked_for, tmp_path / "whole")
    node = 61 if part == "new" else int(getattr(made_task().splits[0], part)[0])
    changed = {node: 1 - max(0, int(made_task().labels[node]))}
    update_graph(tmp_path / "graph", lambda task: (TaskChange(labels=changed), "late"))
    if part != "new":
        with pytest.raises(FileCorrupt, match="has changed since"):
            execute_run(asked_for, tmp_path / "run", resume=True)
        return
    execute_run(asked_for, tmp_path / "run", resume=True)
    run = Run(tmp_path / "run")
    assert _same_parameters(run, Run(tmp_path / "whole"))
    known = run.shown_labels(run.task())
    assert known is not None
    assert 61 in known.nodes


def test_forgetting_what_was_held_out_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The law of labels that arrive later fails where a run forgets which labels were held out."""
    real = known_labels.write_labels

    def write_labels(folder: Path, stored: StoredLabels | None) -> None:
        real(folder, None if stored is None else replace(stored, held_out=stored.held_out[:0]))

    monkeypatch.setattr(run_module, "write_labels", write_labels)
    monkeypatch.setattr(Run, "split_of", lambda self, task: None)
    with pytest.raises(AssertionError):
        test_labels_that_arrive_later_are_used(tmp_path, "cascade")


def people(folder: Path, labels: dict[int, str], split: bool) -> Path:
    """Tables of 60 people in a ring, a quarter of them unlabelled but for ``labels``."""
    folder.mkdir(exist_ok=True)
    rows = ["id,age,label" + (",split" if split else "")]
    for number in range(60):
        known = "" if number % 4 == 3 else ("yes" if number // 10 % 2 else "no")
        part = ("train", "val", "test")[number % 3] if known else ""
        rows.append(f"p{number},{20 + number},{labels.get(number, known)}" + (f",{part}" if split else ""))
    (folder / "nodes.csv").write_text("\n".join(rows) + "\n")
    edges = [f"p{number},p{(number + step) % 60}" for number in range(60) for step in (1, 7)]
    (folder / "edges.csv").write_text("source,target\n" + "\n".join(edges) + "\n")
    return folder


@pytest.mark.parametrize("split", [True, False], ids=["given", "drawn"])
def test_a_label_that_is_added_to_the_users_tables_is_used(tmp_path: Path, split: bool) -> None:
    """Splits that were drawn are drawn anew with one label more; the run still knows what it was trained on."""
    tables = people(tmp_path / "tables", {}, split)
    run = pf.train(tables, "cascade", tmp_path / "run", **SMALL, **LABELLED)
    before = run.shown_labels(run.task())
    people(tables, {3: "yes"}, split)
    task = Run.open(run.path).task()
    after = Run.open(run.path).shown_labels(task)
    assert before is not None
    assert after is not None
    assert set(after.nodes) == {*before.nodes, 3}
    assert task.drawn is not split


def test_labels_that_another_graph_holds_out_are_not_shown(tmp_path: Path) -> None:
    """Tables of another graph may say which nodes are for validation and testing; a graph directory does too."""
    run = pf.train(people(tmp_path / "tables", {}, True), "cascade", tmp_path / "run", split=0, **SMALL, **LABELLED)
    other = people(tmp_path / "other", {3: "yes"}, True)
    (other / "edges.csv").write_text("source,target\n" + "\n".join(f"p{n},p{(n + 2) % 60}" for n in range(60)) + "\n")
    import_graph(other, tmp_path / "imported")
    train = [number for number in range(60) if number % 3 == 0 and number % 4 != 3]
    for place in (other, tmp_path / "imported"):
        task = run.task(str(place))
        known = run.shown_labels(task, str(place))
        assert known is not None
        assert sorted(known.nodes) == sorted([*train, 3])


def test_drift_judges_by_validation_nodes_of_the_runs_split(tmp_path: Path) -> None:
    """In another split, they were for training: their labels are shown, so the score would say nothing."""
    task = made_task()
    first = task.splits[0]
    other = Split(np.sort(np.concatenate([first.val, first.test])), first.train[:20], first.train[20:])
    Task("ring", task.graph, task.labels, [other, first]).save(tmp_path / "graph")
    run = pf.train(tmp_path / "graph", "cascade", tmp_path / "run", split=1, **SMALL, **LABELLED)
    keep_baseline(run.path, tmp_path / "graph")
    assert run.result is not None
    assert drift_of_run(run.path, tmp_path / "graph").score == pytest.approx(run.result["val"])


def test_predictions_say_whose_own_label_was_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made_task().save(tmp_path / "graph")
    run = pf.train(tmp_path / "graph", "cascade", tmp_path / "run", **SMALL, **LABELLED)
    tables = {}
    for name, options in (("shown", []), ("hidden", ["--hide-labels"])):
        place = tmp_path / f"{name}.parquet"
        assert command("predict", run.path, "--out", place, *options) == 0
        tables[name] = pq.read_table(place).to_pandas()
    assert "was shown the labels of 40 nodes" in capsys.readouterr().out
    assert np.flatnonzero(tables["shown"]["label_shown"]).tolist() == sorted(made_task().splits[0].train)
    assert not tables["hidden"]["label_shown"].any()
    assert np.allclose(tables["hidden"]["probability_1"], run.predict(show_labels=False)[:, 1], atol=1e-6)
    plain = pf.train(made_task(), "cascade", tmp_path / "plain", **SMALL)
    assert plain.path.exists()
    assert command("predict", plain.path, tmp_path / "graph", "--hide-labels", "--out", tmp_path / "p.csv") == 2
    assert "reads none" in capsys.readouterr().err
