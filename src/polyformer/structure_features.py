"""Features made from the structure alone, for graphs whose nodes have none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyformer.arrays import row_ranges
from polyformer.columns import Column
from polyformer.graph import Graph

__all__ = ["STRUCTURE_COLUMNS", "are_structural", "structure_features"]

STRUCTURE_COLUMNS = tuple(
    Column(name, kind="structure")
    for name in (
        "log degree",
        "mean log degree of neighbours",
        "deviation of log degree among neighbours",
        "largest log degree of neighbours",
        "smallest log degree of neighbours",
        "neighbours with a smaller degree",
        "log number of nodes two steps away",
    )
)
"""The columns that :func:`structure_features` gives."""


def are_structural(columns: Sequence[Column] | None) -> bool:
    """Whether features with these columns were made from the structure."""
    return bool(columns) and all(column.kind == "structure" for column in columns or ())


def structure_features(graph: Graph) -> np.ndarray:
    r"""Seven numbers per node from the degrees around it: (N, 7) float32, in O(|E|) time and O(N) memory.

    With :math:`l_i = \log(1 + d_i)` for the degree d (the sum of weights of a weighted graph): :math:`l_i`; mean,
    standard deviation, largest and smallest :math:`l_j` of the neighbours; the share of neighbours with a smaller
    degree; and :math:`\log(1 + \sum_j d_j)`, the walks of two steps. Nodes without an edge get zeros. Nothing is drawn
    at random, and renumbering the nodes renumbers the rows.

    Example:
        >>> star = Graph([[0, 0, 0], [1, 2, 3]])
        >>> [f"{value:.2f}" for value in structure_features(star)[0]]
        ['1.39', '0.69', '0.00', '0.69', '0.69', '1.00', '1.39']
    """
    degrees = graph.degrees
    logs = np.log1p(degrees)
    features = np.zeros((graph.num_nodes, len(STRUCTURE_COLUMNS)), np.float32)
    features[:, 0] = logs
    for start, stop in row_ranges(graph.indptr, most_entries=1 << 22, most_rows=1 << 20):
        begins = np.asarray(graph.indptr[start : stop + 1])
        filled = np.flatnonzero(begins[1:] > begins[:-1])
        if len(filled) == 0:
            continue
        neighbours = np.asarray(graph.indices[begins[0] : begins[-1]])
        counts, first = np.diff(begins)[filled], begins[filled] - begins[0]
        around, rows = logs[neighbours], start + filled
        mean = np.add.reduceat(around, first) / counts
        centred = around - np.repeat(mean, counts)
        features[rows, 1] = mean
        features[rows, 2] = np.sqrt(np.add.reduceat(centred * centred, first) / counts)
        features[rows, 3] = np.maximum.reduceat(around, first)
        features[rows, 4] = np.minimum.reduceat(around, first)
        features[rows, 5] = np.add.reduceat(around < np.repeat(logs[rows], counts), first, dtype=np.float64) / counts
        features[rows, 6] = np.log1p(np.add.reduceat(degrees[neighbours], first))
    return features
