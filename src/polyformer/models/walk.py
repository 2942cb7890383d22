"""A trained model applied to the nodes of a graph, a block of nodes at a time, within the memory that it may use."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from polyformer.graph import Graph
from polyformer.models.contract import NodeModel, Workload
from polyformer.reporter import SILENT, Reporter

__all__ = ["ROWS_PER_BLOCK", "Compute", "node_blocks"]

ROWS_PER_BLOCK = 1 << 16
"""Nodes whose results are in memory at once."""

Compute = Callable[[np.ndarray], tuple[np.ndarray, ...]]
"""Node ids (n,) in, arrays of n rows out; called once the model is bound."""


def node_blocks(
    model: NodeModel,
    graph: Graph,
    compute: Compute,
    workload: Workload | None = None,
    reporter: Reporter = SILENT,
    work: str = "nodes",
) -> Iterator[tuple[np.ndarray, tuple[np.ndarray, ...]]]:
    """Node ids (n,) and what ``compute`` gives for them once the model is bound, block after block in order.

    Args:
        workload: which nodes, all by default, and what the model may use; ``scratch`` is a folder that exists.
        reporter: hears how far the preparation is, which starts again where there are several turns, and the share of
            the nodes that is done.
        work: what the reporter calls the walk over the nodes.
    """
    whole_work = Workload() if workload is None else workload
    nodes = whole_work.nodes
    count = graph.num_nodes if nodes is None else len(nodes)
    whole_work = replace(whole_work, rows_per_epoch=count)
    turn = max(1, model.nodes_at_once(graph, whole_work, reporter))
    model.eval()
    for first in range(0, count, turn):
        last = min(first + turn, count)
        with _temporary(whole_work.scratch) as place:
            some = nodes if turn >= count else _ids(nodes, first, last)
            model.bind(graph, replace(whole_work, nodes=some, rows_per_epoch=last - first, scratch=place), reporter)
            for start, stop, results in _turn_blocks(model, compute, nodes, first, last):
                yield _ids(nodes, start, stop), results
                reporter.share(work, stop / count)


def _turn_blocks(
    model: NodeModel, compute: Compute, nodes: np.ndarray | None, first: int, last: int
) -> Iterator[tuple[int, int, tuple[np.ndarray, ...]]]:
    """The blocks of one turn, positions ``first`` to ``last``: where each begins and ends, and its results."""
    whole = None if model.by_rows else compute(_ids(nodes, first, last))
    for start in range(first, last, ROWS_PER_BLOCK):
        stop = min(start + ROWS_PER_BLOCK, last)
        if whole is None:
            yield start, stop, compute(_ids(nodes, start, stop))
        else:
            yield start, stop, tuple(part[start - first : stop - first] for part in whole)


def _ids(nodes: np.ndarray | None, start: int, stop: int) -> np.ndarray:
    """A range of the nodes, or of all nodes, which are not listed as there may be very many."""
    return np.arange(start, stop) if nodes is None else nodes[start:stop]


@contextlib.contextmanager
def _temporary(folder: Path | None) -> Iterator[Path | None]:
    """A path inside ``folder``, if there is one, whose content goes at the end."""
    if folder is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix=".tokens.", dir=folder) as place:
        yield Path(place) / "tokens"
