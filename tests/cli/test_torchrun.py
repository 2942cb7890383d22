"""``torchrun -m polyformer train``: two processes, one voice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from polyformer.cli import main
from polyformer.errors import TrainingInterrupted
from polyformer.runs.data import load_task
from polyformer.runs.run import Run
from polyformer.tokens import write_tokens
from polyformer.training.checkpoint import Checkpoint
from polyformer.training.distributed import ALONE
from tests.training.test_distributed import BOARD, FAST, assert_same_run, metrics, request, train

pytestmark = pytest.mark.slow


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _loopback_only() -> list[str]:
    """Run in a network of loopback alone, if that is allowed: torchrun's store listens on all interfaces."""
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("ip") is None:
        return []
    prefix = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$0" "$@"']
    return prefix if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0 else []


def torchrun(*arguments: str) -> subprocess.Popen[str]:
    command = [*_loopback_only(), sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(_free_port()), "-m", "polyformer", "train"]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def settings(**changes: object) -> list[str]:
    return [part for name, value in {**FAST, **changes}.items() for part in ("--set", f"{name}={value}")]


def sentences(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("polyformer: ")]


def test_equals_one_process_on_streamed_tokens(tmp_path: Path) -> None:
    task, _ = load_task(request())
    write_tokens(task.graph, tmp_path / "tokens", "chebyshev", 3)
    tokens = str(tmp_path / "tokens")
    chosen = ["--tokens", tokens, "--memory", str(1 << 30), "--device", "cpu", *settings(token_route="streamed")]
    process = torchrun(BOARD, "--out", str(tmp_path / "run"), "--json", "--no-report", *chosen)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert (result["workers"], result["token_route"]) == (2, "streamed")
    assert err.count("nodes,") == 1
    train(ALONE, request(tokens=tokens, settings={"token_route": "streamed"}), tmp_path / "alone")
    assert_same_run(tmp_path / "alone", tmp_path / "run")


@pytest.mark.parametrize(("workers", "argument", "code"), [(2, "--version", 0), (2, "--bad", 2), (1, "--version", -6)])
def test_a_worker_ends_though_the_interpreter_would_not(workers: int, argument: str, code: int) -> None:
    """An abort at exit stands for a thread of gloo, which aborts seldom."""
    source = "import atexit, os, runpy; atexit.register(os.abort); runpy.run_module('polyformer', run_name='__main__')"
    environment = os.environ | {"WORLD_SIZE": str(workers)}
    done = subprocess.run(
        [sys.executable, "-c", source, argument], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert "No such option" in done.stderr if argument == "--bad" else done.stdout.startswith("polyformer ")


def test_a_number_of_workers_that_is_none(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(SystemExit) as end:
        main(["train", BOARD])
    assert end.value.code == 2
    assert "do not describe workers (invalid literal for int() with base 10: 'two')" in capsys.readouterr().err


def test_an_error_is_one_sentence(tmp_path: Path) -> None:
    process = torchrun(BOARD, "--out", str(tmp_path / "run"), "--model", "gcn")
    err = process.communicate(timeout=120)[1]
    assert process.returncode != 0
    assert len(sentences(err)) == 1
    assert "The model 'gcn' needs the whole graph" in sentences(err)[0]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--engine", "ray"], "'--engine' must be local under torchrun"),
        (["--engine", "spark"], "Unknown engine 'spark'. There are: local, ray."),
        (["--workers", "2"], "Without Ray, start the workers with: torchrun"),
        ([], "WORLD_SIZE, RANK, MASTER_ADDR and MASTER_PORT do not describe workers"),
    ],
)
def test_workers_that_cannot_be(
    arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit) as end:
        main(["train", BOARD, *arguments])
    assert end.value.code == 2
    assert sentence in capsys.readouterr().err


def test_ctrl_c_saves_and_one_process_goes_on(tmp_path: Path) -> None:
    run, endless = Run(tmp_path / "run"), {"epochs": 100_000, "patience": 100_000}
    process = torchrun(BOARD, "--out", str(run.path), "--memory", str(1 << 30), "--device", "cpu", *settings(**endless))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(run.metrics) < 3:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=60)[1]
    assert process.returncode != 0
    assert len(sentences(err)) == 1
    assert "Nothing is lost: continue with polyformer train --resume" in sentences(err)[0]
    reached = Checkpoint.load(run.checkpoint).epoch
    assert reached == len(metrics(run.path)) >= 3
    with pytest.raises(TrainingInterrupted, match=f"after epoch {reached + 1}"):
        train(ALONE, request(settings=endless), run.path, resume=True, stop_after=1)
