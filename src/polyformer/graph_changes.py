"""Changes of a graph's arrays: edges and nodes added, removed or given other values, at the cost of one copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polyformer.errors import InvalidData

__all__ = [
    "MOST_CHANGES",
    "ChangedStructure",
    "GraphChange",
    "change_structure",
    "entries_of_rows",
    "join_changes",
    "row_degrees",
]

MOST_CHANGES = 1000
"""How many changes a graph remembers; tokens that are older are made anew."""


@dataclass(frozen=True, eq=False)
class GraphChange:
    """Which rows one change touched: all that tokens need to follow it.

    Attributes:
        before: fingerprint of the graph before the change, features as they are stored.
        structure_before: fingerprint of its structure.
        num_nodes: N before the change; later ids are new nodes.
        ends: ids, rising, of nodes whose row of the adjacency changed.
        degrees: (len(ends),) float64 degrees of these nodes before the change.
        rows: ids, rising, of earlier nodes whose features changed.
    """

    before: str
    structure_before: str
    num_nodes: int
    ends: np.ndarray
    degrees: np.ndarray
    rows: np.ndarray


def join_changes(changes: Sequence[GraphChange]) -> GraphChange:
    """Changes in their order as one: what differs between the graph before the first and the one after the last.

    >>> first = GraphChange("a", "s", 5, np.array([1, 2]), np.array([3.0, 1.0]), np.array([0]))
    >>> second = GraphChange("b", "t", 6, np.array([2, 5]), np.array([2.0, 0.0]), np.array([4]))
    >>> joined = join_changes([first, second])
    >>> joined.ends.tolist(), joined.degrees.tolist(), joined.rows.tolist()
    ([1, 2], [3.0, 1.0], [0, 4])
    """
    first = changes[0]
    ends = np.concatenate([change.ends for change in changes])
    degrees = np.concatenate([change.degrees for change in changes])
    ends, place = np.unique(ends, return_index=True)  # the first of each: its degree is the oldest
    old = ends < first.num_nodes
    rows = np.unique(np.concatenate([change.rows for change in changes]))
    rows = rows[rows < first.num_nodes]
    return GraphChange(first.before, first.structure_before, first.num_nodes, ends[old], degrees[place[old]], rows)


def entries_of_rows(indptr: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the entries of some rows of a CSR pattern stand: (n,) -> offsets (n+1,), positions (their sum,).

    >>> offsets, positions = entries_of_rows(np.array([0, 2, 3, 6]), np.array([2, 0]))
    >>> offsets.tolist(), positions.tolist()
    ([0, 3, 5], [3, 4, 5, 0, 1])
    """
    begins = np.asarray(indptr[rows])
    counts = np.asarray(indptr[rows + 1]) - begins
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    positions = np.repeat(begins - offsets[:-1], counts)
    positions += np.arange(offsets[-1])
    return offsets, positions


@dataclass(frozen=True, eq=False)
class ChangedStructure:
    """A CSR pattern after a change, and the rows that differ with their degrees before it."""

    indptr: np.ndarray
    indices: np.ndarray
    weights: np.ndarray | None
    ends: np.ndarray
    degrees: np.ndarray


