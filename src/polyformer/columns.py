"""The columns of a table that became features, kept so that another table is read in the same way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from polyformer.errors import InvalidData

__all__ = ["Column", "check_columns", "columns_from_json", "columns_to_read", "feature_names", "vector_spans"]


@dataclass(frozen=True)
class Column:
    """A column of a table, and the features that it became.

    Attributes:
        width: number of features: 1 for a number, 2 for a number with an indicator, the length of a vector, the number
            of categories.
        categories: values that became a feature of zeros and ones each; None for numbers and vectors.
        kind: ``number`` (also truth values), ``date`` (days since 1970), ``vector``, ``category``, or
            ``structure``: no column of a table, but made from the edges.
        median: number that fills a missing number; None if the median is not known.
        indicator: whether a second feature marks with 1 the nodes whose number was missing.

    >>> str(Column("age")), str(Column("country", 2, ("DE", "FR")))
    ("'age'", "'country' with the 2 categories DE, FR")
    """

    name: str
    width: int = 1
    categories: tuple[str | int | float | bool, ...] | None = None
    kind: str = "number"
    median: float | None = field(default=None, compare=False)
    indicator: bool = False

    def __str__(self) -> str:
        if self.indicator:
            return f"'{self.name}' with an indicator of missing values"
        if self.categories is None:
            return f"'{self.name}'" if self.width == 1 else f"'{self.name}' with vectors of {self.width}"
        shown = ", ".join(map(str, self.categories[:5])) + (", …" if self.width > 5 else "")
        return f"'{self.name}' with the {self.width} categories {shown}"


def columns_from_json(content: Sequence[Mapping[str, Any]] | None) -> tuple[Column, ...] | None:
    """Columns from a list of JSON objects with the field names of :class:`Column`; None if no columns are known."""
    return None if content is None else tuple(_column_from_json(part) for part in content)


def _column_from_json(part: Mapping[str, Any]) -> Column:
    """A column from its JSON object; earlier versions wrote name, width and categories alone."""
    categories = None if part["categories"] is None else tuple(part["categories"])
    plain = "category" if categories is not None else "number" if part["width"] == 1 else "vector"
    return Column(
        part["name"],
        part["width"],
        categories,
        part.get("kind", plain),
        part.get("median"),
        part.get("indicator", False),
    )


def feature_names(columns: Sequence[Column] | None, num_features: int) -> list[str]:
    """Names of the features: each is named by the column that it comes from, or by its number without a table.

    >>> feature_names((Column("age", 2, indicator=True), Column("country", 2, ("DE", "FR"))), 4)
    ['age', 'age missing', 'country=DE', 'country=FR']
    >>> feature_names(None, 2)
    ['0', '1']
    """
    names: list[str] = []
    for column in columns or ():
        if column.categories is not None:
            names += [f"{column.name}={value}" for value in column.categories]
        elif column.indicator:
            names += [column.name, f"{column.name} missing"]
        else:
            names += [column.name] * column.width
    return names if len(names) == num_features else [str(place) for place in range(num_features)]


def columns_to_read(trained: tuple[Column, ...] | None) -> tuple[Column, ...] | None:
    """The columns that a table must have for a model: features made from the structure need no column."""
    if trained is None:
        return None
    return tuple(column for column in trained if column.kind != "structure")


def vector_spans(columns: Sequence[Column] | None) -> list[slice]:
    """The range of features of each vector column."""
    spans, start = [], 0
    for column in columns or ():
        if column.kind == "vector":
            spans.append(slice(start, start + column.width))
        start += column.width
    return spans


def check_columns(trained: Sequence[Column] | None, given: Sequence[Column] | None, data: str) -> None:
    """Refuse data whose columns differ from the columns that a model was trained on, if both are known."""
    if trained is None or given is None:
        return
    for i in range(max(len(trained), len(given))):
        theirs, ours = (str(part[i]) if i < len(part) else "missing" for part in (given, trained))
        if theirs != ours or given[i] != trained[i]:
            raise InvalidData(
                f"The features of '{data}' are not those of the model: column {i + 1} is {theirs}, in training it was "
                f"{ours}. Pass the tables themselves, or import them with --like and the run: both read them as in "
                f"training."
            )
