"""``.npz`` files: named arrays in a zip archive, read whole or piece by piece, never unpickled."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from polyformer.files.guard import RESTORE, open_regular, reading
from polyformer.files.npy import NpyHeader, native, read_npy_header
from polyformer.files.whole import write_whole
from polyformer.limits import INFLATION, check_fits, require_room

if TYPE_CHECKING:
    import scipy.sparse as sp

__all__ = ["NpzFile", "NpzMember", "read_npz", "read_sparse", "write_npz", "write_sparse"]

CHUNK_BYTES = 64 << 20
_READ_BYTES = 1 << 20
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_SPARSE_PARTS = ("data", "indices", "indptr", "row", "col", "offsets")
_SPARSE_FORMATS = ("csr", "csc", "coo", "dia", "bsr")


class NpzFile:
    """An open npz file: the names of its arrays, and each array when it is asked for. Stands inside :func:`reading`.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "a.npz"
        >>> write_npz(path, {"x": np.arange(3)})
        >>> with NpzFile(path) as arrays:
        ...     arrays.names, arrays["x"].tolist()
        (['x'], [0, 1, 2])
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open_regular(path)
        try:
            self._archive = zipfile.ZipFile(self._file)
            self._members = {info.filename.removesuffix(".npy"): info for info in self._archive.infolist()}
        except BaseException:
            self._file.close()
            raise

    @property
    def names(self) -> list[str]:
        """Names of the arrays."""
        return list(self._members)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def __getitem__(self, name: str) -> np.ndarray:
        """An array in memory, in the byte order of this machine."""
        with self.open(name) as stream:
            header = self.header(name, stream)
            require_room(header.num_bytes, f"'{name}' of '{self.path}'")
            values = _take(stream, header.num_bytes // header.dtype.itemsize, header.dtype, name)
            if stream.read(1):  # the archive's checksum is compared at the end of the member
                raise ValueError(f"'{name}' goes on after its numbers")
        return native(values.reshape(header.shape, order="F" if header.fortran_order else "C"))

    def header(self, name: str, stream: IO[bytes]) -> NpyHeader:
        """The header of an array whose stream is at its beginning, after seeing that its numbers can be there."""
        try:
            header = read_npy_header(stream)
        except ValueError as error:
            raise ValueError(f"'{name}': {error}") from None
        check_fits(header.shape, header.dtype, self._room(name) - header.offset, f"'{name}'")
        return header

    def _room(self, name: str) -> int:
        """Bytes that an array can have: what the archive claims, but no more than its packed bytes can unfold to."""
        info = self._members[name]
        if info.compress_type == zipfile.ZIP_STORED:
            return min(info.file_size, info.compress_size)
        return min(info.file_size, INFLATION * info.compress_size)

    def open(self, name: str) -> IO[bytes]:
        """The bytes of an array's ``.npy``."""
        info = self._members[name]  # KeyError: it has no such array
        if info.compress_type not in _COMPRESSIONS or info.flag_bits & 0x1:
            raise ValueError(f"'{name}' is packed in a way that numpy never does")
        return self._archive.open(info)

    def __enter__(self) -> NpzFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._archive.close()
        self._file.close()


def read_npz(
    path: Path, keys: Sequence[str] | None, optional: Sequence[str] = (), advice: str = RESTORE
) -> dict[str, np.ndarray]:
    """Arrays of an npz file; an optional one that is absent or no plain array is left out.

    Args:
        keys: names that must be there; None for all that are there.
    """
    with reading(path, advice), NpzFile(path) as file:
        arrays = {key: file[key] for key in (file.names if keys is None else keys)}
        for key in optional:
            with contextlib.suppress(KeyError, ValueError):
                arrays[key] = file[key]
    return arrays


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """What ``np.savez`` writes, whole or not at all, and without the time: the same arrays give the same bytes."""
    with write_whole(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)


def read_sparse(path: Path, advice: str = RESTORE) -> Any:
    """A sparse matrix that ``scipy.sparse.save_npz`` or :func:`write_sparse` wrote; its indices are not checked."""
    import scipy.sparse as sp

    with reading(path, advice), NpzFile(path) as file:
        kind = file["format"].item()
        kind = kind.decode("ascii") if isinstance(kind, bytes) else str(kind)
        if kind not in _SPARSE_FORMATS:
            raise ValueError(f"its format is '{kind[:20]}', none of {', '.join(_SPARSE_FORMATS)}")
        rows, columns = (int(size) for size in file["shape"])
        parts = {name: file[name] for name in _SPARSE_PARTS if name in file}
        if parts["data"].dtype.kind not in "biuf":
            raise ValueError(f"its values are {parts['data'].dtype}, not real numbers")
        if kind == "coo":
            return sp.coo_matrix((parts["data"], (parts["row"], parts["col"])), shape=(rows, columns))
        if kind == "dia":
            return sp.dia_matrix((parts["data"], parts["offsets"]), shape=(rows, columns))
        make = {"csr": sp.csr_matrix, "csc": sp.csc_matrix, "bsr": sp.bsr_matrix}[kind]
        return make((parts["data"], parts["indices"], parts["indptr"]), shape=(rows, columns))


def write_sparse(path: Path, matrix: sp.csr_matrix) -> None:
    """A CSR matrix as ``scipy.sparse.save_npz`` writes it, whole or not at all."""
    parts = {"indices": matrix.indices, "indptr": matrix.indptr, "format": np.array(b"csr")}
    write_npz(path, parts | {"shape": np.array(matrix.shape), "data": matrix.data})


@dataclass(frozen=True, eq=False)
class NpzMember:
    """One array of an npz file, read piece by piece. ``offset`` is where its numbers begin in the unpacked ``.npy``."""

    path: Path
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype
    offset: int
    advice: str = RESTORE

    @classmethod
    def open(cls, path: Path, key: str, advice: str = RESTORE) -> NpzMember:
        """Read the array's header only."""
        with reading(path, advice), NpzFile(path) as file, file.open(key) as stream:
            header = file.header(key, stream)
            if header.fortran_order:
                raise ValueError(f"'{key}' is not a plain array in row order")
            return cls(path, key, header.shape, header.dtype, header.offset, advice)

    def rows(self) -> Iterator[np.ndarray]:
        """The rows in order, in pieces of about 64 MiB."""
        width = int(np.prod(self.shape[1:]))
        step = max(1, CHUNK_BYTES // max(1, width * self.dtype.itemsize))
        with reading(self.path, self.advice), NpzFile(self.path) as file, self._stream(file, 0) as stream:
            for start in range(0, self.shape[0], step):
                count = min(step, self.shape[0] - start)
                yield self._take(stream, count * width).reshape(count, *self.shape[1:])

    def columns(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Pieces of the two rows of a (2, E) array, side by side."""
        length = self.shape[1]
        step = CHUNK_BYTES // self.dtype.itemsize
        with (
            reading(self.path, self.advice),
            NpzFile(self.path) as file,
            self._stream(file, 0) as first,
            self._stream(file, length * self.dtype.itemsize) as second,
        ):
            for start in range(0, length, step):
                count = min(step, length - start)
                yield self._take(first, count), self._take(second, count)

    def _stream(self, file: NpzFile, skipped: int) -> IO[bytes]:
        stream = file.open(self.key)
        stream.seek(self.offset + skipped)
        return stream

    def _take(self, stream: IO[bytes], count: int) -> np.ndarray:
        return native(_take(stream, count, self.dtype, self.key))


def _take(stream: IO[bytes], count: int, dtype: np.dtype, name: str) -> np.ndarray:
    """The next numbers of an array, in memory that may be written to."""
    values = np.empty(count, dtype)
    view, done = memoryview(values.view(np.uint8).data), 0
    while done < len(view):
        piece = stream.read(min(len(view) - done, _READ_BYTES))
        if not piece:
            raise ValueError(f"'{name}' ends too early")
        view[done : done + len(piece)] = piece
        done += len(piece)
    return values
