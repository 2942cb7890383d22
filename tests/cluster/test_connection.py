"""Connecting to Ray: what is told when it is missing or not there, what it listens on, and how tasks fail."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from polyformer import cluster as module
from polyformer.cluster import Node, capacity, connected, nodes, run_tasks
from polyformer.errors import FileCorrupt, InvalidParameter, MissingDependency, OutOfResources
from tests.cli.test_cli import BOARD, FAST, run
from tests.ray_cluster import LOOPBACK, descendants, listening


@pytest.mark.parametrize("command", ["tokens", "tune", "predict"])
def test_without_the_extra(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependency), connected():
        pass
    data = "minefield:width=10,height=8"
    options: dict[str, list[Any]] = {
        "tokens": [data, "--out", tmp_path / "t"],
        "tune": [data, "--study", tmp_path / "s.journal", "--model", "mlp"],
        "predict": [tmp_path / "run", "--out", tmp_path / "p.parquet"],
    }
    if command == "predict":
        settings = ["--set", "epochs=1", "--set", "hidden_channels=8", "--no-report"]
        assert run("train", data, "--order", 1, "--out", tmp_path / "run", *settings) == 0
    assert run(command, *options[command], "--engine", "ray") == 2
    assert capsys.readouterr().err == (
        "polyformer: Ray is not installed. Install it with: pip install 'polyformer[ray]'\n"
    )


@pytest.mark.parametrize(
    ("address", "kind", "message"),
    [
        ("127.0.0.1:1", OutOfResources, r"No Ray cluster could be joined at '127.0.0.1:1' \(Connection refused\)"),
        ("ray://host:10001", InvalidParameter, "'--address' must be auto or HOST:PORT of a Ray cluster. Got 'ray://"),
        ("host", InvalidParameter, "Got 'host'"),
        ("127.0.0.1:99999", OutOfResources, "No Ray cluster could be joined"),
    ],
)
def test_address_where_nothing_is(
    address: str, kind: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # other tests may have connected this process
    with pytest.raises(kind, match=message), connected(address):
        pass


def test_unknown_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tune", "minefield", "--engine", "rai") == 2
    assert "Unknown engine 'rai'. Did you mean 'ray'? There are: local, ray." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "engine"),
    [
        (["train", "minefield"], "local"),
        (["predict", "run", "--out", "p.parquet"], "local"),
        (["tokens", "minefield", "--out", "t"], "memory"),
        (["tune", "minefield"], "local"),
    ],
)
def test_options_of_ray_without_it(command: list[str], engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"--workers": "2", "--address": "auto"}
    if command[0] == "tune":
        del options["--workers"]  # trials at a time, here too
    for option, value in options.items():
        assert run(*command, option, value) == 2
        words = f"'{option}' goes with --engine ray. Got {value} with --engine {engine}. "
        assert words in capsys.readouterr().err


def test_the_variable_is_read_with_ray_and_hinders_nothing_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    assert run("train", BOARD, "--out", tmp_path / "run", *FAST) == 0
    assert run("predict", tmp_path / "run", "--out", tmp_path / "p.parquet") == 0
    assert run("train", BOARD, "--out", tmp_path / "other", *FAST, "--engine", "ray") == 1
    assert "No Ray cluster could be joined at '127.0.0.1:1'" in capsys.readouterr().err


@pytest.mark.ray
def test_nodes_and_sockets_of_the_test_cluster(ray_cluster: Any) -> None:
    assert nodes() == [Node(1, 2 << 30)] * 2
    assert capacity() == (2, 2 << 30)
    started = {
        info.process.pid for node in (ray_cluster.head_node, *ray_cluster.worker_nodes) for info in _processes(node)
    }
    found = listening(set().union(*(descendants(pid) for pid in started)))
    assert found
    assert found <= LOOPBACK


def _processes(node: Any) -> list[Any]:
    return [info for kind in node.all_processes.values() for info in kind]


@pytest.mark.ray
@pytest.mark.skipif(sys.platform != "linux", reason="open ports are read from /proc")
def test_a_cluster_started_here_listens_on_loopback_and_ends() -> None:
    pytest.importorskip("ray")
    script = """
import json, os
from polyformer.cluster import capacity, connected, run_tasks
from tests.ray_cluster import descendants, listening
with connected(cpus=3):
    squares = sorted(run_tasks(abs, [-1, -2, -3], at_once=2))
    own = descendants(os.getpid())
    print(json.dumps([squares, capacity()[0], sorted(listening(own)), sorted(own - {os.getpid()})]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    results, cpus, addresses, pids = json.loads(done.stdout)
    assert results == [[-3, 3], [-2, 2], [-1, 1]]
    assert cpus == 3
    assert addresses
    assert set(addresses) <= LOOPBACK
    deadline = time.monotonic() + 30
    while (left := [pid for pid in pids if os.path.exists(f"/proc/{pid}")]) and time.monotonic() < deadline:
        time.sleep(0.1)  # they have been told to end
    assert not left


@pytest.mark.ray
def test_errors_of_tasks(ray_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of ours come back as they were, others as a sentence; a task that fits no node is not waited for."""
    with pytest.raises(FileCorrupt, match=r"^broken$"):
        list(run_tasks(_raise, [FileCorrupt("broken")], at_once=1))
    with pytest.raises(OutOfResources, match=r"A task failed on the Ray cluster \(KeyError: 'x'\)\. Run again"):
        list(run_tasks(_raise, [KeyError("x")], at_once=1))
    monkeypatch.setattr(module, "_LOST_SECONDS", 1.0)
    with pytest.raises(OutOfResources, match=r"No node of the Ray cluster has the 5 CPUs and 0 bytes of memory"):
        list(run_tasks(abs, [1], at_once=1, cpus=5))


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.ray
@pytest.mark.skipif(os.geteuid() != 0, reason="a network of its own needs root")
def test_tests_on_ray_have_no_network_but_loopback() -> None:
    assert [name for _, name in socket.if_nameindex()] == ["lo"]
    with pytest.raises(OSError, match="unreachable"), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        any_socket.connect(("192.0.2.1", 9))


def test_other_tests_keep_the_network_of_the_machine() -> None:
    assert Path("/proc/thread-self/ns/net").readlink() == Path(f"/proc/{os.getppid()}/ns/net").readlink()
