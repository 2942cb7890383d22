"""Nodes by parts of their ids and by their attributes, among a million within tens of milliseconds.

A query is a list of terms, all of which must hold: ``ann`` (ids that contain it, the closest first), ``class=mine``,
``confidence<0.6``, ``degree>=100``, ``"kind of filter"="kind 2"``, ``country!=DE``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from polyformer.errors import InvalidParameter
from polyformer.server.names import NodeNames

__all__ = ["Attribute", "Matches", "NodeSearch"]

_TERM = re.compile(r'(?:[^\s"]|"[^"]*")+')
_COMPARISON = re.compile(r'("[^"]*"|[^<>=!:"]+)(<=|>=|!=|<|>|=|:)(.*)')
_MOST_TEXTS = 5_000_000
"""Ids that are searched by their parts; of more, whole ids alone are found."""
_MOST_HITS = 20_000
"""Ids that contain a text, beyond which the search ends."""
_MOST_TERMS = 20


@dataclass(frozen=True, eq=False)
class Attribute:
    """A value of every node: ``values`` (N,) are places among ``labels``, -1 for none, or numbers, NaN for none."""

    title: str
    values: np.ndarray
    labels: list[str] | None = None


@dataclass(frozen=True, eq=False)
class Matches:
    """Rows of nodes that fit, the closest first; ``complete`` is False where there may be more."""

    rows: np.ndarray
    complete: bool = True


class NodeSearch:
    """Finds nodes of one version of a graph.

    Args:
        names: the user's ids.
        attribute: gives the attribute that a name stands for; None for a name that is none.
    """

    def __init__(self, names: NodeNames, attribute: Callable[[str], Attribute | None]) -> None:
        self._names, self._attribute = names, attribute

    def find(self, query: str) -> Matches:
        """The nodes that fit all terms of a query."""
        texts: list[str] = []
        mask: np.ndarray | None = None
        terms = _TERM.findall(query)
        if len(terms) > _MOST_TERMS:
            raise InvalidParameter(f"A search must have at most {_MOST_TERMS} terms. Got {len(terms)}.")
        for term in terms:
            fitting = self._compare(term)
            if fitting is None:
                texts.append(term.replace('"', ""))
            else:
                mask = fitting if mask is None else mask & fitting
        if len(self._names.removed):
            mask = np.ones(self._names.num_rows, bool) if mask is None else mask
            mask[self._names.removed] = False
        text = " ".join(texts).lower()
        if text:
            return self._texts(text, mask)
        if mask is None:
            return Matches(np.arange(self._names.num_rows))
        return Matches(np.flatnonzero(mask))

    # Attributes.

    def _compare(self, term: str) -> np.ndarray | None:
        """Which nodes fit a comparison, (N,) bool; None where the term is no comparison of a known attribute."""
        parts = _COMPARISON.fullmatch(term)
        if parts is None:
            return None
        name, sign, value = parts[1].strip('"'), parts[2], parts[3].strip('"')
        attribute = self._attribute(name)
        if attribute is None:
            return None
        if attribute.labels is not None:
            return _fitting_labels(attribute, sign, value)
        return _fitting_numbers(attribute, sign, value)

    # Ids.

    @cached_property
    def _blob(self) -> tuple[bytes, np.ndarray]:
        """All ids in lower case, each after a line break, as UTF-8; and where each line break stands."""
        names = self._names
        rows = range(names.num_rows) if names.ids is None else names.ids.tolist()
        data = ("\n" + "\n".join(str(name).replace("\n", " ") for name in rows) + "\n").lower().encode()
        return data, np.flatnonzero(np.frombuffer(data, np.uint8) == 10)

    def prepare(self) -> None:
        """Make what the first search by id would have to wait for."""
        if self._names.num_rows <= _MOST_TEXTS:
            assert self._blob

    def _texts(self, text: str, mask: np.ndarray | None) -> Matches:
        """Ids that contain a text: first the id that is the text, then those that begin with it."""
        if self._names.num_rows > _MOST_TEXTS:
            row = int(self._names.find([self._names.parse(text)])[0])
            return Matches(np.array([row] if row >= 0 and (mask is None or mask[row]) else [], np.int64))
        data, begins = self._blob
        needle = text.replace("\n", " ").encode()
        if mask is not None and int(mask.sum()) <= _MOST_HITS:
            chosen = np.flatnonzero(mask)
            bounds = zip(begins[chosen].tolist(), begins[chosen + 1].tolist(), strict=True)
            return Matches(chosen[[needle in data[start:end] for start, end in bounds]])
        same, _ = _hits(data, b"\n" + needle + b"\n", _MOST_HITS)
        first, all_first = _hits(data, b"\n" + needle, _MOST_HITS)
        inside, all_inside = _hits(data, needle, _MOST_HITS)
        rows = [np.searchsorted(begins, places, "right") - 1 for places in (same, first, inside)]
        ordered = np.concatenate(rows)
        _, once = np.unique(ordered, return_index=True)
        ordered = ordered[np.sort(once)]
        return Matches(ordered if mask is None else ordered[mask[ordered]], all_first and all_inside)


def _hits(data: bytes, needle: bytes, most: int) -> tuple[np.ndarray, bool]:
    """Where a text stands in another, and whether these are all places."""
    places: list[int] = []
    at = data.find(needle)
    while at >= 0 and len(places) < most:
        places.append(at)
        at = data.find(needle, at + 1)
    return np.array(places, np.int64), at < 0


def _fitting_labels(attribute: Attribute, sign: str, value: str) -> np.ndarray:
    assert attribute.labels is not None
    if sign not in ("=", "!=", ":"):
        raise InvalidParameter(f"'{attribute.title}' has names, which are compared with = and != alone. Got '{sign}'.")
    wanted = value.lower()
    fitting = [place for place, label in enumerate(attribute.labels) if label.lower() == wanted]
    if not fitting and sign == ":":
        fitting = [place for place, label in enumerate(attribute.labels) if wanted in label.lower()]
    if not fitting:
        some = ", ".join(attribute.labels[:8]) + (", …" if len(attribute.labels) > 8 else "")
        raise InvalidParameter(f"'{attribute.title}' must be one of: {some}. Got '{value[:60]}'.")
    found = attribute.values == fitting[0] if len(fitting) == 1 else np.isin(attribute.values, fitting)
    return found if sign != "!=" else ~found & (attribute.values >= 0)


def _fitting_numbers(attribute: Attribute, sign: str, value: str) -> np.ndarray:
    try:
        number = float(value.replace("−", "-"))
    except ValueError:
        raise InvalidParameter(
            f"'{attribute.title}' is compared with a number, as in {sign}0.5. Got '{value[:60]}'."
        ) from None
    values = attribute.values
    if sign in ("=", ":", "!="):
        # As a person types it: 0.1 of a float32 is meant by 0.1.
        equal = np.abs(values - number) <= 1e-6 * max(abs(number), 1e-30)
        return equal if sign != "!=" else ~equal & np.isfinite(values)
    compare = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}[sign]
    return np.asarray(compare(values, number))
