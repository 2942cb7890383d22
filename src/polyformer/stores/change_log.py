"""The log of a token directory: tokens that changed after ``tokens.npy`` was written, one record for each update.

A record holds, order by order, which nodes got other tokens and these tokens, and what the manifest would say now. It
counts when its hashes fit, so a kill leaves the version before it, and one flush makes an update durable.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.errors import FileCorrupt
from polyformer.files import open_in_place, open_regular, reading, reporting_io_errors
from polyformer.stores.log_checks import check_tail, parse_header

__all__ = ["AGAIN", "LOG", "Record", "append_record", "read_records"]

LOG = "changes.log"
"""The log of a directory whose manifest names no other."""

AGAIN = "Make the tokens again."
"""What to do about tokens that cannot be read."""

_MAGIC = b"PFLAYER2"
_HEAD = struct.Struct("<8sII")  # magic, bytes of the header, hash of the header
_ALIGN = 64
_SMALL_BYTES = 4 << 20
"""A log of at most so many bytes is read whole in a few milliseconds."""


@dataclass(frozen=True, eq=False)
class Record:
    """One update of a token directory of K+1 orders.

    Attributes:
        about: what the manifest would say of this version: ``graph``, ``structure``, ``num_rows`` and others.
        ids: for each order the (m_k,) nodes whose tokens changed.
        tokens: for each order their (m_k, d) tokens.
        left_ids: for each order the (q_k,) nodes whose bound changed.
        left_out: for each order the (q_k,) float32 bounds on what was left out of these tokens.
        begin: where ``tokens`` begin in the log, counted in rows of d numbers.
    """

    about: dict[str, Any]
    ids: list[np.ndarray]
    tokens: list[np.ndarray]
    left_ids: list[np.ndarray]
    left_out: list[np.ndarray]
    begin: int = 0

    @property
    def num_tokens(self) -> int:
        """How many tokens changed, all orders together."""
        return sum(len(part) for part in self.ids)


def read_records(
    path: Path, row_shape: tuple[int, int], dtype: np.dtype[Any], *, whole: bool = False
) -> tuple[list[Record], np.ndarray]:
    """The whole records of a log, memory-mapped, and the bytes that they take; none where there is no log.

    Every record of a small log is hashed whole. Of a large log the last record alone is: only it can be half written.

    Args:
        row_shape: (K+1, d).
        dtype: of the tokens.
        whole: hash every record; a damaged one is refused.
    """
    if not path.exists():
        return [], np.empty(0, np.uint8)
    with reading(path), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        content: Any = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b""
    whole = whole or size <= _SMALL_BYTES
    records: list[Record] = []
    at = 0
    header = _header(content, 0, path)
    while header is not None:
        begin = _aligned(at + _HEAD.size + header["header_bytes"], _ALIGN)
        if not all(_are_counts(header.get(name), row_shape[0]) for name in ("rows", "left_rows")):
            raise FileCorrupt(f"'{path}' is a log of tokens with other orders than 0 to {row_shape[0] - 1}. {AGAIN}")
        sizes = _sizes(header, begin, row_shape, dtype)
        end = begin + sum(sizes)
        following = _aligned(end, _ALIGN)
        if following > len(content):
            break
        after = _header(content, following, path)
        if (after is None or whole) and zlib.crc32(memoryview(content)[begin:end]) != header["payload_hash"]:
            break
        records.append(_record(content, begin, header, sizes, row_shape[1], dtype))
        at, header = following, after
    check_tail(content, at, _MAGIC, lambda place: _header(content, place, path) is not None, path)
    return records, np.frombuffer(content, np.uint8, at)


def _are_counts(value: Any, length: int) -> bool:
    """Whether a header holds as many counts as there are orders."""
    return isinstance(value, list) and len(value) == length and all(type(n) is int and n >= 0 for n in value)


def _header(content: Any, at: int, path: Path) -> dict[str, Any] | None:
    """The header of the record that begins at a byte; None where there is no whole one."""
    if at + _HEAD.size > len(content):
        return None
    magic, size, expected = _HEAD.unpack_from(content, at)
    text = bytes(content[at + _HEAD.size : at + _HEAD.size + size])
    if magic != _MAGIC or len(text) < size or zlib.crc32(text) != expected:
        return None
    return parse_header(text, path) | {"header_bytes": size}


def _sizes(header: dict[str, Any], begin: int, row_shape: tuple[int, int], dtype: np.dtype[Any]) -> list[int]:
    """Bytes of the parts of a record: ids, ids of bounds, bounds, zeros up to a whole row of the log, tokens."""
    count, left = sum(header["rows"]), sum(header["left_rows"])
    row_bytes = row_shape[1] * dtype.itemsize
    numbers = 8 * count + 12 * left
    return [8 * count, 8 * left, 4 * left, _gap(begin + numbers, row_bytes), count * row_bytes]


def _record(
    content: Any,
    begin: int,
    header: dict[str, Any],
    sizes: list[int],
    width: int,
    dtype: np.dtype[Any],
) -> Record:
    starts = begin + np.cumsum([0, *sizes])
    kinds = (np.int64, np.int64, np.float32)
    ids, left_ids, left_out = (
        np.frombuffer(content, kind, size // np.dtype(kind).itemsize, start)
        for kind, size, start in zip(kinds, sizes, starts, strict=False)
    )
    count = sum(header["rows"])
    tokens = np.frombuffer(content, dtype, count * width, starts[4]).reshape(count, width)
    by_order, left_by_order = np.cumsum(header["rows"])[:-1], np.cumsum(header["left_rows"])[:-1]
    return Record(
        header["about"],
        np.split(ids, by_order),
        np.split(tokens, by_order),
        np.split(left_ids, left_by_order),
        np.split(left_out, left_by_order),
        int(starts[4]) // (width * dtype.itemsize),
    )


def append_record(path: Path, record: Record, end: int) -> None:
    """Append a record behind the first ``end`` bytes of a log; it is on the disk when this returns.

    What stands behind ``end`` was left by a process that was killed. If writing fails the log is as it was before.
    """
    with reporting_io_errors("changed tokens", path), open_in_place(path, 0) as file:
        file.truncate(end)
        file.seek(end)
        try:
            for piece in _pieces(record, end):
                _write_all(file.fileno(), memoryview(piece))
            os.fdatasync(file.fileno())
        except BaseException:
            file.truncate(end)
            raise


def _pieces(record: Record, at: int) -> list[memoryview | bytes]:
    """The bytes of a record that begins at a byte of the log, in pieces."""
    numbers = [np.asarray(part, np.int64) for part in (*record.ids, *record.left_ids)]
    numbers += [np.asarray(part, np.float32) for part in record.left_out]
    tokens = [np.ascontiguousarray(part) for part in record.tokens]
    row_bytes = tokens[0].shape[1] * tokens[0].itemsize
    plain = [part.reshape(-1).view(np.uint8).data for part in (*numbers, *tokens) if part.size]
    bytes_of_numbers = sum(part.nbytes for part in numbers)
    header = {
        "about": record.about,
        "rows": [len(part) for part in record.ids],
        "left_rows": [len(part) for part in record.left_ids],
        "payload_hash": 0xFFFFFFFF,  # as long as any other hash
    }
    head_bytes = _HEAD.size + len(_text(header))
    begin = _aligned(at + head_bytes, _ALIGN)
    gap = bytes(_gap(begin + bytes_of_numbers, row_bytes))
    filled = sum(part.size > 0 for part in numbers)
    payload: list[memoryview | bytes] = [*plain[:filled], gap, *plain[filled:]]
    digest = 0
    for part in payload:
        digest = zlib.crc32(part, digest)
    text = _text(header | {"payload_hash": digest})
    head = _HEAD.pack(_MAGIC, len(text), zlib.crc32(text)) + text
    end = begin + sum(len(part) for part in payload)
    return [head + bytes(begin - at - len(head)), *payload, bytes(_aligned(end, _ALIGN) - end)]


def _text(header: dict[str, Any]) -> bytes:
    """A header whose length does not depend on the hash in it."""
    hash_of_payload = header["payload_hash"]
    text = json.dumps(header, allow_nan=False).encode()
    return text + b" " * (len(str(0xFFFFFFFF)) - len(str(hash_of_payload)))


def _write_all(handle: int, data: memoryview) -> None:
    while len(data):
        data = data[os.write(handle, data) :]


def _aligned(size: int, unit: int) -> int:
    return size + _gap(size, unit)


def _gap(size: int, unit: int) -> int:
    return -size % unit
