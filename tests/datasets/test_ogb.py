"""OGB: the missing features of ogbn-arxiv, its archive, and ogbn-papers100M streamed into a graph directory."""

from __future__ import annotations

import gzip
import io
import shutil
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyformer.datasets import Counts, load_dataset
from polyformer.datasets.ogb import OGBN_ARXIV
from polyformer.datasets.papers100m import OGBN_PAPERS100M
from polyformer.datasets.sources import RemoteFile
from polyformer.errors import DataNotFound, DownloadFailed, FileCorrupt
from polyformer.files import npz as stream_module
from polyformer.graph import Graph
from polyformer.user_cache import processed_root
from tests.listener import Listener


def test_arxiv_without_features_names_the_bare_graph(
    real_root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYFORMER_OFFLINE", "1")
    with pytest.raises(DataNotFound, match=r"without its node features.*'ogbn-arxiv-graph' is the same graph"):
        load_dataset("ogbn-arxiv", real_root)
    monkeypatch.delenv("POLYFORMER_OFFLINE")
    dataset = replace(OGBN_ARXIV, archive=RemoteFile("arxiv.zip", "http://127.0.0.1:9/arxiv.zip"))
    with pytest.raises(DownloadFailed, match=r"Check the connection.*'ogbn-arxiv-graph'"):
        dataset.load(real_root, "fixed")


def table(rows: np.ndarray) -> bytes:
    text = io.StringIO()
    np.savetxt(text, rows, fmt="%g", delimiter=",")
    return gzip.compress(text.getvalue().encode())


def test_arxiv_comes_out_of_its_archive(server: Any, cache: Path) -> None:
    members = {
        "arxiv/raw/edge.csv.gz": table(np.array([[0, 1], [1, 2], [2, 3]])),
        "arxiv/raw/node-feat.csv.gz": table(np.array([[0.5, -1], [1, 2], [3, 4], [5, 6]])),
        "arxiv/raw/node-label.csv.gz": table(np.array([[0], [1], [0], [1]])),
        **{
            f"arxiv/split/time/{part}.csv.gz": table(np.array([[i]]))
            for i, part in enumerate(("train", "valid", "test"))
        },
        "arxiv/mapping/README.md": b"not needed",
    }
    with zipfile.ZipFile(server.folder / "arxiv.zip", "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    counts = Counts(nodes=4, edges=3, features=2, classes=2)
    dataset = replace(OGBN_ARXIV, archive=RemoteFile("arxiv.zip", f"{server.url}/arxiv.zip"), counts=counts)
    task = dataset.load(None, "fixed")
    np.testing.assert_array_equal(task.graph.features[0], [0.5, -1])
    assert [part.tolist() for part in (task.splits[0].train, task.splits[0].val, task.splits[0].test)] == [
        [0],
        [1],
        [2],
    ]
    assert not (cache / "ogbn-arxiv" / "arxiv.zip").exists()
    assert not (cache / "ogbn-arxiv" / "mapping").exists()
    dataset.load(None, "fixed")
    assert server.requests == ["/arxiv.zip"]


def write_papers(folder: Path, edges: np.ndarray, features: np.ndarray) -> None:
    for sub in ("raw", "split/time"):
        (folder / sub).mkdir(parents=True)
    np.savez(folder / "raw" / "data.npz", edge_index=edges, node_feat=features)
    labels = np.arange(len(features)) % 3
    np.savez(folder / "raw" / "node-label.npz", node_label=np.where(labels == 0, np.nan, labels - 1)[:, None])
    for i, part in enumerate(("train", "valid", "test")):
        (folder / "split" / "time" / f"{part}.csv.gz").write_bytes(table(np.array([[3 * i + 1], [3 * i + 2]])))


def test_papers_are_streamed(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "CHUNK_BYTES", 1 << 17)
    random = np.random.default_rng(0)
    edges, features = random.integers(0, 20_000, (2, 40_000)), random.standard_normal((20_000, 1_000), np.float32)
    write_papers(tmp_path / "root" / "ogbn_papers100M", edges, features)
    expected = Graph(edges, features)
    counts = Counts(nodes=20_000, edges=expected.num_edges, features=1_000, classes=2, listed=40_000)
    dataset = replace(OGBN_PAPERS100M, counts=counts, memory=1 << 19)
    steps = []
    tracemalloc.start()
    task = dataset.load(tmp_path / "root", "fixed", reporter=Listener(on_stage=lambda *step: steps.append(step)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < features.nbytes / 2, "the features were held in memory"
    np.testing.assert_array_equal(task.graph.indptr, expected.indptr)
    np.testing.assert_array_equal(task.graph.indices, expected.indices)
    np.testing.assert_array_equal(task.graph.features, features)
    assert task.graph.fingerprint == expected.fingerprint
    assert isinstance(task.graph.features, np.memmap)
    assert (task.labels == -1).sum() == 6_667
    assert {what for what, _, _ in steps} == {"sorting edges", "writing edges", "writing features"}
    (folder,) = processed_root().iterdir()
    Graph.load(folder, verify=True)
    expected.save(tmp_path / "saved")
    assert (folder / "manifest.json").read_text() == (tmp_path / "saved" / "manifest.json").read_text()
    steps.clear()
    dataset.load(tmp_path / "root", "fixed", reporter=Listener(on_stage=lambda *step: steps.append(step)))
    assert steps == [], "the graph directory was made again"


def test_papers_clean_up_after_a_kill(cache: Path, tmp_path: Path) -> None:
    write_papers(tmp_path / "root" / "ogbn-papers100M", np.array([[0, 1], [1, 8]]), np.ones((9, 2), np.float32))
    counts = Counts(nodes=9, edges=2, features=2, classes=2, listed=2)
    dataset = replace(OGBN_PAPERS100M, counts=counts, memory=1 << 19)

    def kill(*step: Any) -> None:
        (unfinished,) = processed_root().iterdir()
        shutil.copytree(unfinished, unfinished.with_name(f"{unfinished.name}-killed"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dataset.load(tmp_path / "root", "fixed", reporter=Listener(on_stage=kill))
    assert len(list(processed_root().iterdir())) == 1
    dataset.load(tmp_path / "root", "fixed")
    assert [path.name.startswith("ogbn-papers100M-") for path in processed_root().iterdir()] == [True]


@pytest.mark.parametrize("what", ["ids", "features", "truncated"])
def test_bad_papers_leave_no_directory(cache: Path, tmp_path: Path, what: str) -> None:
    edges, features = np.array([[0, 1], [1, 9]]), np.ones((9, 2), np.float32)
    if what == "features":
        edges, features[3, 1] = edges - [[0], [1]], np.nan
    folder = tmp_path / "root" / "ogbn-papers100M"
    write_papers(folder, edges, features)
    if what == "truncated":
        path = folder / "raw" / "data.npz"
        path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(
        FileCorrupt, match={"ids": r"must lie in 0\.\.8", "features": "finite"}.get(what, "cannot be read")
    ):
        OGBN_PAPERS100M.load(tmp_path / "root", "fixed")
    assert not processed_root().exists() or list(processed_root().iterdir()) == []
