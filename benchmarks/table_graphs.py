"""Graphs whose columns are as tables have them: in odd units, with heavy tails, flags and missing cells.

Two are tables as they were published; in the others the columns are projections of a data set's features, or made up,
each in a unit of its own. Labels and edges stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from polyformer.datasets import load_dataset
from polyformer.graph import Graph
from polyformer.importing import ImportOptions, import_graph
from polyformer.splits import uniform_split
from polyformer.tasks import Task

__all__ = ["GRAPHS", "SPLITS", "write_twitch"]

SPLITS = 3
_COLUMNS = 12
_STREAM = 2024


def odd_units(columns: np.ndarray, seed: int) -> np.ndarray:
    """The same columns in units of 10^-3 to 10^6, every third with a heavy tail, every fourth far from zero.

    >>> odd_units(np.array([[0.0], [1.0], [2.0]]), seed=0).shape
    (3, 1)
    """
    random = np.random.default_rng(seed)
    standard = (columns - columns.mean(axis=0)) / np.maximum(columns.std(axis=0), 1e-12)
    standard[:, ::3] = np.sinh(2 * standard[:, ::3].clip(-6, 6))
    standard[:, ::4] += 30.0
    return standard * 10.0 ** random.uniform(-3, 6, columns.shape[1])


def write_twitch(country: str, root: Path, place: Path) -> None:
    """Import the two tables of a country as they were published."""
    source = root / "tables" / f"twitch-{country}"
    options = ImportOptions(
        nodes=source / f"musae_{country}_target.csv",
        id_column="new_id",
        label_column="mature",
        num_splits=SPLITS,
        name=f"twitch-{country}",
    )
    import_graph(source / f"musae_{country}_edges.csv", place, options)


def _write_projected(name: str, root: Path, place: Path) -> None:
    """A data set with its features as twelve columns in odd units; fewer columns stay as many."""
    task = load_dataset(name, root)
    features = task.graph.features
    if features.shape[1] > _COLUMNS:
        signs = np.random.default_rng(0).choice([-1.0, 1.0], (features.shape[1], _COLUMNS))
        features = features @ signs
    _save(name, task.graph.with_features(odd_units(np.asarray(features, np.float64), 1)), task.labels, place)


def _write_board(root: Path, place: Path) -> None:
    """Minesweeper with the mines nearby as one number in a unit of its own, and a flag where the number is hidden."""
    task = load_dataset("minesweeper", root)
    counts = np.asarray(task.graph.features)
    columns = np.column_stack([137e3 * (counts @ np.arange(counts.shape[1])), counts[:, -1]])
    _save("minesweeper", task.graph.with_features(columns), task.labels, place)


def _write_communities(within: float, root: Path, place: Path) -> None:
    """Four made-up communities; so large a share of the edges lies within one. Incomes, years, distances and a flag."""
    random = np.random.default_rng(int(100 * within))
    count, classes = 3000, 4
    labels = random.integers(0, classes, count)
    source = random.integers(0, count, 8 * count)
    same = random.random(len(source)) < within
    wanted = np.where(same, labels[source], (labels[source] + random.integers(1, classes, len(source))) % classes)
    members = [np.flatnonzero(labels == label) for label in range(classes)]
    target = np.array([members[label][draw % len(members[label])] for label, draw in
                       zip(wanted, random.integers(0, count, len(source)), strict=True)])  # fmt: skip
    columns = np.column_stack(
        [
            random.lognormal(10 + 0.3 * labels, 2.0),
            random.normal(1970 + 2 * labels, 12),
            1e-4 * random.normal((labels % 2), 1.5),
            random.random(count) < 0.3 + 0.1 * (labels == 2),
        ]
    )
    _save(f"communities {within:g}", Graph(np.stack([source, target]), columns), labels, place)


def _save(name: str, graph: Graph, labels: np.ndarray, place: Path) -> None:
    # A stream of their own: the mines of minesweeper lie where a plain seed of 0 would put the training nodes.
    splits = [uniform_split(labels, [_STREAM, split]) for split in range(SPLITS)]
    Task(name, graph, labels, splits, "uniform").save(place)


GRAPHS: dict[str, Callable[[Path, Path], None]] = {
    "twitch-ENGB": partial(write_twitch, "ENGB"),
    "twitch-RU": partial(write_twitch, "RU"),
    "tolokers": partial(_write_projected, "tolokers"),
    "minesweeper": _write_board,
    "cora": partial(_write_projected, "cora"),
    "citeseer": partial(_write_projected, "citeseer"),
    "chameleon_filtered": partial(_write_projected, "chameleon_filtered"),
    "squirrel_filtered": partial(_write_projected, "squirrel_filtered"),
    "communities, alike": partial(_write_communities, 0.7),
    "communities, opposite": partial(_write_communities, 0.05),
}
"""What writes each graph directory: ``write(data root, place)``."""
