"""Several processes train as one does: the same batches, gradients, decisions and files."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polyformer.errors import (
    InvalidParameter,
    OutOfResources,
    OutputBusy,
    OutputExists,
    TrainingDiverged,
    TrainingInterrupted,
    WorkerLost,
)
from polyformer.graph import Graph
from polyformer.inputs import streamed_tokens
from polyformer.models import MODELS
from polyformer.models.polyformer import PolyFormerModel, PolyFormerSettings
from polyformer.objectives import Multiclass
from polyformer.runs.execution import execute_run
from polyformer.runs.request import RunRequest
from polyformer.runs.run import Run
from polyformer.settings import build_settings
from polyformer.splits import Split
from polyformer.tasks import Task
from polyformer.training import loop
from polyformer.training.checkpoint import Checkpoint
from polyformer.training.distributed import ALONE, ProcessGroup, Workers, owners
from polyformer.training.loop import Trainer
from polyformer.training.settings import TrainingSettings
from polyformer.training.workload import workload_of
from tests.contracts.test_models import settings_of
from tests.listener import Listener
from tests.training.team import Team

pytestmark = pytest.mark.slow

BOARD = "minefield:width=20,height=15"
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
FAST = {"order": 3, "hidden_channels": 16, "heads": 4, "num_layers": 1, "epochs": 4, "batch_size": 40, **NO_DROPOUT}


def request(**changes: Any) -> RunRequest:
    settings = {**FAST, **changes.pop("settings", {})}
    return RunRequest(**{"data": BOARD, "device": "cpu", "settings": settings, "memory": 1 << 30, **changes})


def train(
    workers: Workers,
    request: RunRequest,
    out: Path,
    resume: bool = False,
    stop_after: int | None = None,
    stops_at_rank: int = 0,
    small_windows: bool = False,
) -> dict[str, Any]:
    """The request of every worker; only one worker is asked to stop."""
    asked = 0

    def should_stop() -> bool:
        nonlocal asked
        asked += 1
        return workers.rank == stops_at_rank and asked == stop_after

    with pytest.MonkeyPatch.context() as patch:
        if small_windows:
            patch.setattr(streamed_tokens, "CHUNK_BYTES", 1024)
            patch.setattr(streamed_tokens, "WINDOW_BYTES", (4096, 4096))
        return execute_run(request, out, resume=resume, reporter=Listener(stop=should_stop), workers=workers)


def together(team: Team, *arguments: Any, **options: Any) -> dict[str, Any]:
    """The result of a run, the same on all workers."""
    results = team.run(train, *arguments, **options)
    for result in results:
        if isinstance(result, Exception):
            raise result
    assert all(result == results[0] for result in results)
    return results[0]


def final_parameters(run: Path) -> dict[str, torch.Tensor]:
    return Checkpoint.load(Run(run).checkpoint).parameters


def metrics(run: Path) -> np.ndarray:
    """Loss and validation score of every epoch, (epochs, 2)."""
    return np.array([[record["loss"], record["val"]] for record in Run(run).metrics])


def assert_same_run(one: Path, other: Path) -> None:
    assert np.allclose(metrics(one), metrics(other), rtol=1e-5)
    first, second = final_parameters(one), final_parameters(other)
    assert max(float((first[name] - second[name]).abs().max()) for name in first) < 1e-5


# Who takes what


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@pytest.mark.parametrize(("count", "batch_size"), [(1, 1), (10, 4), (12, 4), (100, 100), (5, 3), (64, 5)])
def test_every_batch_is_shared_equally(count: int, batch_size: int, workers: int) -> None:
    owner = owners(count, batch_size, workers)
    for start in range(0, count, batch_size):
        part = owner[start : start + batch_size]
        assert np.array_equal(part, np.sort(part))
        sizes = np.bincount(part, minlength=workers)
        assert len(sizes) == workers
        assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("shuffle", ["nodes", "batches"])
def test_a_worker_prepares_its_own_nodes_alone(shuffle: str) -> None:
    order = np.random.default_rng(0).permutation(300)
    split = Split(order[:150], order[150:225], order[225:])
    settings = TrainingSettings(batch_size=40, shuffle=shuffle)  # type: ignore[arg-type]
    shares = []
    for rank in range(4):
        workers = Workers()
        workers.rank, workers.count = rank, 4
        share = workload_of(split, settings, workers=workers).share
        assert share is not None
        shares.append(share)
    assert sorted(np.concatenate(shares).tolist()) == list(range(300))
    assert max(map(len, shares)) < 85
    assert workload_of(split, settings).share is None


# Steps


def double_parameters(
    workers: Workers, shuffle: str, batch_size: int, rows_per_step: int | None = None
) -> dict[str, torch.Tensor]:
    """Parameters after three epochs in float64 on three weighted classes and uneven batches."""
    random = np.random.default_rng(0)
    graph = Graph(random.integers(0, 60, (2, 150)), random.standard_normal((60, 5)))
    labels, order = random.choice(3, 60, p=[0.6, 0.3, 0.1]), random.permutation(60)
    split = Split(order[:41], order[41:43], order[43:])
    settings = TrainingSettings(
        batch_size=batch_size, shuffle=shuffle, epochs=3, class_weights="balanced", weight_decay=1e-3  # type: ignore[arg-type]
    )  # fmt: skip
    torch.manual_seed(0)
    model = PolyFormerModel(5, 3, PolyFormerSettings(order=3, hidden_channels=8, heads=2, **NO_DROPOUT)).double()
    model.bind(graph, workload_of(split, settings, workers=workers))
    with pytest.MonkeyPatch.context() as patch:
        if rows_per_step is not None:
            patch.setattr(PolyFormerModel, "rows_per_step", rows_per_step)
        trainer = Trainer(model, Multiclass(), "accuracy", labels, split, settings, workers=workers)
        assert trainer.weights is not None
        trainer.weights = trainer.weights.double()
        trainer.run()
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("count", ["two", "three"])
@pytest.mark.parametrize("shuffle", ["nodes", "batches"])
@pytest.mark.parametrize("batch_size", [2, 16, 41])
def test_steps_are_those_of_one_process(
    count: str, shuffle: str, batch_size: int, request: pytest.FixtureRequest
) -> None:
    """Batches of two leave a worker with nothing; the last batch is smaller than the others."""
    expected = double_parameters(ALONE, shuffle, batch_size)
    for parameters in request.getfixturevalue(count).run(double_parameters, shuffle, batch_size):
        assert not isinstance(parameters, Exception), parameters
        assert all(torch.allclose(parameters[name], expected[name], rtol=0, atol=1e-10) for name in expected)


def test_slices_are_exchanged_once(two: Team) -> None:
    """A part of 20 rows goes through the model in slices of 6, the last of two."""
    expected = double_parameters(ALONE, "nodes", 41)
    for parameters in two.run(double_parameters, "nodes", 41, rows_per_step=6):
        assert all(torch.allclose(parameters[name], expected[name], rtol=0, atol=1e-10) for name in expected)


def gradients(workers: Workers, name: str) -> dict[str, torch.Tensor] | None:
    """The gradient of one full batch; None for a model that cannot be divided."""
    random = np.random.default_rng(0)
    graph = Graph(random.integers(0, 37, (2, 70)), random.standard_normal((40, 9)), 40)
    labels, nodes = random.integers(0, 3, 40), np.arange(40)
    split, kind = Split(nodes[:31], nodes[31:36], nodes[36:]), MODELS[name]
    settings = TrainingSettings(batch_size=31)
    torch.manual_seed(0)
    model = kind(9, 3, build_settings(kind.settings_type, settings_of(name)))
    if not model.divisible:
        return None
    model.bind(graph, workload_of(split, settings, workers=workers))
    trainer = Trainer(model, Multiclass(), "accuracy", labels, split, settings, workers=workers)
    model.train()
    trainer._step(torch.arange(31))
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("name", MODELS)
def test_every_divisible_model_adds_up(name: str, two: Team, tmp_path: Path) -> None:
    expected = gradients(ALONE, name)
    if expected is None:
        with pytest.raises(InvalidParameter, match=f"The model '{name}' needs the whole graph.* 2 workers cannot"):
            together(two, RunRequest(data=BOARD, model=name, device="cpu"), tmp_path / "run")
        assert not (tmp_path / "run").exists()
        return
    for found in two.run(gradients, name):
        assert not isinstance(found, Exception), found
        assert set(found) == set(expected)
        assert all(torch.allclose(found[part], expected[part], rtol=1e-4, atol=1e-6) for part in expected)


# Runs


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"token_route": "streamed"},
        {"shuffle": "batches", "token_route": "streamed"},
        {"class_weights": "balanced"},
        {"label_input": 0.5},
        {"label_input": 0.3, "token_route": "streamed"},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())) or "plain",
)
def test_a_run_of_two_is_the_run_of_one(two: Team, tmp_path: Path, settings: dict[str, Any]) -> None:
    """150 training nodes in batches of 40, the last of 30."""
    asked = request(settings=settings)
    alone = train(ALONE, asked, tmp_path / "alone", small_windows=True)
    shared = together(two, asked, tmp_path / "shared", small_windows=True)
    assert_same_run(tmp_path / "alone", tmp_path / "shared")
    assert shared["test"] == pytest.approx(alone["test"], abs=1e-5)
    assert (alone["workers"], shared["workers"]) == (1, 2)
    assert sorted(path.name for path in (tmp_path / "alone").iterdir()) == sorted(
        path.name for path in (tmp_path / "shared").iterdir()
    )


def test_with_dropout_the_score_is_close(two: Team, tmp_path: Path) -> None:
    settings = {"dropout": 0.3, "attention_dropout": 0.3, "epochs": 15, "batch_size": 100, "lr": 0.01}
    asked = request(data="minefield:width=40,height=40", settings=settings)
    alone, shared = train(ALONE, asked, tmp_path / "alone"), together(two, asked, tmp_path / "shared")
    assert metrics(tmp_path / "alone")[0, 0] != pytest.approx(metrics(tmp_path / "shared")[0, 0], rel=1e-6)
    assert shared["test"] == pytest.approx(alone["test"], abs=0.03)
    assert shared["test"] > 0.8
    together(two, asked, tmp_path / "again")
    assert np.array_equal(metrics(tmp_path / "again"), metrics(tmp_path / "shared"))


@pytest.mark.parametrize("begins", ["two", "alone"])
@pytest.mark.parametrize("ends", ["two", "alone"])
def test_interrupted_and_resumed_by_as_many_or_others(two: Team, tmp_path: Path, begins: str, ends: str) -> None:
    """The stop may reach any worker."""

    def go(by: str, **options: Any) -> dict[str, Any]:
        return together(two, request(), **options) if by == "two" else train(ALONE, request(), **options)

    whole = go("alone", out=tmp_path / "whole")
    with pytest.raises(TrainingInterrupted, match=r"after epoch 2\. Nothing is lost"):
        go(begins, out=tmp_path / "run", stop_after=2, stops_at_rank=int(begins == "two"))
    assert Run(tmp_path / "run").result is None
    resumed = go(ends, out=tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "run")
    assert resumed["resumed_after"] == [2]
    assert (whole["resumed_after"], whole["best_epoch"]) == ([], resumed["best_epoch"])
    assert go(ends, out=tmp_path / "run", resume=True) == resumed


def test_all_agree_on_when_to_stop_early(two: Team, tmp_path: Path) -> None:
    asked = request(settings={"epochs": 50, "patience": 1, "lr": 0.05})
    alone, shared = train(ALONE, asked, tmp_path / "alone"), together(two, asked, tmp_path / "shared")
    assert alone["epochs"] == shared["epochs"] < 50


def test_more_workers_than_there_is_work_for(three: Team, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    graph = Graph(random.integers(0, 12, (2, 20)), random.standard_normal((12, 3)))
    split = Split(np.arange(4), np.arange(4, 6), np.arange(6, 8))
    Task("few", graph, random.standard_normal(12), [split]).save(tmp_path / "graph")
    asked = request(data=str(tmp_path / "graph"), settings={"batch_size": 2})
    train(ALONE, asked, tmp_path / "alone")
    together(three, asked, tmp_path / "shared")
    assert np.allclose(metrics(tmp_path / "alone")[:, 0], metrics(tmp_path / "shared")[:, 0], rtol=1e-4)


# What goes wrong


def test_a_run_that_another_process_holds(two: Team, tmp_path: Path) -> None:
    with pytest.raises(TrainingInterrupted):
        together(two, request(), tmp_path / "run", stop_after=1)
    with (
        Run(tmp_path / "run").locked(),
        pytest.raises(OutputBusy, match="Another process is training"),
    ):
        together(two, request(), tmp_path / "run", resume=True)
    with pytest.raises(OutputExists, match="already exists"):
        together(two, request(), tmp_path / "run")


def test_a_projection_cannot_be_shared(two: Team, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="'token_route' must not be projected with 2 workers"):
        together(two, request(settings={"token_route": "projected"}), tmp_path / "run")


def test_divergence_ends_all_alike(two: Team, tmp_path: Path) -> None:
    errors = two.run(train, request(settings={"lr": 1e30}), tmp_path / "run")
    assert [type(error) for error in errors] == [TrainingDiverged, TrainingDiverged]


def failing(workers: ProcessGroup, where: str) -> None:
    """One worker fails alone while all workers prepare."""

    def work() -> None:
        if workers.rank == 1:
            raise OutOfResources("The disk of worker 1 is full.")

    (workers.each if where == "each" else workers.in_turn)(work)


@pytest.mark.parametrize("where", ["each", "in turn"])
def test_what_one_worker_cannot_prepare_is_told_by_all(two: Team, where: str) -> None:
    for error in two.run(failing, where):
        assert isinstance(error, OutOfResources)
        assert str(error) == "The disk of worker 1 is full."


def failing_in_a_step(workers: ProcessGroup) -> None:
    """The second worker fails and ends while the first one waits for the second one's gradients."""
    if workers.rank == 1:
        try:
            with workers.watched():
                raise OutOfResources("The disk of worker 1 is full.")
        finally:
            os._exit(1)
    workers.total(1.0)


