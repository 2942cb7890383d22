"""How rows and types of tables are called in sentences: one convention everywhere."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

__all__ = ["CSV_ENDINGS", "kind_name", "row_of"]

CSV_ENDINGS = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")


def row_of(row: int, table: str) -> str:
    """A row by its number from 0, as people count rows: from 1, and in a CSV file without the header.

    >>> row_of(2, "nodes.csv"), row_of(2, "nodes.parquet")
    ("row 3 of 'nodes.csv' (the header not counted)", "row 3 of 'nodes.parquet'")
    """
    header = " (the header not counted)" if table.lower().endswith(CSV_ENDINGS) else ""
    return f"row {row + 1} of '{table}'{header}"


def kind_name(kind: Any) -> str:
    """What an Arrow type holds, for people.

    >>> kind_name(pa.date32()), kind_name(pa.timestamp("s")), kind_name(pa.list_(pa.int8()))
    ('dates', 'times', 'lists')
    """
    names = (
        (pa.types.is_date, "dates"),
        (pa.types.is_temporal, "times"),
        (pa.types.is_boolean, "truth values"),
        (pa.types.is_integer, "whole numbers"),
        (pa.types.is_floating, "numbers"),
        (pa.types.is_decimal, "numbers"),
        (pa.types.is_string, "text"),
        (pa.types.is_large_string, "text"),
        (pa.types.is_nested, "lists"),
        (pa.types.is_null, "nothing"),
    )
    return next((name for holds, name in names if holds(kind)), str(kind))
