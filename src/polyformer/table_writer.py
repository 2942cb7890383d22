"""A Parquet or CSV file that appears whole, written a block of rows at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from polyformer.errors import InvalidParameter
from polyformer.files import reporting_io_errors, write_whole

__all__ = ["TABLE_ENDINGS", "TableRows", "check_table_path", "table_rows", "without_formulas"]

TABLE_ENDINGS = (".parquet", ".csv")
"""What the name of a table that is written may end in; vectors need the first."""


class TableRows:
    """A Parquet or CSV file that is written a block of rows at a time."""

    def __init__(self, file: IO[bytes], ending: str) -> None:
        self.count = 0
        self._file, self._ending = file, ending
        self._writer: Any = None

    def write(self, table: Any) -> None:
        """Append a ``pyarrow.Table``; in Parquet it is a row group."""
        from pyarrow.csv import CSVWriter
        from pyarrow.parquet import ParquetWriter

        if self._ending == ".csv":
            table = without_formulas(table)
        if self._writer is None:
            self._writer = (CSVWriter if self._ending == ".csv" else ParquetWriter)(self._file, table.schema)
        self._writer.write_table(table)
        self.count += table.num_rows

    def close(self) -> None:
        """Write the footer."""
        if self._writer is not None:
            self._writer.close()


def without_formulas(table: Any) -> Any:
    """A table whose texts no spreadsheet takes for a formula: an apostrophe stands before = + - @ at their beginning.

    >>> import pyarrow as pa
    >>> without_formulas(pa.table({"node": ["=1+1", "plain", "-0.5"]}))["node"].to_pylist()
    ["'=1+1", 'plain', '-0.5']
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, field in enumerate(table.schema):
        if not (pa.types.is_string(field.type) or pa.types.is_large_string(field.type)):
            continue
        column = table.column(place)
        formula = pc.match_substring_regex(column, r"^[=+\-@\t\r]")
        number = pc.match_substring_regex(column, r"^[+-]?[0-9.]+([eE][+-]?[0-9]+)?$")
        quoted = pc.binary_join_element_wise("'", column, "")
        table = table.set_column(place, field, pc.if_else(pc.and_not(formula, number), quoted, column))
    return table


def check_table_path(path: Path, endings: Sequence[str] = TABLE_ENDINGS) -> None:
    """Refuse a place where no table can be written, before the work for it begins."""
    if path.is_dir():
        raise InvalidParameter(f"'--out' must be a file. Got the directory '{path}'. Try {path / 'table.parquet'}.")
    if path.suffix.lower() not in endings:
        raise InvalidParameter(f"'--out' must end in {' or '.join(endings)}. Got '{path}'.")


@contextlib.contextmanager
def table_rows(path: Path, what: str) -> Iterator[TableRows]:
    """A table that appears whole when the block ends without an error; errors call its content ``what``."""
    with reporting_io_errors(what, path), write_whole(path) as file:
        rows = TableRows(file, path.suffix.lower())
        try:
            yield rows
        finally:
            rows.close()
