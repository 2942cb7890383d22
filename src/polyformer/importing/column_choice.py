"""Decide in one pass how each feature column of a node table is read: as numbers, dates, vectors or categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from polyformer.columns import Column
from polyformer.errors import InvalidData
from polyformer.importing.column_notes import ColumnNotes
from polyformer.importing.features import (
    CategoryColumn,
    DateColumn,
    FeatureColumn,
    ListColumn,
    NumberColumn,
    known_column,
)
from polyformer.importing.kinds import is_date, is_list, is_number, is_string, kind_words
from polyformer.importing.numbers import NumberScan, as_numbers, is_id_name
from polyformer.importing.options import ImportOptions
from polyformer.importing.tables import CsvTable, Table

__all__ = ["ColumnChoice", "plain"]

_LARGEST_DICTIONARY = 10_000
_HELD_VALUES = 1 << 22
_DATE_SHARE = 0.95


class ColumnChoice:
    """Watches the feature columns of a table batch by batch, then decides how each becomes features.

    Args:
        names: the columns that may be features, in their order.
        given: columns of a model, which are read as they were for its training; None to decide anew.

    Attributes:
        types: types of a CSV's columns that can hold any value that may follow.
        notes: sentences on what was filled, converted or left out.
    """

    def __init__(
        self, table: Table, options: ImportOptions, names: Sequence[str], given: Mapping[str, Column] | None
    ) -> None:
        self.table, self.options, self.names, self.given = table, options, list(names), given
        self.kinds = {name: table.schema.field(name).type for name in self.names}
        self.types = self._csv_types() if isinstance(table, CsvTable) else {}
        self.notes = ColumnNotes()
        self._distinct: dict[str, Any] = {}
        self._widths: dict[str, int] = {}
        counted = [name for name in self.names if self._may_be_number(name)]
        self._scans = {name: NumberScan(max(1024, _HELD_VALUES // len(counted))) for name in counted}

    @property
    def watched(self) -> list[str]:
        """The columns that :meth:`watch` reads."""
        return [
            name
            for name in self.names
            if name in self._scans or self._may_be_category(name) or is_list(self.kinds[name])
        ]

    def watch(self, batch: pa.RecordBatch) -> None:
        """Take in a batch of the table."""
        for name in self.watched:
            values = plain(batch.column(name))
            if self._may_be_category(name):
                self._distinct[name] = _distinct(self._distinct.get(name), values, self._limit(name, None))
            if name in self._scans:
                numbers = np.full(len(values), np.nan) if pa.types.is_null(values.type) else as_numbers(values)
                self._scans[name].add(numbers, values.null_count)
            if is_list(self.kinds[name]) and name not in self._widths:
                lengths = pc.list_value_length(values).drop_null()
                self._widths |= {name: int(lengths[0].as_py())} if len(lengths) else {}

    def columns(self, rows: int) -> list[FeatureColumn]:
        """How each column is read; to be called after all batches of the table, which has ``rows`` rows."""
        if self.given is not None:
            return [self._known(column) for column in self.given.values()]
        encoders = (self._new(name, rows) for name in self.names)
        return [column for column in encoders if column is not None]

    def _csv_types(self) -> dict[str, Any]:
        """Types that hold what may follow: fractions after integers, words after dates, numbers after empty cells."""
        types = {}
        for name, kind in self.kinds.items():
            known = None if self.given is None else self.given[name]
            if known is not None and known.categories is not None:
                types[name] = pa.string()  # text holds any value: a word that training did not have is no error
            elif is_string(kind) or is_date(kind):
                types[name] = pa.string()
            elif (pa.types.is_integer(kind) or pa.types.is_null(kind)) and name not in self.options.categories:
                types[name] = pa.float64()
        return types

    def _may_be_category(self, name: str) -> bool:
        if self.given is not None:
            return self.given[name].categories is not None
        kind = self.kinds[name]
        return name in self.options.categories or pa.types.is_dictionary(kind) or is_string(kind)

    def _may_be_number(self, name: str) -> bool:
        kind = self.kinds[name]
        if name in self.options.categories or (self.given is not None and self.given[name].categories is not None):
            return False
        text = is_string(kind) and (self.given is None or self.given[name].kind == "date")
        return is_number(kind) or is_date(kind) or text or pa.types.is_null(kind)

    def _limit(self, name: str, rows: int | None) -> int:
        """The most distinct values that a category may have."""
        named = name in self.options.categories or pa.types.is_dictionary(self.kinds[name])
        if self.given is not None or named:
            return _LARGEST_DICTIONARY
        return self.options.max_categories if rows is None else min(self.options.max_categories, max(8, rows // 2))

    def _new(self, name: str, rows: int) -> FeatureColumn | None:
        """How to read a column that no model knows yet; None for a column that is left out, with a note that says
        so."""
        kind, distinct = self.kinds[name], self._distinct.get(name)
        scan = self._scans.get(name)
        if distinct is not None and not self._holds_dates(name):
            return self._category(name, distinct, rows)
        if is_list(kind) and is_number(kind.value_type) and self._widths.get(name):
            return ListColumn(name, self._widths[name])
        empty = is_list(kind) and not self._widths.get(name)
        if empty or (scan is not None and scan.empty):
            self.notes.add("empty", name, f"'{name}' is left out: the column is empty.")
            return None
        if scan is None:
            raise InvalidData(
                f"The column '{name}' of '{self.table.name}' cannot be a feature: it holds {kind_words(kind)}. "
                f"Leave it out with --features, or turn it into numbers."
            )
        return None if self._is_left_out(name, scan) else self._number(name, scan)

    def _category(self, name: str, distinct: Any, rows: int) -> FeatureColumn | None:
        count, most = len(distinct), self._limit(name, None)
        if count == 0:
            self.notes.add("empty", name, f"'{name}' is left out: the column is empty.")
            return None
        if count > self._limit(name, rows):
            many = f"more than {count - 1:,}" if count > most else f"{count:,}"
            raise InvalidData(
                f"The column '{name}' of '{self.table.name}' looks like free text: it has {many} distinct values. "
                f"Leave it out with --features, or turn it into numbers first."
            )
        values = distinct.take(pc.array_sort_indices(distinct)).to_pylist()
        return CategoryColumn(name, len(values), tuple(values))

    def _holds_dates(self, name: str) -> bool:
        """Whether nearly all text of a column reads as dates."""
        scan = self._scans.get(name)
        if scan is None or scan.empty or not is_string(self.kinds[name]):
            return False
        return scan.rows - scan.missing >= _DATE_SHARE * (scan.rows - scan.nulls)

    def _is_left_out(self, name: str, scan: NumberScan) -> bool:
        """Whether a column is certainly an id; a note names a column that may be one."""
        if self.options.features is not None or not scan.all_different or is_date(self.kinds[name]):
            return False
        if scan.counts_rows or is_id_name(name):
            self.notes.add(
                "id",
                name,
                f"'{name}' is left out: it looks like an id (whole numbers, all different). To have it as a feature, "
                f"list the features with --features.",
            )
            return True
        self.notes.add(
            "like an id",
            name,
            f"'{name}' holds whole numbers that are all different, as ids are. If it is an id, leave it out: list the "
            f"features with --features.",
        )
        return False

    def _number(self, name: str, scan: NumberScan) -> NumberColumn:
        kind = DateColumn if is_date(self.kinds[name]) or is_string(self.kinds[name]) else NumberColumn
        if kind is DateColumn:
            self.notes.add("date", name, f"'{name}' holds dates: they are read as days since 1970.")
        if self.options.missing == "refuse":
            return kind(name, 1)
        if not scan.missing:
            return kind(name, 1, scan.median)
        self.notes.add(
            "missing",
            name,
            f"{_filled(scan.missing, name)} the median, {scan.median:g}; a column of zeros and ones marks them.",
        )
        return kind(name, 2, scan.median, indicator=True)

    def _known(self, column: Column) -> FeatureColumn:
        """Read a column as it was read for training."""
        kind, name = self.kinds[column.name], column.name
        if column.categories is not None:
            return self._known_category(column)
        vectors = is_list(kind) and is_number(kind.value_type)
        if vectors and (column.kind == "vector" or column == Column(name)):  # earlier versions kept no kind
            return ListColumn(name, column.width)
        if not self._fits(column.kind, kind):
            expected = {"vector": f"vectors of {column.width}", "date": "dates"}.get(column.kind, "numbers")
            raise InvalidData(
                f"The column '{name}' of '{self.table.name}' must hold {expected}, as in training. "
                f"It holds {kind_words(kind)}."
            )
        missing = self._scans[name].missing
        median = column.median if self.options.missing == "fill" else None
        if missing and median is not None:
            marked = "" if column.indicator else "; in training none was missing, so nothing marks them"
            self.notes.add("missing", name, f"{_filled(missing, name)} the median of the training, {median:g}{marked}.")
        return known_column(replace(column, median=median))

    @staticmethod
    def _fits(expected_kind: str, kind: Any) -> bool:
        """Whether a column of this type can be read as the kind, numbers or dates, that it had in training."""
        if expected_kind == "date":
            return is_date(kind) or is_string(kind) or pa.types.is_null(kind)
        return expected_kind == "number" and (is_number(kind) or pa.types.is_null(kind))

    def _known_category(self, column: Column) -> CategoryColumn:
        feature = known_column(column)
        assert isinstance(feature, CategoryColumn)
        places, distinct = feature.places, self._distinct[column.name]
        strange = sorted(str(value) for value in distinct.to_pylist() if feature.key(value) not in places)
        if strange:
            shown = ", ".join(strange[:5]) + (", …" if len(strange) > 5 else "")
            self.notes.add(
                "strange",
                column.name,
                f"'{column.name}' has values that were not in training: {shown}. They count as no category.",
            )
        return feature


def plain(column: Any) -> Any:
    """Values without dictionary encoding, as parts of a table may have different dictionaries."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _filled(count: int, name: str) -> str:
    noun, verb = ("value", "is") if count == 1 else ("values", "are")
    return f"{count:,} missing {noun} of '{name}' {verb} filled with"


def _distinct(known: Any, values: Any, limit: int) -> Any:
    """The distinct values so far; beyond the limit, not all of them are kept."""
    if known is not None and len(known) > limit:
        return known
    values = values.drop_null()
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.is_nan(values)))  # pandas writes a missing value as NaN
    fresh = pc.unique(values)
    return fresh if known is None else pc.unique(pa.concat_arrays([known, fresh]))
