"""A trained model applied to a graph, a block of nodes at a time, and predictions as a table."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from polyformer.columns import Column, check_columns, columns_from_json, columns_to_read
from polyformer.datasets import load_source
from polyformer.errors import InvalidParameter
from polyformer.feature_preparation import prepare_task_alike
from polyformer.feature_scaling import FeatureScaling
from polyformer.files import read_json, reporting_io_errors, write_whole
from polyformer.graph import Graph
from polyformer.metrics import predicted_classes
from polyformer.models import NodeModel, Workload
from polyformer.progress import Share, Stages
from polyformer.tasks import Objective, Task

__all__ = [
    "ROWS_PER_BLOCK",
    "TABLE_ENDINGS",
    "Resources",
    "TableRows",
    "check_table_path",
    "node_blocks",
    "node_scores",
    "open_run_task",
    "predict_blocks",
    "predict_scores",
    "table_rows",
    "trained_columns",
    "write_predictions",
]

ROWS_PER_BLOCK = 1 << 16
"""Nodes whose scores are in memory at once, and rows of a row group of the Parquet file."""

TABLE_ENDINGS = (".parquet", ".csv")
"""What the name of a table that is written may end in; vectors need the first."""


def open_run_task(
    run: Path,
    data: str | None = None,
    root: str | None = None,
    loading: Stages | None = None,
    report: Callable[[str], None] | None = None,
) -> Task:
    """The data that a run was trained on, or another graph: tables are read as those of the training were.

    Args:
        report: is told what was taken as what in the files of another graph.
    """
    config, other = read_json(run / "config.json", "a run directory"), data is not None
    if data is None:
        if "data" not in config:
            raise InvalidParameter(
                f"'{run}' is a saved classifier that does not know its data. Pass the PATH of a graph."
            )
        data, root = config["data"], root or config.get("data_root")
    trained, scaling = columns_from_json(config["card"].get("columns")), config["card"].get("scaling")
    told, columns = report if other else None, columns_to_read(trained)
    task = load_source(data, root, progress=loading, report=told, applied=other, columns=columns)
    check_columns(columns or None, task.columns, data)
    return prepare_task_alike(task, trained, FeatureScaling.from_json(scaling))


def trained_columns(run: Path) -> tuple[Column, ...]:
    """The columns of the table that a run was trained on; none where its features were made from the structure."""
    card = read_json(run / "config.json", "a run directory")["card"]
    columns = columns_to_read(columns_from_json(card.get("columns")))
    if columns is None:
        raise InvalidParameter(f"'{run}' was not trained on a table, so there are no columns to read alike.")
    return columns


@dataclass(frozen=True, eq=False)
class Resources:
    """What a walk over the nodes of a graph may use, and who is told how far it is.

    Attributes:
        memory: bytes that may be used, 80 % of what is free by default.
        tokens: a token directory that covers the nodes.
        scratch: where tokens that do not fit in memory may be kept meanwhile; a folder that exists.
        report: is told what is kept on disk meanwhile.
        progress: is told how far the preparation is; it starts again where there are several turns.
        walked: is told the share of the nodes that is done.
    """

    memory: int | None = None
    tokens: Path | None = None
    scratch: Path | None = None
    report: Callable[[str], None] | None = None
    progress: Share | None = None
    walked: Share | None = None


def node_blocks(
    model: NodeModel,
    graph: Graph,
    compute: Callable[[np.ndarray], tuple[np.ndarray, ...]],
    nodes: np.ndarray | None = None,
    resources: Resources | None = None,
) -> Iterator[tuple[np.ndarray, tuple[np.ndarray, ...]]]:
    """Node ids (n,) and what ``compute`` gives for them once the model is bound, block after block in order.

    Args:
        compute: node ids (n,) to arrays of n rows.
        nodes: of which; all by default.
    """
    use = Resources() if resources is None else resources
    count = graph.num_nodes if nodes is None else len(nodes)
    workload = Workload(nodes, count, memory=use.memory, tokens=use.tokens, scratch=use.scratch, report=use.report)
    turn = max(1, model.nodes_at_once(graph, workload))
    model.eval()
    for first in range(0, count, turn):
        last = min(first + turn, count)
        with _temporary(use.scratch) as place:
            some = nodes if turn >= count else _ids(nodes, first, last)
            model.bind(graph, replace(workload, nodes=some, rows_per_epoch=last - first, scratch=place), use.progress)
            whole = None if model.by_rows else compute(_ids(nodes, first, last))
            for start in range(first, last, ROWS_PER_BLOCK):
                stop = min(start + ROWS_PER_BLOCK, last)
                ids = _ids(nodes, start, stop)
                if whole is None:
                    yield ids, compute(ids)
                else:
                    yield ids, tuple(part[start - first : stop - first] for part in whole)
                if use.walked is not None:
                    use.walked(stop / count)


def predict_blocks(
    model: NodeModel,
    objective: Objective,
    graph: Graph,
    nodes: np.ndarray | None = None,
    resources: Resources | None = None,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Node ids (n,) and their probabilities (n, C), or values (n, 1) of a regression, block after block in order.

    Args:
        nodes: of which; all by default.
    """

    def compute(ids: np.ndarray) -> tuple[np.ndarray, ...]:
        return (node_scores(model, objective, ids),)

    for ids, (scores,) in node_blocks(model, graph, compute, nodes, resources):
        yield ids, scores


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
def node_scores(model: NodeModel, objective: Objective, nodes: np.ndarray) -> np.ndarray:
    """Probabilities (n, C), or values (n, 1) of a regression, of nodes that the model is bound to."""
    return objective.scores(model(torch.from_numpy(nodes).to(next(model.parameters()).device)))


