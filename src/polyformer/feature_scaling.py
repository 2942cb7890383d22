"""Numeric feature columns put on a common scale, in a way that heavy tails survive."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from polyformer.column_statistics import NO_ROWS, ColumnStatistics, counted_pieces
from polyformer.columns import Column, feature_names, vector_spans
from polyformer.errors import FileCorrupt

__all__ = ["FeatureScaling", "ScaledColumns", "ScaledFeatures"]

_ONE_SCALE_COLUMNS = 16
_ONE_SCALE_RATIO = 10.0
_ONE_SCALE_CENTRE = 3.0
_ONE_SCALE_TAIL = 50.0
_VALUES_AT_ONCE = 1 << 17
_NAMES_SHOWN = 8


@dataclass(frozen=True)
class ScaledColumns:
    """Feature columns ``start``..``stop`` - 1 and the numbers by which they are scaled.

    With a spread: ``z = (asinh((x - centre) / spread) - mean) / deviation``; without one: ``z = x / deviation``.
    """

    start: int
    stop: int
    centre: float
    spread: float | None
    mean: float
    deviation: float


@dataclass(frozen=True)
class FeatureScaling:
    r"""The numbers that bring the numeric columns of dense features to a common scale; no label is used.

    A column scaled alone becomes :math:`z = (\mathrm{asinh}((x - c) / s) - m) / v`, where c is the median, s the
    interquartile range / 1.349 (the standard deviation where that range is zero), and m and v are mean and standard
    deviation of the asinh. The asinh is linear near the centre and a logarithm in the tails, so that one account with a
    million views does not push all others together.

    - Columns of zeros and ones (flags, one-hot categories) stay as they are. Another column of one value becomes zeros.
    - A column in which most values are zero keeps its zeros: c = m = 0, s is the median size of the other values and
      v = asinh(1). A usual value becomes 1, as in a flag. Centred and divided by its deviation, a rare word of a bag of
      words would become a number in the hundreds.
    - A vector column (an embedding), and 16 columns or more that are on one scale already (sizes within a factor of 10,
      centres and tails within 3 and 50 sizes), are divided by one number, their median size: so directions are kept.
    - Sparse features stay as they are and are never made dense.

    Attributes:
        num_columns: d.
        parts: the columns that are scaled, in order; all others stay as they are.

    Example:
        >>> views = np.array([[10.0], [20.0], [30.0], [40.0], [1e6]])
        >>> [f"{z:.1f}" for z in FeatureScaling.fit(views).apply(views).ravel()]
        ['-0.7', '-0.6', '-0.4', '-0.3', '2.0']
    """

    num_columns: int
    parts: tuple[ScaledColumns, ...] = ()

    @classmethod
    def fit(
        cls, features: Any, columns: Sequence[Column] | None = None, without: np.ndarray = NO_ROWS
    ) -> FeatureScaling:
        """The scaling of (N, d) features, from all rows; a memory-mapped file is read in pieces, twice.

        Args:
            columns: columns of the table that the features come from; they tell vectors from numbers.
            without: rows, rising, that do not count: those of removed nodes.
        """
        num_columns = int(features.shape[1])
        if not isinstance(features, np.ndarray) or num_columns == 0:
            return cls(num_columns)
        statistics = ColumnStatistics.of(features, feature_names(columns, num_columns), without)
        centre, spread = statistics.centre, statistics.spread
        vectors = vector_spans(columns)
        inside = np.zeros(num_columns, bool)
        blocks = []
        for span in vectors:
            members = np.flatnonzero(statistics.scalable[span]) + span.start
            if len(members) and _on_one_scale(statistics, members):
                blocks.append(members)
                inside[members] = True
        singles = np.flatnonzero(statistics.scalable & ~inside)
        if len(singles) >= _ONE_SCALE_COLUMNS and _on_one_scale(statistics, singles):
            blocks.append(singles)
            singles = singles[:0]
        parts = [part for members in blocks for part in _block(members, float(np.median(spread[members])))]
        mean, deviation = _moments(features, without, singles, statistics)
        parts += [
            ScaledColumns(int(j), int(j) + 1, float(centre[j]), float(spread[j]), float(m), float(v))
            for j, m, v in zip(singles, mean, deviation, strict=True)
        ]
        return cls(num_columns, tuple(sorted(parts, key=lambda part: part.start)))

    @cached_property
    def digest(self) -> str:
        """A hash of all numbers of the scaling."""
        return hashlib.blake2b(json.dumps(self.to_json()).encode(), digest_size=8).hexdigest()

    def apply(self, values: np.ndarray, first: int = 0, out: np.ndarray | None = None) -> np.ndarray:
        """(n, w) values of the columns ``first``..``first`` + w - 1, scaled, as float32; into ``out`` if it is given.

        Values are rounded to float32 even where ``out`` is wider, so that every way to tokens has the same features.
        The work is done on some rows at a time, so that little memory is needed besides ``out``.
        """
        result = np.empty(values.shape, np.float32) if out is None else out
        bent, straight = (part - first for part in self._columns)
        bent, straight = (part[(part >= 0) & (part < values.shape[1])] for part in (bent, straight))
        centre, spread, mean, deviation = self._numbers
        step = max(1, _VALUES_AT_ONCE // max(1, values.shape[1]))
        for begin in range(0, len(values), step):
            rows = slice(begin, min(len(values), begin + step))
            result[rows] = values[rows]
            if len(straight):
                result[rows, straight] = (values[rows, straight] / deviation[first + straight]).astype(np.float32)
            if len(bent):
                at = first + bent
                bow = np.arcsinh((values[rows, bent] - centre[at]) / spread[at])
                result[rows, bent] = ((bow - mean[at]) / deviation[at]).astype(np.float32)
        return result

    @cached_property
    def _columns(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the columns that go through the asinh, and of the columns that are only divided."""
        bent, straight = (
            [np.arange(part.start, part.stop) for part in self.parts if (part.spread is None) == plain]
            for plain in (False, True)
        )
        empty = [np.empty(0, np.int64)]
        return np.concatenate(empty + bent), np.concatenate(empty + straight)

    @cached_property
    def _numbers(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(d,) float64 each: centre, spread, mean, deviation."""
        centre, mean = np.zeros(self.num_columns), np.zeros(self.num_columns)
        spread, deviation = np.ones(self.num_columns), np.ones(self.num_columns)
        for part in self.parts:
            where = slice(part.start, part.stop)
            centre[where], mean[where], deviation[where] = part.centre, part.mean, part.deviation
            spread[where] = 1.0 if part.spread is None else part.spread
        return centre, spread, mean, deviation

    def describe(self, columns: Sequence[Column] | None = None) -> str:
        """A sentence for people on which columns are scaled.

        >>> FeatureScaling(3, (ScaledColumns(0, 1, 0.0, 1.0, 0.0, 1.0),)).describe((Column("age"), Column("flag", 2)))
        'scaled 1 numeric column (age); left 2 columns of zeros and ones'
        """
        scaled = np.concatenate(self._columns)
        names = feature_names(columns, self.num_columns)
        shown = list(dict.fromkeys(names[j] for j in np.sort(scaled)))
        listed = ", ".join(shown[:_NAMES_SHOWN]) + (", …" if len(shown) > _NAMES_SHOWN else "")
        left = self.num_columns - len(scaled)
        words = [f"scaled {_counted(len(scaled), 'numeric column')}" + (f" ({listed})" if columns and shown else "")]
        if left:
            words.append(f"left {_counted(left, 'column')} of zeros and ones")
        return "; ".join(words)

    def to_json(self) -> dict[str, Any]:
        """The JSON object that :meth:`from_json` reads; reading it from a file gives an equal object."""
        return {"num_columns": self.num_columns, "parts": [asdict(part) for part in self.parts]}

    @classmethod
    def from_json(cls, content: Mapping[str, Any] | None) -> FeatureScaling | None:
        """The scaling from its JSON object; None, which older versions wrote, means no scaling."""
        if content is None:
            return None
        num_columns, parts = content["num_columns"], tuple(ScaledColumns(**part) for part in content["parts"])
        if not all(0 <= part.start <= part.stop <= num_columns for part in parts):
            raise FileCorrupt(
                f"A scaling of features names columns outside 0..{num_columns - 1}. Restore it from a copy."
            )
        return cls(num_columns, parts)


class ScaledFeatures:
    """(N, d) dense features that are scaled when they are read, and never copied as a whole.

    Args:
        raw: features as they are stored, in memory or memory-mapped.
        scaling: scaling of the columns.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, raw: np.ndarray, scaling: FeatureScaling) -> None:
        self.raw, self.scaling = raw, scaling
        self.shape: tuple[int, int] = (int(raw.shape[0]), int(raw.shape[1]))
        self.size, self.nbytes = math.prod(self.shape), 4 * math.prod(self.shape)

    def columns(self, block: slice) -> np.ndarray:
        """(N, w) float32: some columns of all rows."""
        return self.scaling.apply(self.raw[:, block], block.start)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """All features in memory, for models that read them whole."""
        return self.scaling.apply(self.raw).astype(self.dtype if dtype is None else dtype, copy=False)


