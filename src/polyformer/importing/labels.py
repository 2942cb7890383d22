"""Turn the label and split columns of a table into class numbers and node numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from polyformer.errors import InvalidData, InvalidParameter
from polyformer.importing.kinds import is_date, is_number, is_string, kind_words
from polyformer.importing.numbers import as_numbers
from polyformer.importing.options import ImportOptions
from polyformer.importing.rows import row_of
from polyformer.splits import Split, balanced_split, has_label, ordered_split, uniform_split

__all__ = ["Labels", "check_training_classes", "draw_splits", "encode_labels", "encode_split", "split_by_time"]

SPLIT_WORDS = {
    "train": ("train", "training", "tr"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing", "te"),
}


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels (N,), int64 classes with -1 or float64 values with NaN for unlabelled nodes, and the classes' names."""

    values: np.ndarray
    class_names: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()

    @property
    def known(self) -> np.ndarray:
        """(N,) bool: which nodes have a label."""
        return has_label(self.values)


def encode_labels(column: Any, options: ImportOptions, text: bool = False) -> Labels:
    """Class numbers or values from a column of integers, booleans, strings or real numbers.

    Args:
        column: an arrow array; null means unlabelled.
        text: whether the column was read from text, so that strings may be numbers.

    Example:
        >>> encode_labels(pa.array(["cat", None, "dog", "cat"]), ImportOptions())
        Labels(values=array([ 0, -1,  1,  0]), class_names=('cat', 'dog'), notes=())
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if text:
        column = _parse(column, options.decimal)
    kind = column.type
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    real = pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if options.label_kind == "values" and not numeric:
        raise InvalidData(
            f"Labels must be numbers to be predicted as values. Got {kind_words(kind)}. Use --label-kind classes."
        )
    if options.label_kind == "values" or (options.label_kind == "auto" and real):
        return _values(column)
    if not (numeric or pa.types.is_boolean(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise InvalidData(
            f"Labels must be integers, strings or real numbers. Got {kind_words(kind)}. Name another label column."
        )
    return _classes(column)


def _parse(column: Any, decimal: str) -> Any:
    written = pc.replace_substring(column, ",", ".") if decimal == "," else column
    for kind in (pa.int64(), pa.float64()):
        try:
            return written.cast(kind)
        except pa.ArrowInvalid:
            continue
    return column


def _values(column: Any) -> Labels:
    values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite):
        raise InvalidData(f"Labels must be finite. Got infinity in row {int(infinite[0]) + 1}. Correct or empty it.")
    known = values[~np.isnan(values)]
    whole = len(known) > 0 and bool(np.all(known == np.round(known)))
    note = "Labels are real numbers, so values are predicted; if they are classes, use --label-kind classes."
    return Labels(values, None, (note,) if whole else ())


def _classes(column: Any) -> Labels:
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        column = pc.if_else(pc.is_nan(column.cast(pa.float64())), None, column.cast(pa.float64()))
        try:
            column = column.cast(pa.int64())
        except pa.ArrowInvalid:
            raise InvalidData("Labels that are classes must be whole numbers or strings. Got fractions.") from None
    had_minus_one = False
    if pa.types.is_integer(column.type):
        try:
            column = column.cast(pa.int64())
        except pa.ArrowInvalid:
            largest = pc.max(column).as_py()
            raise InvalidData(
                f"Labels that are classes must be below 2^63. Got {largest}. Number them from 0."
            ) from None
        had_minus_one = bool(pc.any(pc.equal(column, -1)).as_py())
        column = pc.if_else(pc.equal(column, -1), None, column)
    names = pc.unique(column.drop_null())
    names = names.take(pc.array_sort_indices(names))
    if names.to_pylist() == [1] and had_minus_one:
        raise InvalidData(
            "Labels must not be -1 and 1: -1 means unlabelled. Write the two classes as 0 and 1, or as words."
        )
    values = pc.index_in(column, value_set=names).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    listed = names.to_pylist()
    if pa.types.is_integer(names.type) and listed == list(range(len(listed))):
        return Labels(values)
    return Labels(values, tuple(str(name).lower() if isinstance(name, bool) else str(name) for name in listed))


def encode_split(column: Any, labels: Labels, table: str) -> tuple[Split, tuple[str, ...]]:
    """One split from a column of train, val and test; rows left empty are in no part."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or pa.types.is_null(column.type)):
        raise InvalidData(
            f"The split column of '{table}' must say train, val or test. It holds {kind_words(column.type)}."
        )
    words = pc.utf8_lower(pc.utf8_trim_whitespace(column.cast(pa.large_string())))
    parts = {}
    known = pc.is_null(words)
    for part, names in SPLIT_WORDS.items():
        inside = pc.is_in(words, value_set=pa.array(names, pa.large_string()))
        known = pc.or_(known, inside)
        parts[part] = np.flatnonzero(inside.to_numpy(zero_copy_only=False))
    strange = np.flatnonzero(~known.to_numpy(zero_copy_only=False))
    if len(strange):
        row = int(strange[0])
        raise InvalidData(f"The split of {row_of(row, table)} must be train, val or test. Got '{column[row]}'.")
    notes = []
    for part, nodes in parts.items():
        bare = nodes[~labels.known[nodes]]
        if len(bare) and part != "test":
            place = row_of(int(bare[0]), table)
            raise InvalidData(f"There is no label in {place}, which is in the {part} split. Label it.")
        if len(bare):
            notes.append(f"{len(bare):,} test nodes have no label: they are predicted, but not scored.")
        parts[part] = nodes[labels.known[nodes]]
    return Split(parts["train"], parts["val"], parts["test"]), tuple(notes)


