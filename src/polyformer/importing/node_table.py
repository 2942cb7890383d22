"""The node table: ids, labels, one split, and which columns are features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from polyformer.columns import Column
from polyformer.errors import InvalidData
from polyformer.importing.columns import NODE_ROLES, match_column, require_column
from polyformer.importing.edges import as_ids, id_kind
from polyformer.importing.features import CategoryColumn, FeatureColumn, ListColumn, NumberColumn, TableFeatures
from polyformer.importing.identifiers import DenseIds, IntegerIds, NodeIds, StringIds, find_duplicate
from polyformer.importing.labels import Labels, encode_labels, encode_split
from polyformer.importing.options import ColumnMatch, ImportOptions
from polyformer.importing.tables import CsvTable, Table
from polyformer.splits import Split

__all__ = ["NodeTable"]

_LARGEST_DICTIONARY = 10_000


class NodeTable:
    """A node table after one pass over it: everything but the features, which stay on disk until they are streamed."""

    ids: NodeIds
    labels: Labels | None = None
    split: Split | None = None
    features: TableFeatures | None = None

    def __init__(self, table: Table, options: ImportOptions) -> None:
        self.table, self.options, self.name = table, options, table.name
        names = table.names
        given = {"id": options.id_column, "label": options.label_column, "split": options.split_column}
        self.given = None if options.columns is None else {column.name: column for column in options.columns}
        free = [name for name in names if name not in (self.given or {})]
        if self.given is not None and sum(name.strip().lower() in NODE_ROLES["label"] for name in free) > 1:
            given["label"] = given["label"] or ""  # of a graph that a model is applied to labels can wait
        self.id_column = require_column("id", NODE_ROLES["id"], free, given["id"], self.name)
        self.label_column, self.split_column = (
            match_column(role, NODE_ROLES[role], free, given[role], self.name) for role in ("label", "split")
        )
        self.kind = options.id_type if options.id_type != "auto" else id_kind(table.schema, self.id_column, self.name)
        notes = self._leave_out([role for role in ("label", "split") if given[role] == ""])
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
        self.notes = tuple(notes)
        self.matched = self._matches()

    def _leave_out(self, ignored: list[str]) -> list[str]:
        """Keep columns of roles that are to be ignored out of the features, unless they are asked for; says which."""
        common = {name for role in ignored for name in NODE_ROLES[role]}
        found = [name for name in self.table.names if name.strip().lower() in common]
        if self.options.features is not None or self.given is not None:
            found = []
        self.left_out = found
        return [f"'{name}' is left out; name it in --features to have it as one." for name in found]

    def _read(self, notes: list[str]) -> dict[str, Any]:
        """Ids, labels and splits whole, and of every column that may be a category its distinct values."""
        roles = [column for column in (self.id_column, self.label_column, self.split_column) if column]
        names = self._feature_names(roles)
        self.types = {column: pa.string() for column in roles}
        self.types[self.id_column] = pa.int64() if self.kind == "integer" else pa.string()
        self.types |= self._feature_types(names)
        maybe = [name for name in names if self._may_be_category(name)]
        lists = [name for name in names if _is_list(self.table.schema.field(name).type)]
        held: dict[str, list[Any]] = {name: [] for name in roles}
        distinct: dict[str, Any] = {}
        widths: dict[str, int] = {}
        rows = 0
        for batch in self.table.batches([*roles, *maybe, *lists], self.types):
            for name in roles:
                held[name].append(batch.column(name))
            for name in maybe:
                values = _plain(batch.column(name))
                distinct[name] = _distinct(distinct.get(name), values, self._limit(name, None))
            for name in lists:
                if name not in widths:
                    lengths = pc.list_value_length(batch.column(name)).drop_null()
                    widths |= {name: int(lengths[0].as_py())} if len(lengths) else {}
            rows += batch.num_rows
        if rows == 0:
            raise InvalidData(f"'{self.name}' has no rows. Give it one row per node.")
        if self.given is None:
            columns = [self._feature(name, distinct.get(name), widths.get(name, 0), rows) for name in names]
        else:
            columns = [self._known_feature(column, distinct.get(name), notes) for name, column in self.given.items()]
        self.features = TableFeatures(self.table, columns, self.types) if columns else None
        return {name: pa.concat_arrays([_plain(part) for part in parts]) for name, parts in held.items()}

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
            return [name for name in names if name not in roles and name not in self.left_out]
        for name in (*self.options.features, *self.options.categories):
            if name not in names:
                raise InvalidData(f"'{self.name}' has no column '{name}'. Its columns are: {', '.join(names[:20])}.")
        return list(self.options.features)

    def _feature_types(self, names: list[str]) -> dict[str, Any]:
        """Types in which a CSV's columns hold whatever may follow: whole numbers at the top, fractions further down."""
        types = {}
        for name in names if isinstance(self.table, CsvTable) else ():
            kind = self.table.schema.field(name).type
            if self.given is not None and self.given[name].categories is not None:
                types[name] = pa.string()  # whatever follows: a word that training did not have is no error
            elif _is_string(kind):
                types[name] = pa.string()
            elif pa.types.is_integer(kind) and name not in self.options.categories:
                types[name] = pa.float64()
        return types

    def _may_be_category(self, name: str) -> bool:
        if self.given is not None:
            return self.given[name].categories is not None
        kind = self.table.schema.field(name).type
        return name in self.options.categories or pa.types.is_dictionary(kind) or _is_string(kind)

    def _limit(self, name: str, rows: int | None) -> int:
        """The most distinct values that a category may have."""
        if (
            self.given is not None
            or name in self.options.categories
            or pa.types.is_dictionary(self.table.schema.field(name).type)
        ):
            return _LARGEST_DICTIONARY
        return self.options.max_categories if rows is None else min(self.options.max_categories, max(8, rows // 2))

    def _feature(self, name: str, distinct: Any, width: int, rows: int) -> FeatureColumn:
        kind = self.table.schema.field(name).type
        if distinct is not None:
            count = len(distinct)
            if count > self._limit(name, rows):
                raise InvalidData(
                    f"The column '{name}' of '{self.name}' looks like free text: it has {_many(count, self, name)} "
                    f"distinct values. Leave it out with --features, or turn it into numbers first."
                )
            values = distinct.take(pc.array_sort_indices(distinct)).to_pylist()
            return CategoryColumn(name, len(values), tuple(values))
        if _is_list(kind) and _is_number(kind.value_type) and width:
            return ListColumn(name, width)
        if _is_number(kind):
            return NumberColumn(name, 1)
        empty = pa.types.is_null(kind) or (_is_list(kind) and not width)
        reason = "is empty" if empty else f"holds {kind}"
        raise InvalidData(
            f"The column '{name}' of '{self.name}' cannot be a feature: it {reason}. "
            f"Leave it out with --features, or turn it into numbers."
        )

    def _known_feature(self, column: Column, distinct: Any, notes: list[str]) -> FeatureColumn:
        """A column as it was read for training."""
        kind = self.table.schema.field(column.name).type
        if column.categories is not None:
            feature = CategoryColumn(column.name, column.width, column.categories)
            places = feature.places
            strange = sorted(str(value) for value in distinct.to_pylist() if feature.key(value) not in places)
            if strange:
                shown = ", ".join(strange[:5]) + (", …" if len(strange) > 5 else "")
                notes.append(
                    f"'{column.name}' has values that were not in training: {shown}. They count as no category."
                )
            return feature
        vectors = _is_list(kind) and _is_number(kind.value_type)
        if not vectors and not (_is_number(kind) and column.width == 1):
            raise InvalidData(
                f"The column '{column.name}' of '{self.name}' must hold "
                f"{'numbers' if column.width == 1 else f'vectors of {column.width}'}, as in training. It holds {kind}."
            )
        return ListColumn(column.name, column.width) if vectors else NumberColumn(column.name, 1)

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
        found = [ColumnMatch(self.name, role, column) for role, column in roles if column]
        columns = self.features.columns if self.features is not None else ()
        return (*found, *(ColumnMatch(self.name, column.role, column.name) for column in columns))


def _plain(column: Any) -> Any:
    """Dictionary-encoded values written out: parts of a table may have different dictionaries."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _distinct(known: Any, values: Any, limit: int) -> Any:
    """Distinct values seen so far; beyond the limit there is no need to know them all."""
    if known is not None and len(known) > limit:
        return known
    values = values.drop_null()
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.is_nan(values)))  # missing, as pandas writes it
    fresh = pc.unique(values)
    return fresh if known is None else pc.unique(pa.concat_arrays([known, fresh]))


def _many(count: int, nodes: NodeTable, name: str) -> str:
    return f"more than {count - 1:,}" if count > nodes._limit(name, None) else f"{count:,}"


def _is_string(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_number(kind: Any) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
