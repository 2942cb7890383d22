"""Kinds of damage that know the format: keys that stand twice, other types of columns, rolled arrays, other tensors.

Each takes a generator and the bytes of a file, and gives other bytes; a file of another format gets a flipped bit. What
comes out can often be read: the question is what the reader does with content that nobody meant.
"""

from __future__ import annotations

import io
import json
import pickle
import random
import re
import warnings
import zipfile
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.io
import scipy.sparse as sp
import torch

__all__ = ["STRUCTURED_KINDS", "kind_for"]

Random = random.Random

_TEXTS = (
    "\ud800",
    "\u0000",
    "\u202e",
    "😀",
    "ﬀ",
    "a\nb",
    "../x",
    "/dev/zero",
    "CON",
    "=1+1",
    "%s{0}",
    "<b>",
    "é" * 300,
)
_WORDS = ("NaN", "Infinity", "-Infinity", "1e999", "-0.0", "9007199254740993", "1E3", "true", "null", '"1"', "[1]")
_CELLS = (
    *("nan", "inf", "-inf", "1e400", "-0", "0x10", "1_000", "１２", "٣", "", " ", " 1 ", "1.0", "0001", "-1", "1e3"),
    *("2147483648", "9223372036854775808", "99999999999999999999", "2024-01-31", "😀", "\u202e1", "NULL", "None"),
    *(
        '"',
        '""',
        '"a""b"',
        "'",
        "a,b",
        '"a,b"',
        '"a\nb"',
        "a;b",
        "a\tb",
        "\x00",
        "True",
        "x" * 70_000,
        "1 2 3",
        "[1, 2]",
    ),
)


def repeat_key(rng: Random, data: bytes) -> bytes:
    """A key of a JSON object stands twice, with two values; parsers differ in which they take."""
    places = [match.span() for match in re.finditer(rb'"[^"\\]{1,40}": ?(?:-?[\d.]+|"[^"\\]*"|true|false|null)', data)]
    if not places:
        return flip(rng, data)
    begin, end = rng.choice(places)
    key = data[begin : data.index(b":", begin)]
    again = (
        key + b": " + rng.choice((b"0", b"1", b"-1", b"null", b'"x"', b"[]", b"{}", data[begin:end].split(b":", 1)[1]))
    )
    first, second = rng.sample((data[begin:end], again), 2)
    return data[:begin] + first + b", " + second + data[end:]


