"""Tables of changes, written like the tables of an import: with a column ``action``, or one file for each kind."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from polyformer.errors import InvalidData
from polyformer.files import file_digest
from polyformer.importing.column_roles import NODE_ROLES, match_column
from polyformer.importing.edges import TableEdges
from polyformer.importing.identifiers import IntegerIds, StringIds
from polyformer.importing.node_table import NodeTable
from polyformer.importing.options import ImportOptions
from polyformer.importing.tables import Table, open_table
from polyformer.structure_features import are_structural
from polyformer.tasks import Task
from polyformer.updates.change_files import ChangeTable, find_tables, split_by_action
from polyformer.updates.task_changes import TaskChange, label_number, split_part

__all__ = ["read_changes", "read_new_nodes", "tables_digest"]


def read_changes(path: Path, task: Task) -> tuple[TaskChange, str]:
    """The change that tables describe for a task as it is now, and a hash of the tables.

    Args:
        path: a folder with ``nodes`` and ``edges`` tables that have a column ``action`` (add, change or remove), or
            with a table for each kind: ``add_nodes``, ``change_nodes``, ``remove_nodes``, ``add_edges``,
            ``change_edges``, ``remove_edges``; or one such file.
    """
    files = find_tables(path)
    with tempfile.TemporaryDirectory(prefix="polyformer-changes-") as folder:
        tables = [part for file, what in files for part in split_by_action(file, what, Path(folder))]
        change = _Reader(task).read(tables)
    return change, tables_digest(path)


def tables_digest(path: Path) -> str:
    """A hash of tables of changes, by which the same tables are known again."""
    digest = hashlib.blake2b(digest_size=16)
    for file, what in sorted(find_tables(path), key=lambda entry: entry[1]):
        digest.update(f"{what} {file_digest(file)}".encode())
    return digest.hexdigest()


def read_new_nodes(nodes: Path, edges: Path | None, task: Task) -> TaskChange:
    """New nodes and their edges from two tables, read as the tables of the task were read.

    Args:
        nodes: ids and features, one row for each new node.
        edges: source and target, and weight if the graph has weights; each edge has a new node.
        task: the task of a run; if its features were made from the structure, those of new nodes are made in the same
            way.
    """
    reader = _Reader(task)
    reader._add_nodes(open_table(nodes))
    if edges is not None:
        reader._add_edges(open_table(edges))
    return reader.change


class _Reader:
    """Turns tables into a :class:`TaskChange` of a task."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.change = TaskChange(first_new=task.graph.num_nodes)
        self.string = task.ids is not None and task.ids.dtype.kind == "U"
        self.kind = "string" if self.string else "integer"
        self.alive = task.graph.present_nodes
        self.number: dict[Any, int] = {}  # of new nodes
        self._index: Any = None
        self._origins: dict[Path, ChangeTable] = {}
        self.options = ImportOptions(
            id_type=self.kind, label_column="", split_column="", columns=task.columns, missing="fill"
        )
        structural = are_structural(task.columns)
        self.num_features, self.columns = (0, ()) if structural else (task.graph.num_features, task.columns)
        self.classes = None if task.class_names is None else list(task.class_names)

    def read(self, tables: list[ChangeTable]) -> TaskChange:
        order = ["remove_nodes", "remove_edges", "add_nodes", "change_nodes", "add_edges", "change_edges"]
        self._origins = {part.table.paths[0]: part for part in tables}
        for part in sorted(tables, key=lambda part: order.index(part.what)):
            getattr(self, f"_{part.what}")(part.table)
        if self.classes is not None:
            self.change.class_names = tuple(self.classes)
        return self.change

    def _place(self, table: Table, row: int) -> str:
        """Where a row of a table stands in the user's file."""
        origin = self._origins.get(table.paths[0])
        number = row if origin is None or origin.rows is None else int(origin.rows[row])
        return f"Row {number + 1} of '{table.name if origin is None else origin.name}'"

    def _find(self, ids: Any) -> np.ndarray:
        """Node numbers of the user's ids, of nodes that are there or new; -1 for others."""
        if self._index is None:
            values = self.alive if self.task.ids is None else np.asarray(self.task.ids)[self.alive]
            self._index = StringIds(pa.array(values, pa.large_string())) if self.string else IntegerIds(values)
        place = self._index.find(ids)
        numbers = np.where(place >= 0, self.alive[np.maximum(place, 0)], -1)
        for row in np.flatnonzero(numbers < 0) if self.number else ():
            numbers[row] = self.number.get(_plain(ids[int(row)]), -1)
        return numbers

    def _known(self, ids: Any, table: Table, what: str) -> np.ndarray:
        numbers = self._find(ids)
        unknown = np.flatnonzero(numbers < 0)
        if len(unknown):
            name = _plain(ids[int(unknown[0])])
            raise InvalidData(
                f"{self._place(table, int(unknown[0]))} {what} the node '{name}', which is not in the graph. Add it "
                f"first, or correct the id."
            )
        gone = np.flatnonzero(np.isin(numbers, self.change.remove_nodes))
        if len(gone) and what != "removes":
            name = _plain(ids[int(gone[0])])
            raise InvalidData(
                f"{self._place(table, int(gone[0]))} {what} the node '{name}', which the same change removes. "
                f"Leave one out."
            )
        return numbers

    def _node_table(self, table: Table, columns: Any) -> tuple[NodeTable, Any]:
        nodes = NodeTable(table, replace(self.options, columns=columns, decimal=table.decimal_mark))
        values = nodes.ids.values
        return nodes, np.arange(nodes.ids.num_nodes) if values is None else values

    def _add_nodes(self, table: Table) -> None:
        graph = self.task.graph
        nodes, ids = self._node_table(table, self.columns if self.num_features else ())
        known_rows = np.flatnonzero(self._find(ids) >= 0)
        known_rows = known_rows[~np.isin(self._find(ids)[known_rows], self.change.remove_nodes)]
        if len(known_rows):
            row = int(known_rows[0])
            raise InvalidData(
                f"{self._place(table, row)} adds the node '{_plain(ids[row])}', which is in the graph already. Use the "
                f"action change for other features or labels."
            )
        self.change.add_features = self._features(nodes, len(ids), table)
        self.change.new_ids = [_plain(value) for value in ids]
        first = graph.num_nodes
        self.number = {name: first + i for i, name in enumerate(self.change.new_ids)}
        self._labels(table, np.arange(first, first + len(ids)))

    def _features(self, nodes: NodeTable, count: int, table: Table) -> np.ndarray:
        width = self.num_features
        rows = np.empty((count, 0), np.float32) if nodes.features is None else np.asarray(nodes.features.whole())
        if rows.shape[1] != width:
            raise InvalidData(f"'{table.name}' must give {width} features per node. Got {rows.shape[1]}.")
        return rows

    def _change_nodes(self, table: Table) -> None:
        graph, columns = self.task.graph, self.task.columns
        present = None if columns is None else tuple(column for column in columns if column.name in table.names)
        roles = {*NODE_ROLES["id"], *NODE_ROLES["label"], *NODE_ROLES["split"]}
        bare = columns is None and all(name.strip().lower() in roles for name in table.names)
        nodes, ids = self._node_table(table, () if bare or not graph.num_features else present)
        numbers = self._known(ids, table, "changes")
        if columns is None and not bare and graph.num_features:
            rows = self._features(nodes, len(ids), table)
            self.change.set_features |= dict(zip(numbers.tolist(), rows, strict=True))
        elif present and nodes.features is not None:
            new, spans, start = np.asarray(nodes.features.whole()), [], 0
            for column in columns or ():
                if column.name in table.names:
                    spans.append(np.arange(start, start + column.width))
                start += column.width
            old = graph.features[numbers]  # type: ignore[index]
            rows = np.array(old.toarray() if hasattr(old, "toarray") else old, np.float32)
            rows[:, np.concatenate(spans)] = new
            self.change.set_features |= dict(zip(numbers.tolist(), rows, strict=True))
        self._labels(table, numbers)

    def _labels(self, table: Table, numbers: np.ndarray) -> None:
        """Labels and splits of the rows of a table, where it has such columns."""
        given = {column.name for column in self.task.columns or ()}
        free = [name for name in table.names if name not in given]
        for role in ("label", "split"):
            column = match_column(role, NODE_ROLES[role], free, None, table.name)
            if column is None:
                continue
            cells = [
                value
                for batch in table.batches([column], {column: pa.string()})
                for value in batch.column(0).cast(pa.string()).to_pylist()
            ]
            for row, (node, cell) in enumerate(zip(numbers.tolist(), cells, strict=True)):
                place = f"row {row + 1} of '{table.name}'"
                if role == "label":
                    label = None if cell is None else label_number(cell, self.task, self.classes, place)
                    self.change.labels[node] = label
                elif cell is not None:
                    self.change.parts[node] = split_part(cell, place)

    def _remove_nodes(self, table: Table) -> None:
        _, ids = self._node_table(table, ())
        self.change.remove_nodes = np.unique(self._known(ids, table, "removes"))

    def _edges(self, table: Table, what: str) -> tuple[np.ndarray, np.ndarray | None]:
        edges = TableEdges(table, self.options, self.kind)
        pairs, weights = [], []
        for batch in edges.batches():
            ends = [self._known(end, table, what) for end in (batch.source, batch.target)]
            pairs.append(np.stack(ends, axis=1))
            weights.append(batch.weights)
        joined = np.concatenate(pairs) if pairs else np.empty((0, 2), np.int64)
        return joined, np.concatenate(weights) if edges.weighted and weights else None  # type: ignore[arg-type]

    def _remove_edges(self, table: Table) -> None:
        self.change.remove_edges = self._edges(table, "removes an edge of")[0]
        self._refuse_missing(self.change.remove_edges, table, "removes", "Leave it out.")

    def _add_edges(self, table: Table) -> None:
        self.change.add_edges, self.change.add_weights = self._edges(table, "joins")

    def _change_edges(self, table: Table) -> None:
        pairs, weights = self._edges(table, "changes an edge of")
        if weights is None:
            raise InvalidData(f"'{table.name}' changes edges but has no column 'weight'. Give the new weights.")
        self._refuse_missing(pairs, table, "changes", "Use the action add for it.")
        earlier = self.change.add_weights
        if earlier is None:
            earlier = np.ones(len(self.change.add_edges), np.float32)
        self.change.add_weights = np.concatenate([earlier, weights])
        self.change.add_edges = np.concatenate([self.change.add_edges, pairs])

    def _refuse_missing(self, pairs: np.ndarray, table: Table, what: str, advice: str) -> None:
        """Refuse an edge that is not in the graph."""
        graph = self.task.graph
        for row, (one, other) in enumerate(pairs.tolist()):
            begin, end = graph.indptr[one : one + 2] if one < graph.num_nodes else (0, 0)
            if other not in graph.indices[begin:end]:
                names = [str(node if self.task.ids is None else self.task.ids[node]) for node in (one, other)]
                raise InvalidData(
                    f"{self._place(table, row)} {what} an edge between '{names[0]}' and '{names[1]}', which is not "
                    f"there. {advice}"
                )


def _plain(value: Any) -> Any:
    return value.as_py() if hasattr(value, "as_py") else value.item() if hasattr(value, "item") else value
