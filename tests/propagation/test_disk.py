"""The disk engine on real graphs, on features larger than memory, on damaged files, and what it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from polyformer.datasets import load_dataset
from polyformer.errors import DataNotFound, DownloadFailed, FileCorrupt, InvalidParameter, OutOfResources
from polyformer.graph import Graph
from polyformer.operators import Operator
from polyformer.propagation.disk import DiskEngine
from polyformer.propagation.memory import MemoryEngine
from polyformer.tokens import open_tokens, write_tokens
from tests.cli.test_cli import run
from tests.listener import Listener


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


@pytest.mark.parametrize("weighted", [False, True])
def test_features_held_ahead_and_blocks_of_every_width(tmp_path: Path, weighted: bool) -> None:
    """The bytes are the same whatever part of the features is held, from memory-mapped files and from memory."""
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


def test_command_prints_its_estimates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random_graph().save(tmp_path / "graph")
    command = ["tokens", tmp_path / "graph", "--engine", "disk", "--out", tmp_path / "t", "--order", 2, "--dtype"]
    assert run(*command, "float16") == 0
    output = capsys.readouterr().out
    assert "500 nodes × 3 tokens × 40 features: 117.2 KiB on disk, twice that until they are put tog" in output
    assert re.search(r"needs about [\d.]+ MiB of memory and \d+ s", output)
    assert run(*command, "float8") == 2
    error = capsys.readouterr().err
    assert error == "polyformer: 'dtype' of tokens must be float32 or float16. Got 'float8'.\n"


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
    """The finished blocks stay; once the file is restored, the same call continues."""
    random_graph().save(tmp_path / "graph")
    graph, path = Graph.load(tmp_path / "graph"), tmp_path / "graph" / name
    content = path.read_bytes()

    def cut(done: float) -> None:
        if done >= 0.2:
            with path.open("r+b") as file:
                file.truncate(200)

    narrow = DiskEngine((6 << 20) + 44_000)  # blocks of 8 columns, a pass over the features for each
    with pytest.raises(FileCorrupt, match=rf"{name}' ended while it was read: it has been cut off"):
        write_tokens(graph, tmp_path / "t", "chebyshev", 2, engine=narrow, reporter=Listener(on_share=cut))
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
