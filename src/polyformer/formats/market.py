"""Matrix Market files, read by us: the reader of scipy follows indices out of the matrix and crashes the process."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from polyformer.files import check_gzip, open_regular, reading, require_regular
from polyformer.limits import INFLATION, check_node_count, require_room

__all__ = ["read_market"]

_LAYOUTS = ("coordinate", "array")
_FIELDS = {"real": 1, "double": 1, "integer": 1, "unsigned-integer": 1, "pattern": 0}
_SYMMETRIES = {"general": 0.0, "symmetric": 1.0, "skew-symmetric": -1.0}
_LONGEST_LINE = 10_000


def read_market(path: Path) -> sp.coo_matrix:
    """A matrix in the format of the SuiteSparse collection, plain or gzipped: real numbers or a bare pattern."""
    with reading(path):
        check_gzip(path)
        packed = path.suffix.lower() == ".gz"
        with open_regular(path) as raw, gzip.GzipFile(fileobj=raw) if packed else raw as file:
            layout, width, sign = _first_line(file.readline(_LONGEST_LINE))
            sizes = _sizes(file)
            room = (INFLATION if packed else 1) * require_regular(path)
            if layout == "array":
                return _dense(file.read(), sizes, room)
            return _entries(file.read(), sizes, width, sign, room)


def _first_line(line: bytes) -> tuple[str, int, float]:
    """The layout, how many numbers an entry has beside its two indices, and the factor of its mirror image."""
    words = line.decode("ascii", "replace").lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        raise ValueError("its first line is not that of a Matrix Market matrix")
    _, _, layout, field, symmetry = words
    if layout not in _LAYOUTS or field not in _FIELDS or symmetry not in _SYMMETRIES:
        raise ValueError(f"it holds a matrix of the kind '{' '.join(words[2:])[:60]}', which is not read")
    return layout, _FIELDS[field], _SYMMETRIES[symmetry]


def _sizes(file: gzip.GzipFile | object) -> list[int]:
    """The numbers of the first line after the comments."""
    for _ in range(100_000):
        line = file.readline(_LONGEST_LINE)  # type: ignore[union-attr]
        if not line:
            break
        if line.strip() and not line.lstrip().startswith(b"%"):
            return [int(word) for word in line.split()]
    raise ValueError("it says nowhere how large the matrix is")


def _numbers(body: bytes, count: int) -> np.ndarray:
    values = np.fromstring(body.decode("ascii"), np.float64, sep=" ")
    if len(values) != count:
        raise ValueError(f"it holds {len(values):,} numbers instead of {count:,}")
    return values


def _check_room(count: int, room: int, rows: int) -> None:
    if 2 * count > room:
        raise ValueError(f"it claims {count:,} numbers, and the file has {room:,} bytes")
    check_node_count(rows)
    require_room(40 * count, "The matrix")


def _entries(body: bytes, sizes: list[int], width: int, sign: float, room: int) -> sp.coo_matrix:
    rows, columns, entries = sizes
    each = 2 + width
    _check_room(each * entries, room, rows)
    table = _numbers(body, each * entries).reshape(entries, each)
    places = table[:, :2].astype(np.int64)
    if not np.array_equal(places, table[:, :2]) or np.any(places < 1) or np.any(places > (rows, columns)):
        raise ValueError(f"its indices must be whole numbers in 1..{rows} and 1..{columns}")
    row, column = places.T - 1
    values = table[:, 2] if width else np.ones(entries)
    if sign:
        other = row != column
        row, column = np.concatenate([row, column[other]]), np.concatenate([column, row[other]])
        values = np.concatenate([values, sign * values[other]])
    return sp.coo_matrix((values, (row, column)), shape=(rows, columns))


def _dense(body: bytes, sizes: list[int], room: int) -> sp.coo_matrix:
    rows, columns = sizes
    _check_room(rows * columns, room, rows)
    return sp.coo_matrix(_numbers(body, rows * columns).reshape(columns, rows).T)
