"""What every reader gives: an edge list to stream, and what is known about the nodes."""

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
from polyformer.progress import Stages
from polyformer.splits import Split
from polyformer.tasks import Task

__all__ = ["Sink", "Source", "build_task", "check_splits", "pour_edges"]

_STRINGS = 1 << 16


@dataclass(frozen=True, eq=False)
class Source:
    """A graph that has been opened but whose edges and features have not been read.

    Attributes:
        ids: the nodes, or None where the edges alone say which nodes there are.
        labels: None where nothing is labelled.
        splits: None where they are to be drawn.
        preprocessing: those of the notes that tell what was done to the features.
        protocol: how the splits came about.
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
    """Takes node numbers batch by batch."""

    def add(self, batch: EdgeBatch) -> None: ...

    def close(self) -> None: ...


def pour_edges(source: Source, make_sink: Callable[[], Any], progress: Stages | None = None) -> tuple[Any, NodeIds]:
    """Read all edges into a new sink; returns it with the nodes.

    Without a node table, integer ids are first taken for node numbers, which needs no dictionary; if they turn out to
    be far apart, the ids are collected and the edges read again.
    """
    reader = source.edges
    if source.ids is None and reader.kind == "integer":
        dense = DenseIds()
        try:
            return _fill(make_sink(), dense, reader, progress), dense
        except NotDense:
            pass
    ids = source.ids or collect_ids(reader, _watched(reader, "collecting ids", progress))
    return _fill(make_sink(), ids, reader, progress), ids


def _fill(sink: Sink, ids: NodeIds, reader: EdgeReader, progress: Stages | None) -> Sink:
    rows = 0
    try:
        for batch in ids.resolve(_watched(reader, "reading edges", progress)):
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


def _watched(reader: EdgeReader, stage: str, progress: Stages | None) -> Iterator[EdgeBatch]:
    done = 0
    for batch in reader.batches():
        yield batch
        done += len(batch.source)
        if progress is not None:
            progress(stage, done, reader.num_rows)


def check_splits(source: Source) -> None:
    """Refuse splits of the user's own in which a class is in no training node."""
    if source.labels is not None and source.splits is not None and source.protocol == "fixed":
        sentence = check_training_classes(source.labels, source.splits)
        if sentence:
            raise InvalidData(f"{sentence} Put a node of it into training, or remove the label.")


def build_task(source: Source, graph: Graph, ids: NodeIds, options: ImportOptions) -> Task:
    """Labels, splits and ids around a graph; without labels, a task that holds no splits."""
    named = ids.values if ids.values is None or isinstance(ids.values, np.ndarray) else string_array(ids.values)
    name = options.name or source.name
    columns, done = None if source.features is None else source.features.origin, source.preprocessing
    if source.labels is None or not source.labels.known.any():
        bare = np.full(graph.num_nodes, -1)
        return Task(name, graph, bare, (), "none", ids=named, columns=columns, preprocessing=done)
    splits, protocol = source.splits, source.protocol
    if splits is None:
        splits, protocol = tuple(draw_splits(source.labels, options)), options.protocol
    metric = options.metric or source.metric
    names = source.labels.class_names
    return Task(name, graph, source.labels.values, splits, protocol, metric, names, named, columns, done)


def string_array(values: Any) -> np.ndarray:
    """Arrow strings as a numpy array of fixed width, which can be stored without pickle."""
    longest = max(1, pc.max(pc.utf8_length(values)).as_py() or 0)
    array = np.empty(len(values), f"<U{longest}")
    for start in range(0, len(values), _STRINGS):  # in pieces: Python strings take several times the memory
        array[start : start + _STRINGS] = values.slice(start, _STRINGS).to_pylist()
    return array
