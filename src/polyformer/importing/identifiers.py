"""From the user's node ids to node numbers 0..N-1."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from polyformer.errors import InvalidData, PolyformerError
from polyformer.importing.edges import EdgeBatch, EdgeReader
from polyformer.limits import MOST_NODES, check_node_count

__all__ = ["DenseIds", "IntegerIds", "NodeIds", "NotDense", "StringIds", "collect_ids", "find_duplicate"]

LONGEST_ID = 1000
_SHOWN = 5
_PENDING = 1 << 22


class NotDense(Exception):
    """The ids are no node numbers, so that a table of ids is needed. Never leaves this package."""


class NodeIds(ABC):
    """The ids of all nodes, and the node number of each id."""

    values: Any = None
    """The ids in node order, numpy integers or arrow strings; None if ids and node numbers are the same."""

    @property
    @abstractmethod
    def num_nodes(self) -> int:
        """N."""

    @abstractmethod
    def find(self, ids: Any) -> np.ndarray:
        """The node numbers of these ids; -1 for an unknown id."""

    def pairs(self, batches: Iterator[EdgeBatch]) -> Iterator[tuple[EdgeBatch, np.ndarray, np.ndarray]]:
        """Each batch with the node numbers of its two ends."""
        for batch in batches:
            yield batch, self.find(batch.source), self.find(batch.target)

    def resolve(self, batches: Iterator[EdgeBatch]) -> Iterator[EdgeBatch]:
        """Batches of node numbers; after the last batch, refuses unknown ids with their count and the first five."""
        unknown, shown = 0, list[Any]()
        for batch, source, target in self.pairs(batches):
            lost = (source < 0) | (target < 0)
            count = int(np.count_nonzero(lost))
            if count and len(shown) < _SHOWN:
                rows = np.flatnonzero(lost)[: 2 * _SHOWN * 100]
                for row in rows:
                    ends = ((batch.source, source), (batch.target, target))
                    shown += [_plain(given[int(row)]) for given, numbers in ends if numbers[row] < 0]
                shown = list(dict.fromkeys(shown))
            unknown += count
            if not unknown:
                yield EdgeBatch(source, target, batch.weights)
        if unknown:
            named = ", ".join(f"'{value}'" for value in shown[:_SHOWN])
            verb = "edge names" if unknown == 1 else "edges name"
            raise InvalidData(
                f"{unknown:,} {verb} ids that no node has; the first of these ids: {named}. "
                f"Add the nodes, remove the edges, or name another column of ids with --id-column."
            )


class DenseIds(NodeIds):
    """Ids that are node numbers. Without ``num_nodes``, N is the largest id plus one."""

    def __init__(self, num_nodes: int | None = None) -> None:
        self.fixed = None if num_nodes is None else check_node_count(num_nodes)
        self.largest, self.seen = -1, 0

    @property
    def num_nodes(self) -> int:
        return self.largest + 1 if self.fixed is None else self.fixed

    def find(self, ids: np.ndarray) -> np.ndarray:
        if len(ids) == 0:
            return ids
        smallest, largest = int(ids.min()), int(ids.max())
        self.largest, self.seen = max(self.largest, largest), self.seen + len(ids)
        if self.fixed is None:
            if smallest < 0 or largest >= MOST_NODES:
                raise NotDense
            return ids
        if smallest < 0 or largest >= self.fixed:
            return np.where((ids >= 0) & (ids < self.fixed), ids, -1)
        return ids

    def settle(self) -> None:
        """Refuse, after all edges, ids with far more gaps than nodes: they are names, not node numbers."""
        if self.fixed is None and self.num_nodes > max(1024, 2 * self.seen):
            raise NotDense


class IntegerIds(NodeIds):
    """Arbitrary integer ids, found by a table if they lie close together, else by binary search.

    Example:
        >>> IntegerIds(np.array([70, 10, 20])).find(np.array([10, 11, 70])).tolist()
        [1, -1, 0]
    """

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        low, high = int(values.min()), int(values.max())
        self.low, self.table = low, None
        if high - low < 4 * len(values) + 1024:
            self.table = np.full(high - low + 1, -1, np.int32)
            self.table[values - low] = np.arange(len(values), dtype=np.int32)
        else:
            self.order = np.argsort(values)
            self.sorted = values[self.order]

    @property
    def num_nodes(self) -> int:
        return len(self.values)

    def find(self, ids: np.ndarray) -> np.ndarray:
        ids = ids.astype(np.int64, copy=False)
        if self.table is not None:
            inside = (ids >= self.low) & (ids < self.low + len(self.table))
            shifted = np.where(inside, ids, self.low) - self.low
            return np.where(inside, self.table[shifted], -1)
        place = np.minimum(np.searchsorted(self.sorted, ids), len(self.sorted) - 1)
        return np.where(self.sorted[place] == ids, self.order[place], -1)


class StringIds(NodeIds):
    """String ids, found by arrow's hash table; refuses ids so long that storing all at one width would fill a disk."""

    def __init__(self, values: Any) -> None:
        self.values = values
        lengths = pc.utf8_length(values)
        longest = pc.max(lengths).as_py() or 0
        if longest > LONGEST_ID:
            text = values[pc.index(lengths, longest).as_py()].as_py()
            raise InvalidData(
                f"Node ids must have at most {LONGEST_ID:,} characters. Got one of {longest:,} that begins with "
                f"'{text[:30]}'. Shorten it in both tables."
            )

    @property
    def num_nodes(self) -> int:
        return len(self.values)

    def find(self, ids: Any) -> np.ndarray:
        positions = pc.index_in(ids, value_set=self.values)
        return np.asarray(positions.fill_null(-1).to_numpy(zero_copy_only=False)).astype(np.int64)

    def pairs(self, batches: Iterator[EdgeBatch]) -> Iterator[tuple[EdgeBatch, np.ndarray, np.ndarray]]:
        # One scan over all batches, so that the hash table is built once and not for each batch.
        options = pc.SetLookupOptions(self.values)
        columns = {name: pc.field(name) for name in ("source", "target", "weight")}
        columns |= {f"{name}_at": pc.index_in(pc.field(name), options=options) for name in ("source", "target")}
        types = {"source": pa.large_string(), "target": pa.large_string(), "weight": pa.float32()}
        caught: list[PolyformerError] = []
        scanner = pads.Scanner.from_batches(
            _record_batches(batches, types, caught),
            schema=pa.schema(types),
            columns=columns,
            use_threads=False,
            batch_readahead=1,
        )
        for batch in scanner.to_batches():
            source, target = (
                batch.column(f"{name}_at").fill_null(-1).to_numpy(zero_copy_only=False) for name in ("source", "target")
            )
            weights = batch.column("weight")
            kept = None if weights.null_count else weights.to_numpy()
            yield EdgeBatch(batch.column("source"), batch.column("target"), kept), source, target
        if caught:
            raise caught[0]


