"""A small graph with labels, splits and features, and ways to write it down."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq


@dataclass
class Example:
    """40 nodes with ids in no order, 200 edge rows with repeats and self-loops."""

    ids: np.ndarray
    edge_index: np.ndarray
    weights: np.ndarray
    labels: list[str | None]
    splits: list[str | None]
    age: np.ndarray
    colour: list[str]

    def edges(self, weighted: bool = False) -> pa.Table:
        columns = {"source": self.ids[self.edge_index[0]], "target": self.ids[self.edge_index[1]]}
        return pa.table(columns | ({"weight": self.weights} if weighted else {}))

    def nodes(self) -> pa.Table:
        columns = {"id": self.ids, "label": self.labels, "split": self.splits, "age": self.age, "colour": self.colour}
        return pa.table(columns)

    @property
    def features(self) -> np.ndarray:
        colours = sorted(set(self.colour))
        one_hot = [[float(colour == name) for name in colours] for colour in self.colour]
        return np.column_stack([self.age, np.array(one_hot)]).astype(np.float32)


def make_example(kind: str = "string") -> Example:
    random = np.random.default_rng(7)
    count = 40
    if kind == "string":
        ids = np.array([f"user-{i}" for i in random.permutation(count)])
    else:
        ids = random.choice(10**12 if kind == "wide" else 60, count, replace=False)
    labels: list[str | None] = [["cat", "dog", "owl"][i % 3] for i in range(count)]
    splits: list[str | None] = [["train", "valid", "test", "Train"][i % 4] for i in range(count)]
    labels[5] = splits[5] = None
    return Example(
        ids,
        random.integers(0, count, (2, 200)),
        random.random(200).astype(np.float32),
        labels,
        splits,
        random.normal(size=count),
        [["red", "green", "blue"][i] for i in random.integers(0, 3, count)],
    )


def write_table(table: pa.Table, path: Path) -> None:
    if path.suffix == ".csv":
        pacsv.write_csv(table, path)
    else:
        pq.write_table(table, path)