def split_by_time(column: Any, labels: Labels, name: str, table: str) -> Split:
    """Train on the oldest 60 % of the labelled nodes, select on the next 20 %, test on the newest.

    Args:
        column: numbers, dates, or dates as text.
        name, table: names of the column and its table, for messages.
    """
    usable = is_number(column.type) or is_date(column.type) or is_string(column.type)
    times = as_numbers(column) if usable else np.full(len(column), np.nan)
    if not np.isfinite(times).any():
        raise InvalidData(
            f"The column '{name}' of '{table}' must hold numbers or dates to split by. It holds "
            f"{kind_words(column.type)}. Name another with --split-by."
        )
    missing = np.flatnonzero(labels.known & ~np.isfinite(times))
    if len(missing):
        raise InvalidData(
            f"Row {int(missing[0]) + 1} of '{table}' has a label but no number or date in '{name}', by which the "
            f"splits are made. Fill it, or empty its label."
        )
    return ordered_split(times, np.flatnonzero(labels.known))


def check_training_classes(labels: Labels, splits: Sequence[Split]) -> str | None:
    """A sentence about the first class that no training node has; None if training has all classes."""
    if labels.values.dtype.kind == "f":
        return None
    present = np.unique(labels.values[labels.known])
    for i, split in enumerate(splits):
        missing = np.setdiff1d(present, labels.values[split.train])
        if len(missing):
            name = labels.class_names[int(missing[0])] if labels.class_names else int(missing[0])
            which = f" of split {i}" if len(splits) > 1 else ""
            return f"The label '{name}' is in no training node{which}, so it cannot be learned."
    return None


def draw_splits(labels: Labels, options: ImportOptions) -> list[Split]:
    """Splits of the labelled nodes by protocol and seed, 60/20/20."""
    if options.protocol == "none":
        return []
    known = np.flatnonzero(labels.known)
    if options.protocol == "uniform":
        return [uniform_split(labels.values, options.seed + i) for i in range(options.num_splits)]
    if labels.values.dtype.kind == "f":
        raise InvalidParameter("The protocol 'balanced' needs classes. Got real-valued labels. Use uniform.")
    splits = []
    for i in range(options.num_splits):
        inner = balanced_split(labels.values[known], options.seed + i)
        splits.append(Split(known[inner.train], known[inner.val], known[inner.test]))
    return splits