def odd_value(rng: Random, data: bytes) -> bytes:
    """A number or text of a JSON file becomes what JSON allows and few expect; the hash of the whole goes."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return change_cell(rng, data)
    if isinstance(content, dict):
        content.pop("checksum", None)
    mark = "@mark@"
    place: Any = content
    while isinstance(place, dict | list) and place:
        key = rng.choice(list(place) if isinstance(place, dict) else list(range(len(place))))
        if isinstance(place[key], dict | list) and place[key] and rng.random() < 0.8:
            place = place[key]
            continue
        if isinstance(place, dict) and rng.random() < 0.1:
            place[rng.choice(_TEXTS)] = place.pop(key)
            return json.dumps(content).encode()
        place[key] = mark
        break
    value = json.dumps(rng.choice(_TEXTS)) if rng.random() < 0.5 else rng.choice(_WORDS)
    return json.dumps(content).replace(f'"{mark}"', value).encode()


def change_elements(rng: Random, data: bytes) -> bytes:
    """The numbers of an ``.npy`` rolled, reversed, sorted, shuffled or made extreme, under a header that still fits."""
    array = _array(data)
    if array is None or not array.size:
        return flip(rng, data)
    flat = array.reshape(-1)
    kind = rng.randrange(8)
    if kind < 4:
        shuffled = np.random.default_rng(kind).permutation(flat)
        array = (np.roll(flat, 1), flat[::-1], np.sort(flat), shuffled)[kind].reshape(array.shape)
    elif kind == 4:
        array = np.concatenate([array, array[:1]]) if array.ndim else array
    elif kind == 5:
        array = array[:-1] if array.ndim else array
    else:
        changed = flat.copy()
        changed[[rng.randrange(len(flat)) for _ in range(rng.choice((1, 1, 5)))]] = _extreme(rng, array)
        array = changed.reshape(array.shape)
    return _npy(array)


def _array(data: bytes) -> np.ndarray | None:
    """The array of an ``.npy``; None if there is none."""
    try:
        return np.asarray(np.lib.format.read_array(io.BytesIO(data), allow_pickle=False))
    except Exception:  # an earlier change may have left anything
        return None


def _extreme(rng: Random, array: np.ndarray) -> Any:
    if array.dtype.kind == "f":
        return rng.choice((np.nan, np.inf, -np.inf, np.finfo(array.dtype).max, np.finfo(array.dtype).tiny, -0.0, 1e30))
    if array.dtype.kind in "iu":
        bounds = np.iinfo(array.dtype)
        return rng.choice((bounds.min, bounds.max, 0, array.size, min(bounds.max, 2**31 - 1)))
    return array.flat[rng.randrange(array.size)] if array.dtype.kind != "b" else rng.random() < 0.5


def _npy(array: np.ndarray) -> bytes:
    target = io.BytesIO()
    np.save(target, array, allow_pickle=False)
    return target.getvalue()


def change_type(rng: Random, data: bytes) -> bytes:
    """An ``.npy`` of the same shape, and of another type: converted, not relabelled."""
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _npy(
                np.asarray(
                    array.astype(rng.choice(("f2", "f4", ">f8", "i1", "u8", ">i8", "c16", "?", "S3", "U9", "g")))
                )
            )
    except Exception:
        return flip(rng, data)


def change_lines(rng: Random, data: bytes) -> bytes:
    """Lines of a text twice, gone, in another order, without header, empty, or ended in another way."""
    lines = data.split(b"\n")
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.randrange(9)
    if kind == 0:
        lines[at:at] = [lines[at]] * rng.choice((1, 1, 1000))
    elif kind == 1:
        del lines[at]
    elif kind == 2:
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 3:
        del lines[0]
    elif kind == 4:
        lines[at:at] = [b""] * rng.choice((1, 3, 500))
    elif kind == 5:
        return b"\r".join(lines) if rng.random() < 0.3 else b"\r\n".join(lines)
    elif kind == 6:
        lines[at:at] = [lines[0]]
    elif kind == 7:
        return b"\n".join(lines[:1])
    else:
        lines[at] = rng.choice((b"#" + lines[at], b"\t" + lines[at], lines[at] + b"\\", lines[at][::-1], lines[at] * 2))
    return b"\n".join(lines)


def change_cell(rng: Random, data: bytes) -> bytes:
    """A cell of a text table becomes another text, goes, or gets a neighbour."""
    places = [match.span() for match in re.finditer(rb"[^,;\t\r\n]+", data[:100_000])]
    if not places:
        return flip(rng, data)
    begin, end = rng.choice(places)
    cell = rng.choice(_CELLS).encode("utf-8", "surrogatepass")
    kind = rng.randrange(6)
    if kind == 0:
        return data[:begin] + data[min(end + 1, len(data)) :]
    if kind == 1:
        return data[:end] + b"," + cell + data[end:]
    return data[:begin] + cell + data[end:]


def cut_at_64(rng: Random, data: bytes) -> bytes:
    """The file ends at a multiple of 64 bytes, as the blocks of formats do."""
    return data[: 64 * rng.randrange(len(data) // 64 + 1)]


def change_archive(rng: Random, data: bytes) -> bytes:
    """A zip archive with a member twice, members of odd names, or in other packings, or with text around it."""
    try:
        source = zipfile.ZipFile(io.BytesIO(data))
        members = [(info.filename, source.read(info)) for info in source.infolist()]
        at = rng.randrange(len(members))
    except (zipfile.BadZipFile, ValueError, RuntimeError, NotImplementedError, OSError, EOFError):
        return flip(rng, data)
    name, content = members[at]
    kind = rng.randrange(5)
    if kind == 0:
        members.insert(rng.randrange(len(members) + 1), (name, rng.choice(members)[1]))
    elif kind == 1:
        odd = (
            f"../{name}",
            f"/{name}",
            name.upper(),
            f"{name}.npy",
            " ",
            "x" * 60_000,
            f"{PurePosixPath(name).stem}",
            f"{name}/",
        )
        members[at] = (rng.choice(odd), content)
    elif kind == 2:
        members.append((rng.choice(("extra.npy", "x", "data.pkl", "labels.npy")), rng.choice(members)[1]))
    packing = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    target = io.BytesIO(rng.choice((b"", b"", b"text before")) if kind == 3 else b"")
    target.seek(0, io.SEEK_END)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of members that stand twice
        with zipfile.ZipFile(target, "a", packing) as archive:
            for member, text in members:
                archive.writestr(member, text)
            if kind == 4:
                archive.comment = b"c" * rng.choice((1, 65_535))
    return target.getvalue()


def change_tensors(rng: Random, data: bytes) -> bytes:
    """The header of a safetensors file with other types, shapes and places, and a length that fits."""
    size = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + size])
        names = [name for name in header if name != "__metadata__"]
        about = header[rng.choice(names)]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return flip(rng, data)
    kind = rng.randrange(6)
    if kind == 0:
        about["dtype"] = rng.choice(("F64", "F16", "BF16", "I8", "BOOL", "U64", "F8_E4M3", "x", "", None))
    elif kind == 1:
        about["shape"] = rng.choice(
            ([], [0], [-1], [2**63], [2**32, 2**32], [1, *about["shape"]], about["shape"][::-1], "x")
        )
    elif kind == 2:
        begin, end = about["data_offsets"]
        about["data_offsets"] = rng.choice(
            ([end, begin], [0, end - begin], [begin, 2**63], [-1, end], [begin + 1, end + 1], [0, 0])
        )
    elif kind == 3:
        first, second = rng.choice(names), rng.choice(names)
        header[first], header[second] = header[second], header[first]
    elif kind == 4:
        header[rng.choice(_TEXTS[1:])] = header.pop(rng.choice(names))
    else:
        header["__metadata__"] = rng.choice(
            ({}, None, {"polyformer": "{}"}, {"polyformer": "x"}, {"polyformer": 1}, [])
        )
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


def change_column(rng: Random, data: bytes) -> bytes:
    """A Parquet table with a column of another type, a name that stands twice, no rows, or rows twice."""
    try:
        table = pq.read_table(io.BytesIO(data))
    except Exception:
        return flip(rng, data)
    at, count = rng.randrange(table.num_columns), table.num_rows
    field, kind = table.column_names[at], rng.randrange(10)
    if kind == 0:
        table = table.append_column(field, rng.choice(table.columns))
    elif kind == 1:
        table = table.slice(0, rng.choice((0, 1)))
    elif kind == 2:
        table = pa.concat_tables([table, table])
    elif kind == 3:
        table = table.remove_column(at)
    else:
        table = table.set_column(at, rng.choice((field, field, "", "label", "x\u0000", "é")), _column(rng, count))
    target = io.BytesIO()
    pq.write_table(table, target, compression=rng.choice(("none", "snappy", "zstd", "gzip")))
    return target.getvalue()


def _column(rng: Random, count: int) -> pa.Array:
    """A column of so many rows and of any type."""
    numbers = list(range(count))
    columns: tuple[Callable[[], pa.Array], ...] = (
        lambda: pa.nulls(count),
        lambda: pa.array([True] * count),
        lambda: pa.array([b"\xff"] * count),
        lambda: pa.array([str(i) for i in numbers]).dictionary_encode(),
        lambda: pa.array([[1.0] * (i % 3) for i in numbers]),
        lambda: pa.array([{"a": i} for i in numbers], pa.struct([("a", pa.int64())])),
        lambda: pa.array(numbers, pa.timestamp("ns")),
        lambda: pa.array(numbers, pa.duration("s")),
        lambda: pa.array(numbers, pa.date32()),
        lambda: pa.array(numbers, pa.time64("us")),
        lambda: pa.array(numbers).cast(pa.decimal128(38, 5)),
        lambda: pa.array([2**64 - 1 - i for i in numbers], pa.uint64()),
        lambda: pa.array([float("nan")] * count),
        lambda: pa.array([float("inf")] * count, pa.float32()),
        lambda: pa.array([1e308 if i % 2 else -1e308 for i in numbers]),
        lambda: pa.array([None if i % 2 else i for i in numbers], pa.int64()),
        lambda: pa.array(np.full(count, 0.5, np.float16)),
        lambda: pa.array([[[1]]] * count),
        lambda: pa.array([[("k", 1)]] * count, pa.map_(pa.string(), pa.int64())),
        lambda: pa.array(["é" * (i % 5) for i in numbers], pa.large_string()),
        lambda: pa.array([[1.0, 2.0]] * count, pa.list_(pa.float64(), 2)),
        lambda: pa.array([[1.0, None]] * count),
    )
    return rng.choice(columns)()


def change_matlab(rng: Random, data: bytes) -> bytes:
    """Another MATLAB file, with a variable of another kind or under another name; scipy cannot read damaged ones."""
    matrix = sp.random(30, 30, 0.1, "csc", np.float64, 0)
    content: dict[str, Any] = {"A": matrix, "x": np.ones((30, 2)), "label": np.arange(30) % 2}
    key = rng.choice(sorted(content))
    cells = np.empty((1, 2), object)
    cells[:] = [[1, "x"]]
    values: tuple[Any, ...] = (
        *(cells, "text", {"a": 1, "b": "x"}, 1j, np.zeros((0, 0)), np.ones((2, 3, 4)), np.array(["a", "bb"]), np.nan),
        *(np.full((30, 1), np.inf), np.arange(30, dtype=np.int8)[:, None] - 1, matrix, matrix.astype(bool), -matrix),
        *(matrix * 1j, matrix[:7], np.full((30, 30), 2.0), np.arange(30)[:, None] * 10**15, np.zeros((30, 2), bool)),
    )
    if rng.random() < 0.8:
        content[key] = rng.choice(values)
    else:
        content[rng.choice(("Problem", "network", "local_info", "B", "edge_index"))] = content.pop(key)
    target = io.BytesIO()
    scipy.io.savemat(target, content, do_compression=rng.random() < 0.5)
    return target.getvalue()


def change_torch(rng: Random, data: bytes) -> bytes:
    """A torch file with a value of another kind, more values, or another thing at its top."""
    try:
        content = torch.load(io.BytesIO(data), weights_only=True)
        key = rng.choice(sorted(content))
    except Exception:
        return flip(rng, data)
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values: tuple[Any, ...] = (
            *(edges, -edges, edges.float(), edges.bool(), edges.T, edges.reshape(1, 2, 3), edges * 2**40, edges.half()),
            *(
                torch.eye(30).to_sparse(),
                torch.eye(30).to_sparse_csr(),
                torch.full((30, 2), torch.nan),
                torch.tensor(3),
            ),
            *(torch.ones(30, 2, dtype=torch.complex64), torch.ones(30, 2, dtype=torch.bfloat16), torch.empty(0)),
            *(
                torch.nn.Parameter(torch.ones(30)),
                torch.ones(30, 0),
                torch.ones(1).expand(30, 2),
                torch.zeros(30).bool(),
            ),
            *(None, 3, -1, 1.5, "x", [1, 2], [[0, 1], [1, 2]], {"a": 1}, {1: 2}, (1, 2), True, 10**30, float("nan")),
        )
        if rng.random() < 0.8:
            content[rng.choice((key, key, key, "edge_attr", "train_mask", "num_nodes", "edge_weight"))] = rng.choice(
                values
            )
        elif rng.random() < 0.5:
            content = rng.choice(([content], (content, None), edges, {}, [], None, {1: content}, {"data": content}))
        else:
            del content[key]
        target = io.BytesIO()
        torch.save(content, target, _use_new_zipfile_serialization=rng.random() < 0.9)
    return target.getvalue()


def change_pickle(rng: Random, data: bytes) -> bytes:
    """A pickle of something else, harmless to write and hard to walk through."""
    if data[:1] != b"\x80" and not data.startswith((b"(", b"c", b"]")):
        return flip(rng, data)
    loop: list[Any] = []
    loop.append(loop)
    tower: list[Any] = [0]
    for _ in range(60):
        tower = [tower, tower]
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    matrix = sp.random(30, 5, 0.3, "csr", np.float64, 0)
    broken = sp.random(30, 5, 0.3, "csr", np.float64, 0)
    broken.indices = broken.indices + rng.choice((5, -9, 2**30))
    values: tuple[Any, ...] = (
        *(
            loop,
            tower,
            deep,
            {},
            {0: [1]},
            {0: loop},
            {0: 0},
            {"a": [1]},
            {-1: [5]},
            {0: [10**30]},
            {0: ["x"]},
            {0: {1: 2}},
        ),
        *(None, 1, "x", b"x", 1.5, [], (), {1, 2}, np.zeros(3), np.zeros((30, 5)), np.array([None, 1]), np.float64(1)),
        *(matrix, broken, matrix.tocoo(), matrix.astype(bool), np.zeros((30, 5), complex), np.array(["a"]), slice(1)),
        *(
            np.zeros((30, 5), ">f8"),
            np.zeros(3, "M8[s]"),
            np.zeros(2, "i4,f4"),
            np.full((30, 3), np.nan),
            Ellipsis,
            int,
        ),
    )
    return pickle.dumps(rng.choice(values), protocol=rng.choice((0, 2, 4)))


def flip(rng: Random, data: bytes) -> bytes:
    """What is left where a file is not of the kind's format."""
    changed = bytearray(data)
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


