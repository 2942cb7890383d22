"""How messages name the rows of a table."""

from __future__ import annotations

__all__ = ["CSV_ENDINGS", "row_of"]

CSV_ENDINGS = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")


def row_of(row: int, table: str) -> str:
    """The name of row ``row`` (from 0), as people count rows: from 1, and without the header of a CSV file.

    >>> row_of(2, "nodes.csv"), row_of(2, "nodes.parquet")
    ("row 3 of 'nodes.csv' (the header not counted)", "row 3 of 'nodes.parquet'")
    """
    header = " (the header not counted)" if table.lower().endswith(CSV_ENDINGS) else ""
    return f"row {row + 1} of '{table}'{header}"
