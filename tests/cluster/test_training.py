"""Training on Ray: the run of one process, whatever happens to the workers."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyformer.cli import main
from polyformer.errors import InvalidParameter, OutputBusy, TrainingInterrupted
from polyformer.runs.data import load_task
from polyformer.runs.on_ray import execute_on_ray
from polyformer.runs.request import RunRequest
from polyformer.runs.run import Run
from polyformer.tokens import write_tokens
from polyformer.training.distributed import ALONE
from tests.listener import Listener
from tests.ray_cluster import descendants
from tests.training.team import Team
from tests.training.test_distributed import BOARD, assert_same_run, metrics, request, together, train

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


def first_worker(run: Path) -> int | None:
    """The id of the worker that holds the run; it was started by the cluster of this process."""
    for pid in descendants(os.getpid()) - {os.getpid()}:
        try:
            handles = [handle.readlink() for handle in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:  # ended meanwhile
            continue
        if run / ".lock" in handles:
            return pid
    return None


def registered_epoch(run: Path) -> tuple[int, int]:
    """How many checkpoints Ray Train knows, and the epoch of the last."""
    try:
        snapshot = json.loads((run / "ray" / "checkpoint_manager_snapshot.json").read_text())
        return len(snapshot["checkpoint_results"]), snapshot["latest_checkpoint_result"]["metrics"]["epoch"]
    except (OSError, ValueError, TypeError):
        return 0, 0


def test_a_run_on_ray_is_the_run_of_one_process(tmp_path: Path) -> None:
    """From a token directory, streamed."""
    task, _ = load_task(request())
    write_tokens(task.graph, tmp_path / "tokens", "chebyshev", 3)
    asked = request(tokens=str(tmp_path / "tokens"), settings={"token_route": "streamed"})
    alone = train(ALONE, asked, tmp_path / "alone")
    told: list[int] = []
    shared = execute_on_ray(
        asked,
        tmp_path / "ray",
        workers=2,
        reporter=Listener(on_epoch=lambda record: told.append(record.epoch)),
    )
    assert_same_run(tmp_path / "alone", tmp_path / "ray")
    assert (shared["token_route"], shared["workers"]) == ("streamed", 2)
    assert shared["test"] == pytest.approx(alone["test"], abs=1e-5)
    assert told == [1, 2, 3, 4]
    names = [sorted(path.name for path in (tmp_path / who).iterdir()) for who in ("alone", "ray")]
    assert names[0] == names[1]


EPOCHS = 250
"""Number of epochs; it is so large that a worker is killed before the last epoch, some seconds after the first."""


def test_a_killed_worker_goes_on_from_the_last_registered_checkpoint(two: Team, tmp_path: Path) -> None:
    """The first worker, which writes, is killed when two checkpoints or more are registered."""
    asked = request(settings={"epochs": EPOCHS, "patience": EPOCHS, "batch_size": "full"})
    run, killed = tmp_path / "run", []

    def kill() -> None:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            count, epoch = registered_epoch(run)
            worker = first_worker(run)
            if count >= 2 and worker is not None and epoch == registered_epoch(run)[1]:
                os.kill(worker, signal.SIGKILL)
                killed.append(epoch)
                return
            time.sleep(0.02)

    killer = threading.Thread(target=kill)
    killer.start()
    result = execute_on_ray(asked, run, workers=2, checkpoint_seconds=0.2)
    killer.join()
    assert len(killed) == 1
    assert 1 < killed[0] < EPOCHS
    assert result["resumed_after"] == killed
    assert [record["epoch"] for record in Run(run).metrics] == list(range(1, EPOCHS + 1))
    together(two, asked, tmp_path / "whole")
    assert_same_run(tmp_path / "whole", run)


def test_stopped_and_continued_by_one_process(tmp_path: Path) -> None:
    asked = request(settings={"epochs": 100_000, "patience": 100_000})
    seen: list[int] = []
    with pytest.raises(TrainingInterrupted, match="Nothing is lost: continue with"):
        execute_on_ray(
            asked,
            tmp_path / "run",
            workers=2,
            reporter=Listener(on_epoch=lambda record: seen.append(record.epoch), stop=lambda: bool(seen)),
        )
    reached = len(metrics(tmp_path / "run"))
    assert reached >= 1
    assert (tmp_path / "run" / "model.safetensors").exists()
    assert not (tmp_path / "run" / ".stop").exists()
    with pytest.raises(TrainingInterrupted, match=f"after epoch {reached + 2}"):
        train(ALONE, asked, tmp_path / "run", resume=True, stop_after=2)
    with pytest.raises(TrainingInterrupted):
        train(ALONE, asked, tmp_path / "whole", stop_after=reached + 2)
    assert np.allclose(metrics(tmp_path / "run"), metrics(tmp_path / "whole"), rtol=1e-4)


def test_a_run_that_another_process_holds(tmp_path: Path) -> None:
    with pytest.raises(TrainingInterrupted):
        train(ALONE, request(), tmp_path / "run", stop_after=1)
    with (
        Run(tmp_path / "run").locked(),
        pytest.raises(OutputBusy, match="Another process is training"),
    ):
        execute_on_ray(request(), tmp_path / "run", workers=2, resume=True)


@pytest.mark.parametrize(
    ("changes", "workers", "message"),
    [
        ({"model": "gcn"}, 2, "The model 'gcn' needs the whole graph"),
        ({}, 3, "'--workers' must be at most 2, the CPUs of the Ray cluster. Got 3"),
        ({}, 0, "'--workers' must be 1 or more. Got 0"),
        ({"device": "cuda"}, 2, "'device' is cuda, but the Ray cluster has 0 GPUs for 2 workers"),
    ],
)
def test_what_cannot_be(tmp_path: Path, changes: dict[str, Any], workers: int, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        execute_on_ray(RunRequest(data=BOARD, **changes), tmp_path / "run", workers=workers)
    assert not (tmp_path / "run").exists()


def test_the_command_with_dropout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    board, out = "minefield:width=40,height=40", str(tmp_path / "run")
    chosen = ["--order", "3", "--set", "hidden_channels=16", "--set", "heads=4", "--set", "lr=0.005"]
    chosen += ["--set", "dropout=0.3", "--set", "attention_dropout=0.3", "--set", "epochs=30", "--no-report"]
    ray = ["--engine", "ray", "--workers", "2"]
    with pytest.raises(SystemExit) as end:
        main(["train", board, "--out", out, "--json", *chosen, *ray])
    assert end.value.code == 0
    shared = json.loads(capsys.readouterr().out)
    with pytest.raises(SystemExit):
        main(["train", board, "--out", str(tmp_path / "alone"), "--json", *chosen])
    alone = json.loads(capsys.readouterr().out)
    assert shared["workers"] == 2
    assert shared["test"] == pytest.approx(alone["test"], abs=0.03)
    with pytest.raises(SystemExit):
        main(["train", "--resume", "--out", out, "--json", *ray])
    assert json.loads(capsys.readouterr().out) == shared


@pytest.mark.parametrize("route", ["stored", "streamed"])
def test_a_run_on_ray_hides_the_labels_that_a_run_of_one_process_hides(tmp_path: Path, route: str) -> None:
    """The seed decides the masks, so workers on Ray learn from the same hidden nodes and keep the same labels."""
    asked = request(settings={"token_route": route, "label_input": 0.5, "label_masks": 3})
    train(ALONE, asked, tmp_path / "alone")
    execute_on_ray(asked, tmp_path / "ray", workers=2)
    assert_same_run(tmp_path / "alone", tmp_path / "ray")
    alone, shared = Run.open(tmp_path / "alone"), Run.open(tmp_path / "ray")
    assert np.allclose(alone.predict(), shared.predict(), atol=1e-5)
    assert alone.labels is not None
    assert shared.labels is not None
    assert np.array_equal(alone.labels.nodes, shared.labels.nodes)
    assert np.array_equal(alone.labels.held_out, shared.labels.held_out)
