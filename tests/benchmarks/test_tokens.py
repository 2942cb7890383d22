"""What the benchmark of tokens counts."""

from __future__ import annotations

import numpy as np

from benchmarks.tokens import ORDER, gathered_lines
from polyformer.graph import Graph


def test_lines_are_counted_by_entry_hop_and_width() -> None:
    """A path of three nodes has four entries; 17 float32 columns begin a second line of 64 bytes."""
    for columns, lines in [(16, 1), (17, 2), (64, 4)]:
        graph = Graph([[0, 1], [1, 2]], np.ones((3, columns), np.float32))
        assert gathered_lines(graph) == ORDER * 4 * lines
