"""Literal tables of names, and the little language that names an entry with options.

A *spec* is ``name`` or ``name:key=value,key=value``, e.g. ``minefield:width=50,seed=3`` or ``jacobi:a=1,b=0.5``.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import inspect
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from polyformer.errors import InvalidParameter, UnknownName
from polyformer.limits import MOST_SPEC_CHARACTERS

__all__ = ["Registry", "check_options", "format_spec", "parse_spec", "parse_value", "suggest"]

Entry = TypeVar("Entry")


class Registry(Generic[Entry]):
    """A table from name to entry, written out where it is used.

    An entry may be the object itself or ``"package.module:attribute"``, which is imported on first use so that a
    table of heavy models costs nothing to list.

    Example:
        >>> table = Registry("fruit", {"apple": 1, "pear": 2})
        >>> table["pear"], list(table)
        (2, ['apple', 'pear'])
        >>> table["aple"]
        Traceback (most recent call last):
        ...
        polyformer.errors.UnknownName: Unknown fruit 'aple'. Did you mean 'apple'? There are: apple, pear.
    """

    def __init__(self, kind: str, entries: Mapping[str, Entry | str]) -> None:
        self.kind = kind
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> Entry:
        if name not in self._entries:
            raise UnknownName(f"Unknown {self.kind} '{name}'. {suggest(name, self)}")
        entry = self._entries[name]
        if isinstance(entry, str):
            module, attribute = entry.split(":")
            return cast(Entry, getattr(importlib.import_module(module), attribute))
        return entry

    def summary(self, name: str) -> str:
        """The first paragraph of an entry's docstring, in one line and without markup.

        The docstring of an entry that is not imported yet is read from the source file, because the module may import
        heavy libraries.
        """
        entry = self._entries[name]
        text = _written_docstring(*entry.split(":")) if isinstance(entry, str) else None
        text = inspect.getdoc(self[name]) if text is None else text
        return re.sub(r":\w+:|`", "", " ".join((text or "").split("\n\n")[0].split()))

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __len__(self) -> int:
        return len(self._entries)


def _written_docstring(module: str, attribute: str) -> str | None:
    """The docstring of a class from the source file of its module; None if the file has none."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == attribute)
    return next((ast.get_docstring(node) for node in classes), None)


def suggest(name: str, choices: Iterable[str]) -> str:
    """``Did you mean ...?`` if a choice resembles the name, then all choices.

    >>> suggest("ordr", ["order", "heads"])
    "Did you mean 'order'? There are: heads, order."
    """
    names = sorted(choices)
    near = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f"Did you mean '{near[0]}'? " if near else ""
    return f"{hint}There are: {', '.join(names)}."


def parse_value(text: str) -> Any:
    """The value of an option: a number, ``true``, ``false``, ``none``, or else the text itself.

    >>> [parse_value(text) for text in ("3", "1e-3", "true", "none", "tanh")]
    [3, 0.001, True, None, 'tanh']
    """
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def parse_spec(spec: str) -> tuple[str, dict[str, Any]]:
    """Split ``name:key=value,...`` into the name and its options.

    >>> parse_spec("minefield:width=50,seed=3")
    ('minefield', {'width': 50, 'seed': 3})
    """
    if len(spec) > MOST_SPEC_CHARACTERS:
        raise InvalidParameter(
            f"A name with options must have at most {MOST_SPEC_CHARACTERS:,} characters. Got {len(spec):,}, which "
            f"begin with '{spec[:40]}'."
        )
    name, _, rest = spec.partition(":")
    options: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise InvalidParameter(f"'{spec}' must read name:key=value,key=value. Got '{part}' in it.")
        options[key.strip()] = parse_value(value.strip())
    return name.strip(), options


def format_spec(name: str, options: Mapping[str, Any]) -> str:
    """The inverse of :func:`parse_spec`.

    >>> format_spec("jacobi", {"a": 1.0, "b": 0.5}), format_spec("chebyshev", {})
    ('jacobi:a=1.0,b=0.5', 'chebyshev')
    """
    if not options:
        return name
    return f"{name}:" + ",".join(f"{key}={str(value).lower()}" for key, value in options.items())


def check_options(kind: str, name: str, options: Mapping[str, Any], accepted: Collection[str]) -> None:
    """Refuse options that are not accepted; the error names the accepted ones."""
    for key in options:
        if key not in accepted:
            choices = suggest(key, accepted) if accepted else "It takes none."
            raise UnknownName(f"The {kind} '{name}' has no option '{key}'. {choices}")
