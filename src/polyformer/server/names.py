"""The user's own ids of nodes, and the row of each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polyformer.errors import InvalidParameter, UnknownName
from polyformer.importing.identifiers import LONGEST_ID, IntegerIds
from polyformer.tasks import Task

__all__ = ["NodeId", "NodeNames"]

NodeId = int | str

_WHOLE = re.compile(r"-?[0-9]{1,19}")
_MOST_WHOLE = 1 << 63


class _SortedTexts:
    """Rows of texts by binary search."""

    def __init__(self, values: np.ndarray) -> None:
        self.order = np.argsort(values, kind="stable")
        self.sorted = values[self.order]

    def find(self, ids: np.ndarray) -> np.ndarray:
        place = np.minimum(np.searchsorted(self.sorted, ids), len(self.sorted) - 1)
        return np.where(self.sorted[place] == ids, self.order[place], -1)


@dataclass(frozen=True, eq=False)
class NodeNames:
    """Ids of all nodes of one version of a graph.

    Attributes:
        text: whether ids are texts; otherwise they are whole numbers.
        num_rows: rows of the graph, those of removed nodes included.
        ids: (N,) the id of each row; None where an id is the number of its row.
        removed: rows, rising, of nodes that were removed.
        index: finds rows of the first ids; None where an id is the number of its row.
        later: rows of ids that came after ``index`` was made.
    """

    text: bool
    num_rows: int
    ids: np.ndarray | None
    removed: np.ndarray
    index: IntegerIds | _SortedTexts | None
    later: dict[NodeId, int] = field(default_factory=dict)

    @classmethod
    def of(cls, task: Task) -> NodeNames:
        """The names in a task; a dead row never hides a living one of the same id."""
        ids, removed, count = task.ids, task.graph.removed, task.graph.num_nodes
        if ids is None:
            return cls(False, count, None, removed, None)
        values = np.asarray(ids)
        text = values.dtype.kind == "U"
        index: IntegerIds | _SortedTexts = _SortedTexts(values) if text else IntegerIds(values)
        again = {name: row for row, name in _named_again(values, removed)}
        return cls(text, count, values, removed, index, again)

    def after(self, task: Task) -> NodeNames:
        """The names after a change of the same graph, in time that grows with the new nodes."""
        if task.ids is None or self.ids is None:
            return NodeNames.of(task)
        values = np.asarray(task.ids)
        fresh = {_plain(values[row]): row for row in range(self.num_rows, len(values))}
        return NodeNames(
            self.text, task.graph.num_nodes, values, task.graph.removed, self.index, {**self.later, **fresh}
        )

    @property
    def kind(self) -> str:
        """What an id is, for sentences."""
        return "text" if self.text else "whole number"

    def parse(self, text: str) -> NodeId:
        """An id as it stands in an address."""
        if self.text:
            return text
        if not _WHOLE.fullmatch(text) or not -_MOST_WHOLE <= int(text) < _MOST_WHOLE:
            raise UnknownName(f"Node ids of this graph are whole numbers. Got {shown(text)}.")
        return int(text)

    def row(self, name: NodeId) -> int:
        """The row of an id."""
        return int(self.rows([name])[0])

    def rows(self, names: Sequence[Any]) -> np.ndarray:
        """The rows of ids: (n,); refuses an id that no node has."""
        rows = self.find(names)
        lacking = np.flatnonzero(rows < 0)
        if len(lacking):
            name = names[int(lacking[0])]
            more = f", nor {len(lacking) - 1:,} others of the {len(names):,} ids" if len(lacking) > 1 else ""
            raise UnknownName(f"The graph has no node {shown(name)}{more}.")
        return rows

    def find(self, names: Sequence[Any]) -> np.ndarray:
        """The rows of ids, -1 for an id that no node has: (n,) int64; refuses a value that cannot be an id."""
        for name in names:
            self.check(name)
        if not names:
            return np.empty(0, np.int64)
        rows = self._first_rows(names)
        if self.later:
            for place, name in enumerate(names):
                rows[place] = self.later.get(name, rows[place])
        if len(self.removed):
            rows[np.isin(rows, self.removed)] = -1
        return rows

    def _first_rows(self, names: Sequence[Any]) -> np.ndarray:
        if self.index is None:
            numbers = np.array(names, np.int64)
            return np.where((numbers >= 0) & (numbers < self.num_rows), numbers, -1)
        return self.index.find(np.array(names, None if self.text else np.int64)).astype(np.int64)

    def check(self, name: Any) -> None:
        """Refuse a value that cannot be the id of a node of this graph."""
        if self.text:
            if not isinstance(name, str):
                raise InvalidParameter(f"Node ids of this graph are texts. Got {shown(name)}.")
            if not 0 < len(name) <= LONGEST_ID or "\0" in name:
                raise InvalidParameter(
                    f"A node id must have 1 to {LONGEST_ID:,} characters, none of them zero. Got {shown(name)}."
                )
        elif type(name) is not int or not -_MOST_WHOLE <= name < _MOST_WHOLE:
            raise InvalidParameter(f"Node ids of this graph are whole numbers. Got {shown(name)}.")

    def names(self, rows: np.ndarray) -> list[NodeId]:
        """The ids of rows."""
        values: list[NodeId] = (rows if self.ids is None else self.ids[rows]).tolist()
        return values


def shown(value: Any) -> str:
    """A value in a sentence, at most 60 characters of it.

    >>> shown("Ann"), shown([1, 2])
    ("'Ann'", '[1, 2]')
    """
    text = f"'{value}'" if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _plain(value: Any) -> NodeId:
    plain: NodeId = value.item() if hasattr(value, "item") else value
    return plain


def _named_again(values: np.ndarray, removed: np.ndarray) -> list[tuple[int, NodeId]]:
    """Living rows whose id a removed row has too."""
    if len(removed) == 0:
        return []
    same = np.flatnonzero(np.isin(values, values[removed]))
    return [(int(row), _plain(values[row])) for row in np.setdiff1d(same, removed)]
