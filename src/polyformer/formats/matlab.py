"""MATLAB 5 files, read by us: the reader of scipy follows damaged sizes out of the file and crashes the process.

An element is a tag of type and size and its bytes, padded to eight; small ones stand inside their tag. A variable is an
element that holds others: flags, dimensions, name, then numbers, letters, cells, or the arrays of a sparse matrix.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyformer.files import open_regular
from polyformer.graph_checks import validate_sparse
from polyformer.limits import check_unpacked, require_room

__all__ = ["matlab_variables"]

_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_LETTERS = {2: "latin1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
_MATRIX, _COMPRESSED = 14, 15
_CELL, _CHAR, _SPARSE, _NUMERIC = 1, 4, 5, range(6, 16)
_HEADER = 128
_DEEPEST = 8


def matlab_variables(path: Path, names: list[str] | None = None) -> dict[str, Any]:
    """The variables of a MATLAB 5 file by name: arrays, sparse matrices, object arrays for cells. Raises anything.

    Args:
        names: names of the variables to read; None reads no value and gives each name with None.
    """
    with open_regular(path) as file:
        require_room(path.stat().st_size, f"'{path}'")
        data = file.read()
    if len(data) < _HEADER or data[126:128] not in (b"IM", b"MI"):
        raise ValueError("it is no MATLAB 5 file")
    if data[124:126] in (b"\x00\x02", b"\x02\x00"):
        raise NotImplementedError("it is a MATLAB 7.3 file")
    order = "<" if data[126:128] == b"IM" else ">"
    variables: dict[str, Any] = {}
    for kind, content in _elements(data[_HEADER:], order):
        for inner_kind, inner in [(kind, content)] if kind != _COMPRESSED else _unpacked(content, order):
            if inner_kind == _MATRIX:
                name, value = _variable(inner, order, None if names is None else set(names))
                variables[name] = value
    return variables if names is None else {name: variables[name] for name in names}


def _unpacked(content: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """The elements inside a packed element; never unpacks more bytes than the sizes in it say."""
    stream = zlib.decompressobj()
    head = stream.decompress(content, 8)
    size = int(np.frombuffer(head[4:8], f"{order}u4")[0])
    check_unpacked(size, len(content), "a variable")
    yield from _elements(head + stream.decompress(stream.unconsumed_tail, max(1, size)), order)


def _elements(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """(type, bytes) of each element."""
    at = 0
    while at + 8 <= len(data):
        kind, size = (int(number) for number in np.frombuffer(data[at : at + 8], f"{order}u4"))
        if kind >> 16:  # a small element: size and type share four bytes
            kind, size, begin, step = kind & 0xFFFF, kind >> 16, at + 4, 8
        else:
            begin = at + 8
            step = 8 + (size if kind == _COMPRESSED else -(-size // 8) * 8)
        if begin + size > len(data) or (step == 8 and size > 4 and begin == at + 4):
            raise ValueError(f"an element claims {size:,} bytes and {len(data) - begin:,} are left")
        yield kind, data[begin : begin + size]
        at += step


def _variable(data: bytes, order: str, names: set[str] | None, depth: int = 0) -> tuple[str, Any]:
    """Name and value of a variable; the value is None unless ``names`` has the name."""
    parts = list(_elements(data, order))
    if len(parts) < 3 or len(parts[0][1]) < 8 or depth > _DEEPEST:
        raise ValueError("a variable has no name and no size")
    flags = int(np.frombuffer(parts[0][1][:4], f"{order}u4")[0])
    shape = tuple(int(size) for size in np.frombuffer(parts[1][1], f"{order}i4"))
    name, form = parts[2][1].decode("latin1"), flags & 0xFF
    if any(size < 0 for size in shape) or len(shape) < 2:
        raise ValueError(f"'{name[:40]}' has the shape {shape}")
    if depth == 0 and (names is None or name not in names):
        return name, None
    if flags & 0x800:
        raise ValueError(f"'{name[:40]}' holds complex numbers")
    return name, _value(form, shape, parts[3:], order, name, depth)


def _value(form: int, shape: tuple[int, ...], parts: list[tuple[int, bytes]], order: str, name: str, depth: int) -> Any:
    if form == _CELL:
        if len(parts) != math.prod(shape):
            raise ValueError(f"'{name[:40]}' has {len(parts):,} cells and the shape {shape}")
        cells = np.empty(len(parts), object)
        for place, (_, inner) in enumerate(parts):
            cells[place] = _variable(inner, order, None, depth + 1)[1]
        return cells.reshape(shape, order="F")
    if form == _CHAR and parts:
        return _words(parts[0], shape, order)
    if form == _SPARSE:
        return _sparse(shape, parts, order)
    if form in _NUMERIC and parts:
        return _array(parts[0], order, math.prod(shape)).reshape(shape, order="F")
    raise ValueError(f"'{name[:40]}' is of a kind that is not read")


def _array(part: tuple[int, bytes], order: str, count: int | None = None) -> np.ndarray:
    kind, content = part
    if kind not in _NUMBERS:
        raise ValueError(f"numbers of the unknown type {kind}")
    dtype = np.dtype(f"{order}{_NUMBERS[kind]}")
    if len(content) % dtype.itemsize or (count is not None and len(content) != count * dtype.itemsize):
        raise ValueError(f"{len(content):,} bytes of numbers do not fit their shape")
    return np.frombuffer(content, dtype).astype(dtype.newbyteorder("="))


def _words(part: tuple[int, bytes], shape: tuple[int, ...], order: str) -> np.ndarray:
    """Rows of letters: one word a row."""
    kind, content = part
    code = _LETTERS[kind] + (
        ("-le" if order == "<" else "-be") if _LETTERS[kind][:4] in ("utf-",) and kind != 16 else ""
    )
    letters = np.array(list(content.decode(code)), "<U1")
    if len(letters) != math.prod(shape):
        raise ValueError(f"{len(letters):,} letters do not fit the shape {shape}")
    rows = letters.reshape(shape, order="F").reshape(shape[0], -1)
    return np.array(["".join(row) for row in rows])


def _sparse(shape: tuple[int, ...], parts: list[tuple[int, bytes]], order: str) -> sp.csc_matrix:
    rows, pointers, values = (_array(part, order) for part in parts[:3])
    count = int(pointers[-1]) if len(pointers) else 0
    if not 0 <= count <= min(len(rows), len(values)):
        raise ValueError(f"a sparse matrix points to {count:,} of {len(values):,} values")
    if len(shape) != 2 or len(pointers) != shape[1] + 1:
        raise ValueError(f"a sparse matrix of shape {shape} has {len(pointers):,} pointers")
    matrix = sp.csc_matrix((values[:count], rows[:count], pointers), shape=shape)
    validate_sparse(matrix)
    return matrix
