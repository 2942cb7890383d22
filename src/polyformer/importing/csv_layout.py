"""How a CSV file is written: encoding, delimiter, decimal mark, comment lines, header; and Arrow's errors reworded."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from polyformer.errors import InvalidData
from polyformer.importing.rows import row_of

__all__ = ["CSV_BLOCK", "CsvLayout", "check_head"]

CSV_BLOCK = 1 << 23
_SAMPLE_LINES = 1000
_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",  # must come before UTF-16, as its mark begins with that of UTF-16
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_WITH_COMMA = re.compile(r"[+-]?\d+,(\d+)([eE][+-]?\d+)?")
_WHOLE = re.compile(r"[+-]?\d+")
_LONGEST_INTEGER = 18


@dataclass(frozen=True)
class CsvLayout:
    """How a file is written.

    Attributes:
        skip_rows: comment lines at the top.
        names: made-up column names where the file has no header.
        notes: sentences for the user on what was recognised.
    """

    delimiter: str
    skip_rows: int
    names: tuple[str, ...] = ()
    encoding: str = "utf-8"
    decimal: str = "."
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, path: Path, encoding: str = "", decimal: str = "") -> CsvLayout:
        """Recognise the layout from the first lines.

        Args:
            encoding: by default that of the byte-order mark, else UTF-8; other bytes are refused.
            decimal: ``.`` or ``,``; by default recognised where cells are separated by semicolons or tabs.
        """
        with pa.input_stream(str(path), compression="detect") as file:
            head = file.read(CSV_BLOCK)
        used = encoding or _recognise_encoding(head, path)
        lines = head.decode(used, errors="replace").removeprefix("\ufeff").splitlines()
        skipped = next((i for i, line in enumerate(lines) if not line.startswith(("#", "%"))), len(lines))
        lines = lines[skipped : skipped + _SAMPLE_LINES]
        if not lines or not lines[0].strip():
            raise InvalidData(f"'{path}' is an empty table. Give it a header line and rows.")
        delimiter = _delimiter(lines)
        cells = lines[0].split(delimiter)
        bare = all(_is_number(cell, delimiter) for cell in cells)
        names = tuple(f"column{i + 1}" for i in range(len(cells))) if bare else ()
        layout = cls(delimiter, skipped, names, used)
        check_head(head, layout, path, recognised=not encoding)
        return layout._with_decimal(decimal, lines, path)

    def row(self, line: int) -> int:
        """The number, from 0, of the row in a line of the file, from 1; -1 for the header."""
        return line - 1 - self.skip_rows - (0 if self.names else 1)

    def _with_decimal(self, decimal: str, lines: Sequence[str], path: Path) -> CsvLayout:
        if decimal:
            return CsvLayout(self.delimiter, self.skip_rows, self.names, self.encoding, decimal)
        header = list(self.names) or next(csv.reader(lines[:1], delimiter=self.delimiter))
        rows = list(csv.reader(lines if self.names else lines[1:], delimiter=self.delimiter))
        column, value, ambiguous = _first_with_commas(header, rows)
        if column is None:
            return self
        if self.delimiter == "," or ambiguous:
            raise InvalidData(
                f"The column '{column}' of '{path.name}' writes numbers with a comma, such as '{value}'. Say which "
                f"decimal mark it has: polyformer import --decimal , for a comma, --decimal . for a point."
            )
        note = f"Numbers of '{path.name}' have a decimal comma, such as '{value}' in the column '{column}'."
        return CsvLayout(self.delimiter, self.skip_rows, self.names, self.encoding, ",", (note,))

    def explain(self, reason: str, columns: Sequence[str], table: str) -> str | None:
        """Arrow's message about a cell or a row in our words; None for a message about something else."""
        place = re.search(r"(?:In CSV column #(\d+): )?(?:CSV parse error: )?Row #(\d+): (.*)", reason, re.DOTALL)
        if place is None:
            return None
        row = row_of(self.row(int(place[2])), table)
        if "invalid UTF8" in place[3]:
            return _encoding_sentence(f"'{table}'", self.encoding, row, None, recognised=True)
        wrong = re.search(r"Expected (\d+) columns, got (\d+): (.*)", place[3], re.DOTALL)
        if wrong:
            text = " ".join(wrong[3].split())[:100]
            return f"There are {wrong[2]} cells instead of {wrong[1]} in {row}: {text}. Correct the row."
        cell = re.search(r"conversion error to ([\w\[\]]+): invalid value '(.*)'", place[3], re.DOTALL)
        if cell is None or place[1] is None or int(place[1]) >= len(columns):
            return None
        value, column = " ".join(cell[2].split())[:100], columns[int(place[1])]
        return f"'{value}' in the column '{column}', {row}, {_remedy(cell[1], value)}"


