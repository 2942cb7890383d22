"""Graphs that are made up: what is promised of their degrees, communities, features and bytes."""

from __future__ import annotations

import json
import shutil
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import torch

from polyformer.errors import InvalidParameter, MissingDependency, OutOfResources, OutputExists, UnknownName
from polyformer.graph import Graph
from polyformer.importing import import_graph
from polyformer.importing import synthetic as module
from polyformer.tasks import Task


def made(folder: Path, spec: str) -> Task:
    import_graph(f"synthetic:{spec}", folder / "graph")
    return Task.load(folder / "graph")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize(
    "spec",
    [
        "nodes=4,edges=1,features=1,classes=1",
        "nodes=4,edges=1,features=3,classes=2",
        "nodes=10,edges=8,features=0,classes=2,homophily=1",
        "nodes=50,edges=300,features=2,classes=1,homophily=0",
        "nodes=20000,edges=90000,features=2,classes=300,seed=5",
    ],
)
def test_is_a_simple_symmetric_graph(tmp_path: Path, spec: str) -> None:
    task = made(tmp_path, spec)
    graph = Graph.load(tmp_path / "graph", verify=True)
    adjacency = graph.adjacency()
    assert abs(adjacency - adjacency.T).nnz == 0
    assert adjacency.diagonal().sum() == 0
    within_rows = np.ones(len(graph.indices), bool)
    within_rows[graph.indptr[:-1][np.diff(graph.indptr) > 0]] = False
    assert np.all(np.diff(graph.indices)[within_rows[1:]] > 0)  # sorted, so without repeats
    manifest = json.loads((tmp_path / "graph" / "manifest.json").read_text())
    assert (manifest["num_nodes"], manifest["num_edges"]) == (graph.num_nodes, graph.num_edges)
    options = module.SyntheticOptions.parse(f"synthetic:{spec}")
    assert set(task.labels) == set(range(options.classes))


@pytest.mark.parametrize(
    "spec", ["nodes=30000,edges=30000", "nodes=60000,edges=900000", "nodes=3000,edges=200000,homophily=0.8"]
)
@pytest.mark.parametrize("seed", [0, 1])
def test_number_of_edges_is_within_one_percent(tmp_path: Path, spec: str, seed: int) -> None:
    task = made(tmp_path, f"{spec},features=0,seed={seed}")
    wanted = module.SyntheticOptions.parse(f"synthetic:{spec}").edges
    assert abs(task.graph.num_edges / wanted - 1) < 0.01


def test_degrees_follow_a_power_law(tmp_path: Path) -> None:
    """P(degree > d) falls as d^-1.5 far from both ends: Hill's estimator of the exponent."""
    degrees = np.sort(np.diff(made(tmp_path, "nodes=200000,edges=1500000,features=0,classes=4").graph.indptr))
    largest = degrees[-2000:]
    largest = largest[largest < degrees[-1] / 2]  # where the law is not cut off yet
    top, least = len(degrees[degrees >= largest[0]]), float(largest[0])
    tail = np.log(np.minimum(degrees[-top:], degrees[-1] / 2) / least)
    exponent = len(largest) / tail.sum()  # those beyond the cut count as censored
    assert exponent == pytest.approx(1.5, abs=0.25)
    assert degrees[-1] > 20 * degrees.mean()
    assert degrees[0] >= 1


@pytest.mark.parametrize("homophily", [0.0, 0.6, 1.0])
def test_edges_within_communities(tmp_path: Path, homophily: float) -> None:
    """h of the edges are drawn within a community; of the others Σ_k p_k² are by chance, p_k its share of all ends."""
    task = made(tmp_path, f"nodes=40000,edges=400000,features=0,classes=8,homophily={homophily}")
    graph, labels = task.graph, task.labels
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    share = np.bincount(labels, np.diff(graph.indptr)) / len(graph.indices)
    expected = homophily + (1 - homophily) * np.sum(share**2)
    assert np.mean(labels[rows] == labels[graph.indices]) == pytest.approx(expected, abs=0.02)
    sizes = np.bincount(labels)
    assert np.all(np.diff(sizes) < 0)  # of unequal sizes


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_features_are_centres_and_noise(tmp_path: Path, dtype: str) -> None:
    task = made(tmp_path, f"nodes=30000,edges=60000,features=24,classes=3,noise=2,dtype={dtype}")
    assert task.graph.features is not None
    assert task.graph.features.dtype == dtype
    features = np.asarray(task.graph.features, np.float64)
    centres = np.stack([features[task.labels == k].mean(0) for k in range(3)])
    noise = features - centres[task.labels]
    assert noise.std() == pytest.approx(2 / np.sqrt(5), rel=0.02)
    assert centres.std() == pytest.approx(1 / np.sqrt(5), rel=0.3)
    assert abs(np.corrcoef(noise[:, :6].T) - np.eye(6)).max() < 0.03
    nearest = ((features[:, None] - centres) ** 2).sum(2).argmin(1)
    assert np.mean(nearest == task.labels) > 0.8


