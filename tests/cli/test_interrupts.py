"""Ctrl-C and failed starts: one sentence, exit code 130 or 1, and nothing useless left on the disk."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from polyformer.datasets import load_dataset
from polyformer.errors import OutOfResources
from polyformer.formats import number_files
from polyformer.importing import tables
from polyformer.runs import execution
from polyformer.runs import preparation as training
from tests.cli.test_cli import BOARD, FAST, run

pytestmark = pytest.mark.slow

# Sends this process a real Ctrl-C when it first imports or opens what is named.
INTERRUPTED = """
import os, signal, sys
event, name = sys.argv.pop(1), sys.argv.pop(1)
pending = [True]
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored where tests run in the background

def hook(audited, arguments):
    if pending and audited == event and str(arguments[0]).endswith(name):
        pending.clear()
        os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(hook)
from polyformer.__main__ import run
run()
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "board"
    load_dataset(BOARD).save(folder)
    return folder


@pytest.mark.parametrize(
    ("event", "name", "verb"),
    [
        ("import", "typer", "train"),
        ("import", "torch", "train"),
        ("import", "torch.nn.functional", "train"),
        ("open", "labels.npy", "train"),
        ("open", "labels.npy", "tokens"),
    ],
)
def test_ctrl_c_at_any_moment_is_one_sentence(event: str, name: str, verb: str, graph: Path, tmp_path: Path) -> None:
    options = FAST if verb == "train" else ["--basis", "chebyshev", "--order", "3"]
    out = tmp_path / "new" / "out"
    command = [sys.executable, "-c", INTERRUPTED, event, name, verb, str(graph), "--out", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 130
    assert done.stderr.startswith("polyformer: ")
    assert done.stderr.count("\n") == 1
    assert (
        "Stopped before the first epoch. Nothing was written."
        if verb == "train" and event == "open"
        else "Interrupted."
    ) in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("reading", [tables.reading, number_files.reading])
def test_what_arrow_makes_of_ctrl_c_is_no_damaged_file(reading: Any, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), reading(tmp_path / "nodes.csv"):
        raise pa.ArrowCancelled("Operation cancelled", 2)


def test_a_run_that_goes_on_says_what_stays(
    graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C comes while data is read: before the first epoch, and after twelve epochs."""
    load = training.load_task

    def interrupted(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return load(*arguments)

    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(training, "load_task", interrupted)
        assert run("train", graph, "--out", out, *FAST) == 130
        captured = capsys.readouterr()
        assert "to stop at once (there is no checkpoint yet)" in captured.out
        assert captured.err == "polyformer: Stopped before the first epoch. Nothing was written.\n"
    assert run("train", graph, "--out", out, *FAST) == 0
    (out / "result.json").unlink()
    capsys.readouterr()
    monkeypatch.setattr(training, "load_task", interrupted)
    assert run("train", "--resume", "--out", out) == 130
    captured = capsys.readouterr()
    assert "to stop at once (the last checkpoint stays)" in captured.out
    assert captured.err.startswith(
        "polyformer: Stopped before training went on. Continue with polyformer train --resume"
    )


def test_a_failed_start_leaves_nothing(graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):  # the second start finds nothing in its way
        assert run("train", graph, "--memory", "1kb", "--out", tmp_path / "new" / "run", *FAST) == 1
        assert "Raise --memory." in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []


def test_an_empty_directory_of_the_user_stays(graph: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert run("train", graph, "--memory", "1kb", "--out", tmp_path / "run", *FAST) == 1
    assert list((tmp_path / "run").iterdir()) == []


def test_conditions_may_change_when_a_run_goes_on(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert run("train", graph, "--memory", "2GiB", "--out", out, *FAST) == 0
    (out / "result.json").unlink()
    assert run("train", "--resume", "--out", out, "--memory", "1GiB", "--device", "cpu", "--no-report") == 0
    assert json.loads((out / "config.json").read_text())["memory"] == 1 << 30
    (out / "result.json").unlink()
    assert run("train", "--resume", "--out", out, "--seed", 1) == 2
    assert "was started with seed=0. Got 1." in capsys.readouterr().err


def test_prepared_tokens_stay_for_the_run_that_goes_on(
    graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OutOfResources("The memory is full.")

    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(execution.Trainer, "run", fail)
        assert run("train", graph, "--out", out, *FAST, "--set=token_route=streamed") == 1
    assert (out / "tokens" / "manifest.json").exists()
    assert run("train", "--resume", "--out", out, "--no-report") == 0
    assert json.loads((out / "result.json").read_text())["epochs"] == 3
