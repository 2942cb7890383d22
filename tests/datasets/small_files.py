"""Small files in the formats of the published data sets, written by the tests, and what a loader must make of them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import pickle
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

from polyformer.datasets import Counts
from polyformer.datasets.gnn_benchmark import SparseNpz
from polyformer.datasets.graphsaint import GraphSaint
from polyformer.datasets.grid import GridImages
from polyformer.datasets.heterophilous import Heterophilous
from polyformer.datasets.linkx import Pokec, TwitchGamers
from polyformer.datasets.ogb import OgbCsv
from polyformer.datasets.papers100m import OgbBinary
from polyformer.datasets.planetoid import Planetoid
from polyformer.datasets.public_files import PublicDataset
from polyformer.datasets.web_google import BareGraph

N, CLASSES, WIDTH = 60, 2, 7


@dataclass(frozen=True)
class Written:
    """What was written: undirected edges as sorted pairs, features after preprocessing (None: none), labels."""

    edges: set[tuple[int, int]]
    features: np.ndarray | None
    labels: np.ndarray
    listed: int | None = None

    @property
    def counts(self) -> Counts:
        return Counts(
            nodes=N,
            edges=len(self.edges),
            features=0 if self.features is None else self.features.shape[1],
            classes=int(self.labels.max()) + 1,
            listed=self.listed,
        )


def write_small(dataset: PublicDataset, folder: Path) -> Written:
    """Write the files of ``dataset`` into ``folder``."""
    for file in dataset.files:
        (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
    return WRITERS[type(dataset)](dataset, folder)


def random_graph(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(2, E) edges with a loop and a repeat among them, sparse counts (N, WIDTH), labels."""
    random = np.random.default_rng(seed)
    edges = np.concatenate([random.integers(0, N, (2, 150)), [[3, 5, 6, N - 1], [3, 6, 5, 0]]], axis=1)
    counts = random.integers(0, 4, (N, WIDTH)) * random.integers(0, 2, (N, WIDTH))
    return edges, counts.astype(np.float32), np.arange(N) % CLASSES


def undirected(edges: np.ndarray) -> set[tuple[int, int]]:
    return {(min(u, v), max(u, v)) for u, v in edges.T.tolist() if u != v}


def normalised(features: np.ndarray) -> np.ndarray:
    features = features - features.min()
    return features / np.maximum(features.sum(axis=1, keepdims=True), 1)


def three_parts(seed: int) -> dict[str, np.ndarray]:
    order = np.random.default_rng(seed).permutation(N)
    return {"train": order[:30], "valid": order[30:45], "test": order[45:]}


def _planetoid(dataset: Planetoid, folder: Path) -> Written:
    edges, counts, labels = random_graph()
    one_hot = np.eye(CLASSES, dtype=np.int32)[labels]
    one_hot[N - 2] = 0  # a test node without a label counts as class 0
    labels = np.where(np.arange(N) == N - 2, 0, labels)
    known, train = N - 10, 8
    test = np.random.default_rng(1).permutation(np.arange(known, N))
    neighbours: dict[int, list[int]] = defaultdict(list, {node: [] for node in range(N)})
    for u, v in edges.T.tolist():
        neighbours[u].append(v)
        neighbours[v].append(u)
    parts: dict[str, Any] = {
        "x": sp.csr_matrix(counts[:train]),
        "allx": sp.csr_matrix(counts[:known]),
        "tx": sp.csr_matrix(counts[test]),
        "y": one_hot[:train],
        "ally": one_hot[:known],
        "ty": one_hot[test],
        "graph": neighbours,
    }
    for file in dataset.files:
        part = file.path.split(".", 2)[2]
        if part == "test.index":
            (folder / file.path).write_text("".join(f"{node}\n" for node in test))
        else:
            (folder / file.path).write_bytes(pickle.dumps(parts[part], protocol=2))
    return Written(undirected(edges), normalised(counts) if dataset.normalised else counts, labels)


def _sparse_npz(dataset: SparseNpz, folder: Path) -> Written:
    edges, counts, labels = random_graph()
    adjacency = sp.csr_matrix((np.ones(edges.shape[1]), (edges[0], edges[1])), shape=(N, N))
    arrays = {
        f"{name}_{part}": np.asarray(getattr(matrix, part))
        for name, matrix in (("adj", adjacency), ("attr", sp.csr_matrix(counts)))
        for part in ("data", "indices", "indptr", "shape")
    }
    np.savez(folder / dataset.files[0].path, labels=labels, **arrays)
    binary = (counts > 0).astype(np.float32)
    return Written(undirected(edges), normalised(binary) if dataset.normalised else binary, labels)


def _heterophilous(dataset: Heterophilous, folder: Path) -> Written:
    edges, counts, labels = random_graph()
    masks = {
        f"{name}_masks": np.stack([np.isin(np.arange(N), three_parts(i)[part]) for i in range(10)])
        for name, part in (("train", "train"), ("val", "valid"), ("test", "test"))
    }
    np.savez(folder / dataset.files[0].path, node_features=counts, node_labels=labels, edges=edges.T, **masks)
    return Written(undirected(edges), counts, labels)


def _write_linkx_splits(path: Path) -> None:
    np.save(path, np.array([three_parts(i) for i in range(5)], dtype=object), allow_pickle=True)


