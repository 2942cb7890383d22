"""Runs that stop, however they stop, and go on to the same result, or are refused."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polyformer.datasets import load_dataset
from polyformer.errors import FileCorrupt, OutputBusy, OutputExists, TrainingInterrupted
from polyformer.runs.execution import execute_run
from polyformer.runs.request import RunRequest
from polyformer.runs.run import Run
from polyformer.splits import Split
from polyformer.tasks import Task
from polyformer.training import loop
from polyformer.training.checkpoint import Checkpoint
from tests.edits import plain_json
from tests.listener import Listener
from tests.training.runs import BOARD, losses, request
from tests.warm import WarmProcess

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("stop_after", "settings"),
    [(1, {}), (4, {}), (3, {"schedule": "cosine"}), (1, {"optimizer": "lbfgs", "batch_size": "full", "epochs": 2})],
)
def test_interrupt_and_resume_equal_an_uninterrupted_run(tmp_path: Path, stop_after: int, settings: Any) -> None:
    asked_for = request(settings=settings)
    whole = execute_run(asked_for, tmp_path / "whole")
    asked = iter([False] * (stop_after - 1) + [True])
    with pytest.raises(TrainingInterrupted, match=f"after epoch {stop_after}.*Nothing is lost: continue with"):
        execute_run(asked_for, tmp_path / "run", reporter=Listener(stop=lambda: next(asked)))
    assert Run(tmp_path / "run").result is None
    resumed = execute_run(asked_for, tmp_path / "run", resume=True)
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")
    for key in ("val", "test", "best_epoch", "epochs"):
        assert resumed[key] == whole[key]
    assert execute_run(asked_for, tmp_path / "run", resume=True) == resumed


def test_epochs_after_the_checkpoint_are_run_again(tmp_path: Path) -> None:
    """A kill may leave metrics that the checkpoint has not seen, the last line cut in the middle."""
    execute_run(request(), tmp_path / "whole")
    asked = iter([False, False, True])
    with pytest.raises(TrainingInterrupted):
        execute_run(request(), tmp_path / "run", reporter=Listener(stop=lambda: next(asked)))
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 4, "loss": 123.0, "val": 0.5, "seconds": 0.1}\n{"epoch": 5, "lo')
    execute_run(request(), tmp_path / "run", resume=True)
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


def train_with_every_checkpoint(asked_for: RunRequest, out: Path) -> None:
    loop.CHECKPOINT_SECONDS = 0.0
    execute_run(asked_for, out)


@pytest.mark.parametrize("epochs", [0, 1, 5])
def test_killed_at_any_moment_resumes_to_the_same_result(tmp_path: Path, epochs: int) -> None:
    """SIGKILL in the middle of a run that checkpoints after every epoch."""
    settings = {"epochs": 400, "patience": 400}
    run = Run(tmp_path / "run")
    with WarmProcess(request(settings=settings), run.path, function=train_with_every_checkpoint) as process:
        process.wait_until(lambda: (run.path / ".lock").exists() and len(run.metrics) >= epochs)
        process.signal(signal.SIGKILL)
        process.wait()
    assert epochs <= len(run.metrics) < 400
    # A shorter run with the same seed is a prefix of the long one, so resuming need not run to the end.
    asked = iter([False] * 3 + [True])
    listener = Listener(stop=lambda: next(asked))
    with pytest.raises(TrainingInterrupted):
        execute_run(request(settings=settings), tmp_path / "run", resume=True, reporter=listener)
    resumed = losses(tmp_path / "run")
    stop = iter([False] * (len(resumed) - 1) + [True])
    with pytest.raises(TrainingInterrupted):
        execute_run(request(settings=settings), tmp_path / "whole", reporter=Listener(stop=lambda: next(stop)))
    assert np.allclose(resumed, losses(tmp_path / "whole"), rtol=1e-6)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "another model"])
def test_corrupt_checkpoint(tmp_path: Path, damage: str) -> None:
    asked = iter([False, True])
    with pytest.raises(TrainingInterrupted):
        execute_run(request(), tmp_path / "run", reporter=Listener(stop=lambda: next(asked)))
    path = Run(tmp_path / "run").checkpoint
    content = bytearray(path.read_bytes())
    if damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        content[-5] ^= 255
        path.write_bytes(content)
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        Checkpoint(2, 1.0, 1, 0.5, {"other": torch.ones(2)}, {}, {}).save(path)
    with pytest.raises(FileCorrupt, match="checkpoint"):
        execute_run(request(), tmp_path / "run", resume=True)


def test_run_directory_that_exists(tmp_path: Path) -> None:
    execute_run(request(), tmp_path / "run")
    with pytest.raises(OutputExists, match=r"already exists\. Choose another --out, or continue it with --resume"):
        execute_run(request(), tmp_path / "run")


def test_two_processes_cannot_train_in_one_run(tmp_path: Path) -> None:
    asked = iter([True])
    with pytest.raises(TrainingInterrupted):
        execute_run(request(), tmp_path / "run", reporter=Listener(stop=lambda: next(asked)))
    with (
        Run(tmp_path / "run").locked(),
        pytest.raises(OutputBusy, match="Another process is training"),
    ):
        execute_run(request(), tmp_path / "run", resume=True)


def test_changed_data_is_not_resumed(tmp_path: Path) -> None:
    asked = iter([True])
    with pytest.raises(TrainingInterrupted):
        execute_run(request(), tmp_path / "run", reporter=Listener(stop=lambda: next(asked)))
    with pytest.raises(FileCorrupt, match="has changed since the run"):
        execute_run(request(data=BOARD + ",seed=9"), tmp_path / "run", resume=True)


def test_a_run_in_other_units_is_not_resumed(tmp_path: Path) -> None:
    """Write the run as an older version did, which learned real values without units."""
    task, graph = load_dataset(BOARD), tmp_path / "graph"
    Task(task.name, task.graph, 5.0 + task.labels, task.splits).save(graph)
    with pytest.raises(TrainingInterrupted):
        execute_run(request(data=str(graph)), tmp_path / "run", reporter=Listener(stop=lambda: True))
    config = plain_json(tmp_path / "run" / "config.json")
    del config["card"]["units"]
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    with pytest.raises(FileCorrupt, match="learned labels in other units"):
        execute_run(request(data=str(graph)), tmp_path / "run", resume=True)


def test_changed_labels_and_splits_are_not_resumed(tmp_path: Path) -> None:
    task, graph = load_dataset(BOARD), tmp_path / "graph"
    split = task.splits[0]
    flipped = task.labels.copy()
    flipped[split.train[0]] = 1 - flipped[split.train[0]]
    swapped = Split(split.test, split.val, split.train)
    task.save(graph)
    with pytest.raises(TrainingInterrupted):
        execute_run(request(data=str(graph)), tmp_path / "run", reporter=Listener(stop=lambda: True))
    for labels, changed in ((flipped, split), (task.labels, swapped)):
        shutil.rmtree(graph)
        Task(task.name, task.graph, labels, [changed, *task.splits[1:]], metric="roc_auc").save(graph)
        with pytest.raises(FileCorrupt, match="has changed since the run"):
            execute_run(request(data=str(graph)), tmp_path / "run", resume=True)
