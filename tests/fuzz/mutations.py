"""Kinds of damage: what is done to the bytes of a file, to what a packed file holds, and to the files of a folder.

Every function takes a generator and gives the changed content, so that a seed names an input for ever.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fuzz.folders import damage_folder
from tests.fuzz.structured import STRUCTURED_KINDS, kind_for

__all__ = ["BYTE_KINDS", "damage", "fresh_copy"]

Random = random.Random
_NUMBERS = ("-1", "0", "1e400", "NaN", "99999999999999999999", "2147483648", "1.5", "", "x", "9" * 5000)
_EXTREMES = (0, 1, 0x7F, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**31, 2**63 - 1, 2**64 - 1, 10**12)
_VALUES: tuple[Any, ...] = (None, True, -1, 0, 1.5, 10**30, "", "x" * 3000, "ü\u0000", [], [[]], {}, {"a": 1}, [1, "b"])
_ODD_TEXT = (
    "é".encode("latin1"),
    b"\x00",
    b"\xff\xfe",
    "\u2028".encode(),
    b'"',
    b",,,,",
    b"\r",
    b"=1+1",
    b"\xef\xbb\xbf",
)


def flip_bits(rng: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def set_bytes(rng: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 4, 16))):
        changed[rng.randrange(len(changed))] = rng.choice((0, 255, rng.randrange(256)))
    return bytes(changed)


def cut_off(rng: Random, data: bytes) -> bytes:
    return data[: rng.choice((0, 1, len(data) // 2, len(data) - 1, rng.randrange(len(data))))]


def extend(rng: Random, data: bytes) -> bytes:
    return data + rng.choice((b"\0", b"\n", data, rng.randbytes(rng.randrange(1, 300))))


def remove_part(rng: Random, data: bytes) -> bytes:
    begin, length = rng.randrange(len(data)), rng.randrange(1, 64)
    return data[:begin] + data[begin + length :]


def repeat_part(rng: Random, data: bytes) -> bytes:
    begin, length = rng.randrange(len(data)), rng.randrange(1, 64)
    return data[:begin] + data[begin : begin + length] * rng.choice((2, 2, 50)) + data[begin + length :]


def swap_parts(rng: Random, data: bytes) -> bytes:
    first, second = sorted((rng.randrange(len(data)), rng.randrange(len(data))))
    return data[:first] + data[second:] + data[first:second]


def zero_part(rng: Random, data: bytes) -> bytes:
    begin, length = rng.randrange(len(data)), rng.randrange(1, 200)
    return data[:begin] + bytes(len(data[begin : begin + length])) + data[begin + length :]


def insert_text(rng: Random, data: bytes) -> bytes:
    begin = rng.randrange(len(data) + 1)
    return data[:begin] + rng.choice(_ODD_TEXT) + data[begin:]


def set_binary_number(rng: Random, data: bytes) -> bytes:
    """A little- or big-endian number of 2, 4 or 8 bytes becomes an extreme one."""
    width = rng.choice((2, 4, 8))
    begin = rng.randrange(max(1, min(len(data), rng.choice((200, len(data)))) - width))
    number = rng.choice(_EXTREMES) & ((1 << 8 * width) - 1)
    return data[:begin] + number.to_bytes(width, rng.choice(("little", "big"))) + data[begin + width :]


def set_written_number(rng: Random, data: bytes) -> bytes:
    """A number in text becomes another, or no number at all."""
    places = [match.span() for match in re.finditer(rb"-?\d+(?:\.\d+)?", data[:20000])]
    if not places:
        return flip_bits(rng, data)
    begin, end = rng.choice(places)
    return data[:begin] + rng.choice(_NUMBERS).encode() + data[end:]


def change_word(rng: Random, data: bytes) -> bytes:
    """A word of the file takes the place of another: types of headers, names of columns, keys."""
    words = [match.span() for match in re.finditer(rb"[A-Za-z_<>|][\w.<>|-]{1,30}", data[:20000])]
    if len(words) < 2:
        return swap_parts(rng, data)
    (begin, end), (first, last) = rng.choice(words), rng.choice(words)
    extra = rng.choice((data[first:last], b">f8", b"|O", b"V8", b"<U0", b"True", b"nan", b"../x"))
    return data[:begin] + extra + data[end:]


def change_json(rng: Random, data: bytes) -> bytes:
    """Another value under a key, a key that is gone or new, a value nested deep; without the hash of the whole."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return set_written_number(rng, data)
    if isinstance(content, dict):
        content.pop("checksum", None)
    if rng.random() < 0.03:
        return rng.choice((b"[" * 100_000, b"{}", b"[]", b"null", b"1" * 5000, b'{"a":' * 5000))
    place: Any = content
    while isinstance(place, dict | list) and place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = rng.choice(keys)
        if not isinstance(place[key], dict | list) or not place[key] or rng.random() < 0.4:
            if rng.random() < 0.15 and isinstance(place, dict):
                del place[key]
            else:
                place[key] = rng.choice(_VALUES)
            break
        place = place[key]
    return json.dumps(content).encode()


