"""Graphs on which default settings are chosen and confirmed: raw tables, odd units, few labels, tiny and large.

Every graph belongs to one half. Settings are chosen on the development half only, by scores on validation nodes; the
other half confirms them. A graph directory holds ``2 · SPLITS`` splits. The first ``SPLITS`` are real: train,
validation, test. The others serve the choice: their validation nodes are one half of a real split's validation nodes,
their test nodes the other half, and the real test nodes are absent. So a choice cannot see a test label.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from benchmarks.fresh_graphs import aging_papers, board, sensors, shop
from benchmarks.table_graphs import odd_units, write_twitch
from polyformer.datasets import load_dataset
from polyformer.graph import Graph
from polyformer.splits import Split
from polyformer.tasks import Task

__all__ = ["DEVELOPMENT", "GRAPHS", "SPLITS", "GraphOfStudy", "write_graph"]

SPLITS = 5
_STREAM = 2025
_COLUMNS = 12

Draw = Callable[[np.ndarray, np.random.Generator], Split]


def by_share(train: float, labels: np.ndarray, random: np.random.Generator) -> Split:
    """A share of the labelled nodes to train on, a fifth for validation, a fifth for test."""
    nodes = random.permutation(np.flatnonzero(labels >= 0))
    first, fifth = int(train * len(nodes)), len(nodes) // 5
    return Split(*(np.sort(part) for part in (nodes[:first], nodes[-2 * fifth : -fifth], nodes[-fifth:])))


def by_class(count: int, labels: np.ndarray, random: np.random.Generator) -> Split:
    """So many nodes of every class to train on, 500 for validation, 1,000 for test."""
    nodes = random.permutation(np.flatnonzero(labels >= 0))
    rank = np.empty(len(nodes), np.int64)
    for label in np.unique(labels[nodes]):
        members = labels[nodes] == label
        rank[members] = np.arange(members.sum())
    rest = nodes[rank >= count]
    return Split(*(np.sort(part) for part in (nodes[rank < count], rest[:500], rest[500:1500])))


def _named(name: str, root: Path) -> Task:
    """A data set with its features as they are."""
    task = load_dataset(name, root)
    return Task(name, Graph.from_scipy(task.graph.adjacency(), task.graph.features), task.labels, [])


def _projected(name: str, root: Path) -> Task:
    """A data set with its features as twelve columns in odd units; fewer columns stay as many."""
    task = _named(name, root)
    features = task.graph.features
    assert features is not None
    if features.shape[1] > _COLUMNS:
        features = features @ np.random.default_rng(0).choice([-1.0, 1.0], (features.shape[1], _COLUMNS))
    return replace(task, graph=task.graph.with_features(odd_units(np.asarray(features, np.float64), 1)))


def _twitch(country: str, root: Path) -> Task:
    """Users as they were published: days, views and a flag."""
    with tempfile.TemporaryDirectory() as folder:
        write_twitch(country, root, Path(folder) / "graph")
        task = Task.load(Path(folder) / "graph")
        graph = Graph.from_scipy(task.graph.adjacency(), np.array(task.graph.features))  # the folder's files go
        return replace(task, graph=graph, labels=np.array(task.labels), ids=None)


def _communities(count: int, within: float, classes: int, columns: bool, root: Path) -> Task:
    """Made-up communities; so large a share of the edges lies within one. Incomes, years, distances and a flag.

    Without columns, communities differ in how many edges their members have, so that the structure tells of them.
    """
    random = np.random.default_rng([count, int(100 * within), classes, columns])
    labels = random.integers(0, classes, count)
    weights = np.ones(count) if columns else random.lognormal(0.35 * labels, 0.5)
    source = random.choice(count, 6 * count, p=weights / weights.sum())
    same = random.random(len(source)) < within
    other = (labels[source] + random.integers(1, classes, len(source))) % classes
    wanted = np.where(same, labels[source], other)
    target = np.empty(len(source), np.int64)
    for label in range(classes):
        members = np.flatnonzero(labels == label)
        chances = weights[members] / weights[members].sum()
        target[wanted == label] = random.choice(members, int((wanted == label).sum()), p=chances)
    features = np.column_stack(
        [
            random.lognormal(10 + 0.3 * labels, 1.5),
            random.normal(1970 + 4 * labels, 12),
            1e-4 * random.normal((labels % 2), 1.0),
            random.random(count) < 0.3 + 0.2 * (labels == 2),
        ]
    )
    graph = Graph(np.stack([source, target]), features if columns else None, num_nodes=count)
    return Task("communities", graph, labels, [])


def _papers(count: int, within: float, classes: int, words: int, root: Path) -> Task:
    """Made-up papers with three citations each; so large a share of them lies within a field.

    A paper has about thirty words, a quarter of them of its field's own; the others are as common everywhere.
    """
    random = np.random.default_rng([count, int(100 * within), classes, words])
    labels = random.integers(0, classes, count)
    source = random.integers(0, count, 3 * count)
    other = (labels[source] + random.integers(1, classes, len(source))) % classes
    wanted = np.where(random.random(len(source)) < within, labels[source], other)
    target = np.empty(len(source), np.int64)
    for label in range(classes):
        target[wanted == label] = random.choice(np.flatnonzero(labels == label), int((wanted == label).sum()))
    rows = np.repeat(np.arange(count), random.poisson(30, count))
    common = 1.0 / np.arange(1, words + 1)
    columns = random.choice(words, len(rows), p=common / common.sum())
    own = random.random(len(rows)) < 0.25
    columns[own] = (labels[rows[own]] + classes * random.integers(0, words // classes, int(own.sum()))) % words
    features = sp.csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), (count, words))
    features.data[:] = 1.0
    return Task("papers", Graph(np.stack([source, target]), features, num_nodes=count), labels, [])


@dataclass(frozen=True)
class GraphOfStudy:
    """How one graph is made and split.

    Attributes:
        half: ``development`` or ``confirmation``.
    """

    half: str
    make: Callable[[Path], Task]
    draw: Draw


def write_graph(name: str, root: Path, place: Path) -> None:
    """Write the graph directory with its splits; two classes are scored by the area under the ROC curve."""
    study = GRAPHS[name]
    task = study.make(root)
    real = [study.draw(task.labels, np.random.default_rng([_STREAM, split])) for split in range(SPLITS)]
    halves = []
    for number, split in enumerate(real):
        nodes = np.random.default_rng([_STREAM, SPLITS + number]).permutation(split.val)
        middle = len(nodes) // 2
        halves.append(Split(split.train, np.sort(nodes[:middle]), np.sort(nodes[middle:])))
    metric = "roc_auc" if task.num_classes == 2 else "accuracy"
    replace(task, name=name, splits=[*real, *halves], metric=metric, protocol="uniform").save(place)


DEVELOPMENT, CONFIRMATION = "development", "confirmation"

_SIXTY, _FIFTH, _FEW = partial(by_share, 0.6), partial(by_share, 0.2), partial(by_class, 20)

_FRESH_GRAPHS: dict[str, tuple[Callable[[Path], Task], Draw]] = {
    "tiny communities, two": (partial(_communities, 200, 0.65, 2, True), _SIXTY),
    "tiny communities, five": (partial(_communities, 300, 0.7, 5, True), _SIXTY),
    "tiny communities, mixed": (partial(_communities, 320, 0.1, 3, True), _SIXTY),
    "tiny, random neighbours": (partial(_communities, 300, 1 / 3, 3, True), _SIXTY),
    "small communities, a fifth": (partial(_communities, 600, 0.6, 3, True), _FIFTH),
    "random neighbours": (partial(_communities, 1500, 0.25, 4, True), _SIXTY),
    "papers, 5 a class": (partial(_papers, 2000, 0.85, 4, 1000), partial(by_class, 5)),
    "papers, 20 a class": (partial(_papers, 3000, 0.7, 6, 3000), _FEW),
    "cora, 5 a class": (partial(_named, "cora"), partial(by_class, 5)),
}
"""Graphs for the question of few labels, made after the other graphs had been measured once. Cheapest first."""

_DEVELOPMENT_GRAPHS: dict[str, tuple[Callable[[Path], Task], Draw]] = {
    "tiny communities, alike": (partial(_communities, 240, 0.6, 3, True), _SIXTY),
    "small board, a tenth": (partial(board, 40, 3), partial(by_share, 0.1)),
    "communities, alike": (partial(_communities, 2000, 0.6, 4, True), _SIXTY),
    "communities, no columns": (partial(_communities, 1500, 0.7, 3, False), _SIXTY),
    "citeseer, 20 a class": (partial(_named, "citeseer"), _FEW),
    "chameleon_filtered, odd units": (partial(_projected, "chameleon_filtered"), _SIXTY),
    "chameleon_filtered": (partial(_named, "chameleon_filtered"), _SIXTY),
    "cora, 20 a class": (partial(_named, "cora"), _FEW),
    "cora, odd units": (partial(_projected, "cora"), _SIXTY),
    "citeseer": (partial(_named, "citeseer"), _SIXTY),
    "squirrel_filtered, odd units": (partial(_projected, "squirrel_filtered"), _SIXTY),
    "twitch-ENGB": (partial(_twitch, "ENGB"), _SIXTY),
    "minesweeper, a fifth": (partial(_named, "minesweeper"), _FIFTH),
    "computers, 20 a class": (partial(_named, "amazon-computers"), _FEW),
    "tolokers, odd units, a fifth": (partial(_projected, "tolokers"), _FIFTH),
}
"""Cheapest first."""

_CONFIRMATION_GRAPHS: dict[str, tuple[Callable[[Path], Task], Draw]] = {
    "sensors, a tenth": (partial(sensors, 1200, 4), partial(by_share, 0.1)),
    "shop, a fifth": (partial(shop, 1500, 500, 4), _FIFTH),
    "aging papers, 10 a class": (partial(aging_papers, 2500, 6, 2500), partial(by_class, 10)),
    "aging papers": (partial(aging_papers, 1500, 5, 1200), _SIXTY),
    "board, a twentieth": (partial(board, 50, 7), partial(by_share, 0.05)),
    "tiny communities, opposite": (partial(_communities, 280, 0.05, 2, True), _SIXTY),
    "communities, opposite": (partial(_communities, 2000, 0.05, 4, True), _SIXTY),
    "communities, opposite, no columns": (partial(_communities, 1500, 0.05, 3, False), _SIXTY),
    "citeseer, odd units": (partial(_projected, "citeseer"), _SIXTY),
    "cora": (partial(_named, "cora"), _SIXTY),
    "squirrel_filtered": (partial(_named, "squirrel_filtered"), _SIXTY),
    "twitch-RU": (partial(_twitch, "RU"), _SIXTY),
    "minesweeper, odd units": (partial(_projected, "minesweeper"), _SIXTY),
    "pubmed, 20 a class": (partial(_named, "pubmed"), _FEW),
    "cs, 20 a class": (partial(_named, "cs"), _FEW),
    "tolokers": (partial(_named, "tolokers"), _SIXTY),
    "wordnet, 100 a class": (partial(_named, "wordnet"), partial(by_class, 100)),
}
"""Cheapest first."""

GRAPHS: dict[str, GraphOfStudy] = {
    **{name: GraphOfStudy(DEVELOPMENT, *parts) for name, parts in (_FRESH_GRAPHS | _DEVELOPMENT_GRAPHS).items()},
    **{name: GraphOfStudy(CONFIRMATION, *parts) for name, parts in _CONFIRMATION_GRAPHS.items()},
}
