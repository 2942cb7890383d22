"""The disk engine on real graphs, on features larger than memory, on damaged files, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from polyformer.datasets import load_dataset
from polyformer.errors import DataNotFound, DownloadFailed, FileCorrupt, InvalidParameter, OutOfResources
from polyformer.feature_scaling import FeatureScaling
from polyformer.graph import Graph
from polyformer.operators import Operator
from polyformer.propagation.disk import DiskEngine
from polyformer.propagation.memory import MemoryEngine
from polyformer.tokens import open_tokens, write_tokens


def random_graph(nodes: int = 500, columns: int = 40, weighted: bool = False) -> Graph:
    random = np.random.default_rng(0)
    weights = random.random(4 * nodes) if weighted else None
    return Graph(random.integers(0, nodes, (2, 4 * nodes)), random.standard_normal((nodes, columns)), nodes, weights)


@pytest.mark.parametrize("name", ["web-google", "ogbn-arxiv-graph"])
def test_agrees_with_the_memory_engine_on_real_graphs(name: str, data_root: Path, tmp_path: Path) -> None:
    try:
        graph = load_dataset(name, root=str(data_root)).graph
    except (DataNotFound, DownloadFailed) as error:
        pytest.skip(str(error))
    random = np.random.default_rng(0)
    graph.with_features(random.standard_normal((graph.num_nodes, 9))).save(tmp_path / "graph")
    mapped, nodes = Graph.load(tmp_path / "graph"), random.choice(graph.num_nodes, 20_000, replace=False)
    for engine in (MemoryEngine(), DiskEngine(graph.num_nodes * 80 + (8 << 20))):  # two blocks of 8 columns
        write_tokens(mapped, tmp_path / type(engine).__name__, "chebyshev", 6, nodes=nodes, engine=engine)
    one, other = (open_tokens(tmp_path / kind)[:] for kind in ("MemoryEngine", "DiskEngine"))
    assert float((one - other).abs().max()) <= 1e-6 * float(one.abs().max())


NODES, COLUMNS = 300_000, 2048
LIMIT = 1 << 30


@pytest.fixture
def control_group() -> Iterator[Path | None]:
    """A control group whose limit counts the page cache too; None where none can be made."""
    group = Path(f"/sys/fs/cgroup/memory/polyformer-test-{os.getpid()}")
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        (group / "memory.limit_in_bytes").write_text(str(LIMIT))
        yield group
    finally:
        group.rmdir()


@pytest.fixture
def wide_graph(tmp_path: Path) -> Iterator[Path]:
    """A ring of 300,000 nodes with 2,048 float32 columns, 2.4 GB, written in pieces and removed at the end."""
    folder, step = tmp_path / "wide", 3000
    here = np.arange(NODES)
    Graph(np.stack([here, (here + 1) % NODES]), np.zeros((NODES, 1), np.float32)).save(folder)
    features = np.lib.format.open_memmap(folder / "features.npy", "w+", np.float32, (NODES, COLUMNS))
    del features  # a file of that size, zeros so far
    with (folder / "features.npy").open("r+b") as file:
        file.seek(-4 * NODES * COLUMNS, 2)
        for start in range(0, NODES, step):
            file.write(wide_rows(np.arange(start, start + step)).data)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "num_features": COLUMNS, "samples": {}}))
    yield folder
    (folder / "features.npy").unlink()


def wide_rows(nodes: np.ndarray) -> np.ndarray:
    """(n, 2048): numbers in [0, 1) that differ from node to node and from column to column."""
    mixed = nodes[:, None].astype(np.uint32) * np.uint32(2654435761) + np.arange(COLUMNS, dtype=np.uint32) * 40503
    return (mixed >> np.uint32(8)).astype(np.float32) / np.float32(1 << 24)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit and the high-water mark are Linux's")
def test_features_larger_than_memory(wide_graph: Path, control_group: Path | None, tmp_path: Path) -> None:
    """2.4 GB of scaled features within 1 GiB: by a control group that counts page cache, else by resident memory."""
    nodes = np.array([0, 7, 123_456, NODES - 1])
    np.save(tmp_path / "nodes.npy", nodes)
    script = """
import re, sys
from pathlib import Path
from polyformer.cli import main
try:
    main(sys.argv[1:])
