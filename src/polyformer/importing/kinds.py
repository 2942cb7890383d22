"""What kind of values a column of a table holds, in plain words."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

__all__ = ["is_date", "is_list", "is_number", "is_string", "kind_words"]


def is_string(kind: Any) -> bool:
    """Whether a column holds text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_number(kind: Any) -> bool:
    """Whether a column holds numbers or truth values."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def is_date(kind: Any) -> bool:
    """Whether a column holds dates, with or without a time of day."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def is_list(kind: Any) -> bool:
    """Whether a column holds a list in each row."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def kind_words(kind: Any) -> str:
    """The kind of a column in words.

    >>> [kind_words(kind) for kind in (pa.int32(), pa.date32(), pa.list_(pa.string()), pa.binary())]
    ['whole numbers', 'dates', 'lists of text', 'raw bytes']
    """
    if pa.types.is_dictionary(kind):
        return kind_words(kind.value_type)
    if is_list(kind):
        return f"lists of {kind_words(kind.value_type)}"
    for test, words in _WORDS:
        if test(kind):
            return words
    return "values of another kind"


_WORDS = (
    (pa.types.is_boolean, "true/false"),
    (pa.types.is_integer, "whole numbers"),
    (is_number, "numbers"),
    (is_string, "text"),
    (is_date, "dates"),
    (pa.types.is_time, "times of day"),
    (pa.types.is_duration, "durations"),
    (pa.types.is_null, "nothing"),
    (pa.types.is_struct, "records"),
    (pa.types.is_map, "tables"),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), "raw bytes"),
    (pa.types.is_fixed_size_binary, "raw bytes"),
)