def _twitch(dataset: TwitchGamers, folder: Path) -> Written:
    edges, _, labels = random_graph()
    table, edge_table, splits = (folder / file.path for file in dataset.files)
    names = ("views", "mature", "life_time", "created_at", "updated_at", "numeric_id", "dead_account", "language")
    languages = ["EN", "DE", "FR"]
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*names, "affiliate"])
        for i in range(N):
            dates = f"2016-02-{1 + i % 28:02d}", f"2018-10-{1 + i % 30:02d}"
            flags = int(i % 5 == 0), languages[i % 3], i % 2
            writer.writerow([i * i, labels[i], 10 * i, *dates, i, *flags])
    with edge_table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["numeric_id_1", "numeric_id_2"])
        writer.writerows(edges.T.tolist())
    _write_linkx_splits(splits)
    i = np.arange(N)
    created, updated = 20160201 + i % 28, 20181001 + i % 30
    raw = np.stack([i * i, 10 * i, created, updated, i % 5 == 0, i % 3, i % 2], axis=1).astype(float)
    features = (raw - raw.mean(axis=0)) / raw.std(axis=0, ddof=1)
    return Written(undirected(edges), features, labels, listed=edges.shape[1])


def _pokec(dataset: Pokec, folder: Path) -> Written:
    edges, counts, labels = random_graph()
    mat, splits = (folder / file.path for file in dataset.files)
    scipy.io.savemat(mat, {"edge_index": edges, "node_feat": counts, "label": labels.astype(np.int16), "num_nodes": N})
    _write_linkx_splits(splits)
    return Written(undirected(edges), counts, labels, listed=edges.shape[1])


def _write_table(path: Path, rows: np.ndarray) -> None:
    text = io.StringIO()
    csv.writer(text).writerows(rows.tolist())
    path.write_bytes(gzip.compress(text.getvalue().encode()))


def _write_time_split(folder: Path, labelled: np.ndarray) -> None:
    for name, nodes in zip(("train", "valid", "test"), np.array_split(labelled, 3), strict=True):
        _write_table(folder / f"split/time/{name}.csv.gz", nodes[:, None])


def _ogb_csv(dataset: OgbCsv, folder: Path) -> Written:
    edges, counts, labels = random_graph()
    for name, rows in (("edge", edges.T), ("node-feat", counts), ("node-label", labels[:, None])):
        _write_table(folder / f"raw/{name}.csv.gz", rows)
    _write_time_split(folder, np.arange(N))
    return Written(undirected(edges), counts, labels, listed=edges.shape[1])


def _ogb_binary(dataset: OgbBinary, folder: Path) -> Written:
    edges, counts, labels = random_graph()
    values = np.where(np.arange(N) % 3 == 0, np.nan, labels).astype(np.float32)
    np.savez_compressed(folder / "raw/data.npz", edge_index=edges, node_feat=counts)
    np.savez_compressed(folder / "raw/node-label.npz", node_label=values[:, None])
    _write_time_split(folder, np.flatnonzero(np.isfinite(values)))
    return Written(
        undirected(edges), counts, np.where(np.isnan(values), -1, labels).astype(np.int64), listed=edges.shape[1]
    )


def _graphsaint(dataset: GraphSaint, folder: Path) -> Written:
    edges, _, labels = random_graph()
    adjacency = sp.csr_matrix((np.ones(edges.shape[1], bool), (edges[0], edges[1])), shape=(N, N))
    sp.save_npz(folder / "raw/adj_full.npz", adjacency)
    (folder / "raw/class_map.json").write_text(json.dumps({str(i): int(label) for i, label in enumerate(labels)}))
    parts = three_parts(0)
    roles = {key: parts[part].tolist() for key, part in (("tr", "train"), ("va", "valid"), ("te", "test"))}
    (folder / "raw/role.json").write_text(json.dumps(roles))
    return Written(undirected(edges), None, labels)


def _bare(dataset: BareGraph, folder: Path) -> Written:
    edges, _, _ = random_graph()
    edges = np.concatenate([edges, [np.arange(N - 1), np.arange(1, N)]], axis=1)  # every id occurs
    lines = ["# a comment", "# FromNodeId\tToNodeId", *(f"{10 * u}\t{10 * v}" for u, v in edges.T)]
    (folder / dataset.files[0].path).write_bytes(gzip.compress("\r\n".join(lines).encode()))
    return Written(undirected(edges), None, np.full(N, -1))


def _grid(dataset: GridImages, folder: Path) -> Written:
    cells = np.arange(N).reshape(6, 10)
    edges = np.stack(
        [
            np.concatenate([cells[:, :-1].ravel(), cells[:-1].ravel()]),
            np.concatenate([cells[:, 1:].ravel(), cells[1:].ravel()]),
        ]
    )
    adjacency = np.zeros((N, N), np.uint8)
    adjacency[edges[0], edges[1]] = adjacency[edges[1], edges[0]] = 1
    mask = np.zeros((6, 10), np.uint8)
    mask[1:-1, 1:-1] = 1
    signals = np.random.default_rng(0).random((N, 4))
    scipy.io.savemat(folder / dataset.files[0].path, {"A": adjacency, "F": signals, "mask": mask.reshape(-1, 1)})
    return Written(undirected(edges), signals, np.full(N, -1))


WRITERS: dict[type, Callable[[Any, Path], Written]] = {
    Planetoid: _planetoid,
    SparseNpz: _sparse_npz,
    Heterophilous: _heterophilous,
    TwitchGamers: _twitch,
    Pokec: _pokec,
    OgbCsv: _ogb_csv,
    OgbBinary: _ogb_binary,
    GraphSaint: _graphsaint,
    BareGraph: _bare,
    GridImages: _grid,
}
