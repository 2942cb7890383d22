"""What may happen to an update: a kill at any moment, a full disk, a reader in between."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from polyformer.errors import FileCorrupt, WriteFailed
from polyformer.graph import Graph
from polyformer.tokens import open_tokens, write_tokens
from polyformer.updates import graph_directory
from polyformer.updates.graph_directory import update_graph
from polyformer.updates.tokens import update_tokens
from tests.updates.killed import change, check, killed_updates, make
from tests.updates.random_changes import random_change, random_graph


@pytest.mark.slow
def test_a_kill_leaves_the_old_or_the_new_version(tmp_path: Path) -> None:
    """A sample of the 200 kills that ``benchmarks/updates.py --kills`` makes."""
    assert killed_updates(tmp_path, kills=8, seed=int.from_bytes(os.urandom(4), "little")) > 1


def full_disk(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_leaves_the_tokens_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    graph = random_graph(random, weighted=False)
    write_tokens(graph, tmp_path / "t", order=2)
    middle, after = random_change(graph, random), random_change(graph, random)
    update_tokens(tmp_path / "t", middle)
    log = next((tmp_path / "t").glob("changes*.log"), None)
    before = None if log is None else log.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full_disk)
        with pytest.raises(WriteFailed, match="No space left on the disk while writing changed tokens"):
            update_tokens(tmp_path / "t", middle.updated(add_edges=[[0, 1], [3, 4]]))
    assert (None if log is None else log.read_bytes()) == before
    assert open_tokens(tmp_path / "t").manifest["graph"] == middle.fingerprint
    assert after.fingerprint != middle.fingerprint


@pytest.mark.parametrize("moment", ["write_npy", "seal_file", "write_json"])
def test_a_full_disk_leaves_the_graph_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    make(tmp_path)
    update_graph(tmp_path / "graph", change)
    fingerprint = Graph.load(tmp_path / "graph").fingerprint
    with monkeypatch.context() as patch:
        patch.setattr(graph_directory, moment, full_disk)
        with pytest.raises(WriteFailed, match="No space left on the disk while writing a changed graph"):
            update_graph(tmp_path / "graph", change)
    graph = Graph.load(tmp_path / "graph", verify=True)
    assert (graph.fingerprint, graph.version) == (fingerprint, 1)
    update_graph(tmp_path / "graph", change)  # takes away what was left, and goes on
    assert check(tmp_path) == 2
    names = {path.name for path in (tmp_path / "graph").iterdir()}
    assert not any(name.startswith(".") for name in names)
    assert sum(name.startswith("indices") for name in names) == 1


def test_readers_open_whole_versions_while_a_graph_changes(tmp_path: Path) -> None:
    make(tmp_path)
    failures: list[BaseException] = []
    stop = threading.Event()

    def read() -> None:
        try:
            while not stop.is_set():
                graph = Graph.load(tmp_path / "graph")
                assert graph.features is not None
                assert len(graph.features) == graph.num_nodes
                open_tokens(tmp_path / "tokens")[:]
        except BaseException as error:
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(8):
        update_graph(tmp_path / "graph", change)
        update_tokens(tmp_path / "tokens", Graph.load(tmp_path / "graph"))
    stop.set()
    reader.join()
    assert failures == []


def test_damage_in_the_middle_of_a_log_is_noticed_on_opening(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    ring = np.stack([np.arange(200), (np.arange(200) + 1) % 200])
    graph = Graph(ring, random.standard_normal((200, 3)))
    write_tokens(graph, tmp_path / "t", order=2)
    for node in (3, 90, 150):
        graph = graph.updated(set_features={node: random.standard_normal(3)})
        update_tokens(tmp_path / "t", graph)
    record = open_tokens(tmp_path / "t").layers.records[0]
    log = next((tmp_path / "t").glob("changes*.log"))
    damaged = bytearray(log.read_bytes())
    start = record.begin * 3 * 4  # rows of three float32
    damaged[start : start + 4] = b"\0\0\0\0"
    assert damaged != log.read_bytes()
    log.write_bytes(damaged)
    with pytest.raises(FileCorrupt, match="later changes of the tokens follow"):
        open_tokens(tmp_path / "t")