def check_head(head: bytes, layout: CsvLayout, path: Path, recognised: bool) -> None:
    """Refuse a file whose first bytes are not in the layout's encoding; the message names the first wrong row."""
    try:
        codecs.getincrementaldecoder(layout.encoding)("strict").decode(head, len(head) < CSV_BLOCK)
    except UnicodeDecodeError as error:
        line = head[: error.start].decode(layout.encoding, errors="replace").count("\n") + 1
        row = layout.row(line)
        place = "its header" if row < 0 else row_of(row, path.name)
        sentence = _encoding_sentence(f"'{path}'", layout.encoding, place, head[error.start], recognised)
        raise InvalidData(sentence) from None


def _encoding_sentence(file: str, encoding: str, place: str, byte: int | None, recognised: bool) -> str:
    content = "bytes that are no text" if byte is None else f"the byte 0x{byte:02x}"
    remedy = (
        "If an older Windows program wrote it, read it with: polyformer import --encoding latin-1"
        if recognised
        else "Name the encoding that it was written in with --encoding."
    )
    return f"{file} is not written in {encoding.upper()}: {place} holds {content}. {remedy}"


def _recognise_encoding(head: bytes, path: Path) -> str:
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return encoding
    start = head[:1000]
    zeros = start[::2].count(0), start[1::2].count(0)
    if max(zeros) > len(start) // 4:
        guess = "utf-16-le" if zeros[1] > zeros[0] else "utf-16-be"
        raise InvalidData(
            f"'{path}' looks like UTF-16 without a mark that says so. Read it with: "
            f"polyformer import --encoding {guess}"
        )
    return "utf-8"


def _delimiter(lines: Sequence[str]) -> str:
    """A tab, a semicolon that every line has as often as the first, a comma, or a space."""
    first = lines[0]
    if "\t" in first:
        return "\t"
    count = first.count(";")
    if count and all(line.count(";") == count for line in lines[:20] if line.strip()):
        return ";"
    return next((mark for mark in (",", ";", " ") if mark in first), ",")


def _first_with_commas(header: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[str | None, str, bool]:
    """The first column whose numbers all have commas or are whole, one number, and whether commas may group digits.

    >>> _first_with_commas(["id", "x"], [["1", "3,14"], ["2", "2"]])
    ('x', '3,14', False)
    """
    for i, column in enumerate(header):
        cells = [row[i].strip() for row in rows if i < len(row) and row[i].strip()]
        numbers_with_comma = [match for match in map(_WITH_COMMA.fullmatch, cells) if match]
        if numbers_with_comma and all(_WITH_COMMA.fullmatch(cell) or _WHOLE.fullmatch(cell) for cell in cells):
            return column, numbers_with_comma[0][0], all(len(match[1]) == 3 for match in numbers_with_comma)
    return None, "", False


def _remedy(kind: str, value: str) -> str:
    if kind.startswith(("int", "uint")):
        if _WHOLE.fullmatch(value) and len(value.lstrip("+-")) > _LONGEST_INTEGER:
            return "has too many digits for a whole number. Read ids as text with --id-type string."
        return "is no whole number. Write ids alike in both tables, or read them as text with --id-type string."
    if _WITH_COMMA.fullmatch(value):
        return "is no number with a decimal point. If it has a decimal comma, import with --decimal ,"
    return f"cannot be read as {'a number' if kind in ('float', 'double') else kind}. Correct it."


def _is_number(text: str, delimiter: str) -> bool:
    text = text.strip().strip('"')
    try:
        float(text if delimiter == "," else text.replace(",", "."))
    except ValueError:
        return False
    return True
