"""How rows of tables are called in sentences: one convention everywhere."""

from __future__ import annotations

__all__ = ["CSV_ENDINGS", "row_of"]

CSV_ENDINGS = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")


def row_of(row: int, table: str) -> str:
    """A row by its number from 0, as people count rows: from 1, and in a CSV file without the header.

    >>> row_of(2, "nodes.csv"), row_of(2, "nodes.parquet")
    ("row 3 of 'nodes.csv' (the header not counted)", "row 3 of 'nodes.parquet'")
    """
    header = " (the header not counted)" if table.lower().endswith(CSV_ENDINGS) else ""
    return f"row {row + 1} of '{table}'{header}"
