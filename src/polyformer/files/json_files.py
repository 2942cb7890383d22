"""JSON files: read against their schema, written whole; and files of one JSON object a line."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from polyformer.errors import DataNotFound, FileCorrupt
from polyformer.files.guard import RESTORE, read_small
from polyformer.files.schema import Mismatch, Schema
from polyformer.files.whole import append_line, open_in_place, sync_directory, write_whole
from polyformer.limits import MOST_JSON_BYTES

__all__ = [
    "append_json_line",
    "check_json",
    "finite",
    "json_line",
    "parse_json",
    "read_json",
    "read_json_lines",
    "write_json",
    "write_json_lines",
]

CHECKSUM = "checksum"


def finite(value: float | None) -> float | None:
    """A score as JSON can hold it: None where it is infinite or not a number.

    >>> finite(0.5), finite(float("nan")), finite(None)
    (0.5, None, None)
    """
    return value if value is not None and math.isfinite(value) else None


def read_json(path: Path, schema: Schema) -> Any:
    """The content of a JSON file, which is what its schema says; anything else is refused with one sentence."""
    try:
        data = read_small(path, MOST_JSON_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise DataNotFound(f"'{path.parent}' is not {schema.what}: it has no {path.name}.") from None
    except (OSError, ValueError) as error:
        raise FileCorrupt(f"'{path}' cannot be read as JSON ({error}). {RESTORE}") from None
    content = parse_json(data, path)
    check_json(content, schema, path)
    return _checked(content, path) if schema.checksum else content


def parse_json(data: bytes | str, path: Path) -> Any:
    """The JSON value that stands in ``data``, which was read from ``path``."""
    try:
        if len(data) > MOST_JSON_BYTES:
            raise ValueError(f"it is longer than {MOST_JSON_BYTES:,} bytes")
        return json.loads(data if isinstance(data, str) else data.decode("utf-8"))
    except RecursionError:
        raise FileCorrupt(f"'{path}' cannot be read as JSON (it is nested too deep). {RESTORE}") from None
    except ValueError as error:  # no JSON, no UTF-8, or a number of thousands of digits
        raise FileCorrupt(f"'{path}' cannot be read as JSON ({str(error)[:200]}). {RESTORE}") from None


def check_json(content: Any, schema: Schema, path: Path) -> None:
    """Refuse what was read from ``path`` where it is not what the schema says."""
    if schema.tags and not (isinstance(content, dict) and schema.tags.items() <= content.items()):
        version = f" of format {schema.tags['format']}" if "format" in schema.tags else ""
        raise FileCorrupt(f"'{path.parent}' is not {schema.what}{version}. Make it again with this version.")
    try:
        schema.content.check(content, "")
    except Mismatch as mismatch:
        raise FileCorrupt(f"'{path}' is damaged: {mismatch}. {RESTORE}") from None


def write_json(path: Path, content: Any, schema: Schema) -> None:
    """Write readable JSON, whole or not at all; numbers must be finite, as others cannot be read by every program.

    What the schema does not allow is a fault of ours: nothing of ours may write what it would refuse to read.
    """
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    plain = json.loads(text)
    try:
        schema.content.check(plain, "")
    except Mismatch as mismatch:
        raise AssertionError(f"{path.name}: {mismatch}") from None
    if schema.checksum:
        text = json.dumps(plain | {CHECKSUM: _checksum(plain)}, indent=2, ensure_ascii=False)
    with write_whole(path) as file:
        file.write(f"{text}\n".encode())


def _checksum(content: Any) -> str:
    """A hash of a JSON value, whatever the order of its keys and the spaces between them."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _checked(content: Any, path: Path) -> Any:
    """The content without its checksum, which must fit if there is one."""
    if not isinstance(content, dict) or CHECKSUM not in content:
        return content
    plain = {name: value for name, value in content.items() if name != CHECKSUM}
    if _checksum(plain) != content[CHECKSUM]:
        raise FileCorrupt(
            f"'{path}' has changed since it was written: its checksum differs. Restore it from a copy; if you changed "
            f"it on purpose, remove its line '{CHECKSUM}'."
        )
    return plain


def read_json_lines(path: Path, schema: Schema) -> Iterator[Any]:
    """The objects of a file that grows by a line at a time; none if there is no file. A line cut off by a kill ends it.

    NaN and infinity, which earlier versions wrote, are read as None.
    """
    try:
        data = read_small(path, MOST_JSON_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, ValueError) as error:
        raise FileCorrupt(f"'{path}' cannot be read ({error}). {RESTORE}") from None
    for number, line in enumerate(data.split(b"\n"), 1):
        try:
            record = json.loads(line, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            if number > data.count(b"\n"):  # the last line, which has no end: a kill cut it off
                return
            raise FileCorrupt(f"'{path}' cannot be read in line {number}: it is no JSON. {RESTORE}") from None
        try:
            check_json(record, schema, path)
            content = _checked(record, path) if schema.checksum else record
        except FileCorrupt as error:
            raise FileCorrupt(f"Line {number}: {error}") from None
        yield content


def json_line(record: dict[str, Any], schema: Schema) -> str:
    """One line of a file that :func:`read_json_lines` reads, without its end."""
    return json.dumps(record | {CHECKSUM: _checksum(json.loads(json.dumps(record)))} if schema.checksum else record)


def write_json_lines(path: Path, records: Iterable[dict[str, Any]], schema: Schema) -> None:
    """Write a file that :func:`read_json_lines` reads, whole or not at all."""
    with write_whole(path) as file:
        for record in records:
            schema.content.check(record, path.name)
            append_line(file, json_line(record, schema))


def append_json_line(path: Path, record: dict[str, Any], schema: Schema) -> None:
    """Add a line to a file that :func:`read_json_lines` reads, made if need be, and have it on the disk.

    The file may end in a line that a kill cut off, which is removed, or in a whole line without its end, which gets
    one. The caller holds a lock that other writers of the file ask for.
    """
    schema.content.check(record, path.name)
    is_new = not path.exists()
    with open_in_place(path) as file:
        _mend_last_line(file)
        append_line(file, json_line(record, schema))
        os.fsync(file.fileno())
    if is_new:
        sync_directory(path.parent)


def _mend_last_line(file: IO[bytes]) -> None:
    """Leave the file at its end, behind the end of a line."""
    data = file.read()
    end = data.rfind(b"\n") + 1
    if end == len(data):
        return
    try:
        json.loads(data[end:])
    except (ValueError, RecursionError):
        file.seek(end)
        file.truncate()
    else:
        file.write(b"\n")
