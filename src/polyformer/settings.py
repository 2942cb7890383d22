"""Settings as frozen dataclasses whose field documentation becomes the command line's help."""

from __future__ import annotations

import dataclasses
import math
import numbers
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar

from polyformer.errors import InvalidParameter, UnknownName
from polyformer.limits import check_size
from polyformer.registry import suggest

__all__ = ["build_settings", "describe", "in_words", "setting", "split_settings"]

Settings = TypeVar("Settings")


def setting(default: Any, help: str, *, metavar: str | None = None, parse: Callable[[str], Any] | None = None) -> Any:
    """A dataclass field with a default and a sentence on what it does.

    Args:
        help: the sentence, which the command line shows as help.
        metavar: how the command line's help writes the value; by default its type.
        parse: makes the value from what the user writes on the command line; by default the field's type does.
    """
    metadata: dict[str, Any] = {"help": help}
    if metavar is not None:
        metadata["metavar"] = metavar
    if parse is not None:
        metadata["parse"] = parse
    return dataclasses.field(default=default, metadata=metadata)


def describe(kind: type) -> list[tuple[str, Any, str]]:
    """(name, default, help) of every setting."""
    return [(field.name, field.default, field.metadata.get("help", "")) for field in dataclasses.fields(kind)]


def build_settings(kind: type[Settings], values: Mapping[str, Any]) -> Settings:
    """An instance of the dataclass from plain values, each checked against the type of its field."""
    hints = typing.get_type_hints(kind)
    for name in values:
        if name not in hints:
            raise UnknownName(f"Unknown setting '{name}'. {suggest(name, hints)}")
    return kind(**{name: _coerce(name, value, hints[name]) for name, value in values.items()})


def split_settings(kinds: Iterable[type], values: Mapping[str, Any]) -> list[Any]:
    """One instance of each dataclass from a flat mapping; a name that no dataclass has is refused."""
    kinds = list(kinds)
    names = {field.name for kind in kinds for field in dataclasses.fields(kind)}
    for name in values:
        if name not in names:
            raise UnknownName(f"Unknown setting '{name}'. {suggest(name, names)}")
    parts = [{f.name: values[f.name] for f in dataclasses.fields(kind) if f.name in values} for kind in kinds]
    return [build_settings(kind, part) for kind, part in zip(kinds, parts, strict=True)]


def in_words(settings: Mapping[str, Any]) -> str:
    """Settings for people.

    >>> in_words({"order": 4, "lr": 0.005})
    'order=4, lr=0.005'
    """
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def _coerce(name: str, value: Any, hint: Any) -> Any:
    """The value in the type of its field: whole floats become ints, ints become floats; any other type is refused."""
    choices = typing.get_args(hint) if isinstance(hint, types.UnionType) or _is_union(hint) else (hint,)
    for choice in choices:
        if typing.get_origin(choice) is Literal and value in typing.get_args(choice):
            return value
        if value is None and "none" in typing.get_args(choice):
            return "none"  # the command line reads the word none as None
        if choice is type(None) and value is None:
            return value
        if choice is bool and isinstance(value, bool):
            return value
        if choice is int and _is_finite(value) and value % 1 == 0:
            return check_size(name, int(value))
        if choice is float and _is_finite(value):
            return float(value)
        if typing.get_origin(choice) is dict and isinstance(value, Mapping):
            return dict(value)
        if choice is str and isinstance(value, str):
            return value
    raise InvalidParameter(f"'{name}' must be {_words(choices)}. Got {value!r}.")


def _is_finite(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that is too large for a float
        return False


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) is typing.Union


def _words(choices: Iterable[Any]) -> str:
    plain = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "text",
        type(None): "none",
        dict: "a table",
    }
    words: list[str] = []
    for choice in choices:
        if typing.get_origin(choice) is Literal:
            words.extend(repr(value) for value in typing.get_args(choice))
        else:
            words.append(plain[typing.get_origin(choice) or choice])
    return " or ".join(words)
