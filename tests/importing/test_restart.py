"""An import that is killed leaves nothing at the destination, and the next one cleans up after it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from polyformer.graph import Graph
from polyformer.importing import import_graph
from polyformer.tasks import Task

SCRIPT = """
import sys, time
from polyformer.importing import import_graph

def slowly(stage, done, total):
    print(stage, flush=True)
    if stage == sys.argv[3]:
        time.sleep(60)

import_graph(sys.argv[1], sys.argv[2], progress=slowly)
"""


@pytest.mark.parametrize("stage", ["reading edges", "writing edges"])
def test_killed_and_started_again(tmp_path: Path, stage: str) -> None:
    edges = np.random.default_rng(0).integers(0, 500, (3000, 2), dtype=np.int32)
    edges.tofile(tmp_path / "edges.i32")
    destination = tmp_path / "out" / "graph"
    arguments = [sys.executable, "-c", SCRIPT, str(tmp_path / "edges.i32"), str(destination), stage]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while process.stdout.readline().strip() != stage:
        assert process.poll() is None
    import_graph(tmp_path / "edges.i32", destination.with_name("other"))
    assert len(list(destination.parent.glob(".graph.*"))) == 1, "a running import must be left alone"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not destination.exists()
    assert len(list(destination.parent.glob(".graph.*"))) == 1
    import_graph(tmp_path / "edges.i32", destination)
    assert sorted(path.name for path in destination.parent.iterdir()) == ["graph", "other"]
    assert Task.load(destination).graph.fingerprint == Graph(edges.T).fingerprint


def test_interrupted_from_the_keyboard(tmp_path: Path) -> None:
    np.zeros((10, 2), np.int32).tofile(tmp_path / "edges.i32")

    def interrupt(stage: str, done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_graph(tmp_path / "edges.i32", tmp_path / "out" / "graph", progress=interrupt)
    assert list((tmp_path / "out").iterdir()) == []


def test_progress_tells_every_stage(tables: Path, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    started = time.perf_counter()
    summary = import_graph(tables, tmp_path / "graph", progress=lambda *state: seen.append(state))
    assert [stage for stage, _, _ in seen] == ["reading edges", "writing edges", "writing features"]
    assert seen[0] == ("reading edges", 200, None)
    assert seen[-1] == ("writing features", 40, 40)
    assert 0 < summary.seconds <= time.perf_counter() - started