def change_structure(
    indptr: np.ndarray,
    indices: np.ndarray,
    weights: np.ndarray | None,
    num_new: int,
    removed_nodes: np.ndarray,
    removed: np.ndarray,
    added: np.ndarray,
    added_weights: np.ndarray | None,
) -> ChangedStructure:
    """First the removed nodes lose their edges, then removed pairs go, then added pairs come; both ways each.

    An added pair that is there gets the given weight. Pairs are (e, 2); loops are left out.
    """
    num_nodes = len(indptr) - 1 + num_new
    old = _Entries(indptr, indices, np.unique(np.concatenate([removed_nodes, removed.ravel(), added.ravel()])))
    gone = old.find(removed, "removed")
    _, of_nodes = entries_of_rows(indptr, removed_nodes)
    if len(of_nodes):
        counts = np.diff(indptr)[removed_nodes] if len(removed_nodes) else np.empty(0, np.int64)
        pairs = np.stack([np.repeat(removed_nodes, counts), np.asarray(indices[of_nodes], np.int64)], axis=1)
        # The rows of the neighbours hold the same edges the other way round.
        old = _Entries(indptr, indices, np.unique(np.concatenate([old.rows, pairs.ravel()])))
        gone = np.concatenate([gone, old.find(pairs, "removed")])
    gone = np.unique(gone)
    pairs, values = _once(added, added_weights)
    place = old.search(pairs)  # (2 e,) where both ways of the pairs are, -1 where they are not
    values = np.tile(values, 2) if values is not None else None
    if weights is None and values is not None:
        weights = np.ones(len(indices), np.float32)
    stays = place >= 0
    gone = np.setdiff1d(gone, place[stays], assume_unique=True)
    both = np.concatenate([pairs, pairs[:, ::-1]])
    fresh = np.flatnonzero(~stays)
    fresh = fresh[np.lexsort((both[fresh, 1], both[fresh, 0]))]
    if weights is not None and values is None:
        values = np.ones(len(both), np.float32)
    revalued = np.empty(0, np.int64)
    if weights is not None and values is not None:
        revalued = np.flatnonzero(stays)[np.asarray(weights[place[stays]]) != values[stays]]
    ends = np.unique(np.concatenate([old.row_of(gone), both[fresh, 0], both[revalued, 0]]))
    degrees = row_degrees(indptr, weights, ends)
    if weights is not None and values is not None and len(revalued):
        weights = np.array(weights)
        weights[place[revalued]] = values[revalued]
    new_indptr = _pointers(indptr, num_nodes, old.row_of(gone), both[fresh, 0])
    before = old.insert_at(both[fresh])
    before -= np.searchsorted(gone, before)
    new_indices = _spliced(indices, gone, before, both[fresh, 1])
    new_weights = None if weights is None or values is None else _spliced(weights, gone, before, values[fresh])
    if weights is not None and values is None:
        new_weights = _spliced(weights, gone, before, np.ones(len(fresh), np.float32))
    _check_degrees(new_indptr, new_weights, ends)
    return ChangedStructure(new_indptr, new_indices, new_weights, ends, degrees)


class _Entries:
    """The entries of some rows of a pattern, found by their row and column."""

    def __init__(self, indptr: np.ndarray, indices: np.ndarray, rows: np.ndarray) -> None:
        num_nodes = len(indptr) - 1
        self.rows = rows[rows < num_nodes]  # rows of new nodes have no entries yet
        offsets, self.positions = entries_of_rows(indptr, self.rows)
        self._row_of_entry = np.repeat(self.rows, np.diff(offsets))
        self._keys = (self._row_of_entry << 32) + np.asarray(indices[self.positions], np.int64)
        self._last = np.asarray(indptr[self.rows + 1])
        self._num_entries = len(indices)
        self._sorted = bool(np.all(self._keys[1:] > self._keys[:-1]))
        if not self._sorted:
            order = np.argsort(self._keys, kind="stable")
            self._keys, self.positions = self._keys[order], self.positions[order]
            self._row_of_entry = self._row_of_entry[order]

    def search(self, pairs: np.ndarray) -> np.ndarray:
        """Positions of (e, 2) pairs, then of the same pairs the other way; -1 where there is none."""
        both = np.concatenate([pairs, pairs[:, ::-1]]).astype(np.int64)
        keys = (both[:, 0] << 32) + both[:, 1]
        if len(self._keys) == 0:
            return np.full(len(keys), -1, np.int64)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, self.positions[at], -1)

    def find(self, pairs: np.ndarray, action: str) -> np.ndarray:
        """As :meth:`search`; a pair that is not there is refused."""
        positions = self.search(pairs)
        lacking = np.flatnonzero(positions < 0)
        if len(lacking):
            one, other = (int(node) for node in pairs[lacking[0] % len(pairs)])
            raise InvalidData(f"There is no edge between {one} and {other} that could be {action}. Leave it out.")
        return positions

    def row_of(self, positions: np.ndarray) -> np.ndarray:
        """The rows of entries."""
        order = np.argsort(self.positions)
        return np.asarray(self._row_of_entry[order[np.searchsorted(self.positions[order], positions)]])

    def insert_at(self, pairs: np.ndarray) -> np.ndarray:
        """Before which position an entry of (row, column) goes, so that sorted rows stay sorted."""
        at = np.full(len(pairs), self._num_entries, np.int64)
        inside = np.flatnonzero(np.isin(pairs[:, 0], self.rows))
        place = np.searchsorted(self.rows, pairs[inside, 0])
        at[inside] = self._last[place]
        if self._sorted and len(self._keys):
            keys = (pairs[inside, 0].astype(np.int64) << 32) + pairs[inside, 1]
            after = np.searchsorted(self._keys, keys)
            same_row = (after < len(self._keys)) & (
                self._row_of_entry[np.minimum(after, len(self._keys) - 1)] == pairs[inside, 0]
            )
            at[inside[same_row]] = self.positions[after[same_row]]
        return at


