"""Statistics of each column of dense features, from one pass over the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from polyformer.arrays import row_pieces
from polyformer.errors import InvalidData

__all__ = ["LARGEST_FEATURE", "NO_ROWS", "ColumnStatistics", "counted_pieces"]

LARGEST_FEATURE = 1e19
"""The largest size of a feature: models compute in float32, which cannot hold the square of a larger one."""

NO_ROWS = np.empty(0, np.int64)
"""Every row counts."""

_PIECE_BYTES = 1 << 20
_SAMPLED_VALUES = 1 << 21
_NORMAL_QUARTILES = 1.349


@dataclass(frozen=True, eq=False)
class ColumnStatistics:
    """Statistics of d columns, an array (d,) each.

    Attributes:
        scalable: whether the column holds more than zeros and ones.
        mostly_zero: whether more than half of its values are zero.
        centre: the median, 0 where most values are zero.
        spread: a positive number: interquartile range / 1.349 (1 for standard normal values); the standard deviation
            if that range is zero; the median size of the other values if most values are zero.
        largest: the largest distance from the centre.
    """

    scalable: np.ndarray
    mostly_zero: np.ndarray
    centre: np.ndarray
    spread: np.ndarray
    largest: np.ndarray

    @classmethod
    def of(cls, features: np.ndarray, names: Sequence[str], without: np.ndarray = NO_ROWS) -> ColumnStatistics:
        """Statistics of all rows; quantiles of more than 2^21 values are those of evenly spaced rows, to bound memory.

        Args:
            names: names of the columns, for the sentence that refuses a value.
            without: rows, rising, that do not count.
        """
        count, width = len(features) - len(without), features.shape[1]
        step = max(1, -(-count * width // _SAMPLED_VALUES))
        zeros, total, squares = np.zeros(width, np.int64), np.zeros(width), np.zeros(width)
        flags, least, most = np.ones(width, bool), np.full(width, np.inf), np.full(width, -np.inf)
        sample, shift = np.empty((-(-count // step), width), features.dtype), np.zeros(width)
        for start, piece in counted_pieces(features, without):
            shift = piece[0].astype(np.float64) if start == 0 else shift
            least, most = np.minimum(least, piece.min(axis=0)), np.maximum(most, piece.max(axis=0))
            is_zero = piece == 0
            zeros += is_zero.sum(axis=0)
            flags &= (is_zero | (piece == 1)).all(axis=0)
            away = piece - shift
            total += away.sum(axis=0)
            squares += (away * away).sum(axis=0)
            rows = piece[-start % step :: step]
            first = -(-start // step)
            sample[first : first + len(rows)] = rows
        _refuse_unusable(least, most, names)
        mean = total / count
        deviation = np.sqrt(np.maximum(squares / count - mean * mean, 0))
        scalable, mostly_zero = ~flags, 2 * zeros > count
        centre, spread = _location(sample, deviation, mostly_zero & scalable)
        largest = np.maximum(np.abs(most - centre), np.abs(least - centre))
        spread = np.where(spread > 0, spread, np.where(largest > 0, largest, 1.0))
        return cls(scalable, mostly_zero, centre, spread, largest)


def counted_pieces(features: np.ndarray, without: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The rows in pieces, but for some rows, rising: how many rows came before, and the rows.

    >>> [(start, rows.tolist()) for start, rows in counted_pieces(np.arange(3.0)[:, None], np.array([1]))]
    [(0, [[0.0], [2.0]])]
    """
    for start, piece in row_pieces(features, _PIECE_BYTES):
        first, end = np.searchsorted(without, [start, start + len(piece)])
        rows = np.delete(piece, without[first:end] - start, axis=0) if end > first else piece
        if len(rows):
            yield start - int(first), rows


def _location(sample: np.ndarray, deviation: np.ndarray, mostly_zero: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre and spread of each column of some rows, (n, d)."""
    sample.sort(axis=0)
    lower, middle, upper = (sample[int(share * (len(sample) - 1))].astype(np.float64) for share in (0.25, 0.5, 0.75))
    between = (upper - lower) / _NORMAL_QUARTILES
    spread = np.where(between > 0, between, deviation)
    for column in np.flatnonzero(mostly_zero):
        sizes = np.abs(sample[:, column])
        sizes = sizes[sizes > 0]
        spread[column] = np.median(sizes) if len(sizes) else 0.0
    return np.where(mostly_zero, 0.0, middle), spread


def _refuse_unusable(least: np.ndarray, most: np.ndarray, names: Sequence[str]) -> None:
    """Refuse numbers that were never checked: another version wrote the file that holds them."""
    for ends in (least, most):
        bad = np.flatnonzero(~(np.abs(ends) <= LARGEST_FEATURE))
        if len(bad):
            raise InvalidData(
                f"Features must be numbers of at most {LARGEST_FEATURE:g} in size. Got {ends[bad[0]]:g} in the "
                f"feature column {names[bad[0]]}. Correct it and make the graph again."
            )
