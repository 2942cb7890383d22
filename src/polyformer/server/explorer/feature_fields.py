"""Features as a person reads and sets them: a field for each column of a table, whatever it became in the model."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyformer.columns import Column
from polyformer.errors import InvalidData
from polyformer.graph_checks import Features

__all__ = ["FeatureField", "fields_of"]

_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class FeatureField:
    """A value that a node has in one column: a number, a date or a category.

    Attributes:
        name: of the column; entries of a vector are called ``name[0]``, ``name[1]``, ….
        first: place of its first feature.
        categories: names of the categories, each of which is a feature of zeros and ones; empty for numbers.
        date: whether the number counts days since 1970.
        missing: the number that stands for a missing one, which a second feature marks; None where none may be missing.
    """

    name: str
    first: int
    categories: tuple[str, ...] = ()
    date: bool = False
    missing: float | None = None

    @property
    def optional(self) -> bool:
        """Whether a node may have no value."""
        return bool(self.categories) or self.missing is not None

    def read(self, row: np.ndarray) -> float | str | None:
        """The value in the stored features of a node, (d,); None for a missing number or no category."""
        if self.categories:
            chosen = np.flatnonzero(row[self.first : self.first + len(self.categories)])
            return self.categories[int(chosen[0])] if len(chosen) else None
        if self.missing is not None and row[self.first + 1] != 0:
            return None
        return float(row[self.first])

    def write(self, row: np.ndarray, value: Any) -> None:
        """Set the value in the stored features of a node, (d,)."""
        if self.categories:
            row[self.first : self.first + len(self.categories)] = 0
            if value is not None:
                row[self.first + self._place(value)] = 1
        elif value is None:
            if self.missing is None:
                raise InvalidData(f"'{self.name}' must be a number: no node lacked it in training. Got nothing.")
            row[self.first : self.first + 2] = self.missing, 1
        else:
            row[self.first] = self._number(value)
            if self.missing is not None:
                row[self.first + 1] = 0

    def _place(self, value: Any) -> int:
        if str(value) not in self.categories:
            some = ", ".join(self.categories[:8]) + (", …" if len(self.categories) > 8 else "")
            raise InvalidData(f"'{self.name}' must be one of: {some}. Got '{str(value)[:60]}'.")
        return self.categories.index(str(value))

    def _number(self, value: Any) -> float:
        try:
            if self.date and isinstance(value, str):
                return float((datetime.date.fromisoformat(value) - datetime.date(1970, 1, 1)).days)
            number = float(value)
        except (TypeError, ValueError):
            kind = "a date such as 2024-12-31" if self.date else "a number"
            raise InvalidData(f"'{self.name}' must be {kind}. Got '{str(value)[:60]}'.") from None
        if not abs(number) <= _LARGEST:
            raise InvalidData(f"'{self.name}' must be a finite number that float32 holds. Got {number:g}.")
        return number

    def column(self, features: Features) -> np.ndarray:
        """The values of all nodes: (N,) float64, NaN where missing; of categories their places, -1 for none."""
        if self.categories:
            flags = _columns(features, self.first, len(self.categories)) != 0
            return np.where(flags.any(axis=1), flags.argmax(axis=1), -1)
        if self.missing is None:
            return _columns(features, self.first, 1)[:, 0].astype(np.float64)
        pair = _columns(features, self.first, 2)
        return np.where(pair[:, 1] != 0, np.nan, pair[:, 0].astype(np.float64))


def _columns(features: Any, first: int, count: int) -> np.ndarray:
    part = features[:, first : first + count]
    return np.asarray(part.toarray() if sp.issparse(part) else part)


def fields_of(columns: Sequence[Column] | None, num_features: int) -> list[FeatureField]:
    """The fields of features that came from these columns; without a table each feature is a field called by its place.

    >>> [field.name for field in fields_of((Column("age"), Column("place", 2, kind="vector")), 3)]
    ['age', 'place[0]', 'place[1]']
    >>> [field.name for field in fields_of(None, 2)]
    ['0', '1']
    """
    fields: list[FeatureField] = []
    first = 0
    for column in columns or ():
        if column.categories is not None:
            fields.append(FeatureField(column.name, first, tuple(str(value) for value in column.categories)))
        elif column.kind == "vector":
            fields += [FeatureField(f"{column.name}[{i}]", first + i) for i in range(column.width)]
        else:
            missing = (0.0 if column.median is None else column.median) if column.indicator else None
            fields.append(FeatureField(column.name, first, (), column.kind == "date", missing))
        first += column.width
    return fields if first == num_features else [FeatureField(str(i), i) for i in range(num_features)]
