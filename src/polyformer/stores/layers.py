"""Rows of a token directory that changed after it was written: an append-only log of layers over ``tokens.npy``.

An update appends one record to the log: which rows changed, their tokens, and what the manifest would say now. A record
counts when its hashes fit, so a kill leaves the version before it, and one flush makes an update durable. A reader maps
the records that were there when it opened the directory; later ones do not reach it. Now and then layers are folded:
into one layer of a new log, or with ``tokens.npy`` into a new array; the manifest then names the new files.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.errors import FileCorrupt
from polyformer.files import open_in_place, open_regular, reading, reporting_io_errors
from polyformer.stores.log_checks import check_tail, parse_header

__all__ = ["LOG", "Layer", "TokenLayers", "append_layer", "layer_pieces", "read_layers"]

LOG = "changes.log"
"""The log of a directory whose manifest names no other."""

_MAGIC = b"PFLAYER1"
_HEAD = struct.Struct("<8sII")  # magic, bytes of the header, hash of the header
_ALIGN = 64
_MOST_LOOKED_UP = 1 << 24
"""Up to so many rows a table tells which are in a layer; for more it would take too much memory."""


@dataclass(frozen=True, eq=False)
class Layer:
    """One record of a log.

    Attributes:
        about: what the manifest would say of this version: ``graph``, ``structure``, ``num_rows`` and others.
        ids: (m,) rows that changed, rising.
        rows: (m, K+1, d) their tokens.
        left_ids: (q,) rows whose entries of ``left_out`` changed, rising.
        left_out: (q, K+1) float32: bounds on what was left out of each order of these rows.
        begin: the byte of the log at which ``rows`` begin.
    """

    about: dict[str, Any]
    ids: np.ndarray
    rows: np.ndarray
    left_ids: np.ndarray
    left_out: np.ndarray
    begin: int = 0


def read_layers(
    path: Path, row_shape: tuple[int, int], dtype: np.dtype[Any], *, whole: bool = False
) -> tuple[list[Layer], np.ndarray]:
    """The whole records of a log, memory-mapped, and the bytes that they take; none where there is no log.

    Only the last record can be half written, so it alone is hashed whole.

    Args:
        whole: hash every record; one that is damaged is refused.
    """
    if not path.exists():
        return [], np.empty(0, np.uint8)
    with reading(path), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        content: Any = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b""
    layers: list[Layer] = []
    at = 0
    while (header := _header(content, at, path)) is not None:
        begin = _aligned(at + _HEAD.size + header["header_bytes"])
        end = begin + header["payload_bytes"]
        following = _aligned(end)
        if following > len(content) or _header_bytes_of(header, row_shape, dtype) != header["payload_bytes"]:
            break
        last = _header(content, following, path) is None
        if (last or whole) and zlib.crc32(memoryview(content)[begin:end]) != header["payload_hash"]:
            break
        layers.append(_layer(content, begin, header, row_shape, dtype))
        at = following
    check_tail(content, at, _MAGIC, lambda place: _header(content, place, path) is not None, path)
    return layers, np.frombuffer(content, np.uint8, at)


def _header(content: Any, at: int, path: Path) -> dict[str, Any] | None:
    """The header of the record that begins at a byte; None where there is no whole one."""
    if at + _HEAD.size > len(content):
        return None
    magic, size, expected = _HEAD.unpack_from(content, at)
    text = bytes(content[at + _HEAD.size : at + _HEAD.size + size])
    if magic != _MAGIC or len(text) < size or zlib.crc32(text) != expected:
        return None
    return parse_header(text, path) | {"header_bytes": size}


def _header_bytes_of(header: dict[str, Any], row_shape: tuple[int, int], dtype: np.dtype[Any]) -> int:
    """Bytes of the four arrays of a record."""
    row = row_shape[0] * row_shape[1] * dtype.itemsize
    return int(header["rows"] * (8 + row) + header["left_rows"] * (8 + 4 * row_shape[0]))


def _layer(content: Any, begin: int, header: dict[str, Any], row_shape: tuple[int, int], dtype: np.dtype[Any]) -> Layer:
    count, left = header["rows"], header["left_rows"]
    at = begin

    def array(kind: Any, shape: tuple[int, ...]) -> np.ndarray:
        nonlocal at
        values = np.frombuffer(content, kind, int(np.prod(shape)), at).reshape(shape)
        at += values.nbytes
        return values

    # Numbers of eight bytes first, so that all are aligned.
    ids, left_ids = array(np.int64, (count,)), array(np.int64, (left,))
    left_out = array(np.float32, (left, row_shape[0]))
    first = at
    return Layer(header["about"], ids, array(dtype, (count, *row_shape)), left_ids, left_out, first)


def layer_pieces(layer: Layer) -> list[memoryview | bytes]:
    """The bytes of a record, in pieces."""
    arrays = (
        layer.ids.astype(np.int64),
        layer.left_ids.astype(np.int64),
        layer.left_out.astype(np.float32),
        layer.rows,
    )
    payload = [np.ascontiguousarray(part).reshape(-1).view(np.uint8).data for part in arrays if part.size]
    digest = 0
    for part in payload:
        digest = zlib.crc32(part, digest)
    size = sum(len(part) for part in payload)
    header = {
        "about": layer.about,
        "rows": len(layer.ids),
        "left_rows": len(layer.left_ids),
        "payload_bytes": size,
        "payload_hash": digest,
    }
    text = json.dumps(header, allow_nan=False).encode()
    head = _HEAD.pack(_MAGIC, len(text), zlib.crc32(text)) + text
    return [head + bytes(_aligned(len(head)) - len(head)), *payload, bytes(_aligned(size) - size)]


def append_layer(path: Path, layer: Layer, end: int) -> None:
    """Append a record behind the first ``end`` bytes of a log; it is on the disk when this returns.

    What stands behind ``end`` was left by a process that was killed. If writing fails the log is as it was before.
    """
    with reporting_io_errors("changed tokens", path), open_in_place(path, 0) as file:
        file.truncate(end)
        file.seek(end)
        try:
            for piece in layer_pieces(layer):
                _write_all(file.fileno(), memoryview(piece))
            os.fdatasync(file.fileno())
        except BaseException:
            file.truncate(end)
            raise


def _write_all(handle: int, data: memoryview) -> None:
    while len(data):
        data = data[os.write(handle, data) :]


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


class TokenLayers:
    """Tokens as they are stored, (n, K+1, d): an array of the first rows, and layers over it; the newest counts.

    Args:
        base: memory-mapped array.
        layers: oldest first.
        num_rows: n; rows that the base has not are in a layer.
        log: (bytes,) uint8, the records of the layers.
    """

    def __init__(self, base: np.ndarray, layers: list[Layer], num_rows: int, log: np.ndarray | None = None) -> None:
        self.base, self.layers, self.num_rows = base, layers, num_rows
        self.log = np.empty(0, np.uint8) if log is None else log
        ids = [layer.ids for layer in reversed(layers)]  # newest first: np.unique keeps the first of equal ids
        joined = np.concatenate(ids) if ids else np.empty(0, np.int64)
        self.ids, place = np.unique(joined, return_index=True)
        begins = np.cumsum([0, *(len(part) for part in ids)])
        self._layer = len(layers) - np.searchsorted(begins, place, side="right")
        self._at = place - begins[len(layers) - 1 - self._layer] if len(layers) else place
        self._lookup: np.ndarray | None = None
        if len(self.ids) and num_rows <= _MOST_LOOKED_UP:
            self._lookup = np.full(num_rows, -1, np.int32)
            self._lookup[self.ids] = np.arange(len(self.ids))
        if num_rows > len(base) and not np.array_equal(
            self.ids[np.searchsorted(self.ids, len(base)) :], np.arange(len(base), num_rows)
        ):
            raise FileCorrupt(f"The log of changed tokens has not all of the rows {len(base)} to {num_rows - 1}.")

    @property
    def shape(self) -> tuple[int, int, int]:
        """(n, K+1, d)."""
        return (self.num_rows, int(self.base.shape[1]), int(self.base.shape[2]))

    def find(self, rows: np.ndarray) -> np.ndarray:
        """Which of the rows are in a layer: their place among :attr:`ids`, or -1."""
        if len(self.ids) == 0:
            return np.full(len(rows), -1, np.int32)
        if self._lookup is not None:
            return np.asarray(self._lookup[rows])
        at = np.minimum(np.searchsorted(self.ids, rows), len(self.ids) - 1)
        return np.where(self.ids[at] == rows, at, -1)

    @property
    def begins(self) -> np.ndarray:
        """For each of :attr:`ids` the byte of :attr:`log` at which its row begins."""
        first = np.array([layer.begin for layer in self.layers], np.int64)
        row_bytes = self.base.itemsize * self.shape[1] * self.shape[2]
        return np.asarray(first[self._layer] + self._at * row_bytes) if len(self.ids) else np.empty(0, np.int64)

    def fill(self, places: np.ndarray, out: np.ndarray) -> None:
        """Copy rows at places among :attr:`ids`, those below 0 left alone: (n,) -> (n, k, d), k ≤ K+1 orders."""
        inside = np.flatnonzero(places >= 0)
        for number in np.unique(self._layer[places[inside]]):
            part = inside[self._layer[places[inside]] == number]
            out[part] = self.layers[number].rows[self._at[places[part]], : out.shape[1]]

    def take(self, rows: np.ndarray, num_tokens: int | None = None) -> np.ndarray:
        """The first ``num_tokens`` orders of rows, all by default, as they are stored: (B,) -> (B, k, d)."""
        places = self.find(rows)
        orders = self.shape[1] if num_tokens is None else num_tokens
        plain = np.flatnonzero(places < 0)
        if len(plain) == len(rows):
            return np.array(self.base[rows, :orders])
        out = np.empty((len(rows), orders, self.shape[2]), self.base.dtype)
        out[plain] = self.base[rows[plain], :orders]
        self.fill(places, out)
        return out

    def pieces(self, rows_at_once: int) -> Iterator[np.ndarray]:
        """All rows in order."""
        for start in range(0, self.num_rows, rows_at_once):
            yield self.take(np.arange(start, min(self.num_rows, start + rows_at_once)))

    def left_out(self, num_rows: int) -> np.ndarray:
        """(num_rows, K+1) float32: bounds on what was left out of each row and order, zero where nothing was."""
        values = np.zeros((num_rows, self.shape[1]), np.float32)
        for layer in self.layers:
            values[layer.left_ids] = layer.left_out
        return values