def test_labelled_nodes_and_their_split(tmp_path: Path) -> None:
    task = made(tmp_path, "nodes=5000,edges=9000,features=1,classes=4,labelled=1000")
    assert np.count_nonzero(task.labels >= 0) == 1000
    (split,) = task.splits
    assert [len(part) for part in (split.train, split.val, split.test)] == [780, 80, 140]
    assert np.all(task.labels[np.concatenate([split.train, split.val, split.test])] >= 0)
    bare = made(tmp_path / "other", "nodes=500,edges=900,labelled=0")
    assert not bare.splits
    assert np.all(bare.labels == -1)


def test_same_seed_same_bytes_whatever_the_threads(tmp_path: Path) -> None:
    spec = "nodes=4000,edges=20000,features=5,classes=4,labelled=0.5"
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            made(tmp_path / str(threads), f"{spec},seed=7")
    finally:
        torch.set_num_threads(before)
    made(tmp_path / "other", f"{spec},seed=8")
    first, again, other = (contents(tmp_path / name / "graph") for name in ("1", "3", "other"))
    assert first == again
    assert all(first[name] != other[name] for name in ("indices.npy", "features.npy", "labels.npy"))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nodes=3", r"'nodes' of a synthetic graph must lie in 4\.\.2147483647\. Got 3\."),
        ("nodes=inf", r"'nodes' of a synthetic graph must be a whole number such as 1e6\. Got inf\."),
        ("nodes=1e3,edges=2.5", r"'edges' of a synthetic graph must be a whole number such as 1e6\. Got 2\.5\."),
        ("nodes=1e3,edges=1e6", r"'edges' of a synthetic graph must lie in 1\.\.124875\. Got 1000000\."),
        ("nodes=100,edges=50,classes=51", r"'classes' of a synthetic graph must lie in 1\.\.50\. Got 51\."),
        ("homophily=1.5", r"'homophily' of a synthetic graph must lie in 0\.\.1\. Got 1\.5\."),
        ("homophily=nan", "'homophily' of a synthetic graph must lie"),
        ("noise=loud", "'noise' of a synthetic graph must lie in .* Got 'loud'"),
        ("labelled=-1", "'labelled' of a synthetic graph must lie in"),
        ("nodes=400,edges=19000,homophily=1", r"'edges' .* 19000 are too many for 400 nodes in 10 with homophily 1\."),
        ("seed=true", "'seed' of a synthetic graph must be a whole number"),
        ("dtype=float64", r"'dtype' of a synthetic graph must be float16 or float32\. Got 'float64'\."),
        ("nodes", r"must read name:key=value,key=value\. Got 'nodes' in it\."),
    ],
)
def test_bad_options(tmp_path: Path, spec: str, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        made(tmp_path, spec)
    assert list(tmp_path.iterdir()) == []


def test_unknown_option_and_taken_place(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"has no option 'node'\. Did you mean 'nodes'"):
        made(tmp_path, "node=100")
    made(tmp_path, "nodes=100,edges=200")
    with pytest.raises(OutputExists):
        made(tmp_path, "nodes=100,edges=200")


def test_full_disk_and_missing_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1 << 30))
    with pytest.raises(OutOfResources, match=r"This graph needs 7\.5 GiB of disk at .* Got 1\.0 GiB"):
        made(tmp_path, "nodes=1e8,edges=8e8,features=0,labelled=0")
    monkeypatch.undo()
    monkeypatch.setenv("POLYFORMER_KERNEL", "scipy")
    with pytest.raises(MissingDependency, match="made by the native kernel"):
        made(tmp_path, "nodes=100,edges=200")
    (tmp_path / "file").write_text("")
    with pytest.raises(OutOfResources, match="Could not write"):
        made(tmp_path / "file", "nodes=100,edges=200")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_of_that_name_is_a_folder(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables.rename(tmp_path / "synthetic")
    monkeypatch.chdir(tmp_path)
    assert import_graph("synthetic", tmp_path / "graph").format != "synthetic"
