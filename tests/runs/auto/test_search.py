"""The race of models: what it leaves is an ordinary run, and no interruption loses anything."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from polyformer.errors import InvalidParameter, OutputExists, TrainingInterrupted, UnknownName
from polyformer.graph import Graph
from polyformer.reporter import EpochRecord, Reporter
from polyformer.runs.auto import search
from polyformer.runs.auto.candidates import CANDIDATES, candidate_requests
from polyformer.runs.auto.search import execute_auto
from polyformer.runs.auto.state import RaceState, is_race
from polyformer.runs.request import RunRequest
from polyformer.runs.run import Run
from polyformer.runs.train import train
from polyformer.splits import uniform_split
from polyformer.tasks import Task
from tests.cli.test_cli import run

SMALL = {"epochs": 3, "hidden_channels": 8, "heads": 2, "order": 2}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two communities whose columns tell nothing and whose edges tell all."""
    random, count = np.random.default_rng(0), 120
    labels = np.arange(count) % 2
    source = random.integers(0, count, 5 * count)
    target = (source + 2 * random.integers(1, count // 2, len(source))) % count
    place = tmp_path_factory.mktemp("auto") / "graph"
    features = np.concatenate([random.normal(size=(count, 3)), labels[:, None] + random.normal(size=(count, 1))], 1)
    splits = [uniform_split(labels, [1, 2])]
    Task("communities", Graph(np.stack([source, target]), features), labels, splits, "uniform").save(place)
    return place


def asked(graph: Path, **settings: object) -> RunRequest:
    return RunRequest(data=str(graph), model="auto", device="cpu", settings={**SMALL, **settings})


def test_the_best_stays_as_an_ordinary_run(graph: Path, tmp_path: Path) -> None:
    seen: list[str] = []
    out = tmp_path / "run"
    result = execute_auto(asked(graph), out, budget=60, watch=lambda name, standing: seen.append(name))
    board = result["auto"]["leaderboard"]
    assert {row["name"] for row in board} == {"guess", *CANDIDATES}
    assert set(seen) == set(CANDIDATES)
    scores = [row["val"] for row in board]
    assert scores == sorted(scores, reverse=True)
    [best] = [row for row in board if row["status"] == "best"]
    assert (best["name"], best["val"]) == (board[0 if board[0]["name"] != "guess" else 1]["name"], result["val"])
    for row in board:
        assert row["interval"][0] <= row["val"] <= row["interval"][1]
    run = Run.open(out)
    assert result == run.result
    assert run.predict().shape == (120, 2)
    assert run.request.model == run.card.model == CANDIDATES[best["name"]].model
    assert execute_auto(asked(graph), tmp_path / "run", resume=True) == result


class StopAfter(Reporter):
    def __init__(self, epochs: int) -> None:
        self.left = epochs

    def epoch(self, record: EpochRecord, best_epoch: int, best_score: float) -> None:
        self.left -= 1

    def should_stop(self) -> bool:
        return self.left <= 0


@pytest.mark.parametrize("epochs", [1, 4, 11])
def test_a_race_that_was_stopped_goes_on_to_the_same_result(graph: Path, tmp_path: Path, epochs: int) -> None:
    whole = execute_auto(asked(graph), tmp_path / "whole", budget=60)
    with pytest.raises(TrainingInterrupted, match="Nothing is lost: continue with polyformer train --resume --out"):
        execute_auto(asked(graph), tmp_path / "run", budget=60, reporter=StopAfter(epochs))
    assert is_race(tmp_path / "run")
    resumed = execute_auto(asked(graph), tmp_path / "run", resume=True)
    for one, other in zip(resumed["auto"]["leaderboard"], whole["auto"]["leaderboard"], strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
    assert (resumed["val"], resumed["test"]) == (whole["val"], whole["test"])


def test_a_kill_while_the_winner_is_moved_is_made_good(
    graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    move, moved = search.move_over, []

    def die_at_the_third(source: Path, target: Path) -> None:
        if len(moved) == 2:
            raise KeyboardInterrupt
        moved.append(source)
        move(source, target)

    monkeypatch.setattr(search, "move_over", die_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        execute_auto(asked(graph), tmp_path / "run", budget=60)
    monkeypatch.setattr(search, "move_over", move)
    result = execute_auto(asked(graph), tmp_path / "run", resume=True)
    assert result["auto"]["leaderboard"]
    Run.open(tmp_path / "run").load()


def test_what_the_budget_does_not_reach_is_not_tried(graph: Path, tmp_path: Path) -> None:
    result = execute_auto(asked(graph, epochs=500, patience=500), tmp_path / "run", budget=1e-3)
    statuses = {row["name"]: row["status"] for row in result["auto"]["leaderboard"]}
    assert statuses["mlp"] == "best"
    assert set(statuses.values()) == {"best", "finished", "waiting"}
    assert result["epochs"] == 1


def test_a_candidate_that_fails_is_named_and_the_others_go_on(
    graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = search.execute_run

    def fail_for_gcn(request: RunRequest, *args: object, **options: object) -> object:
        if request.model == "gcn":
            raise InvalidParameter("There is no memory.")
        return train(request, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(search, "execute_run", fail_for_gcn)
    result = execute_auto(asked(graph), tmp_path / "run", budget=60)
    [row] = [row for row in result["auto"]["leaderboard"] if row["name"] == "gcn"]
    assert (row["status"], row["val"], row["error"]) == ("failed", None, "There is no memory.")


def test_settings_go_to_every_candidate_that_has_them() -> None:
    requests = candidate_requests(RunRequest(settings={"order": 4, "epochs": 7}))
    for name, request in requests.items():
        settings = request.resolve_settings()
        assert settings["epochs"] == 7
        assert settings.get("order", 4) == 4, name
    with pytest.raises(UnknownName, match="Unknown setting 'oder'"):
        candidate_requests(RunRequest(settings={"oder": 4}))


def test_a_wrong_start_writes_nothing(graph: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="'budget' must be more than 0 seconds"):
        execute_auto(asked(graph), tmp_path / "run", budget=0)
    with pytest.raises(InvalidParameter, match="one split, number 0"):
        execute_auto(RunRequest(data=str(graph), split=7), tmp_path / "run", budget=1)
    assert not (tmp_path / "run").exists()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("")
    with pytest.raises(OutputExists):
        execute_auto(asked(graph), tmp_path / "taken", budget=1)


def test_from_python(graph: Path, tmp_path: Path) -> None:
    run = train(str(graph), "auto", tmp_path / "run", budget="1m", **SMALL)
    assert run.result is not None
    assert run.result["auto"]["budget"] == 60
    with pytest.raises(InvalidParameter, match="'budget' must come with the model 'auto'"):
        train(str(graph), "mlp", tmp_path / "other", budget=60)
    with pytest.raises(InvalidParameter, match="'preset' must be left out with the model auto"):
        train(str(graph), "auto", tmp_path / "other", preset="fast")


def test_the_command_prints_the_leaderboard_and_resumes(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [f"--set={name}={value}" for name, value in SMALL.items()]
    command = ["train", str(graph), "--model", "auto", "--budget", "1m", "--out", str(tmp_path / "run"), "--no-report"]
    assert run(*command, *settings) == 0
    text = capsys.readouterr().out
    assert "kept as the run" in text
    assert "raph" in text.split("kept as the run")[1]
    assert run("train", "--resume", "--out", str(tmp_path / "run"), "--no-report", "--json") == 0
    assert json.loads(capsys.readouterr().out)["auto"]["leaderboard"]
    assert run("train", "--resume", "--out", str(tmp_path / "run"), "--seed", "5") == 2
    assert "was started with seed=0" in capsys.readouterr().err
    assert run("train", str(graph), "--budget", "1m") == 2
    assert "'--budget' must come with --model auto" in capsys.readouterr().err
    assert RaceState.load(tmp_path / "run").winner is not None
