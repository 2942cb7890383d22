"""What every reader returns: an edge list to stream, and what is known about the nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow.compute as pc

from polyformer.errors import InvalidData
from polyformer.graph import Graph
from polyformer.importing.edges import EdgeBatch, EdgeReader
from polyformer.importing.features import FeatureStream
from polyformer.importing.identifiers import DenseIds, NodeIds, NotDense, collect_ids
from polyformer.importing.labels import Labels, check_training_classes, draw_splits
from polyformer.importing.options import ColumnMatch, ImportOptions
from polyformer.reporter import SILENT, Reporter
from polyformer.splits import Split
from polyformer.tasks import Task

__all__ = ["Sink", "Source", "build_task", "check_splits", "pour_edges"]

_STRINGS = 1 << 16


@dataclass(frozen=True, eq=False)
class Source:
    """A graph that has been opened but whose edges and features have not been read.

    Attributes:
        ids: ids of the nodes; None if there is no list of nodes besides the edges.
        labels: labels of the nodes; None if no node is labelled.
        splits: splits of the source; None to draw splits.
        preprocessing: the notes that say what was done to the features.
        protocol: name of the way in which the splits were made.
    """

    format: str
    name: str
    edges: EdgeReader
    ids: NodeIds | None = None
    features: FeatureStream | None = None
    labels: Labels | None = None
    splits: tuple[Split, ...] | None = None
    metric: str = ""
    matched: tuple[ColumnMatch, ...] = ()
    notes: tuple[str, ...] = ()
    preprocessing: tuple[str, ...] = ()
    protocol: str = "fixed"


class Sink(Protocol):
    """Receives batches of node numbers."""

    def add(self, batch: EdgeBatch) -> None: ...

    def close(self) -> None: ...


def pour_edges(source: Source, make_sink: Callable[[], Any], reporter: Reporter = SILENT) -> tuple[Any, NodeIds]:
    """Read all edges into a new sink; returns it with the nodes.

    Without a node table, integer ids are first read as node numbers, which needs no dictionary. If the ids turn out to
    be far apart, they are collected and the edges are read again.
    """
    reader = source.edges
    if source.ids is None and reader.kind == "integer":
        dense = DenseIds()
        try:
            return _fill(make_sink(), dense, reader, reporter), dense
        except NotDense:
            pass
    ids = source.ids or collect_ids(reader, _watched(reader, "collecting ids", reporter))
    return _fill(make_sink(), ids, reader, reporter), ids


def _fill(sink: Sink, ids: NodeIds, reader: EdgeReader, reporter: Reporter) -> Sink:
    rows = 0
    try:
        for batch in ids.resolve(_watched(reader, "reading edges", reporter)):
            sink.add(batch)
            rows += len(batch.source)
        if rows == 0:
            raise InvalidData(f"'{reader.name}' has no edges. Give it at least one row.")
        if isinstance(ids, DenseIds):
            ids.settle()
    except BaseException:
        sink.close()
        raise
    return sink


def _watched(reader: EdgeReader, stage: str, reporter: Reporter) -> Iterator[EdgeBatch]:
    done = 0
    for batch in reader.batches():
        yield batch
        done += len(batch.source)
        reporter.stage(stage, done, reader.num_rows)


def check_splits(source: Source) -> None:
    """Refuse splits of the user's own in which a class is in no training node."""
    if source.labels is not None and source.splits is not None and source.protocol == "fixed":
        sentence = check_training_classes(source.labels, source.splits)
        if sentence:
            raise InvalidData(f"{sentence} Put a node of it into training, or remove the label.")


def build_task(source: Source, graph: Graph, ids: NodeIds, options: ImportOptions) -> Task:
    """Make a task from a graph, labels, splits and ids; without labels, the task has no splits."""
    named = ids.values if ids.values is None or isinstance(ids.values, np.ndarray) else string_array(ids.values)
    name = options.name or source.name
    columns, done = None if source.features is None else source.features.origin, source.preprocessing
    if source.labels is None or not source.labels.known.any():
        bare = np.full(graph.num_nodes, -1)
        return Task(name, graph, bare, (), "none", ids=named, columns=columns, preprocessing=done)
    splits, protocol, drawn = source.splits, source.protocol, source.splits is None
    if splits is None:
        splits, protocol = tuple(draw_splits(source.labels, options)), options.protocol
    metric = options.metric or source.metric
    names = source.labels.class_names
    return Task(name, graph, source.labels.values, splits, protocol, metric, names, named, columns, done, drawn)


def string_array(values: Any) -> np.ndarray:
    """Arrow strings as a numpy array of fixed width, which can be stored without pickle."""
    longest = max(1, pc.max(pc.utf8_length(values)).as_py() or 0)
    array = np.empty(len(values), f"<U{longest}")
    for start in range(0, len(values), _STRINGS):  # in pieces, as Python strings take several times the memory
        array[start : start + _STRINGS] = values.slice(start, _STRINGS).to_pylist()
    return array
