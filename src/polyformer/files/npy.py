"""``.npy`` files: the one reader of their headers, arrays read whole or mapped, and files written piece by piece."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np

from polyformer.errors import FileCorrupt
from polyformer.files.disk import reserve
from polyformer.files.guard import RESTORE, open_regular, reading
from polyformer.files.whole import write_whole
from polyformer.limits import array_bytes, check_fits, require_room

__all__ = [
    "NpyHeader",
    "NpyWriter",
    "create_mapped",
    "create_npy",
    "map_npy",
    "native",
    "read_npy",
    "read_npy_header",
    "write_npy",
]

_PLAIN_KINDS = "biufcUS"
_MOST_AXES = 32
_MOST_HEADER_BYTES = 10_000

# The header is the text of a dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }.
# Python 2 wrote the sizes of a shape as 3L.
_SIZE = "[0-9]{1,20}L?"
_ENTRY = re.compile(
    rf"""['"](descr|fortran_order|shape)['"]: ?"""
    rf"""('[^'\\]*'|"[^"\\]*"|True|False|\(\)|\({_SIZE},\)|\({_SIZE}(?:, ?{_SIZE})+,?\))"""
)
_HEADER = re.compile(rf"\{{(?:{_ENTRY.pattern}(?:, ?)?)*\}}\s*")


@dataclass(frozen=True, eq=False)
class NpyHeader:
    """What the header of an ``.npy`` file says; ``offset`` is where the numbers begin."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype
    offset: int

    @property
    def num_bytes(self) -> int:
        """What the numbers take."""
        return array_bytes(self.shape, self.dtype)


def read_npy_header(file: IO[bytes], *, objects: bool = False) -> NpyHeader:
    """Read the header that an open file begins with. A damaged header raises anything: callers stand inside `reading`.

    Args:
        objects: admit arrays of Python objects, whose numbers are no numbers but a pickle.
    """
    shape, fortran_order, dtype = _parse_header(_header_text(file))
    if dtype.hasobject and not objects:
        raise ValueError("it holds pickled data")
    if not dtype.hasobject and (dtype.kind not in _PLAIN_KINDS or dtype.fields is not None or dtype.itemsize == 0):
        raise ValueError(f"it holds {str(dtype)[:60]}, not plain numbers or words")
    if len(shape) > _MOST_AXES:
        raise ValueError(f"its shape {str(shape)[:60]} is impossible")
    return NpyHeader(shape, fortran_order, dtype, file.tell())


def _header_text(file: IO[bytes]) -> str:
    """The text of the header, a Python dictionary, which follows the magic bytes and its own length."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"its .npy format is {version[0]}.{version[1]}, and only 1.0 and 2.0 are read")
    size = struct.Struct("<H" if version == (1, 0) else "<I")
    (length,) = size.unpack(file.read(size.size))
    if length > _MOST_HEADER_BYTES:
        raise ValueError(f"its header claims {length} bytes, more than the {_MOST_HEADER_BYTES} that are read")
    text = file.read(length)
    if len(text) < length:
        raise ValueError("it ends inside its header")
    return text.decode("latin-1")