def _once(pairs: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Pairs without loops, each once whichever way it is given; of several weights the largest."""
    keep = pairs[:, 0] != pairs[:, 1]
    pairs = np.sort(pairs[keep], axis=1)
    if weights is None:
        return np.unique(pairs, axis=0), None
    weights = weights[keep]
    order = np.lexsort((-weights, pairs[:, 1], pairs[:, 0]))
    pairs, weights = pairs[order], weights[order]
    first = np.ones(len(pairs), bool)
    first[1:] = (pairs[1:] != pairs[:-1]).any(axis=1)
    return pairs[first], weights[first]


def _pointers(indptr: np.ndarray, num_nodes: int, gone: np.ndarray, fresh: np.ndarray) -> np.ndarray:
    """Row pointers after entries of the rows ``gone`` went and entries of the rows ``fresh`` came."""
    longer = np.zeros(num_nodes + 1, np.int64)
    np.add.at(longer, fresh + 1, 1)
    np.add.at(longer, gone + 1, -1)
    np.cumsum(longer, out=longer)
    longer[: len(indptr)] += indptr
    longer[len(indptr) :] += indptr[-1]
    return longer


def _spliced(array: np.ndarray, gone: np.ndarray, before: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The array without the positions ``gone``, then with ``values`` before the positions ``before``, which rise."""
    result = np.asarray(array)
    if len(gone):
        result = np.delete(result, gone)
    if len(before):
        result = np.insert(result, before, values.astype(array.dtype))
    return np.ascontiguousarray(result)


def row_degrees(indptr: np.ndarray, weights: np.ndarray | None, rows: np.ndarray) -> np.ndarray:
    """(n,) float64 degrees of rows; 0 for rows that are not there yet. Summed anew, never adjusted."""
    degrees = np.zeros(len(rows))
    old = np.flatnonzero(rows < len(indptr) - 1)
    offsets, positions = entries_of_rows(indptr, rows[old])
    if weights is None:
        degrees[old] = np.diff(offsets)
    else:
        filled = np.flatnonzero(np.diff(offsets))
        if len(filled):
            values = np.asarray(weights[positions], np.float64)
            degrees[old[filled]] = np.add.reduceat(values, offsets[filled])
    return degrees


def _check_degrees(indptr: np.ndarray, weights: np.ndarray | None, rows: np.ndarray) -> None:
    """As :func:`polyformer.graph_checks.check_degrees`, of some rows."""
    least = float(np.finfo(np.float32).tiny)
    degrees = row_degrees(indptr, weights, rows)
    small = np.flatnonzero((degrees > 0) & (degrees < least))
    if len(small):
        raise InvalidData(
            f"The weights of a node's edges must sum to 0 or to at least {least:.3g}. Got {degrees[small[0]]:.3g} for "
            f"node {int(rows[small[0]])}. Multiply all weights by the same large number."
        )
