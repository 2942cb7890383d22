"""The two ways to read a source: import it into a graph directory, or open it in memory."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from polyformer.errors import InvalidData
from polyformer.files import map_npy, require_disk
from polyformer.graph import Graph
from polyformer.graph_checks import check_degrees
from polyformer.importing.csr_writer import CsrWriter, write_csr
from polyformer.importing.directory import import_folder, write_features, write_manifest
from polyformer.importing.edges import EdgeBatch
from polyformer.importing.external_sort import BYTES_PER_ENTRY, EdgeSorter
from polyformer.importing.identifiers import NodeIds
from polyformer.importing.labels import check_training_classes
from polyformer.importing.options import BY_TIME, ImportOptions, ImportSummary, match_lines
from polyformer.importing.readers import is_native, read_source
from polyformer.importing.resident import spare_bytes
from polyformer.importing.source import Source, build_task, pour_edges
from polyformer.importing.synthetic import is_synthetic, write_synthetic
from polyformer.limits import check_node_count
from polyformer.reporter import SILENT, Reporter
from polyformer.tasks import Task

__all__ = ["import_graph", "open_source"]

_log = logging.getLogger("polyformer")


def import_graph(
    source: str | Path, destination: str | Path, options: ImportOptions | None = None, reporter: Reporter = SILENT
) -> ImportSummary:
    """Write ``source``, in any supported format, as a graph directory at ``destination``.

    Edges and features are streamed within ``options.memory``, whatever their number. The directory appears whole, or
    not at all; after a kill, the next import to the same place removes what was left.

    Raises:
        OutputExists: if something is at ``destination``.
        InvalidData, DataNotFound, FileCorrupt: if the source cannot be used; the message says why.
        OutOfResources: if the disk is full.
    """
    started = time.perf_counter()
    options, path, destination = options or ImportOptions(), Path(source), Path(destination)
    if is_synthetic(source):
        return write_synthetic(str(source), destination, reporter)
    if is_native(path):
        return _copy(path, destination, options.metric, started)
    with import_folder(destination) as folder:
        opened = read_source(path, options)
        sorter, writer, ids = _write_edges(opened, folder, destination, options, reporter)
        write_features(folder, opened.features, ids.num_nodes, reporter)
        # A task with a graph without edges checks and writes the labels: the edges stay on disk.
        task = build_task(opened, Graph(np.empty((2, 0), np.int64), num_nodes=ids.num_nodes), ids, options)
        num_features = 0 if opened.features is None else opened.features.num_columns
        write_manifest(folder, ids.num_nodes, writer.num_entries, num_features, task)
    return ImportSummary(
        destination=destination,
        format=opened.format,
        matched=opened.matched,
        notes=_notes(opened, task, sorter.rows_read, sorter.self_loops, writer.num_entries // 2),
        num_nodes=ids.num_nodes,
        num_edges=writer.num_entries // 2,
        num_features=num_features,
        num_classes=task.num_classes,
        weighted=opened.edges.weighted,
        metric=task.metric,
        protocol=task.protocol,
        num_splits=len(task.splits),
        edges_read=sorter.rows_read,
        self_loops=sorter.self_loops,
        isolated_nodes=ids.num_nodes - writer.rows_with_entries,
        seconds=time.perf_counter() - started,
    )


def _write_edges(
    source: Source, folder: Path, destination: Path, options: ImportOptions, reporter: Reporter
) -> tuple[EdgeSorter, CsrWriter, NodeIds]:
    weighted = source.edges.weighted
    _check_disk(source.edges.num_rows, weighted, destination)
    capacity = spare_bytes(options.memory) // BYTES_PER_ENTRY[weighted]
    sorter, ids = pour_edges(source, lambda: EdgeSorter(folder / "work", capacity, weighted), reporter)
    try:
        _check_pointers(ids.num_nodes, destination)
        writer = write_csr(folder, sorter, ids.num_nodes, reporter)
        if weighted:
            check_degrees(*(map_npy(folder / f"{name}.npy") for name in ("indptr", "weights")))
    finally:
        sorter.close()
    return sorter, writer, ids


def _check_disk(rows: int | None, weighted: bool, destination: Path) -> None:
    """Refuse an import whose sorted runs and result, each of two entries an edge, do not fit on the disk."""
    if rows is None:
        return
    needed = rows * 2 * (24 if weighted else 12)
    sentence = f"Importing {rows:,} edges needs about"
    require_disk(sentence, needed, destination.parent, "Free some or choose another disk.")


def _check_pointers(num_nodes: int, destination: Path) -> None:
    """Refuse row pointers that cannot fit: nodes without an edge cost nothing in a source, but 8 bytes each here."""
    needed = 8 * (check_node_count(num_nodes) + 1)
    require_disk(f"{num_nodes:,} nodes need", needed, destination.parent, "Free some or choose another disk.")


def _notes(source: Source, task: Task, rows: int, loops: int, edges: int) -> tuple[str, ...]:
    notes = [*source.notes]
    if source.labels is None or not source.labels.known.any():
        candidates = [match.column for match in source.matched if match.role.startswith("category")]
        such_as = f", such as '{candidates[-1]}'" if candidates else ""
        notes.append(
            "There are no labels, so nothing can be trained on this graph; tokens and predictions can be made. "
            f"To have labels, import again and name their column with --label-column{such_as}."
        )
    elif task.protocol not in ("fixed", "none"):
        sizes = " / ".join(f"{len(part):,}" for part in (task.splits[0].train, task.splits[0].val, task.splits[0].test))
        if task.protocol == BY_TIME:
            notes.append(f"Splits are by time, the oldest nodes for training, the newest for testing: {sizes} nodes.")
        else:
            notes.append(f"There are no splits, so they were drawn by the protocol '{task.protocol}': {sizes} nodes.")
        rare = None if source.labels is None else check_training_classes(source.labels, task.splits)
        notes += [rare] if rare else []
    if source.features is None:
        notes.append("There are no features; training and tokens make some from the structure.")
    direction = _direction_note(source, rows - loops, edges)
    return (*notes, direction) if direction else tuple(notes)


def _direction_note(source: Source, rows: int, edges: int) -> str | None:
    """A sentence if an edge list may mean a direction; None if every edge is given both ways.

    Args:
        rows: number of rows of the edge list, without self-loops.
        edges: number of undirected edges made of these rows.
    """
    if rows == 2 * edges:
        return None
    if source.edges.directed:
        return "Edges are read without a direction: an edge joins its two ends alike."
    if rows != edges:
        return "Some edges are given more than once or both ways: they count once, and direction is dropped."
    return None


def _copy(source: Path, destination: Path, metric: str, started: float) -> ImportSummary:
    task = open_source(source)
    if metric:
        task = replace(task, metric=metric)
    task.save(destination)
    graph = task.graph
    return ImportSummary(
        destination=destination,
        format="graph directory",
        matched=(),
        notes=("The source is a graph directory already; it was checked and copied.",),
        num_nodes=graph.num_nodes,
        num_edges=graph.num_edges,
        num_features=graph.num_features,
        num_classes=task.num_classes,
        weighted=graph.weights is not None,
        metric=task.metric,
        protocol=task.protocol,
        num_splits=len(task.splits),
        edges_read=graph.num_edges,
        self_loops=0,
        isolated_nodes=int(np.count_nonzero(np.diff(graph.indptr) == 0)),
        seconds=time.perf_counter() - started,
    )


class _Held:
    """Edges kept in memory."""

    def __init__(self) -> None:
        self.batches: list[EdgeBatch] = []

    def add(self, batch: EdgeBatch) -> None:
        self.batches.append(batch)

    def close(self) -> None:
        self.batches.clear()


def open_source(
    path: str | Path,
    options: ImportOptions | None = None,
    reporter: Reporter = SILENT,
) -> Task:
    """Open a source as a task: a graph directory is memory-mapped, other formats are read into memory.

    Without labels the task has all labels -1 and no splits, which is enough for tokens and predictions.

    Args:
        path: folder or file.
        options: as for :func:`import_graph`; ignored for a graph directory.
        reporter: hears how far reading is, and which columns were taken as what; the latter is logged as well.
    """
    options, path = options or ImportOptions(), Path(path)
    if is_native(path):
        return Task.load(path)
    source = read_source(path, options)
    edges, ids = pour_edges(source, _Held, reporter)
    ends = np.stack([np.concatenate([getattr(b, end) for b in edges.batches]) for end in ("source", "target")])
    weights = np.concatenate([b.weights for b in edges.batches]) if source.edges.weighted else None
    features = None if source.features is None else source.features.whole()
    if features is not None and features.shape[0] != ids.num_nodes:
        raise InvalidData(f"There must be {ids.num_nodes:,} rows of features, one per node. Got {features.shape[0]:,}.")
    graph = Graph(ends, features, ids.num_nodes, weights)
    task = build_task(source, graph, ids, options)
    loops = int(np.count_nonzero(ends[0] == ends[1]))
    for line in (*match_lines(source.matched), *_notes(source, task, ends.shape[1], loops, graph.num_edges)):
        _log.info(line)
        reporter.say(line)
    return task
