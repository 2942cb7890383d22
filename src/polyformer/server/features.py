"""Features of nodes as a request gives them: a list of numbers, or an object of columns as in the node table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from polyformer.column_statistics import LARGEST_FEATURE
from polyformer.columns import Column
from polyformer.errors import InvalidData
from polyformer.importing.features import known_column
from polyformer.importing.numbers import days_since_1970
from polyformer.server.names import shown
from polyformer.structure_features import are_structural
from polyformer.tasks import Task

__all__ = ["FeatureReader", "feature_number"]


class FeatureReader:
    """Reads features as the graph stores them, before any scaling.

    Args:
        task: its columns say what an object may hold; without columns, features are lists.
    """

    def __init__(self, task: Task) -> None:
        self.made = are_structural(task.columns)
        self.width = 0 if self.made else task.graph.num_features
        self.columns = None if self.made else task.columns

    def rows(self, nodes: Sequence[Mapping[str, Any]]) -> np.ndarray:
        """(m, d) float32 features of nodes, each with its ``id`` and its ``features``."""
        rows = np.empty((len(nodes), self.width), np.float32)
        for place, node in enumerate(nodes):
            rows[place] = self._row(node)
        return rows

    def changed(self, node: Mapping[str, Any], old: np.ndarray) -> np.ndarray:
        """(d,) features of a node: columns that its object leaves out stay as they are in ``old``."""
        given = node["features"]
        if self.columns is None or not isinstance(given, Mapping):
            return self._row(node)
        self._refuse_unknown(given, node["id"])
        parts, start = [], 0
        for column in self.columns:
            end = start + column.width
            there = column.name in given
            parts.append(_encoded(column, given[column.name], node["id"]) if there else old[start:end])
            start = end
        return np.concatenate(parts).astype(np.float32)

    def _row(self, node: Mapping[str, Any]) -> np.ndarray:
        name, given = node["id"], node.get("features")
        if self.width == 0:
            if given:
                made = "made from the edges" if self.made else "none in this graph"
                raise InvalidData(f"The node {shown(name)} must come without features: they are {made}.")
            return np.empty(0, np.float32)
        if given is None:
            raise InvalidData(f"The node {shown(name)} has no 'features'. They must be {self.wanted}.")
        if isinstance(given, Mapping):
            return self._from_columns(given, name)
        return self._from_list(given, name)

    @property
    def wanted(self) -> str:
        """What the features of a node must be, for sentences."""
        if self.width == 0:
            return "made from the edges, so leave them out" if self.made else "none"
        if self.columns is None:
            return f"a list of {self.width} numbers"
        names = ", ".join(column.name for column in self.columns[:5]) + (", …" if len(self.columns) > 5 else "")
        return f"an object with a value for each of the columns {names}"

    def _from_list(self, given: Sequence[Any], name: Any) -> np.ndarray:
        if len(given) != self.width:
            raise InvalidData(f"The features of {shown(name)} must be {self.width} numbers. Got {len(given)}.")
        row = np.array(given, np.float64)
        _refuse_large(row, f"The features of {shown(name)}")
        return row.astype(np.float32)

    def _from_columns(self, given: Mapping[str, Any], name: Any) -> np.ndarray:
        if self.columns is None:
            raise InvalidData(f"The features of {shown(name)} must be {self.wanted}: they have no names.")
        self._refuse_unknown(given, name)
        for column in self.columns:
            if column.name not in given:
                raise InvalidData(
                    f"The node {shown(name)} has no value for the column {shown(column.name)}. Give one, or null if it "
                    f"is not known."
                )
        return np.concatenate([_encoded(column, given[column.name], name) for column in self.columns])

    def _refuse_unknown(self, given: Mapping[str, Any], name: Any) -> None:
        known = {column.name for column in self.columns or ()}
        strange = sorted(key for key in given if key not in known)
        if strange:
            raise InvalidData(
                f"The node {shown(name)} has a value for {shown(strange[0])}, which is no column of the node table. "
                f"Leave it out."
            )


def _encoded(column: Column, value: Any, node: Any) -> np.ndarray:
    """(width,) features of one value."""
    place = f"The column {shown(column.name)} of the node {shown(node)}"
    kind = "category" if column.categories is not None else column.kind
    typed = _READERS.get(kind, _number)(column, value, place)
    block = known_column(column).encode(typed, 0, "the request")
    return np.asarray(block[0])


def _number(column: Column, value: Any, place: str) -> pa.Array:
    if value is None and column.median is not None:
        return pa.array([None], pa.float64())
    return pa.array([feature_number(value, place)], pa.float64())


def feature_number(value: Any, place: str) -> float:
    """A number that a feature can hold; anything else is refused in a sentence that begins with ``place``."""
    if not isinstance(value, int | float):
        raise InvalidData(f"{place} must be a number. Got {shown(value)}.")
    try:
        number = float(value)
    except OverflowError:
        raise InvalidData(f"{place} must be at most {LARGEST_FEATURE:g} in size. Got a larger number.") from None
    _refuse_large(np.array([number]), place)
    return number


def _date(column: Column, value: Any, place: str) -> pa.Array:
    if value is None and column.median is not None:
        return pa.array([None], pa.string())
    if not isinstance(value, str) or np.isnan(days_since_1970(pa.array([value], pa.string()))).any():
        raise InvalidData(f"{place} must be a date such as 2024-01-31 or 2024-01-31T12:00. Got {shown(value)}.")
    return pa.array([value], pa.string())


def _vector(column: Column, value: Any, place: str) -> pa.Array:
    right = isinstance(value, list) and all(type(part) in (int, float) for part in value)
    if not right or len(value) != column.width:
        raise InvalidData(f"{place} must be a list of {column.width} numbers. Got {shown(value)}.")
    return pa.array([[float(_number(column, part, place)[0].as_py()) for part in value]], pa.list_(pa.float64()))


def _category(column: Column, value: Any, place: str) -> pa.Array:
    if value is None:
        return pa.nulls(1)
    if not isinstance(value, str | int | float):
        raise InvalidData(f"{place} must be a text, a number or null. Got {shown(value)}.")
    return pa.array([str(value)])


_READERS: dict[str, Callable[[Column, Any, str], pa.Array]] = {
    "category": _category,
    "date": _date,
    "vector": _vector,
}


def _refuse_large(numbers: np.ndarray, place: str) -> None:
    large = numbers[np.abs(numbers) > LARGEST_FEATURE]
    if len(large):
        raise InvalidData(f"{place} must be at most {LARGEST_FEATURE:g} in size. Got {large[0]:g}.")
