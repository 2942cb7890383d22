"""The columns of a table that became features: kept with a graph and a model, so that another table is read alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polyformer.errors import InvalidData

__all__ = ["Column", "check_columns", "columns_from_json"]


@dataclass(frozen=True)
class Column:
    """A column of a table, and which features it became.

    Attributes:
        width: how many features: 1 for a number, the length of a vector, the number of categories.
        categories: the values that have a feature of zeros and ones each; None for numbers and vectors.

    >>> str(Column("age")), str(Column("country", 2, ("DE", "FR")))
    ("'age'", "'country' with the 2 categories DE, FR")
    """

    name: str
    width: int = 1
    categories: tuple[str | int | float | bool, ...] | None = None

    def __str__(self) -> str:
        if self.categories is None:
            return f"'{self.name}'" if self.width == 1 else f"'{self.name}' with vectors of {self.width}"
        shown = ", ".join(map(str, self.categories[:5])) + (", …" if self.width > 5 else "")
        return f"'{self.name}' with the {self.width} categories {shown}"


def columns_from_json(content: Sequence[Mapping[str, Any]] | None) -> tuple[Column, ...] | None:
    """From a list of objects with the names of :class:`Column`; None if nothing is known."""
    if content is None:
        return None
    return tuple(
        Column(part["name"], part["width"], None if part["categories"] is None else tuple(part["categories"]))
        for part in content
    )


def check_columns(trained: Sequence[Column] | None, given: Sequence[Column] | None, data: str) -> None:
    """Refuse data whose features are others than those a model was trained on, where both are known."""
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
