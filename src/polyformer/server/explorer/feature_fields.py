"""Features as a person reads them: a field for each column of a table, whatever it became in the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyformer.columns import Column
from polyformer.graph_checks import Features

__all__ = ["FeatureField", "fields_of"]


@dataclass(frozen=True)
class FeatureField:
    """A value that a node has in one column: a number, a date or a category.

    Attributes:
        name: of the column; entries of a vector are called ``name[0]``, ``name[1]``, ….
        first: place of its first feature.
        categories: names of the categories, each of which is a feature of zeros and ones; empty for numbers.
        date: whether the number counts days since 1970.
        missing: whether a second feature marks numbers that are missing.
        whole: whether the field is a whole column of a table; not so entries of a vector, and features without a table.
    """

    name: str
    first: int
    categories: tuple[str, ...] = ()
    date: bool = False
    missing: bool = False
    whole: bool = False

    @property
    def optional(self) -> bool:
        """Whether a node may have no value."""
        return bool(self.categories) or self.missing

    def read(self, row: np.ndarray) -> float | str | None:
        """The value in the stored features of a node, (d,); None for a missing number or no category."""
        if self.categories:
            chosen = np.flatnonzero(row[self.first : self.first + len(self.categories)])
            return self.categories[int(chosen[0])] if len(chosen) else None
        if self.missing and row[self.first + 1] != 0:
            return None
        return float(row[self.first])

    def column(self, features: Features) -> np.ndarray:
        """The values of all nodes: (N,) float64, NaN where missing; of categories their places, -1 for none."""
        if self.categories:
            flags = _columns(features, self.first, len(self.categories)) != 0
            return np.where(flags.any(axis=1), flags.argmax(axis=1), -1)
        if not self.missing:
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
            names = tuple(str(value) for value in column.categories)
            fields.append(FeatureField(column.name, first, names, whole=True))
        elif column.kind == "vector":
            fields += [FeatureField(f"{column.name}[{i}]", first + i) for i in range(column.width)]
        else:
            fields.append(FeatureField(column.name, first, (), column.kind == "date", column.indicator, whole=True))
        first += column.width
    return fields if first == num_features else [FeatureField(str(i), i) for i in range(num_features)]
