"""Hashes of every file of a directory, by chunks of a mebibyte, so that damage is noticed.

A manifest holds ``files``: for each file its size and one hash a chunk. Small files are read whole whenever their
directory is opened, large ones at some chunks; ``polyformer verify`` reads everything. After a change of a few rows
only the chunks in which they lie are hashed again (:func:`reseal_file`).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from polyformer.errors import FileCorrupt
from polyformer.files.guard import RESTORE, open_regular
from polyformer.machine import num_cores
from polyformer.system import read_at

__all__ = ["CHUNK_BYTES", "WHOLE_BYTES", "check_sealed", "plain_name", "reseal_file", "seal_file", "seal_files"]

CHUNK_BYTES = 1 << 20
"""Bytes that share one hash."""

WHOLE_BYTES = 32 << 20
"""Files up to this size are read whole whenever their directory is opened: 0.03 s for the largest of them."""

_SAMPLED_CHUNKS = 16
_HASH_BYTES, _HASH_CHARACTERS = 12, 16
_MOST_THREADS = 4

Seal = dict[str, Any]
"""``bytes``: the size of a file; ``chunks``: the hashes of its chunks, 16 characters each, one after the other."""


def seal_files(folder: Path, names: Iterable[str]) -> dict[str, Seal]:
    """Size and hashes of those of the named files that are there."""
    return {name: seal_file(folder / name) for name in names if (folder / name).exists()}


def seal_file(path: Path) -> Seal:
    """Size and hashes of a file."""
    size = path.stat().st_size
    return {"bytes": size, "chunks": "".join(_hash_chunks(path, range(_count(size))))}


def reseal_file(path: Path, seal: Mapping[str, Any], changed: Iterable[tuple[int, int]]) -> Seal:
    """The seal of a file after a change of some bytes: only the chunks in which they lie are read.

    Args:
        path: the file as it is now; it may have become longer or shorter.
        seal: what :func:`seal_file` gave before the change.
        changed: (first byte, past the last byte) of each part that was written, places in the file as it is now. What
            lies behind the old end, and the chunk that the old or the new end cuts, need not be named.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "rows"
        >>> _ = path.write_bytes(bytes(3 << 20))
        >>> before = seal_file(path)
        >>> with path.open("r+b") as file:
        ...     _ = file.seek(5), file.write(b"x")
        >>> reseal_file(path, before, [(5, 6)]) == seal_file(path)
        True
    """
    size, before = path.stat().st_size, int(seal["bytes"])
    stale = {chunk for begin, end in changed if end > begin for chunk in range(begin // CHUNK_BYTES, _count(end))}
    if size != before:
        stale |= set(range(min(size, before) // CHUNK_BYTES, _count(size)))
    stale_chunks = sorted(chunk for chunk in stale if chunk < _count(size))
    hashes = _split(seal["chunks"])[: _count(size)]
    hashes += [""] * (_count(size) - len(hashes))
    for chunk, value in zip(stale_chunks, _hash_chunks(path, stale_chunks), strict=True):
        hashes[chunk] = value
    return {"bytes": size, "chunks": "".join(hashes)}


def check_sealed(
    folder: Path,
    seals: Mapping[str, Mapping[str, Any]],
    *,
    whole: bool = False,
    progress: Callable[[str, int, int | None], None] | None = None,
) -> None:
    """Refuse files that are not those that were sealed.

    Args:
        seals: what :func:`seal_files` gave, by name.
        whole: read every byte; by default only some chunks of large files.
        progress: is told the name of a file, and how many of its bytes are read.
    """
    for name, seal in seals.items():
        path = folder / plain_name(name, folder)
        size, expected = int(seal["bytes"]), _split(seal["chunks"])
        _check_size(path, size)
        count = _count(size)
        if len(expected) != count:
            raise FileCorrupt(f"'{folder / 'manifest.json'}' is damaged: its hashes of '{name}' do not fit. {RESTORE}")
        chunks = range(count) if whole or size <= WHOLE_BYTES else _sampled(count)
        for begin in range(0, len(chunks), _SAMPLED_CHUNKS):
            some = chunks[begin : begin + _SAMPLED_CHUNKS]
            for chunk, actual in zip(some, _hash_chunks(path, some), strict=True):
                if actual != expected[chunk]:
                    raise _changed(path, chunk)
            if progress is not None and whole:
                progress(name, min(size, (some[-1] + 1) * CHUNK_BYTES), size)


def plain_name(name: str, folder: Path) -> str:
    """A name that stays inside its folder; a manifest that names files elsewhere is refused."""
    if name in ("", ".", "..") or any(mark in name for mark in "/\\\0"):
        raise FileCorrupt(
            f"'{folder / 'manifest.json'}' names '{name[:60]}', which is no file of its folder. {RESTORE}"
        )
    return name


def _check_size(path: Path, expected: int) -> None:
    try:
        actual = path.stat().st_size
    except OSError as error:
        raise FileCorrupt(f"'{path}' cannot be read ({error.strerror}). {RESTORE}") from None
    if actual != expected:
        raise FileCorrupt(
            f"'{path}' is not the file that was written there: it was cut off, changed or swapped, as it has "
            f"{actual:,} bytes instead of {expected:,}. {RESTORE}"
        )


def _changed(path: Path, chunk: int) -> FileCorrupt:
    return FileCorrupt(
        f"'{path}' is not the file that was written there: it was changed or swapped for another, between byte "
        f"{chunk * CHUNK_BYTES:,} and {(chunk + 1) * CHUNK_BYTES:,}. {RESTORE}"
    )


def _count(size: int) -> int:
    """How many chunks a file of that size has; an empty file has none."""
    return -(-size // CHUNK_BYTES)


def _sampled(count: int) -> Sequence[int]:
    """Some chunks spread over a large file, the first and the last among them."""
    return sorted({(count - 1) * i // (_SAMPLED_CHUNKS - 1) for i in range(_SAMPLED_CHUNKS)})


def _split(chunks: str) -> list[str]:
    return [chunks[begin : begin + _HASH_CHARACTERS] for begin in range(0, len(chunks), _HASH_CHARACTERS)]


def _hash_chunks(path: Path, chunks: Sequence[int]) -> list[str]:
    """The hashes of some chunks of a file; several threads hash at a time."""
    try:
        with open_regular(path, buffering=0) as file:
            handle = file.fileno()
            if len(chunks) < 4:
                return [_hash_chunk(handle, chunk) for chunk in chunks]
            with ThreadPoolExecutor(min(_MOST_THREADS, num_cores())) as pool:
                return list(pool.map(lambda chunk: _hash_chunk(handle, chunk), chunks))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileCorrupt(f"'{path}' cannot be read ({reason}). {RESTORE}") from None


def _hash_chunk(handle: int, chunk: int) -> str:
    digest, begin, done = hashlib.blake2b(digest_size=_HASH_BYTES), chunk * CHUNK_BYTES, 0
    room = memoryview(bytearray(CHUNK_BYTES))
    while done < CHUNK_BYTES and (count := read_at(handle, room[done:], begin + done)):
        digest.update(room[done : done + count])
        done += count
    return base64.b64encode(digest.digest()).decode("ascii")
