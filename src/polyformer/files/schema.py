"""What a JSON file of ours must look like, declared once and checked on every reading.

A schema is made of few kinds: a text, a whole number, a real number, a truth value, a list, a table of names and
values, an object of known fields. ``kind | None`` admits null. A field that earlier versions did not write is
``optional``; fields that are not named are let through, so that a later version may add some.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from polyformer.limits import MOST_WHOLE

__all__ = [
    "Anything",
    "Either",
    "Flag",
    "Kind",
    "ListOf",
    "Mismatch",
    "Nullable",
    "Number",
    "Object",
    "Schema",
    "TableOf",
    "Text",
    "Whole",
]


class Mismatch(Exception):
    """A value that is not of its kind; the text continues the sentence "'FILE' is damaged: …"."""


class Kind(ABC):
    """What a value may be."""

    @abstractmethod
    def check(self, value: Any, name: str) -> None:
        """Raise :class:`Mismatch` where ``value``, which stands under ``name``, is something else."""

    def __or__(self, other: None) -> Kind:
        """The same kind, or null."""
        return Nullable(self)

    def _refuse(self, value: Any, name: str, rule: str) -> None:
        shown = repr(value)
        raise Mismatch(f"'{name}' must be {rule}. Got {shown if len(shown) <= 60 else shown[:60] + '…'}")


@dataclass(frozen=True)
class Nullable(Kind):
    """A value of a kind, or null; written ``kind | None``."""

    kind: Kind

    def check(self, value: Any, name: str) -> None:
        if value is not None:
            self.kind.check(value, name)


@dataclass(frozen=True)
class Text(Kind):
    """A text; one of ``choices`` if there are any."""

    choices: tuple[str, ...] = ()

    def check(self, value: Any, name: str) -> None:
        if not isinstance(value, str) or (self.choices and value not in self.choices):
            self._refuse(value, name, f"one of {', '.join(self.choices)}" if self.choices else "a text")


@dataclass(frozen=True)
class Whole(Kind):
    """A whole number from ``least`` to ``most``."""

    least: int = 0
    most: int = MOST_WHOLE

    def check(self, value: Any, name: str) -> None:
        if type(value) is not int or not self.least <= value <= self.most:
            self._refuse(value, name, f"a whole number from {self.least} to {self.most}")


@dataclass(frozen=True)
class Number(Kind):
    """A real number; ``finite=False`` admits infinity and NaN, which some programs cannot read."""

    finite: bool = True

    def check(self, value: Any, name: str) -> None:
        right = type(value) is float or (type(value) is int and abs(value) <= MOST_WHOLE)
        if not right or (self.finite and not math.isfinite(value)):
            self._refuse(value, name, "a finite number" if self.finite else "a number")


@dataclass(frozen=True)
class Flag(Kind):
    """True or false."""

    def check(self, value: Any, name: str) -> None:
        if not isinstance(value, bool):
            self._refuse(value, name, "true or false")


@dataclass(frozen=True)
class Anything(Kind):
    """Any JSON value: another part of the program checks it."""

    def check(self, value: Any, name: str) -> None:
        pass


@dataclass(frozen=True)
class Either(Kind):
    """A value of one of some kinds."""

    kinds: tuple[Kind, ...]

    def check(self, value: Any, name: str) -> None:
        faults = []
        for kind in self.kinds:
            try:
                return kind.check(value, name)
            except Mismatch as mismatch:
                faults.append(mismatch)
        raise faults[-1]


@dataclass(frozen=True)
class ListOf(Kind):
    """A list of one kind, of ``length`` values if that is known."""

    kind: Kind
    length: int | None = None

    def check(self, value: Any, name: str) -> None:
        if not isinstance(value, list | tuple) or (self.length is not None and len(value) != self.length):
            self._refuse(value, name, "a list" if self.length is None else f"a list of {self.length}")
        for place, part in enumerate(value):
            self.kind.check(part, f"{name}[{place}]")


@dataclass(frozen=True)
class TableOf(Kind):
    """An object of any names whose values are of one kind."""

    kind: Kind = field(default_factory=Anything)

    def check(self, value: Any, name: str) -> None:
        if not isinstance(value, Mapping):
            raise Mismatch("it holds no JSON object" + (f" under '{name}'" if name else ""))
        for key, part in value.items():
            self.kind.check(part, f"{name}.{key}" if name else str(key))


@dataclass(frozen=True)
class Object(Kind):
    """An object of known fields.

    Attributes:
        fields: fields that must be there.
        optional: fields that may be missing.
        closed: whether no other field may be there.
    """

    fields: Mapping[str, Kind]
    optional: Mapping[str, Kind] = field(default_factory=dict)
    closed: bool = False

    def check(self, value: Any, name: str) -> None:
        if not isinstance(value, Mapping):
            raise Mismatch("it holds no JSON object" + (f" under '{name}'" if name else ""))
        for key, kind in self.fields.items():
            if key not in value:
                raise Mismatch(f"it has no '{key}'" + (f" under '{name}'" if name else ""))
            kind.check(value[key], f"{name}.{key}" if name else key)
        for key, kind in self.optional.items():
            if key in value:
                kind.check(value[key], f"{name}.{key}" if name else key)
        others = value.keys() - self.fields.keys() - self.optional.keys() if self.closed else ()
        if others:
            raise Mismatch(f"it has the unknown field '{min(others)[:60]}'" + (f" under '{name}'" if name else ""))


@dataclass(frozen=True)
class Schema:
    """A JSON file of one sort.

    Attributes:
        what: the directory or file that it belongs to, for sentences: ``"a graph directory"``.
        content: what the file holds.
        checksum: whether the file carries a hash of its own content, under the name ``checksum``; files of earlier
            versions carry none and are read all the same.
        tags: fields by which the sort and the version of the file are told, e.g. ``{"kind": "graph", "format": 1}``.

    Example:
        >>> Schema("a shop", Object({"open": Flag()})).content.check({"open": 1}, "")
        Traceback (most recent call last):
        polyformer.files.schema.Mismatch: 'open' must be true or false. Got 1
    """

    what: str
    content: Kind
    tags: Mapping[str, Any] = field(default_factory=dict)
    checksum: bool = False
