"""The node table: ids, labels, one split, and which columns are features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from polyformer.errors import InvalidData
from polyformer.importing.column_choice import ColumnChoice, plain
from polyformer.importing.column_roles import NODE_ROLES, match_column, require_column
from polyformer.importing.edges import as_ids, id_kind
from polyformer.importing.features import TableFeatures
from polyformer.importing.identifiers import DenseIds, IntegerIds, NodeIds, StringIds, find_duplicate
from polyformer.importing.kinds import is_string
from polyformer.importing.labels import Labels, encode_labels, encode_split, split_by_time
from polyformer.importing.options import ColumnMatch, ImportOptions
from polyformer.importing.tables import CsvTable, Table
from polyformer.splits import Split

__all__ = ["NodeTable"]


class NodeTable:
    """What one pass over a node table gives: all but the features, which stay on disk until they are streamed."""

    ids: NodeIds
    labels: Labels | None = None
    split: Split | None = None
    features: TableFeatures | None = None
    preprocessing: tuple[str, ...] = ()
    """Sentences on what was filled, converted or left out of the features."""

    def __init__(self, table: Table, options: ImportOptions) -> None:
        self.table, self.options, self.name = table, options, table.name
        names = table.names
        given = {"id": options.id_column, "label": options.label_column, "split": options.split_column}
        if options.split_by is not None:
            if options.split_by not in names:
                raise InvalidData(
                    f"'{self.name}' has no column '{options.split_by}' to split by. Its columns are: "
                    f"{', '.join(names[:20])}."
                )
            given["split"] = ""
        self.given = None if options.columns is None else {column.name: column for column in options.columns}
        free = [name for name in names if name not in (self.given or {})]
        if self.given is not None and sum(name.strip().lower() in NODE_ROLES["label"] for name in free) > 1:
            given["label"] = given["label"] or ""  # a graph that a model is applied to needs no labels
        self.id_column, id_notes = self._find_ids(free, given["id"])
        self.label_column, self.split_column = (
            match_column(role, NODE_ROLES[role], free, given[role], self.name) for role in ("label", "split")
        )
        self.kind = options.id_type if options.id_type != "auto" else id_kind(table.schema, self.id_column, self.name)
        notes = id_notes + self._leave_out([role for role in ("label", "split") if given[role] == ""])
        columns = self._read(notes)
        self.ids = self._node_ids(columns)
        if self.label_column is not None:
            text = isinstance(table, CsvTable)
            self.labels = encode_labels(columns[self.label_column], options, text)
            notes += self.labels.notes
        if self.split_column is not None:
            if self.labels is None:
                raise InvalidData(f"'{self.name}' has a split column but no label column. Name it with --label-column.")
            self.split, more = encode_split(columns[self.split_column], self.labels, self.name)
            notes += more
        if options.split_by is not None:
            if self.labels is None:
                raise InvalidData(f"'{self.name}' has no label column to split by time. Name it with --label-column.")
            self.split = split_by_time(columns[options.split_by], self.labels, options.split_by, self.name)
        self.notes = tuple(notes)
        self.matched = self._matches()

    def _find_ids(self, names: list[str], given: str | None) -> tuple[str, list[str]]:
        """The column of ids, and a note where no name says so: the first column, if each of its values stands once."""
        column = match_column("id", NODE_ROLES["id"], names, given, self.name)
        if column is None and given is None and names and self._can_be_ids(names[0]):
            note = f"'{names[0]}' is read as the id: no other column looks like it. --id-column names another."
            return names[0], [note]
        return column or require_column("id", NODE_ROLES["id"], names, given, self.name), []

    def _can_be_ids(self, name: str) -> bool:
        """Whether a column holds text or integers, none missing and none twice."""
        kind = self.table.schema.field(name).type
        if not (is_string(kind) or pa.types.is_integer(kind)):
            return False
        types = {name: pa.string()} if is_string(kind) else {}
        parts = [plain(batch.column(0)) for batch in self.table.batches([name], types)]
        values = pa.chunked_array(parts, parts[0].type if parts else pa.string())
        return values.null_count == 0 and pc.count_distinct(values).as_py() == len(values)

    def _leave_out(self, ignored: list[str]) -> list[str]:
        """Keep ignored columns out of the features, unless the user names them as features; returns a note for each."""
        common = {name for role in ignored for name in NODE_ROLES[role]}
        unused_columns = [name for name in self.table.names if name.strip().lower() in common]
        if self.options.features is not None or self.given is not None:
            unused_columns = []
        self.left_out = unused_columns
        return [f"'{name}' is left out; name it in --features to have it as one." for name in unused_columns]

    def _read(self, notes: list[str]) -> dict[str, Any]:
        """Read ids, labels and splits as a whole, and decide how the features will be read."""
        roles = [column for column in (self.id_column, self.label_column, self.split_column) if column is not None]
        choice = ColumnChoice(self.table, self.options, self._feature_names(roles), self.given)
        self.types = choice.types | {column: pa.string() for column in roles}
        self.types[self.id_column] = pa.int64() if self.kind == "integer" else pa.string()
        timed = self.options.split_by
        if timed is not None:
            self.types |= ColumnChoice(self.table, self.options, [timed], None).types
            roles.append(timed)
        parts_by_name: dict[str, list[Any]] = {name: [] for name in roles}
        rows = 0
        for batch in self.table.batches(list(dict.fromkeys([*roles, *choice.watched])), self.types):
            for name in roles:
                parts_by_name[name].append(batch.column(name))
            choice.watch(batch)
            rows += batch.num_rows
        if rows == 0:
            raise InvalidData(f"'{self.name}' has no rows. Give it one row per node.")
        columns = choice.columns(rows)
        self.preprocessing = tuple(choice.notes.lines())
        notes += self.preprocessing
        self.features = TableFeatures(self.table, columns, self.types) if columns else None
        return {name: pa.concat_arrays([plain(part) for part in parts]) for name, parts in parts_by_name.items()}

    def _feature_names(self, roles: list[str]) -> list[str]:
        names = self.table.names
        if self.given is not None:
            for name in self.given:
                if name not in names:
                    raise InvalidData(
                        f"'{self.name}' has no column '{name}', on which the model was trained. Its columns are: "
                        f"{', '.join(names[:20])}."
                    )
            return list(self.given)
        if self.options.features is None:
            return [name for name in names if name not in (*roles, *self.left_out, self.options.split_by)]
        for name in (*self.options.features, *self.options.categories):
            if name not in names:
                raise InvalidData(f"'{self.name}' has no column '{name}'. Its columns are: {', '.join(names[:20])}.")
        return list(self.options.features)

    def _node_ids(self, columns: dict[str, Any]) -> NodeIds:
        values = as_ids(columns[self.id_column], self.kind, 0, self.id_column, self.name)
        if self.kind == "integer" and np.array_equal(values, np.arange(len(values))):
            return DenseIds(len(values))
        pair = find_duplicate(values)
        if pair is not None:
            first, second = pair
            labels = columns.get(self.label_column or "")
            conflict = ""
            if labels is not None and labels[first] != labels[second]:
                conflict = f" with different labels, '{labels[first]}' and '{labels[second]}'"
            raise InvalidData(
                f"'{self.name}' has the node id '{values[first]}' twice, in rows {first + 1} and {second + 1}"
                f"{conflict}. Keep one row per node."
            )
        return IntegerIds(values) if self.kind == "integer" else StringIds(values)

    def _matches(self) -> tuple[ColumnMatch, ...]:
        roles = (("id", self.id_column), ("label", self.label_column), ("split", self.split_column))
        role_matches = [ColumnMatch(self.name, role, column) for role, column in roles if column]
        columns = self.features.columns if self.features is not None else ()
        return (*role_matches, *(ColumnMatch(self.name, column.role, column.name) for column in columns))
