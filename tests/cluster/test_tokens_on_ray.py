"""Tokens on a Ray cluster: the bytes of the disk engine, whatever is killed, and nothing but those of this job."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from polyformer.bases import BASES
from polyformer.cluster import Node
from polyformer.errors import FileCorrupt, InvalidParameter, OutOfResources, OutputBusy, OutputExists
from polyformer.feature_scaling import FeatureScaling
from polyformer.graph import Graph
from polyformer.operators import Operator
from polyformer.propagation import ray as module
from polyformer.propagation.engine import TokenJob
from polyformer.propagation.ray import PROCESS_BYTES, RayEngine
from polyformer.stores.blocks import RowAssembly, TokenShape, write_block
from polyformer.stores.sinks import ArraySink
from polyformer.tokens import write_tokens
from tests.cli.test_cli import run
from tests.listener import Listener
from tests.ray_cluster import NODE, descendants, open_files
from tests.stores.test_writer import same_files

ORDER = 3


def example(nodes: int = 400, columns: int = 50, weighted: bool = False, seed: int = 0) -> Graph:
    random = np.random.default_rng(seed)
    weights = random.random(4 * nodes) if weighted else None
    return Graph(random.integers(0, nodes, (2, 4 * nodes)), random.standard_normal((nodes, columns)), nodes, weights)


def narrow(nodes: int) -> RayEngine:
    """Memory for blocks of 8 columns of a fixed basis."""
    return RayEngine(PROCESS_BYTES + (6 << 20) + 100 * nodes)


@pytest.mark.ray
@pytest.mark.parametrize("basis", list(BASES))
def test_bytes_of_the_disk_engine(basis: str, ray_cluster: Any, tmp_path: Path) -> None:
    """All files: of a weighted, scaled graph and some nodes; of sparse features, with self-loops, as half precision."""
    example(weighted=True).save(tmp_path / "weighted")
    dense = np.where(np.random.default_rng(3).random((300, 70)) < 0.1, 1.5, 0.0)
    example(300).with_features(sp.csr_matrix(dense)).save(tmp_path / "sparse")
    jobs: list[tuple[str, dict[str, Any]]] = [
        ("weighted", {"nodes": np.arange(350, 20, -3)}),
        ("sparse", {"self_loops": True, "dtype": "float16"}),
    ]
    for name, options in jobs:
        graph = Graph.load(tmp_path / name)
        graph = graph.scaled(FeatureScaling.fit(graph.features))
        for engine in ("disk", "ray"):
            write_tokens(graph, tmp_path / f"{name}-{engine}", basis, ORDER, engine=engine, **options)
        assert same_files(tmp_path / f"{name}-ray", tmp_path / f"{name}-disk")


@pytest.mark.ray
def test_graph_in_memory_many_blocks_and_rows_of_several_tasks(ray_cluster: Any, tmp_path: Path) -> None:
    graph = example(6000, 100)  # 10 MB of tokens: rows are put together by several tasks
    shares: list[float] = []
    write_tokens(
        graph, tmp_path / "ray", "chebyshev", ORDER, engine=narrow(6000), reporter=Listener(on_share=shares.append)
    )
    write_tokens(graph, tmp_path / "disk", "chebyshev", ORDER, engine="disk")
    assert same_files(tmp_path / "ray", tmp_path / "disk")
    assert len(shares) == 1 + 13
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "ray"]


@pytest.mark.ray
def test_command(ray_cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example().save(tmp_path / "graph")
    common = ["--order", ORDER, "--nodes", "all"]
    place = ["--engine", "ray", "--address", ray_cluster.address, "--workers", 2]
    assert run("tokens", tmp_path / "graph", *common, *place, "--out", tmp_path / "ray", "--json") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["rows"] == 400
    assert re.search(r"needs about [\d.]+ MiB of memory in each of 2 tasks at a time and \d+ s", captured.err)
    assert run("tokens", tmp_path / "graph", *common, "--engine", "disk", "--out", tmp_path / "disk") == 0
    assert same_files(tmp_path / "ray", tmp_path / "disk")


def blocks_in(folder: Path) -> dict[str, tuple[int, int]]:
    """The finished blocks, and which file each is."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.glob("block-*")}


