"""A trained model applied to a graph, a block of nodes at a time, and predictions as a Parquet table."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyformer.datasets import load_source
from polyformer.errors import InvalidParameter
from polyformer.files import read_json, reporting_io_errors, write_whole
from polyformer.graph import Graph
from polyformer.models import NodeModel, Workload
from polyformer.progress import Share, Stages
from polyformer.tasks import Objective, Task

__all__ = ["ROWS_PER_BLOCK", "open_run_task", "predict_blocks", "predict_scores", "write_predictions"]

ROWS_PER_BLOCK = 1 << 16
"""Nodes whose scores are in memory at once, and rows of a row group of the Parquet file."""


def open_run_task(run: Path, data: str | None = None, root: str | None = None, loading: Stages | None = None) -> Task:
    """The data that a run was trained on, or another graph."""
    if data is None:
        config = read_json(run / "config.json", "a run directory")
        if "data" not in config:
            raise InvalidParameter(
                f"'{run}' is a saved classifier that does not know its data. Pass the PATH of a graph."
            )
        data, root = config["data"], root or config["data_root"]
    return load_source(data, root, progress=loading)


def predict_blocks(
    model: NodeModel,
    objective: Objective,
    graph: Graph,
    nodes: np.ndarray | None = None,
    *,
    memory: int | None = None,
    tokens: Path | None = None,
    scratch: Path | None = None,
    report: Callable[[str], None] | None = None,
    progress: Share | None = None,
    predicted: Share | None = None,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Node ids (n,) and their probabilities (n, C), or values (n, 1) of a regression, block after block in order.

    Args:
        nodes: of which; all by default.
        memory: bytes that may be used, 80 % of what is free by default.
        tokens: a token directory that covers the nodes.
        scratch: where tokens that do not fit in memory may be kept meanwhile; a folder that exists.
        report: is told what is kept on disk meanwhile.
        progress: is told how far the preparation is; it starts again where there are several turns.
        predicted: is told the share of the nodes that is done.
    """
    count = graph.num_nodes if nodes is None else len(nodes)
    workload = Workload(nodes, count, memory=memory, tokens=tokens, scratch=scratch, report=report)
    turn = max(1, model.nodes_at_once(graph, workload))
    model.eval()
    for first in range(0, count, turn):
        last = min(first + turn, count)
        with _temporary(scratch) as place:
            some = nodes if turn >= count else _ids(nodes, first, last)
            model.bind(graph, replace(workload, nodes=some, rows_per_epoch=last - first, scratch=place), progress)
            outputs = None if model.by_rows else _outputs(model, _ids(nodes, first, last))
            for start in range(first, last, ROWS_PER_BLOCK):
                stop = min(start + ROWS_PER_BLOCK, last)
                ids = _ids(nodes, start, stop)
                part = _outputs(model, ids) if outputs is None else outputs[start - first : stop - first]
                yield ids, objective.scores(part)
                if predicted is not None:
                    predicted(stop / count)


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


@torch.no_grad()
def _outputs(model: NodeModel, nodes: np.ndarray) -> torch.Tensor:
    return model(torch.from_numpy(nodes).to(next(model.parameters()).device))


def predict_scores(model: NodeModel, objective: Objective, graph: Graph, nodes: np.ndarray | None = None) -> np.ndarray:
    """Probabilities (n, C), or values (n, 1) of a regression, of all nodes or of ``nodes``."""
    return np.concatenate([scores for _, scores in predict_blocks(model, objective, graph, nodes)])


def write_predictions(
    path: Path,
    blocks: Iterable[tuple[np.ndarray, np.ndarray]],
    ids: np.ndarray | None,
    objective: Objective,
    class_names: Sequence[str] | None = None,
) -> int:
    """Write one row a node: ``node``, ``prediction`` and, for classes, ``probability_<class>`` for each.

    Args:
        blocks: node numbers and scores; each becomes a row group, so that one is in memory at a time.
        ids: (N,) what the nodes are called; their numbers by default.

    Returns:
        The number of rows.
    """
    import pyarrow.parquet as pq

    count, writer = 0, None
    with reporting_io_errors("predictions", path), write_whole(path) as file:
        try:
            for nodes, scores in blocks:
                table = _table(nodes if ids is None else ids[nodes], scores, objective, class_names)
                if writer is None:
                    writer = pq.ParquetWriter(file, table.schema)
                writer.write_table(table)
                count += len(nodes)
        finally:
            if writer is not None:
                writer.close()
    return count


def _table(names: np.ndarray, scores: np.ndarray, objective: Objective, class_names: Sequence[str] | None) -> Any:
    import pyarrow as pa

    columns: dict[str, pa.Array] = {"node": pa.array(names)}
    if objective.name == "regression":
        columns["prediction"] = pa.array(scores[:, 0])
    else:
        best = scores.argmax(axis=1)
        classes = [str(i) for i in range(scores.shape[1])] if class_names is None else list(class_names)
        columns["prediction"] = pa.array(best if class_names is None else np.array(classes)[best])
        columns |= {f"probability_{name}": pa.array(scores[:, i]) for i, name in enumerate(classes)}
    return pa.table(columns)
