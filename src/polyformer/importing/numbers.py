"""Numbers and dates of a table as float64, and counts and the median of such a column."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from polyformer.column_statistics import LARGEST_FEATURE
from polyformer.errors import InvalidData
from polyformer.importing.kinds import is_date, is_string

__all__ = ["NumberScan", "as_numbers", "days_since_1970", "is_id_name", "refuse_unusable"]

_ISO_DATE = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}(:?\d{2})?)?)?$"
_MICROSECONDS_A_DAY = 86_400_000_000
_ID_ROWS = 20
_ID_NAME = re.compile(r"(^|[^a-z])(id|ids|uid|uuid|guid|index)[0-9]*$")


def as_numbers(values: Any) -> np.ndarray:
    """(n,) float64 from an arrow array of numbers, truth values, dates or dates as text; NaN where one is missing."""
    if is_date(values.type) or is_string(values.type):
        return days_since_1970(values)
    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)


def days_since_1970(values: Any) -> np.ndarray:
    """(n,) float64 from dates, or from text such as 2024-01-31 or 2024-01-31T12:00; NaN for all other text.

    A time zone that is written behind the time is not read.

    >>> days_since_1970(pa.array(["1970-01-02", "1970-01-01 12:00", "soon", None])).tolist()
    [1.0, 0.5, nan, nan]
    """
    if is_string(values.type):
        text = pc.utf8_trim_whitespace(values.cast(pa.string()))
        text = pc.if_else(pc.match_substring_regex(text, _ISO_DATE), text, None)
        days = pc.strptime(pc.utf8_slice_codeunits(text, 0, 10), "%Y-%m-%d", "s", error_is_null=True)
        hours, minutes, seconds = (_digits(pc.utf8_slice_codeunits(text, start, start + 2)) for start in (11, 14, 17))
        return _days(days) + (hours * 3600 + minutes * 60 + seconds) / 86_400
    return _days(values)


def _days(values: Any) -> np.ndarray:
    exact = values.cast(pa.timestamp("us", getattr(values.type, "tz", None)), safe=False).cast(pa.int64())
    microseconds = exact.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(microseconds, np.float64) / _MICROSECONDS_A_DAY


def _digits(text: Any) -> np.ndarray:
    """Two digits of a time of day as a number; 0 if there are no digits."""
    two_digits = pc.if_else(pc.match_substring_regex(text, r"^\d\d$"), text, "0")
    return np.asarray(two_digits.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False))


class NumberScan:
    """Counts and a median of one column, gathered batch by batch in bounded memory.

    Args:
        most_held: largest number of values held; of a longer column, evenly spaced values are held.
    """

    def __init__(self, most_held: int) -> None:
        self.rows = self.missing = self.nulls = 0
        self.most_held, self._held, self._stride = most_held, np.empty(0), 1
        self._whole = True

    def add(self, numbers: np.ndarray, nulls: int) -> None:
        """Take in a batch of :func:`as_numbers` with ``nulls`` empty cells; other NaN are texts that are no dates."""
        missing = np.isnan(numbers)
        self.nulls += nulls
        self.missing += int(missing.sum())
        self._whole = self._whole and bool(np.all(numbers[~missing] == np.floor(numbers[~missing])))
        self._held = np.concatenate([self._held, numbers[-self.rows % self._stride :: self._stride]])
        self.rows += len(numbers)
        while len(self._held) > self.most_held:
            self._held, self._stride = self._held[::2], self._stride * 2

    @property
    def empty(self) -> bool:
        """Whether no row has a value."""
        return self.missing == self.rows

    @property
    def median(self) -> float:
        """The median of the values; of an even number the lower middle one, so that the median of flags is a flag."""
        known = np.sort(self._held[~np.isnan(self._held)])
        return float(known[(len(known) - 1) // 2]) if len(known) else 0.0

    @property
    def all_different(self) -> bool:
        """Whether the column holds whole numbers that all differ, in enough rows for that to mean something."""
        if self.missing or not self._whole or self.rows < _ID_ROWS:
            return False
        return len(np.unique(self._held)) == len(self._held)

    @property
    def counts_rows(self) -> bool:
        """Whether the column holds the numbers of the rows, which programs write beside a table."""
        steps = np.arange(len(self._held)) * self._stride
        return self.all_different and any(np.array_equal(self._held, steps + first) for first in (0, 1))


def is_id_name(name: str) -> bool:
    """Whether the name of a column is that of an id.

    >>> [is_id_name(name) for name in ("new_id", "userId", "UID", "paid", "days", "Unnamed: 0")]
    [True, True, True, False, False, False]
    """
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", name.strip())
    return bool(_ID_NAME.search(spaced.lower()))


def refuse_unusable(numbers: np.ndarray, name: str, start: int, table: str) -> None:
    """Refuse infinite numbers, and numbers too large for float32 or training; the message names the row.

    Args:
        numbers: (n,) or (n, w), from row ``start`` on; NaN means missing and passes.
    """
    bad = np.argwhere(np.abs(numbers) > LARGEST_FEATURE)  # false for NaN
    if len(bad):
        raise InvalidData(
            f"The feature '{name}' must be a number of at most {LARGEST_FEATURE:g} in size. Got "
            f"{numbers[tuple(bad[0])]:g} in row {start + int(bad[0][0]) + 1} of '{table}'. Correct it, or leave the "
            f"column out with --features."
        )