finally:
    print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""
    command = ["tokens", str(wide_graph), "--engine", "disk", "--memory", "900MiB", "--order", "1"]
    command += ["--nodes", str(tmp_path / "nodes.npy"), "--out", str(tmp_path / "t")]
    enter = "" if control_group is None else f"echo $$ > {control_group}/cgroup.procs && "
    arguments = ["sh", "-c", f'{enter}exec "$@"', "sh", sys.executable, "-c", script, *command]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 1024 * int(done.stdout.split()[-1]) < LIMIT
    if control_group is not None:
        assert int((control_group / "memory.max_usage_in_bytes").read_text()) <= LIMIT
    stored = open_tokens(tmp_path / "t")
    tokens, scaling = stored[:].numpy(), FeatureScaling.from_json(stored.manifest["scaling"])
    assert scaling is not None
    here, before, after = (scaling.apply(wide_rows((nodes + step) % NODES)) for step in (0, -1, 1))
    assert np.array_equal(tokens[:, 0], here)
    assert np.allclose(tokens[:, 1], -(before + after) / 2, atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_features_held_ahead_and_blocks_of_every_width(tmp_path: Path, weighted: bool) -> None:
    """Whatever part of the features is held, from mapped files and from memory: the same bytes."""
    graph = random_graph(2000, 90, weighted)
    graph.save(tmp_path / "graph")
    mapped = Graph.load(tmp_path / "graph")
    mixed = Graph.from_csr(mapped.indptr, np.array(mapped.indices), graph.weights, mapped.features)
    results = []
    for name, source in (("mapped", mapped), ("mixed", mixed), ("memory", graph)):
        for megabytes in (7, 8, 30):
            place = tmp_path / f"{name}-{megabytes}"
            write_tokens(source, place, "chebyshev", 3, engine=DiskEngine(megabytes << 20))
            results.append((place / "tokens.npy").read_bytes())
    assert len(set(results)) == 1


def plan_bytes(graph: Graph, memory: int, order: int, fixed: bool = True) -> int:
    assert graph.features is not None
    return DiskEngine(memory).cost(Operator(graph), order, graph.features, fixed).memory


def test_estimates_fit_the_memory_and_refuse_what_does_not() -> None:
    graph = random_graph(20_000, 100)
    for memory in (9 << 20, 12 << 20, 20 << 20, 100 << 20):
        assert plan_bytes(graph, memory, 4) <= memory
    assert plan_bytes(graph, 100 << 20, 4) > plan_bytes(graph, 9 << 20, 4)
    with pytest.raises(OutOfResources, match=r"would take .* MiB of memory besides .* Raise --memory\.$"):
        plan_bytes(graph, 1 << 20, 4)
    with pytest.raises(OutOfResources, match=r"Raise --memory, lower --order, or take a fixed basis\.$"):
        plan_bytes(graph, 20 << 20, 20, fixed=False)


def test_estimated_time_grows_with_the_work() -> None:
    graph = random_graph(20_000, 100)
    assert graph.features is not None

    def seconds(order: int, fixed: bool) -> float:
        return DiskEngine(1 << 30).cost(Operator(graph), order, graph.features, fixed).seconds

    assert 0 < seconds(1, True) < seconds(8, True) < seconds(8, False)


def run_tokens(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "polyformer", "tokens", str(folder / "graph"), "--engine", "disk"]
    return subprocess.run(
        [*command, "--out", str(folder / "t"), "--order", "2", *options], capture_output=True, text=True
    )


def test_command_prints_its_estimates(tmp_path: Path) -> None:
    random_graph().save(tmp_path / "graph")
    done = run_tokens(tmp_path, "--dtype", "float16")
    assert done.returncode == 0, done.stderr
    assert "500 nodes × 3 tokens × 40 features: 117.2 KiB on disk, twice that until they are put tog" in done.stdout
    assert re.search(r"needs about [\d.]+ MiB of memory and \d+ s", done.stdout)
    done = run_tokens(tmp_path, "--dtype", "float8")
    assert done.returncode == 2
    assert done.stderr.endswith("polyformer: 'dtype' of tokens must be float32 or float16. Got 'float8'.\n")


@pytest.mark.parametrize("name", ["indptr.npy", "indices.npy", "weights.npy", "features.npy"])
@pytest.mark.parametrize("damage", ["truncated", "swapped", "missing"])
def test_damaged_graph_is_refused(tmp_path: Path, name: str, damage: str) -> None:
    random_graph(weighted=True).save(tmp_path / "graph")
    path = tmp_path / "graph" / name
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-8])
    elif damage == "swapped":  # for a file of the same shape that is as plausible
        numbers = np.load(path)
        numbers[len(numbers) // 2] = numbers[len(numbers) // 2 - 1]
        np.save(path, numbers)
    else:
        path.unlink()
    with pytest.raises(FileCorrupt, match=re.escape(name)):
        Graph.load(tmp_path / "graph")


@pytest.mark.parametrize("name", ["indices.npy", "features.npy"])
def test_file_that_is_cut_off_while_it_is_read(tmp_path: Path, name: str) -> None:
    """The finished blocks stay; with the file restored, the same call goes on."""
    random_graph().save(tmp_path / "graph")
    graph, path = Graph.load(tmp_path / "graph"), tmp_path / "graph" / name
    content = path.read_bytes()

    def cut(done: float) -> None:
        if done >= 0.2:
            with path.open("r+b") as file:
                file.truncate(200)

    narrow = DiskEngine((6 << 20) + 44_000)  # blocks of 8 columns, a pass over the features for each
    with pytest.raises(FileCorrupt, match=rf"{name}' ended while it was read: it has been cut off"):
        write_tokens(graph, tmp_path / "t", "chebyshev", 2, engine=narrow, progress=cut)
    with path.open("r+b") as file:
        file.write(content)
    assert list((tmp_path / ".t.partial").glob("block-*"))
    write_tokens(graph, tmp_path / "t", "chebyshev", 2, engine="disk")
    write_tokens(graph, tmp_path / "whole", "chebyshev", 2, engine="disk")
    assert (tmp_path / "t" / "tokens.npy").read_bytes() == (tmp_path / "whole" / "tokens.npy").read_bytes()


@pytest.mark.parametrize("engine", ["memory", "disk"])
def test_no_nodes_and_unknown_type(tmp_path: Path, engine: str) -> None:
    for none in ([], np.zeros(random_graph().num_nodes, bool)):
        with pytest.raises(InvalidParameter, match=r"'nodes' must name at least one node\. Got none"):
            write_tokens(random_graph(), tmp_path / "none", "chebyshev", 2, nodes=none, engine=engine)
    with pytest.raises(InvalidParameter, match="'dtype' of tokens must be float32 or float16"):
        write_tokens(random_graph(), tmp_path / "t", "chebyshev", 2, engine=engine, dtype="int8")
    assert list(tmp_path.iterdir()) == []