def _record_batches(
    batches: Iterator[EdgeBatch], types: dict[str, Any], caught: list[PolyformerError]
) -> Iterator[Any]:
    """Batches for arrow's scanner, which would lose our exceptions: the first exception is kept and ends the stream."""
    try:
        for batch in batches:
            weights = pa.nulls(len(batch.source), pa.float32()) if batch.weights is None else pa.array(batch.weights)
            yield pa.record_batch([batch.source, batch.target, weights], schema=pa.schema(types))
    except PolyformerError as error:
        caught.append(error)


def collect_ids(reader: EdgeReader, batches: Iterator[EdgeBatch]) -> NodeIds:
    """The sorted ids of an edge list, for a graph without a node table."""
    unique = np.unique if reader.kind == "integer" else _unique_strings
    join = np.concatenate if reader.kind == "integer" else pa.concat_arrays
    known: Any = None
    pending: list[Any] = []
    size = 0
    for batch in batches:
        pending += [unique(batch.source), unique(batch.target)]
        size += len(pending[-1]) + len(pending[-2])
        if known is None or size > max(_PENDING, len(known)):  # merge only when the ids have doubled, for linear work
            known, pending, size = unique(join(pending if known is None else [known, *pending])), [], 0
    if known is None:
        raise InvalidData(f"'{reader.name}' has no edges. Give it at least one row.")
    known = unique(join([known, *pending]))
    return IntegerIds(known) if reader.kind == "integer" else StringIds(known.take(pc.array_sort_indices(known)))


def _unique_strings(values: Any) -> Any:
    return pc.unique(values)


def find_duplicate(values: Any) -> tuple[int, int] | None:
    """Two rows that hold the same id; None if all ids differ.

    >>> find_duplicate(np.array([3, 5, 3]))
    (0, 2)
    """
    codes = values if isinstance(values, np.ndarray) else values.dictionary_encode().indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    same = np.flatnonzero(codes[order][1:] == codes[order][:-1])
    return (int(order[same[0]]), int(order[same[0] + 1])) if len(same) else None


def _plain(value: Any) -> Any:
    return value.as_py() if hasattr(value, "as_py") else value
