"""Edge lists as streams of batches: from a table, or from arrays that are already in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from polyformer.errors import InvalidData
from polyformer.importing.column_roles import EDGE_ROLES, match_column, require_column
from polyformer.importing.kinds import kind_words
from polyformer.importing.options import ColumnMatch, ImportOptions
from polyformer.importing.rows import row_of
from polyformer.importing.tables import BATCH_ROWS, Table

__all__ = ["ArrayEdges", "EdgeBatch", "EdgeReader", "TableEdges", "as_ids", "id_kind", "node_numbers"]


@dataclass(frozen=True, eq=False)
class EdgeBatch:
    """Some rows of an edge list: ids (int64 numpy, or an arrow array of strings) and float32 weights."""

    source: Any
    target: Any
    weights: np.ndarray | None


class EdgeReader(ABC):
    """An edge list that can be read from the start as often as needed."""

    name: str
    kind: str
    """The kind of the ids: ``integer`` or ``string``."""
    weighted: bool = False
    num_rows: int | None = None
    matched: tuple[ColumnMatch, ...] = ()
    notes: tuple[str, ...] = ()
    directed: bool = False
    """Whether the names of the columns tell a direction, such as from and to."""

    @abstractmethod
    def batches(self) -> Iterator[EdgeBatch]:
        """All rows in order."""


class ArrayEdges(EdgeReader):
    """Pairs of node numbers in memory: (2, E) integers."""

    kind = "integer"

    def __init__(self, edge_index: np.ndarray, weights: np.ndarray | None = None, name: str = "edges") -> None:
        self.name, self.edge_index = name, edge_index
        self.weights = None if weights is None else check_weights(weights, 0, name)
        self.weighted, self.num_rows = weights is not None, edge_index.shape[1]

    def batches(self) -> Iterator[EdgeBatch]:
        for start in range(0, self.edge_index.shape[1], BATCH_ROWS):
            part = slice(start, start + BATCH_ROWS)
            source, target = node_numbers(self.edge_index[:, part], self.name)
            yield EdgeBatch(source, target, None if self.weights is None else self.weights[part])


class TableEdges(EdgeReader):
    """The columns source, target and perhaps weight of a table; ``kind`` is the kind of the ids."""

    def __init__(self, table: Table, options: ImportOptions, kind: str | None = None) -> None:
        self.table, self.name, self.notes = table, table.name, table.notes
        names = table.names
        self.columns = _edge_columns(names, options, self.name)
        self.kind = kind or (
            options.id_type if options.id_type != "auto" else id_kind(table.schema, self.columns[0], self.name)
        )
        self.weighted, self.num_rows = len(self.columns) == 3, table.num_rows
        self.directed = all(
            name.strip().lower() in EDGE_ROLES[role]
            for name, role in zip(self.columns, ("source", "target"), strict=False)
        )
        roles = ("source", "target", "weight")
        self.matched = tuple(
            ColumnMatch(self.name, role, column) for role, column in zip(roles, self.columns, strict=False)
        )

    def batches(self) -> Iterator[EdgeBatch]:
        id_type = pa.int64() if self.kind == "integer" else pa.large_string()
        types = dict.fromkeys(self.columns[:2], id_type) | dict.fromkeys(self.columns[2:], pa.float64())
        start = 0
        for batch in self.table.batches(self.columns, types):
            source, target = (as_ids(batch.column(i), self.kind, start, self.columns[i], self.name) for i in range(2))
            weights = _weights(batch.column(2), start, self.columns[2], self.name) if self.weighted else None
            yield EdgeBatch(source, target, weights)
            start += batch.num_rows


def node_numbers(ids: np.ndarray, name: str) -> np.ndarray:
    """Integers of any width as int64; refuses integers that do not fit."""
    if ids.dtype.kind == "u" and int(ids.max(initial=0)) >= 2**63:
        raise InvalidData(f"Node ids in '{name}' must be below 2^63. Got {int(ids.max())}. Number the nodes from 0.")
    return ids.astype(np.int64, copy=False)


def id_kind(schema: pa.Schema, column: str, table: str) -> str:
    """Whether a column holds ``integer`` or ``string`` ids."""
    kind = schema.field(column).type
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_integer(value) or pa.types.is_floating(value):
        return "integer"
    if pa.types.is_string(value) or pa.types.is_large_string(value):
        return "string"
    if pa.types.is_null(value):
        raise InvalidData(f"The column '{column}' of '{table}' is empty. It must hold node ids.")
    raise InvalidData(
        f"The column '{column}' of '{table}' must hold integers or strings as ids. It holds {kind_words(value)}."
    )


def as_ids(column: Any, kind: str, start: int, name: str, table: str) -> Any:
    """Ids as an int64 numpy array or an arrow array of large strings; refuses a missing id and names its row."""
    if column.null_count:
        row = start + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise InvalidData(f"There is no id in the column '{name}' of {row_of(row, table)}. Fill it or remove the row.")
    try:
        if kind == "integer":
            return column.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return column.cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        expected = "integers" if kind == "integer" else "strings"
        reason = " ".join(str(error).split())[:200]
        raise InvalidData(
            f"The ids in the column '{name}' of '{table}' must be {expected} ({reason}). "
            f"Write them alike in both tables, or read all as text with --id-type string."
        ) from None


def check_weights(values: np.ndarray, start: int, table: str) -> np.ndarray:
    """Weights as float32; refuses weights that are negative or not finite."""
    if values.dtype.kind not in "biuf" or values.ndim != 1:
        raise InvalidData(f"Edge weights of '{table}' must be one number per edge. Got {values.dtype} {values.shape}.")
    with np.errstate(over="ignore"):
        weights = values.astype(np.float32)
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        raise InvalidData(
            f"Edge weights must be finite and not negative. Got {values[bad[0]]} in "
            f"{row_of(start + int(bad[0]), table)}. Correct it, or ignore weights with --weight-column ''."
        )
    return weights


def _weights(column: Any, start: int, name: str, table: str) -> np.ndarray:
    try:
        values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InvalidData(
            f"The weight column '{name}' of '{table}' must hold numbers. It holds {kind_words(column.type)}."
        ) from None
    return check_weights(values, start, table)


def _edge_columns(names: list[str], options: ImportOptions, table: str) -> list[str]:
    given = (options.source_column, options.target_column)
    weight = match_column("weight", EDGE_ROLES["weight"], names, options.weight_column, table)
    rest = [name for name in names if name != weight]
    unnamed = all(name.lower() not in EDGE_ROLES["source"] + EDGE_ROLES["target"] for name in rest)
    headless = names == [f"column{i + 1}" for i in range(len(names))]
    if given == (None, None) and unnamed and (len(rest) == 2 or (headless and len(names) == 3)):
        # Two columns must be the two ends; a third column without a header is the weight, as in published edge lists.
        last = [weight] if weight else rest[2:] if options.weight_column is None else []
        return [*rest[:2], *last]
    source, target = (
        require_column(role, EDGE_ROLES[role], names, column, table)
        for role, column in zip(("source", "target"), given, strict=True)
    )
    return [source, target] if weight is None else [source, target, weight]
