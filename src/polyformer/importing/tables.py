"""Read CSV and Parquet tables in batches of rows, so that no table is ever held as a whole."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from polyformer.errors import DataNotFound, InvalidData
from polyformer.files import reading
from polyformer.importing.csv_layout import CSV_BLOCK, CsvLayout
from polyformer.importing.rows import CSV_ENDINGS
from polyformer.limits import check_claimed_rows

__all__ = ["PARQUET_ENDINGS", "Table", "open_table"]

PARQUET_ENDINGS = (".parquet", ".pq")
NULLS = ["", "null", "NULL", "NaN", "nan", "NA"]
BATCH_ROWS = 1 << 17


@dataclass(frozen=True)
class Table:
    """One table in one or more files of the same columns."""

    paths: tuple[Path, ...]

    @property
    def name(self) -> str:
        """The name of the file, or of the folder if there are several files."""
        return self.paths[0].name if len(self.paths) == 1 else self.paths[0].parent.name

    @property
    def schema(self) -> pa.Schema:
        """Column names and types; the types of a CSV are guessed from its first block."""
        raise NotImplementedError

    @property
    def names(self) -> list[str]:
        """The column names; refuses a name that occurs twice."""
        names: list[str] = self.schema.names
        for name, count in Counter(names).items():
            if count > 1:
                raise InvalidData(f"'{self.name}' has more than one column '{name}'. Rename one of them.")
        return names

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the user on what was recognised about the files."""
        return ()

    @property
    def decimal_mark(self) -> str:
        """The decimal mark of numbers in text: a point or a comma."""
        return "."

    @property
    def num_rows(self) -> int | None:
        """Number of rows; None if it is not known without reading them."""
        raise NotImplementedError

    def batches(self, columns: Sequence[str], types: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        """Batches of these columns in this order; ``types`` overrules the types that a CSV's text suggests."""
        raise NotImplementedError


class ParquetTable(Table):
    """Parquet files; column chunks are streamed, so that even one huge row group needs little memory."""

    @cached_property
    def schema(self) -> pa.Schema:
        with reading(self.paths[0]):
            return pq.read_schema(self.paths[0])

    @cached_property
    def num_rows(self) -> int | None:
        rows = 0
        for path in self.paths:
            with reading(path):
                rows += pq.read_metadata(path).num_rows
        return rows

    def batches(self, columns: Sequence[str], types: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        for path in self.paths:
            with reading(path), pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
                missing = [column for column in columns if column not in file.schema_arrow.names]
                if missing:
                    raise InvalidData(f"'{path}' has no column '{missing[0]}', but '{self.paths[0]}' has.")
                check_claimed_rows(file.metadata.num_rows, path.stat().st_size, str(path))
                for batch in file.iter_batches(BATCH_ROWS, columns=list(columns)):
                    yield batch.select(list(columns))


@dataclass(frozen=True)
class CsvTable(Table):
    """CSV files, plain or gzipped; the delimiter, comment lines at the top and a missing header are recognised.

    Attributes:
        encoding, decimal: see :class:`ImportOptions`; recognised by default.
    """

    encoding: str = ""
    decimal: str = ""

    @cached_property
    def layout(self) -> CsvLayout:
        """How the first file is written."""
        with reading(self.paths[0]):
            return CsvLayout.of(self.paths[0], self.encoding, self.decimal)

    @property
    def notes(self) -> tuple[str, ...]:
        return self.layout.notes

    @property
    def decimal_mark(self) -> str:
        return self.layout.decimal

    @cached_property
    def schema(self) -> pa.Schema:
        path = self.paths[0]
        with reading(path), self._explaining(path, [], None, {}), self._open(path, None, {}) as reader:
            return reader.schema

    @contextlib.contextmanager
    def _explaining(
        self, path: Path, names: Sequence[str], columns: list[str] | None, types: Mapping[str, Any]
    ) -> Iterator[None]:
        """Turn Arrow's errors into sentences that name the cell."""
        try:
            yield
        except pa.ArrowInvalid as error:
            reason = str(error) if "Row #" in str(error) else self._reason_with_row(path, columns, types)
            sentence = self.layout.explain(reason, names, path.name)
            if sentence is None:
                raise
            raise InvalidData(sentence) from None

    def _reason_with_row(self, path: Path, columns: list[str] | None, types: Mapping[str, Any]) -> str:
        """Arrow's message about a file that it cannot read; with one thread, the message names the row."""
        try:
            with self._open(path, columns, types, use_threads=False) as reader:
                for _ in reader:
                    pass
        except pa.ArrowInvalid as error:
            return str(error)
        return ""

    @property
    def num_rows(self) -> int | None:
        return None

    def batches(self, columns: Sequence[str], types: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        names = self.schema.names
        for path in self.paths:
            column_names = list(columns)
            with (
                reading(path),
                self._explaining(path, names, column_names, types),
                self._open(path, column_names, types) as reader,
            ):
                yield from reader

    def _open(self, path: Path, columns: list[str] | None, types: Mapping[str, Any], use_threads: bool = True) -> Any:
        layout = self.layout
        return pacsv.open_csv(
            pa.input_stream(str(path), compression="detect"),
            pacsv.ReadOptions(
                use_threads=use_threads,
                block_size=CSV_BLOCK,
                encoding=layout.encoding,
                skip_rows=layout.skip_rows,
                column_names=list(layout.names) or None,
            ),
            pacsv.ParseOptions(delimiter=layout.delimiter),
            pacsv.ConvertOptions(
                include_columns=columns,
                column_types=dict(types),
                decimal_point=layout.decimal,
                null_values=NULLS,
                strings_can_be_null=True,
            ),
        )


def open_table(path: Path, encoding: str = "", decimal: str = "") -> Table:
    """Open a table by the ending of its file, or a folder of Parquet or CSV parts.

    Args:
        encoding, decimal: encoding and decimal mark of CSV files; see :class:`ImportOptions`.
    """
    if not path.exists():
        raise DataNotFound(f"There is no file '{path}'. Check the path.")
    if path.is_dir():
        for endings in (PARQUET_ENDINGS, CSV_ENDINGS):
            parts = tuple(
                sorted(part for part in path.iterdir() if part.is_file() and part.name.lower().endswith(endings))
            )
            if parts:
                return ParquetTable(parts) if endings is PARQUET_ENDINGS else CsvTable(parts, encoding, decimal)
        raise DataNotFound(f"The folder '{path}' holds no .parquet or .csv files. Check the path.")
    if not path.is_file():  # Arrow would wait for a pipe for ever
        raise InvalidData(f"'{path}' is no file but a pipe or a device. Give a file.")
    name = path.name.lower()
    if name.endswith(PARQUET_ENDINGS):
        return ParquetTable((path,))
    if name.endswith(CSV_ENDINGS):
        return CsvTable((path,), encoding, decimal)
    known = ", ".join((*PARQUET_ENDINGS, *CSV_ENDINGS))
    raise InvalidData(f"'{path}' is no table that can be read: its name must end in one of {known}.")
