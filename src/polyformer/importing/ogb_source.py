"""The raw folder of a node-level OGB data set: gzipped CSV files without headers, and a folder of splits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from polyformer.errors import DataNotFound, InvalidData
from polyformer.files import GET_AGAIN, source_bytes
from polyformer.importing.edges import TableEdges
from polyformer.importing.features import NumberColumn, TableFeatures
from polyformer.importing.identifiers import DenseIds
from polyformer.importing.labels import Labels, check_training_classes, encode_labels
from polyformer.importing.options import ColumnMatch, ImportOptions
from polyformer.importing.source import Source
from polyformer.importing.tables import Table, open_table
from polyformer.limits import check_claimed_nodes
from polyformer.splits import Split

__all__ = ["is_ogb", "read_ogb"]


def is_ogb(folder: Path) -> bool:
    """Whether a folder is that of an OGB data set, or its ``raw`` folder."""
    return any((place / "edge.csv.gz").is_file() for place in (folder, folder / "raw"))


def read_ogb(folder: Path, options: ImportOptions) -> Source:
    """Read ``raw/edge.csv.gz``, ``num-node-list``; if present ``node-feat``, ``node-label``, ``split/*/train`` …."""
    raw = folder if (folder / "edge.csv.gz").is_file() else folder / "raw"
    root = raw.parent if raw.name == "raw" else raw
    counts = _numbers(raw / "num-node-list.csv.gz")
    if len(counts) != 1:
        raise InvalidData(f"'{raw}' must hold one graph. Got {len(counts)} in num-node-list.csv.gz.")
    if counts.dtype.kind not in "iu":
        raise InvalidData(f"'{raw / 'num-node-list.csv.gz'}' must hold a whole number. Got none. Restore it.")
    num_nodes = check_claimed_nodes(int(counts[0]), source_bytes(raw), str(raw / "num-node-list.csv.gz"))
    edges = TableEdges(open_table(raw / "edge.csv.gz"), options, "integer")
    matched, notes = [*edges.matched], []
    features = _features(raw / "node-feat.csv.gz")
    if features is None:
        notes.append(f"There is no node-feat.csv.gz in '{raw}': the graph has no features.")
    else:
        matched.append(ColumnMatch("node-feat.csv.gz", "feature matrix", f"{features.num_columns} columns"))
    labels = _labels(raw / "node-label.csv.gz", num_nodes, options)
    splits = None
    if labels is not None:
        matched.append(ColumnMatch("node-label.csv.gz", "label", "column1"))
        splits = _splits(root, labels)
        # A published split stays as it is, even where a rare class is in no training node (as in ogbn-products).
        sentence = check_training_classes(labels, splits or ())
        notes += [sentence] if sentence else []
    return Source(
        "OGB",
        root.name,
        edges,
        DenseIds(num_nodes),
        features,
        labels,
        splits,
        matched=tuple(matched),
        notes=tuple(notes),
    )


def _column(table: Table, kind: Any) -> Any:
    name = table.names[0]
    batches = [batch.column(0) for batch in table.batches([name], {name: kind})]
    if not batches:
        raise InvalidData(f"'{table.name}' has no rows. Restore it from the archive.")
    return pa.concat_arrays(batches)


def _numbers(path: Path) -> np.ndarray:
    return np.asarray(_column(open_table(path), pa.int64()).to_numpy(zero_copy_only=False))


def _features(path: Path) -> TableFeatures | None:
    if not path.is_file():
        return None
    table = open_table(path)
    types = {name: pa.float32() for name in table.names}
    return TableFeatures(table, [NumberColumn(name, 1) for name in table.names], types)


def _labels(path: Path, num_nodes: int, options: ImportOptions) -> Labels | None:
    if not path.is_file() or options.label_column == "":
        return None
    table = open_table(path)
    if len(table.names) != 1:
        raise InvalidData(f"'{path}' must hold one label per node. Got {len(table.names)} columns.")
    labels = encode_labels(_column(table, pa.string()), options, text=True)
    if len(labels.values) != num_nodes:
        raise InvalidData(f"'{path}' must hold {num_nodes:,} labels, one per node. Got {len(labels.values):,}.")
    return labels


def _splits(root: Path, labels: Labels) -> tuple[Split, ...] | None:
    folders = sorted(place for place in (root / "split").glob("*") if (place / "train.csv.gz").is_file())
    if not folders:
        return None
    splits = []
    for folder in folders:
        parts = []
        for part in ("train", "valid", "test"):
            path = folder / f"{part}.csv.gz"
            if not path.is_file():
                raise DataNotFound(f"There is no file '{path}'. Restore it from the archive.")
            nodes = np.sort(_numbers(path))
            if nodes.dtype.kind not in "iu":
                raise InvalidData(f"'{path}' must hold node ids, whole numbers. Got {nodes.dtype}. {GET_AGAIN}")
            if len(nodes) and (nodes[0] < 0 or nodes[-1] >= len(labels.values)):
                raise InvalidData(f"'{path}' names node {int(nodes[-1])}, but there are {len(labels.values):,} nodes.")
            parts.append(nodes[labels.known[nodes]])
        splits.append(Split(*parts))
    return tuple(splits)