STRUCTURED_KINDS: dict[str, Callable[[Random, bytes], bytes]] = {
    function.__name__: function
    for function in (
        repeat_key,
        odd_value,
        change_elements,
        change_type,
        change_lines,
        change_cell,
        cut_at_64,
        change_archive,
        change_tensors,
        change_column,
        change_matlab,
        change_torch,
        change_pickle,
    )
}

_BY_ENDING = {
    ".json": ("repeat_key", "odd_value"),
    ".jsonl": ("repeat_key", "odd_value", "change_lines"),
    ".npz": ("change_archive", "change_elements", "change_type"),
    ".npy": ("change_elements", "change_type"),
    ".csv": ("change_lines", "change_cell"),
    ".gz": ("change_lines", "change_cell"),
    ".txt": ("change_lines", "change_cell"),
    ".mtx": ("change_lines", "change_cell"),
    ".toml": ("change_lines", "odd_value"),
    ".safetensors": ("change_tensors",),
    ".parquet": ("change_column",),
    ".mat": ("change_matlab",),
    ".pt": ("change_torch", "change_archive"),
}


def kind_for(rng: Random, name: str, data: bytes) -> str:
    """A kind that fits the format of a file."""
    if data[:6] == b"\x93NUMPY":
        return rng.choice(("change_elements", "change_type"))
    if data[:2] == b"\x80\x02" or name.startswith("ind."):
        return rng.choice(("change_pickle", "change_cell"))
    return rng.choice((*_BY_ENDING.get(PurePosixPath(name).suffix, ("change_lines", "change_cell")), "cut_at_64"))