def predict_scores(model: NodeModel, objective: Objective, graph: Graph, nodes: np.ndarray | None = None) -> np.ndarray:
    """Probabilities (n, C), or values (n, 1) of a regression, of all nodes or of ``nodes``."""
    return np.concatenate([scores for _, scores in predict_blocks(model, objective, graph, nodes)])


def write_predictions(
    path: Path,
    blocks: Iterable[tuple[np.ndarray, np.ndarray]],
    ids: np.ndarray | None,
    objective: Objective,
    class_names: Sequence[str] | None = None,
    threshold: float | None = None,
) -> int:
    """Write one row a node: ``node``, ``prediction`` and, for classes, ``probability_<class>`` for each.

    Args:
        blocks: node numbers and scores; each becomes a row group, so that one is in memory at a time.
        ids: (N,) what the nodes are called; their numbers by default.
        threshold: of two classes, see :func:`predicted_classes`; the most probable class by default.

    Returns:
        The number of rows.
    """
    with table_rows(path, "predictions") as rows:
        for nodes, scores in blocks:
            rows.write(_table(nodes if ids is None else ids[nodes], scores, objective, class_names, threshold))
    return rows.count


class TableRows:
    """A Parquet or CSV file that is written a block of rows at a time."""

    def __init__(self, file: IO[bytes], ending: str) -> None:
        self.count = 0
        self._file, self._ending = file, ending
        self._writer: Any = None

    def write(self, table: Any) -> None:
        """Append a ``pyarrow.Table``; in Parquet it is a row group."""
        from pyarrow.csv import CSVWriter
        from pyarrow.parquet import ParquetWriter

        if self._writer is None:
            self._writer = (CSVWriter if self._ending == ".csv" else ParquetWriter)(self._file, table.schema)
        self._writer.write_table(table)
        self.count += table.num_rows

    def close(self) -> None:
        """Write the footer."""
        if self._writer is not None:
            self._writer.close()


def check_table_path(path: Path, endings: Sequence[str] = TABLE_ENDINGS) -> None:
    """Refuse a place where no table can be written, before the work for it begins."""
    if path.is_dir():
        raise InvalidParameter(f"'--out' must be a file. Got the directory '{path}'. Try {path / 'table.parquet'}.")
    if path.suffix.lower() not in endings:
        raise InvalidParameter(f"'--out' must end in {' or '.join(endings)}. Got '{path}'.")


@contextlib.contextmanager
def table_rows(path: Path, what: str) -> Iterator[TableRows]:
    """A table that appears whole when the block ends without an error; errors call its content ``what``."""
    with reporting_io_errors(what, path), write_whole(path) as file:
        rows = TableRows(file, path.suffix.lower())
        try:
            yield rows
        finally:
            rows.close()


def _table(
    names: np.ndarray,
    scores: np.ndarray,
    objective: Objective,
    class_names: Sequence[str] | None,
    threshold: float | None,
) -> Any:
    import pyarrow as pa

    columns: dict[str, pa.Array] = {"node": pa.array(names)}
    if objective.name == "regression":
        columns["prediction"] = pa.array(scores[:, 0])
    else:
        best = predicted_classes(scores, threshold)
        classes = [str(i) for i in range(scores.shape[1])] if class_names is None else list(class_names)
        columns["prediction"] = pa.array(best if class_names is None else np.array(classes)[best])
        columns |= {f"probability_{name}": pa.array(scores[:, i]) for i, name in enumerate(classes)}
    return pa.table(columns)