_TYPES = (
    *("<f4", "<f8", ">f8", "<f2", "<f16", "<c8", "|b1", "|i1", "<u8", "<i8", "<i4", ">i4", "|S0", "|S4", "<U0", "<U1"),
    *("<U999999999", "|S999999999", "|V8", "|O", "<M8[ns]", "<m8", "i4,i4", "(2,)f4", "f", "x", "", "'", "float64"),
)
_SHAPES = ("()", "(0,)", "(1,)", "(1, 1)", "(0, 0)", "(2, 0)", "(-1,)", "(3)", "(1, 2, 3)", "(99999999999, 0)")
_SIZES = (2, 3, 7, 40, 2**31 - 1, 2**31, 2**32, 2**62, 2**63, 2**64, 10**25)


def change_header(rng: Random, data: bytes) -> bytes:
    """The header of an ``.npy`` written anew: another type, order, shape, version or length."""
    if data[:6] != b"\x93NUMPY" or len(data) < 12:
        return set_binary_number(rng, data)
    length = int.from_bytes(data[8:10], "little")
    text = data[10 : 10 + length].decode("latin-1")
    if rng.random() < 0.5:
        text = re.sub(r"'descr': '[^']*'", lambda _: f"'descr': '{rng.choice(_TYPES)}'", text, count=1)
    if rng.random() < 0.5:
        sizes = tuple(rng.choice((*_SIZES, *range(90))) for _ in range(rng.choice((1, 1, 2, 2, 3, 33))))
        shape = str(sizes) if rng.random() < 0.6 else rng.choice(_SHAPES)
        text = re.sub(r"'shape': \([^)]*\)", lambda _: f"'shape': {shape}", text, count=1)
    if rng.random() < 0.3:
        text = text.replace("False", rng.choice(("True", "0", "None", "false")), 1)
    if rng.random() < 0.1:
        text = rng.choice(
            (f"{text} {text}", text.replace("'", '"'), text.replace(" ", ""), text.upper(), "{}", "{" * 9)
        )
    text = text.rstrip() + " " * rng.choice((0, 1, 20, 60)) + rng.choice(("\n", "", "\0"))
    version = rng.choice((b"\1\0",) * 6 + (b"\2\0", b"\3\0", b"\0\0", b"\xff\xff"))
    size = len(text) if rng.random() < 0.9 else rng.choice((0, 1, 65535, 4_000_000_000))
    width = 4 if version == b"\2\0" else 2
    prefix = (size & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    return data[:6] + version + prefix + text.encode("latin-1", "replace") + data[10 + length :]


def nest(rng: Random, data: bytes) -> bytes:
    """A value becomes one that is nested deep, as parsers that call themselves do not like."""
    places = [match.span() for match in re.finditer(rb"[\w.]+", data[:20000])]
    if not places:
        return extend(rng, data)
    begin, end = rng.choice(places)
    mark, times = rng.choice((b"[", b'{"a":', b"(", b"{a=", b'"')), rng.choice((3, 500, 20_000))
    return data[:begin] + mark * times + data[end:]


BYTE_KINDS: dict[str, Callable[[Random, bytes], bytes]] = {
    function.__name__: function
    for function in (
        flip_bits,
        set_bytes,
        cut_off,
        extend,
        remove_part,
        repeat_part,
        swap_parts,
        zero_part,
        insert_text,
        set_binary_number,
        set_written_number,
        change_word,
        change_json,
        change_header,
        nest,
    )
} | STRUCTURED_KINDS


def _inside(rng: Random, data: bytes, change: Callable[[Random, bytes], bytes]) -> bytes:
    """The change inside what a zip or gzip file packs, which is packed again."""
    if data[:2] == b"\x1f\x8b":
        return gzip.compress(change(rng, gzip.decompress(data)), 1)
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(packed, "w") as target:
        names = source.namelist()
        if not names:
            raise ValueError("an empty archive")
        chosen = rng.choice(names)
        for member in names:
            content = source.read(member)
            if member == chosen and rng.random() < 0.05:
                continue
            target.writestr(member, change(rng, content) if member == chosen and content else content)
    return packed.getvalue()


def damage(rng: Random, folder: Path, other: Path | None = None) -> list[tuple[str, str]]:
    """Change the files of a folder in one way or a few; returns the kind of each change and the file that it met.

    Args:
        other: a folder of the same layout and of other content, from which a file may come.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if rng.random() < 0.1:
        return [damage_folder(rng, folder, files, other)]
    path, kinds = rng.choice(files), []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = path.read_bytes()
        if not data:
            break
        kind = rng.choice(_kinds(rng, path, data))
        path.write_bytes(_changed(rng, data, BYTE_KINDS[kind]))
        kinds.append((kind, str(path.relative_to(folder))))
    return kinds


def _kinds(rng: Random, path: Path, data: bytes) -> list[str]:
    """Kinds to choose from: each once, and those that go deepest into a file of this format several times."""
    kinds = [*BYTE_KINDS] + [kind_for(rng, path.name, data)] * 8
    if path.suffix in (".json", ".jsonl"):
        return kinds + ["change_json"] * 6
    return kinds + ["change_header"] * 6 if data[:6] == b"\x93NUMPY" or path.suffix == ".npz" else kinds


def _changed(rng: Random, data: bytes, change: Callable[[Random, bytes], bytes]) -> bytes:
    """The bytes after the change; mostly of what is packed in them, where something is."""
    try:
        packed = data[:2] in (b"PK", b"\x1f\x8b") and rng.random() < 0.7
        return _inside(rng, data, change) if packed else change(rng, data)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError):
        return flip_bits(rng, data)  # an earlier change has left nothing that can be unpacked


def fresh_copy(source: Path, target: Path) -> None:
    """The good input again."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