def test_what_one_worker_cannot_do_is_told_by_the_first(tmp_path: Path) -> None:
    team = Team(2, tmp_path)
    try:
        first, second = team.run(failing_in_a_step)
    finally:
        team.close()
    assert second is None
    assert isinstance(first, WorkerLost)
    assert str(first) == "Worker 1 failed. The disk of worker 1 is full."


def endless(workers: ProcessGroup, out: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
        train(workers, request(settings={"epochs": 100_000, "patience": 100_000}), out)


def test_a_lost_worker_ends_the_others_and_the_run_goes_on(tmp_path: Path) -> None:
    team = Team(2, tmp_path)
    try:
        team.start(endless, tmp_path / "run")
        run, process = Run(tmp_path / "run"), team.processes[1]
        for _ in range(600):
            if len(run.metrics) > 2:
                break
            process.join(0.1)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        first, second = team.collect()
        assert second is None
        assert isinstance(first, WorkerLost)
        assert "Another worker of this run ended" in str(first)
    finally:
        team.close()
    reached = Checkpoint.load(run.checkpoint).epoch
    with pytest.raises(TrainingInterrupted, match=f"after epoch {reached + 1}"):
        train(ALONE, request(settings={"epochs": 100_000, "patience": 100_000}), run.path, resume=True, stop_after=1)