def _parse_header(text: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, Fortran order and type that a header names.

    numpy gives the text to ``ast.literal_eval``, which fails now and then where several threads read at once
    (CPython 3.11 counts the depth of all threads together) and admits far more than a header of plain numbers.

    >>> _parse_header("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }")
    ((3, 2), False, dtype('float32'))
    """
    if _HEADER.fullmatch(text) is None:
        raise ValueError("its header does not describe an array of plain numbers or words")
    pairs = _ENTRY.findall(text)
    kinds = {name: {"T": "flag", "F": "flag", "(": "sizes"}.get(value[0], "word") for name, value in pairs}
    if len(pairs) != 3 or kinds != {"descr": "word", "fortran_order": "flag", "shape": "sizes"}:
        raise ValueError("its header does not name a type, an order and a shape, once each")
    entries = dict(pairs)
    shape = tuple(int(size) for size in re.findall(r"[0-9]+", entries["shape"]))
    return shape, entries["fortran_order"] == "True", np.dtype(entries["descr"].strip("'\""))


def _header_of_file(file: IO[bytes]) -> NpyHeader:
    """The header of an ``.npy`` file, after seeing that all the numbers it claims are there."""
    header = read_npy_header(file)
    check_fits(header.shape, header.dtype, os.fstat(file.fileno()).st_size - header.offset)
    return header


def read_npy(path: Path, advice: str = RESTORE) -> np.ndarray:
    """An array in memory, in the byte order of this machine."""
    with reading(path, advice), open_regular(path) as file:
        header = _header_of_file(file)
        require_room(header.num_bytes, f"'{path}'")
        values = np.fromfile(file, header.dtype, header.num_bytes // header.dtype.itemsize)
        return native(values.reshape(header.shape, order="F" if header.fortran_order else "C"))


def map_npy(path: Path, advice: str = RESTORE) -> np.ndarray:
    """An array that is memory-mapped, read-only; its bytes must be in the order of this machine."""
    with reading(path, advice):
        try:
            with open_regular(path) as file:
                header = _header_of_file(file)
        except FileNotFoundError:
            raise FileCorrupt(f"'{path}' is missing from its directory. {advice}") from None
        if not header.dtype.isnative:
            raise ValueError("its bytes are in the order of another kind of machine")
        if header.num_bytes == 0:  # nothing can be mapped
            return np.empty(header.shape, header.dtype)
        order = "F" if header.fortran_order else "C"
        return np.memmap(path, header.dtype, "r", header.offset, header.shape, order)  # type: ignore[call-overload]


def native(array: np.ndarray) -> np.ndarray:
    """The same numbers in the byte order of this machine.

    >>> native(np.array([1, 2], ">i4")).dtype
    dtype('int32')
    """
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def write_npy(path: Path, array: np.ndarray) -> None:
    """Write an array whole or not at all; a mapped array is read in pieces."""
    with write_whole(path) as file:
        _write_array(file, array)


def _write_array(file: IO[bytes], array: np.ndarray) -> None:
    from polyformer.arrays import row_pieces

    _write_header(file, array.dtype, array.shape)
    pieces: Iterator[np.ndarray] = (piece for _, piece in row_pieces(array)) if array.ndim else iter([array])
    for piece in pieces:
        file.write(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)


def _write_header(file: IO[bytes], dtype: np.dtype, shape: tuple[int, ...]) -> None:
    header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def create_npy(path: Path, dtype: Any, shape: tuple[int, ...]) -> None:
    """A file of zeros whose space is on the disk already: a full disk is an error here, not when it is filled.

    It can be filled in any order, by any process.
    """
    with path.open("wb") as file:
        _write_header(file, np.dtype(dtype), shape)
        reserve(file, file.tell() + array_bytes(shape, dtype))
        os.fsync(file.fileno())


def create_mapped(path: Path, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A new file of zeros, mapped so that it can be filled; see :func:`create_npy`."""
    create_npy(path, dtype, shape)
    with open_regular(path) as file:
        offset = read_npy_header(file).offset
    return np.memmap(path, dtype, "r+", offset, shape) if array_bytes(shape, dtype) else np.empty(shape, dtype)


class NpyWriter:
    """An ``.npy`` file that grows along its first axis; its header gets the final length when it is closed.

    Args:
        path: the file, replaced if it is there.
        dtype: type of the numbers.
        tail: shape of one row, ``()`` for a vector.
    """

    def __init__(self, path: Path, dtype: Any, tail: tuple[int, ...] = ()) -> None:
        self.dtype, self.tail, self.length = np.dtype(dtype), tail, 0
        self._file = path.open("wb")
        # numpy leaves room for the first axis to grow, so the header can be written again in place.
        _write_header(self._file, self.dtype, (0, *tail))
        self._start = self._file.tell()

    def append(self, rows: np.ndarray) -> None:
        """Add rows at the end."""
        block = np.ascontiguousarray(rows, self.dtype)
        assert block.shape[1:] == self.tail, (block.shape, self.tail)
        self._file.write(block.reshape(-1).view(np.uint8).data)
        self.length += len(block)

    def __enter__(self) -> NpyWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._file.seek(0)
                _write_header(self._file, self.dtype, (self.length, *self.tail))
                assert self._file.tell() == self._start
        finally:
            self._file.close()
