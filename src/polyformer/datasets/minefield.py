from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from polyformer.datasets.base import Counts, Dataset
from polyformer.datasets.lattice import lattice_edges
from polyformer.errors import InvalidParameter
from polyformer.graph import Graph
from polyformer.limits import check_node_count
from polyformer.machine import require_memory
from polyformer.splits import uniform_split
from polyformer.tasks import Task

__all__ = ["MINEFIELD", "Minefield"]

_BYTES_PER_CELL = 600
"""Memory for features, both directions of eight edges and their sorting, and splits."""

NUM_SPLITS = 10


class Minefield(Dataset):
    """A generated Minesweeper board: find the mines from the numbers that are open.

    Cells of a ``width`` × ``height`` board are nodes, joined to their eight neighbours. 20 % of the cells are mines
    (the label). One-hot features: column 0 for the 50 % of the cells that are hidden, columns 1 to 6 for 0, 1, 2, 3, 4,
    5 or more mines next to an open cell. Ten random splits 50/25/25. The published
    ``minesweeper`` data set comes from such a generator; this one needs no download and makes boards of any size.
    """

    name = "minefield"
    citation = "Platonov et al., A critical look at the evaluation of GNNs under heterophily, ICLR 2023 (generator)"
    counts = Counts(nodes=10_000, edges=39_402, features=7, classes=2)
    metric = "roc_auc"
    protocols = ("random",)
    options = ("width", "height", "seed")

    def status(self, root: Path | None) -> str:
        return "built in"

    def load(
        self, root: Path | None, protocol: str, width: int = 100, height: int = 100, seed: int = 0, **options: Any
    ) -> Task:
        """Generate the board of this size and seed."""
        for name, value in (("width", width), ("height", height), ("seed", seed)):
            least = 0 if name == "seed" else 2
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InvalidParameter(f"'{name}' of minefield must be a whole number, {least} or more. Got {value!r}.")
        num_nodes = check_node_count(width * height, f"minefield:width={width},height={height}")
        require_memory(f"A board of {num_nodes:,} cells", _BYTES_PER_CELL * num_nodes, "Choose a smaller board.")
        random = np.random.default_rng((seed, 0))  # splits draw from (seed, 1), (seed, 2), …
        mines = np.zeros(num_nodes, bool)
        mines[random.permutation(num_nodes)[: round(0.2 * num_nodes)]] = True
        hidden = np.zeros(num_nodes, bool)
        hidden[random.permutation(num_nodes)[: round(0.5 * num_nodes)]] = True
        column = np.where(hidden, 0, 1 + np.minimum(_neighbours(mines.reshape(height, width)).ravel(), 5))
        features = np.zeros((num_nodes, 7), np.float32)
        features[np.arange(num_nodes), column] = 1.0
        labels = mines.astype(np.int64)
        splits = [uniform_split(labels, (seed, 1 + i), train=0.5, val=0.25) for i in range(NUM_SPLITS)]
        graph = Graph(lattice_edges(width, height, diagonals=True), features)
        return Task(self.name, graph, labels, splits, protocol, self.metric, class_names=("safe", "mine"))


MINEFIELD = Minefield()


def _neighbours(mines: np.ndarray) -> np.ndarray:
    """The number of mines among the eight neighbours of each cell."""
    padded = np.pad(mines.astype(np.int64), 1)
    rows, columns = mines.shape
    around = sum(padded[i : i + rows, j : j + columns] for i in range(3) for j in range(3))
    return np.asarray(around - mines)