def wait_for(condition: Any, seconds: float = 240.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.002)


def signal_all(processes: set[int], number: int) -> None:
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


LONG, NARROW = 100_000, PROCESS_BYTES + (6 << 20) + 100 * 100_000
"""Nodes of a graph whose blocks of 8 columns take some tenths of a second each, and the memory for these."""


@pytest.fixture
def long_graph(tmp_path: Path) -> Path:
    """A graph with twenty such blocks, and the nodes whose tokens are computed."""
    example(LONG, 160).save(tmp_path / "graph")
    np.save(tmp_path / "nodes.npy", np.arange(0, LONG, 50))
    return tmp_path / "graph"


def check_against_disk(graph: Path, tokens: Path) -> None:
    nodes, place = np.load(graph.parent / "nodes.npy"), tokens.parent / "disk"
    write_tokens(Graph.load(graph), place, "chebyshev", 10, nodes=nodes, engine="disk")
    assert same_files(tokens, place)


def warm_up(node: Any) -> None:
    """Let a process of this node do its imports, so that it is ready for tasks."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    place = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
    ray.get(ray.remote(_import_all).options(num_cpus=1, scheduling_strategy=place).remote(), timeout=240)


def _import_all() -> None:
    import polyformer.propagation.ray
    import polyformer.tokens  # noqa: F401


@pytest.mark.ray
def test_a_node_is_killed_in_the_middle(ray_cluster: Any, long_graph: Path, tmp_path: Path) -> None:
    """The block of the lost node is made again elsewhere, finished blocks are not, and the bytes are the same."""
    extra = ray_cluster.add_node(**NODE)
    raylet = extra.all_processes["raylet"][0].process.pid
    warm_up(extra)
    folder, ended = tmp_path / ".ray.partial", threading.Event()
    finished: dict[str, tuple[int, int]] = {}
    begun: set[str] = set()
    later: list[dict[str, tuple[int, int]]] = []
    left: set[str] = set()

    def in_the_middle() -> bool:
        """Stop the node while it works on a block and other blocks are done."""
        if len(blocks_in(folder)) < 2:
            return ended.is_set()
        processes = descendants(raylet)
        signal_all(processes, signal.SIGSTOP)
        begun.update(Path(name).name for name in open_files(processes) if name.startswith(str(folder / ".block-")))
        if begun:
            finished.update(blocks_in(folder))
            return True
        signal_all(processes, signal.SIGCONT)
        return ended.is_set()

    def kill() -> None:
        wait_for(in_the_middle)
        signal_all(descendants(raylet), signal.SIGKILL)
        ray_cluster.remove_node(extra, allow_graceful=False)

    def watch(share: float) -> None:
        if not killer.is_alive():
            later.append(blocks_in(folder))
            left.update(path.name for path in folder.glob(".block-*"))

    killer = threading.Thread(target=kill)
    killer.start()
    graph, nodes, engine = Graph.load(long_graph), np.load(tmp_path / "nodes.npy"), RayEngine(NARROW, workers=3)
    write_tokens(
        graph, tmp_path / "ray", "chebyshev", 10, nodes=nodes, engine=engine, reporter=Listener(on_share=watch)
    )
    ended.set()
    killer.join()
    assert later
    assert len(begun) == 1
    assert len(finished) >= 2
    assert all(finished.items() <= seen.items() for seen in later)
    assert begun <= left  # cut off, and made again from the beginning
    check_against_disk(long_graph, tmp_path / "ray")


@pytest.mark.ray
def test_the_driver_is_killed_and_the_job_goes_on(ray_cluster: Any, long_graph: Path, tmp_path: Path) -> None:
    folder = tmp_path / ".ray.partial"
    command = ["tokens", str(long_graph), "--order", "10", "--engine", "ray", "--address", ray_cluster.address]
    command += ["--memory", str(NARROW), "--nodes", str(tmp_path / "nodes.npy"), "--out", str(tmp_path / "ray")]
    command += ["--scale-features", "none"]

    def registered() -> set[str]:
        with contextlib.suppress(FileNotFoundError):
            return {block["file"] for block in json.loads((folder / "progress.json").read_text())["blocks"]}
        return set()

    with subprocess.Popen([sys.executable, "-m", "polyformer", *command], stdout=subprocess.DEVNULL) as driver:
        wait_for(lambda: len(registered()) >= 3 or driver.poll() is not None)
        driver.send_signal(signal.SIGKILL)
    before = {name: where for name, where in blocks_in(folder).items() if name in registered()}
    assert 3 <= len(before) < 20
    seen: list[dict[str, tuple[int, int]]] = []
    shares: list[float] = []

    def watch(share: float) -> None:
        shares.append(share)
        seen.append(blocks_in(folder))

    graph, nodes, engine = Graph.load(long_graph), np.load(tmp_path / "nodes.npy"), RayEngine(NARROW)
    write_tokens(
        graph, tmp_path / "ray", "chebyshev", 10, nodes=nodes, engine=engine, reporter=Listener(on_share=watch)
    )
    assert shares[0] == pytest.approx(len(before) * 8 / 160)
    assert all(before.items() <= now.items() for now in seen)
    check_against_disk(long_graph, tmp_path / "ray")


@pytest.mark.ray
def test_stale_and_foreign_files(ray_cluster: Any, tmp_path: Path) -> None:
    def stop(share: float) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    example().save(tmp_path / "graph")
    graph, out = Graph.load(tmp_path / "graph"), tmp_path / "t"
    with pytest.raises(KeyboardInterrupt):
        write_tokens(graph, out, "chebyshev", ORDER, engine=narrow(400), reporter=Listener(on_share=stop))
    with pytest.raises(OutputExists, match="unfinished tokens of another job: its order is 3, not 2"):
        write_tokens(graph, out, "chebyshev", 2, engine="ray")
    block = sorted((tmp_path / ".t.partial").glob("block-*"))[0]
    block.write_bytes(bytes(block.stat().st_size))
    write_tokens(graph, out, "chebyshev", ORDER, engine="ray")
    write_tokens(graph, tmp_path / "disk", "chebyshev", ORDER, engine="disk")
    assert same_files(out, tmp_path / "disk")
    with pytest.raises(OutputExists, match="already exists"):
        write_tokens(graph, out, "chebyshev", ORDER, engine="ray")

    (tmp_path / "graph").rename(tmp_path / "old")
    example(seed=1).save(tmp_path / "graph")
    with pytest.raises(FileCorrupt, match=r"graph' is not the graph that this job began with"):
        write_tokens(graph, tmp_path / "u", "chebyshev", ORDER, engine="ray")
    assert not (tmp_path / "u").exists()


@pytest.mark.ray
def test_two_jobs_on_one_output(ray_cluster: Any, tmp_path: Path) -> None:
    graph = example()

    def again(_: float) -> None:
        with pytest.raises(OutputBusy, match="Another process is writing tokens"):
            write_tokens(graph, tmp_path / "t", "chebyshev", ORDER, engine="ray")

    write_tokens(graph, tmp_path / "t", "chebyshev", ORDER, engine="ray", reporter=Listener(on_share=again))
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


@pytest.mark.ray
def test_errors_of_blocks_come_back(ray_cluster: Any, tmp_path: Path) -> None:
    large = example().with_features(np.full((400, 2), 1e5))
    with pytest.raises(ValueError, match=r"order 0 in column 0 is 100000, but float16 holds at most 65504"):
        write_tokens(large, tmp_path / "t", "chebyshev", ORDER, engine="ray", dtype="float16")
    job = TokenJob(Operator(large), np.asarray(large.features), 1, ArraySink(np.empty((400, 2, 2), np.float32)))
    with pytest.raises(InvalidParameter, match="The engine 'ray' writes token directories alone"):
        RayEngine().chebyshev(job)


GIB = 1 << 30


@pytest.mark.parametrize(
    ("machines", "workers", "cpus", "width", "tasks"),
    [
        ([Node(8, 64 * GIB)] * 2, None, 8, 64, 2),  # one task a node, with all its CPUs
        ([Node(8, 64 * GIB)] * 2, 4, 4, 32, 4),  # four blocks for four tasks
        ([Node(8, 64 * GIB)] * 2, 16, 1, 16, 16),  # eight of 16 take no longer than sixteen of 8
        ([Node(4, 64 * GIB), Node(64, 64 * GIB)], None, 32, 64, 2),
        ([Node(8, GIB)] * 2, None, 8, 16, 2),  # what memory holds
        ([Node(8, GIB)] * 2, 16, 1, 16, 16),  # an eighth of the memory is too little: fewer tasks run at a time
    ],
)
def test_layout(
    machines: list[Node], workers: int | None, cpus: int, width: int, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "nodes", lambda: machines)
    here = np.arange(3_000_000)
    ring = Graph.from_csr(
        np.arange(0, 6_000_001, 2),
        np.sort(np.stack([(here - 1) % 3_000_000, (here + 1) % 3_000_000], 1)).ravel().astype(np.int32),
    )
    features = np.broadcast_to(np.float32(0), (3_000_000, 128))
    layout = RayEngine(workers=workers).layout(Operator(ring), 4, features, True, [slice(0, 128)])
    assert (layout.cpus, layout.width, layout.tasks) == (cpus, width, tasks)
    assert layout.memory <= max(node.memory for node in machines)
    with pytest.raises(OutOfResources, match=r"A node of the Ray cluster offers .* of which a process takes"):
        RayEngine(PROCESS_BYTES + (64 << 20)).layout(Operator(ring), 4, features, True, [slice(0, 128)])


@pytest.mark.parametrize("cuts", [[], [1], [999], [1000, 1001], [77, 4000, 15_000]])
def test_rows_put_together_in_any_parts(cuts: list[int], tmp_path: Path) -> None:
    tokens = np.random.default_rng(0).standard_normal((100, 4, 13)).astype(np.float32)
    shape, names = TokenShape(100, 3, 13), []
    for columns in (slice(0, 8), slice(8, 13)):
        with write_block(tmp_path, columns, shape) as block:
            for k in range(4):
                block.put(k, tokens[:, k, columns])
        names.append((columns.start, columns.stop, block.name))
    rows = RowAssembly(tmp_path, shape, tuple(names))
    rows.create()
    for begin, end in reversed(list(zip([0, *cuts], [*cuts, rows.size], strict=True))):
        rows.write(begin, end)
    np.save(tmp_path / "expected.npy", tokens)
    assert (tmp_path / "tokens.npy").read_bytes() == (tmp_path / "expected.npy").read_bytes()


def test_parts_begin_at_pages_of_the_file(tmp_path: Path) -> None:
    shape = TokenShape(50_001, 3, 20)
    rows = RowAssembly(tmp_path, shape, ())
    rows.create()
    parts = rows.parts(5 << 20)
    header = os.path.getsize(tmp_path / "tokens.npy") - shape.bytes
    assert (parts[0][0], parts[-1][1]) == (0, shape.bytes)
    assert [end for _, end in parts[:-1]] == [begin for begin, _ in parts[1:]]
    assert all((header + begin) % (1 << 20) == 0 for begin, _ in parts[1:])
    assert len(parts) == 4
