"""Node features as a stream of float32 blocks: from the columns of a table, or from arrays in memory."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from polyformer.columns import Column
from polyformer.errors import InvalidData
from polyformer.graph import Graph
from polyformer.importing.numbers import as_numbers, refuse_unusable
from polyformer.importing.tables import Table

__all__ = [
    "ArrayFeatures",
    "CategoryColumn",
    "DateColumn",
    "FeatureColumn",
    "FeatureStream",
    "ListColumn",
    "NumberColumn",
    "TableFeatures",
    "known_column",
]


class FeatureStream(ABC):
    """Features (N, d), one block of rows after the other.

    Attributes:
        origin: the columns of a table that the features come from; None if there is no table.
    """

    num_columns: int
    origin: tuple[Column, ...] | None = None

    @abstractmethod
    def blocks(self) -> Iterator[np.ndarray]:
        """(n, d) float32 blocks of finite numbers, in node order."""

    def whole(self) -> np.ndarray | sp.csr_matrix:
        """All rows in memory."""
        return np.concatenate(list(self.blocks()))


class ArrayFeatures(FeatureStream):
    """Features that are in memory already; they pass the checks of :class:`Graph`."""

    def __init__(self, values: Any) -> None:
        checked = Graph(np.empty((2, 0), np.int64), values).features
        assert checked is not None
        self.values = checked
        self.num_columns = int(checked.shape[1])

    def blocks(self) -> Iterator[np.ndarray]:
        assert isinstance(self.values, np.ndarray)
        yield self.values

    def whole(self) -> np.ndarray | sp.csr_matrix:
        return self.values


@dataclass(frozen=True)
class FeatureColumn(ABC):
    """A column of a table and how it becomes features."""

    name: str
    width: int

    @abstractmethod
    def encode(self, values: Any, start: int, table: str) -> np.ndarray:
        """(n, width) float32 from an arrow array whose first row is row ``start``."""

    @property
    def role(self) -> str:
        """The role of the column as the import lists it, e.g. ``feature``."""
        return "feature"

    @property
    def origin(self) -> Column:
        """What a model keeps of the column."""
        return Column(self.name, self.width)


@dataclass(frozen=True)
class NumberColumn(FeatureColumn):
    """A number per node; truth values are 0 and 1.

    Attributes:
        median: number in place of a missing one; None refuses missing numbers.
        indicator: whether a second feature is 1 where the number was missing.
    """

    median: float | None = None
    indicator: bool = False

    @property
    def role(self) -> str:
        return "feature, and whether it is missing" if self.indicator else "feature"

    @property
    def origin(self) -> Column:
        return Column(self.name, self.width, None, "number", self.median, self.indicator)

    def encode(self, values: Any, start: int, table: str) -> np.ndarray:
        numbers = as_numbers(values)
        refuse_unusable(numbers, self.name, start, table)
        missing = np.isnan(numbers)
        if self.median is None:
            _refuse_missing(numbers[:, None], self.name, start, table)
        else:
            numbers = np.where(missing, self.median, numbers)
        parts = [numbers, missing] if self.indicator else [numbers]
        return np.stack(parts, axis=1).astype(np.float32)


class DateColumn(NumberColumn):
    """A date per node, with or without a time of day, as days since 1970."""

    @property
    def role(self) -> str:
        return "date, as days since 1970" + (", and whether it is missing" if self.indicator else "")

    @property
    def origin(self) -> Column:
        return replace(super().origin, kind="date")


class ListColumn(FeatureColumn):
    """A vector per node, e.g. an embedding; all of one length, none missing."""

    @property
    def role(self) -> str:
        return f"feature vector of {self.width}"

    @property
    def origin(self) -> Column:
        return Column(self.name, self.width, kind="vector")

    def encode(self, values: Any, start: int, table: str) -> np.ndarray:
        lengths = pc.list_value_length(values).fill_null(0).to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(lengths != self.width)
        if len(wrong):
            raise InvalidData(
                f"Vectors in the column '{self.name}' of '{table}' must all have {self.width} numbers. "
                f"Got {int(lengths[wrong[0]])} in row {start + int(wrong[0]) + 1}. Complete it, or leave the column "
                f"out with --features."
            )
        block = as_numbers(values.flatten()).reshape(-1, self.width)
        refuse_unusable(block, self.name, start, table)
        _refuse_missing(block, self.name, start, table)
        return block.astype(np.float32)


@dataclass(frozen=True)
class CategoryColumn(FeatureColumn):
    """One column of zeros and ones per category, in sorted order; a missing value is a row of zeros."""

    categories: tuple[Any, ...]

    @property
    def role(self) -> str:
        shown = ", ".join(str(value) for value in self.categories[:5])
        more = "" if len(self.categories) <= 5 else ", …"
        return f"category of {self.width} ({shown}{more})"

    @property
    def places(self) -> dict[Any, int]:
        """Which feature a category is, by :meth:`key`."""
        return {self.key(value): place for place, value in enumerate(self.categories)}

    def key(self, value: Any) -> Any:
        """The key of a category, whatever its type in the file: the numbers 1 and 1.0 and the text 1 have one key."""
        like = self.categories[0] if self.categories else ""
        if isinstance(like, bool):
            return str(value).lower()
        if not isinstance(like, int | float):
            return str(value)
        for number in (int, float) if isinstance(value, str) else ():
            with contextlib.suppress(ValueError):
                return number(value)
        return value  # not as float: large integers that differ would be equal

    @property
    def origin(self) -> Column:
        plain = (value if isinstance(value, str | int | float) else str(value) for value in self.categories)
        return Column(self.name, self.width, tuple(plain), "category")

    def encode(self, values: Any, start: int, table: str) -> np.ndarray:
        if pa.types.is_null(values.type):
            return np.zeros((len(values), self.width), np.float32)
        coded, places = values.dictionary_encode(), self.places  # an array that has a dictionary keeps it
        place_of_code = np.array([places.get(self.key(value), -1) for value in coded.dictionary.to_pylist()] + [-1])
        place = place_of_code[coded.indices.fill_null(len(coded.dictionary)).to_numpy()]
        block = np.zeros((len(place), self.width), np.float32)
        rows = np.flatnonzero(place >= 0)
        block[rows, place[rows]] = 1.0
        return block


def known_column(column: Column) -> FeatureColumn:
    """How a column becomes features, from what a model keeps of it.

    >>> known_column(Column("age", 2, indicator=True, median=30.0)).encode(pa.array([None, 7.0]), 0, "t").tolist()
    [[30.0, 1.0], [7.0, 0.0]]
    """
    if column.categories is not None:
        return CategoryColumn(column.name, column.width, column.categories)
    if column.kind == "vector":
        return ListColumn(column.name, column.width)
    kind = DateColumn if column.kind == "date" else NumberColumn
    return kind(column.name, column.width, column.median, column.indicator)


class TableFeatures(FeatureStream):
    """The feature columns of a node table, side by side in their order."""

    def __init__(self, table: Table, columns: Sequence[FeatureColumn], types: dict[str, Any]) -> None:
        self.table, self.columns, self.types = table, tuple(columns), types
        self.num_columns = sum(column.width for column in columns)
        self.origin = tuple(column.origin for column in columns)

    def blocks(self) -> Iterator[np.ndarray]:
        start = 0
        for batch in self.table.batches([column.name for column in self.columns], self.types):
            # Batches are cut again, as a batch of a wide table would be large once it is dense.
            step = max(1, (1 << 24) // max(1, 4 * self.num_columns))
            for first in range(0, batch.num_rows, step):
                part = batch.slice(first, step)
                pieces = [c.encode(part.column(i), start + first, self.table.name) for i, c in enumerate(self.columns)]
                yield np.concatenate(pieces, axis=1)
            start += batch.num_rows


def _refuse_missing(block: np.ndarray, name: str, start: int, table: str) -> None:
    bad = np.argwhere(~np.isfinite(block))
    if len(bad):
        raise InvalidData(
            f"The feature '{name}' must be a number for every node. There is none in row "
            f"{start + int(bad[0][0]) + 1} of '{table}'. Fill it, or leave the column out with --features."
        )
