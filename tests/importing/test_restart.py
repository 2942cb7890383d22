"""An import that is killed leaves nothing at the destination, and the next one cleans up after it."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from polyformer.graph import Graph
from polyformer.importing import import_graph
from polyformer.tasks import Task
from tests.listener import Listener
from tests.warm import WarmProcess

pytestmark = pytest.mark.slow


def import_slowly(source: Path, destination: Path, slow_stage: str) -> None:
    """Print the stages as they come, and stay at one of them."""

    def tell(stage: str, done: int, total: int | None) -> None:
        sys.stdout.write(f"{stage}\n")
        if stage == slow_stage:
            time.sleep(60)

    import_graph(source, destination, reporter=Listener(on_stage=tell))


@pytest.mark.parametrize("stage", ["reading edges", "writing edges"])
def test_killed_and_started_again(tmp_path: Path, stage: str) -> None:
    edges = np.random.default_rng(0).integers(0, 500, (3000, 2), dtype=np.int32)
    edges.tofile(tmp_path / "edges.i32")
    destination = tmp_path / "out" / "graph"
    with WarmProcess(tmp_path / "edges.i32", destination, stage, function=import_slowly) as process:
        process.wait_until(lambda: stage in process.output)
        import_graph(tmp_path / "edges.i32", destination.with_name("other"))
        assert len(list(destination.parent.glob(".graph.*"))) == 1, "a running import must be left alone"
        process.signal(signal.SIGKILL)
        process.wait()
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
        import_graph(tmp_path / "edges.i32", tmp_path / "out" / "graph", reporter=Listener(on_stage=interrupt))
    assert list((tmp_path / "out").iterdir()) == []


def test_progress_tells_every_stage(tables: Path, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    started = time.perf_counter()
    summary = import_graph(tables, tmp_path / "graph", reporter=Listener(on_stage=lambda *state: seen.append(state)))
    assert [stage for stage, _, _ in seen] == ["reading edges", "writing edges", "writing features"]
    assert seen[0] == ("reading edges", 200, None)
    assert seen[-1] == ("writing features", 40, 40)
    assert 0 < summary.seconds <= time.perf_counter() - started