def _on_one_scale(statistics: ColumnStatistics, members: np.ndarray) -> bool:
    """Whether these columns have similar sizes, lie near zero and have no heavy tails."""
    size, centre = statistics.spread[members], np.abs(statistics.centre[members])
    return bool(
        size.max() <= _ONE_SCALE_RATIO * size.min()
        and np.all(centre <= _ONE_SCALE_CENTRE * size)
        and np.all(statistics.largest[members] <= _ONE_SCALE_TAIL * size)
    )


def _block(members: np.ndarray, size: float) -> Iterator[ScaledColumns]:
    """Ranges of neighbouring columns that are divided by one number."""
    for run in np.split(members, np.flatnonzero(np.diff(members) > 1) + 1):
        yield ScaledColumns(int(run[0]), int(run[-1]) + 1, 0.0, None, 0.0, size)


def _moments(
    features: np.ndarray, without: np.ndarray, members: np.ndarray, statistics: ColumnStatistics
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of the asinh of these columns over all rows; 0 and asinh(1) for columns that keep zeros."""
    total, squares = np.zeros(len(members)), np.zeros(len(members))
    if len(members):
        for _, piece in counted_pieces(features, without):
            bow = np.arcsinh((piece[:, members] - statistics.centre[members]) / statistics.spread[members])
            total += bow.sum(axis=0)
            squares += (bow * bow).sum(axis=0)
    count = len(features) - len(without)
    mean = total / count
    deviation = np.sqrt(np.maximum(squares / count - mean * mean, 0))
    deviation[deviation < 1e-9] = 1.0  # the values differ by rounding alone
    kept = statistics.mostly_zero[members]
    return np.where(kept, 0.0, mean), np.where(kept, math.asinh(1.0), deviation)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
