"""Settings that choose themselves: what is tried, what is kept, and that nothing else changes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyformer as pf
from polyformer.errors import OutputExists, TrainingInterrupted
from polyformer.models import MODELS
from polyformer.reports.findings import gather
from polyformer.reports.sections import SECTIONS
from polyformer.runs import trials
from polyformer.runs.config import CONFIG
from polyformer.runs.execution import execute_run
from polyformer.runs.repeating import repeat_command
from polyformer.runs.request import RunRequest
from polyformer.runs.run import Run
from polyformer.splits import Split, uniform_split
from polyformer.tasks import Task
from tests.cli.test_cli import run as command
from tests.listener import Listener

EPOCHS = 12


def communities(count: int, within: float) -> Task:
    """Two communities; so large a share of the edges lies within one, and columns tell next to nothing."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, count)
    source = random.integers(0, count, 6 * count)
    wanted = np.where(random.random(len(source)) < within, labels[source], 1 - labels[source])
    target = np.array([random.choice(np.flatnonzero(labels == label)) for label in wanted])
    features = random.normal(size=(count, 2)) + 0.1 * labels[:, None]
    graph = pf.Graph(np.stack([source, target]), features, count)
    return Task("communities", graph, labels, [uniform_split(labels, [1, 2])], "uniform")


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph on which known labels of neighbours tell nearly all."""
    place = tmp_path_factory.mktemp("trials") / "graph"
    communities(200, 0.95).save(place)
    return place


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "_ROWS_PER_TRIAL", 160 * EPOCHS)
    monkeypatch.setattr(trials, "_LEAST_EPOCHS", 2)


def asked(graph: Path, **settings: Any) -> RunRequest:
    return RunRequest(data=str(graph), device="cpu", settings=settings or None)


def without_times(result: dict[str, Any]) -> dict[str, Any]:
    gone = ("seconds", "memory", "resumed_after")
    kept = {name: value for name, value in result.items() if not any(word in name for word in gone)}
    kept["trials"] = [{**trial, "seconds": 0} for trial in result["trials"]]
    return kept


def test_the_best_trial_goes_on_as_the_run(alike: Path, tmp_path: Path) -> None:
    said: list[str] = []
    result = execute_run(asked(alike), tmp_path / "run", reporter=Listener(on_say=said.append))
    run = Run.open(tmp_path / "run")
    assert run.trials == result["trials"]
    assert [trial["settings"] for trial in run.trials[:2]] == [{}, *MODELS["polyformer"].few_label_alternatives]
    [kept] = [trial for trial in run.trials if trial["kept"]]
    assert kept["settings"]["label_input"] == run.card.settings["label_input"] == 0.5
    assert kept["interval"][0] > 0
    assert kept["val"] == max(trial["val"] for trial in run.trials) > 0.8
    assert {name: run.card.settings[name] for name in kept["settings"]} == kept["settings"]
    assert any(text.startswith("kept: ") and "--set label_input=0" in text for text in said)
    assert [record["epoch"] for record in run.metrics] == list(range(1, result["epochs"] + 1))
    assert (result["resumed_after"], result["epochs"] > EPOCHS) == ([], True)
    assert run.predict().shape == (200, 2)


def test_the_report_tells_what_was_tried(alike: Path, tmp_path: Path) -> None:
    execute_run(asked(alike), tmp_path / "run")
    facts = SECTIONS["run"](gather(tmp_path / "run")).content["facts"]
    assert facts["settings tried"].startswith("the defaults: validation 0.")
    assert facts["settings tried"].count(", kept") == 1


def test_nothing_is_trained_twice_and_nothing_differs(alike: Path, tmp_path: Path) -> None:
    """The run that went on from its trial is the run that the same settings give when they are asked for."""
    chosen = execute_run(asked(alike), tmp_path / "chosen")
    settings = Run.open(tmp_path / "chosen").card.settings
    explicit = execute_run(asked(alike, **settings), tmp_path / "explicit")
    assert "trials" not in explicit
    assert without_times(chosen) == without_times(explicit | {"trials": chosen["trials"]})
    weights = [Run.open(tmp_path / name).load()[1].state_dict() for name in ("chosen", "explicit")]
    assert all(np.array_equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_choice_can_be_repeated_and_the_command_says_how(alike: Path, tmp_path: Path) -> None:
    first, second = (execute_run(asked(alike), tmp_path / name) for name in ("first", "second"))
    assert without_times(first) == without_times(second)
    assert "--set" not in repeat_command(Run.open(tmp_path / "first"))


def test_a_run_that_was_stopped_goes_on_with_its_choice(alike: Path, tmp_path: Path) -> None:
    whole = execute_run(asked(alike), tmp_path / "whole")
    epochs = sum(trial["epochs"] for trial in whole["trials"])
    count = itertools.count()
    with pytest.raises(TrainingInterrupted, match="continue with polyformer train --resume"):
        execute_run(asked(alike), tmp_path / "run", reporter=Listener(stop=lambda: next(count) > epochs + 3))
    assert len(Run.open(tmp_path / "run").metrics) > EPOCHS
    result = execute_run(Run.open(tmp_path / "run").request, tmp_path / "run", resume=True)
    assert without_times(result) == without_times(whole)


def test_trials_that_were_stopped_leave_nothing(alike: Path, tmp_path: Path) -> None:
    count = itertools.count()
    with pytest.raises(TrainingInterrupted, match="Stopped while settings were tried"):
        execute_run(asked(alike), tmp_path / "run", reporter=Listener(stop=lambda: next(count) > 5))
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_taken_is_refused_before_anything_is_tried(alike: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").touch()
    with pytest.raises(OutputExists):
        execute_run(asked(alike), tmp_path / "run", reporter=Listener(on_share=lambda _: pytest.fail("it tried")))


@pytest.mark.parametrize(
    "settings", [{"lr": 1e-3}, {"epochs": 3}, {"label_input": 0.5, "epochs": 3}, {"order": 2, "epochs": 3}]
)
def test_settings_that_are_asked_for_end_the_trials(alike: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    task = Task.load(alike)
    assert not trials.tries_settings(asked(alike, **settings), task, task.splits[0])
    if "epochs" in settings:
        run = Run(tmp_path / "run")
        execute_run(asked(alike, **settings), run.path)
        assert run.trials == []
        assert "--set" in repeat_command(run)


def test_what_ends_the_trials_and_what_does_not(alike: Path) -> None:
    task = Task.load(alike)
    split = task.splits[0]
    tries = trials.tries_settings
    assert tries(asked(alike), task, split)
    assert tries(asked(alike, metric="macro_f1", class_weights="balanced", label_input=0), task, split)
    assert not tries(RunRequest(str(alike), model="mlp"), task, split), "a model without alternatives"
    assert not tries(RunRequest(str(alike), preset="fast"), task, split)
    assert not tries(RunRequest(str(alike), start_from="run"), task, split)
    assert not tries(asked(alike), task, Split(split.train, split.val[:10], split.test)), "too few to tell by"


def test_large_data_is_not_tried_on(alike: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task.load(alike)
    monkeypatch.setattr(trials, "_LARGEST_GRAPH", task.graph.num_edges + 399)
    assert not trials.tries_settings(asked(alike), task, task.splits[0])
    monkeypatch.setattr(trials, "_LARGEST_GRAPH", task.graph.num_edges + 400)
    assert trials.tries_settings(asked(alike), task, task.splits[0])
    monkeypatch.setattr(trials, "_LEAST_EPOCHS", EPOCHS + 1)
    assert not trials.tries_settings(asked(alike), task, task.splits[0])


def test_known_labels_can_be_declined(alike: Path, tmp_path: Path) -> None:
    execute_run(asked(alike, label_input=0), tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert run.card.label_channels == 0
    assert all("label_input" not in trial["settings"] for trial in run.trials)
    assert "--set label_input=0" in repeat_command(run)


def test_labels_that_tell_nothing_are_not_kept(tmp_path: Path) -> None:
    communities(200, 0.5).save(tmp_path / "graph")
    execute_run(asked(tmp_path / "graph"), tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert not run.trials[-1]["kept"]
    assert run.card.settings["label_input"] == 0


def test_real_values_are_tried_too(tmp_path: Path) -> None:
    task = communities(200, 0.9)
    values = task.labels * 50.0 + 1000 + np.random.default_rng(1).normal(size=200)
    run = pf.train(task.graph, out=tmp_path / "run", labels=values)
    assert len(run.trials) == 3
    assert run.result is not None
    assert run.result["metric"] == "r2"
    assert run.predict().shape == (200,)


def test_the_command_shows_what_is_tried(alike: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("train", alike, "--out", tmp_path / "run", "--no-report") == 0
    output = capsys.readouterr().out
    assert "no settings were asked for, so a few are tried, at most 12 epochs each" in output
    assert "  the defaults: validation 0." in output
    assert "  order=10, lr=0.001, weight_decay=0.02: validation 0." in output
    assert (tmp_path / "run" / CONFIG).exists()
