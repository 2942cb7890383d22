"""Kinds of damage to the files of a folder: files that are gone, swapped, of another folder, or no files at all."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable
from pathlib import Path

__all__ = ["FOLDER_KINDS", "NO_BYTES", "damage_folder"]

_ODD_NAMES = (
    b"\xff\xfe.csv",
    "é😀.npy".encode(),
    b".hidden",
    b"x" * 255,
    b"a\nb.csv",
    b"-rf",
    b"=1+1.csv",
    b"manifest.json~",
)


def _remove(rng: random.Random, path: Path, others: list[Path]) -> None:
    path.unlink()


def _empty(rng: random.Random, path: Path, others: list[Path]) -> None:
    path.write_bytes(b"")


def _swap(rng: random.Random, path: Path, others: list[Path]) -> None:
    other = rng.choice(others)
    first, second = path.read_bytes(), other.read_bytes()
    path.write_bytes(second)
    other.write_bytes(first)


def _folder(rng: random.Random, path: Path, others: list[Path]) -> None:
    path.unlink()
    path.mkdir()


def _pipe(rng: random.Random, path: Path, others: list[Path]) -> None:
    path.unlink()
    os.mkfifo(path)


def _socket(rng: random.Random, path: Path, others: list[Path]) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as endpoint:
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            endpoint.bind(f"/proc/self/fd/{handle}/{path.name}")  # the path itself may be longer than a socket's may be
        finally:
            os.close(handle)


def _loop(rng: random.Random, path: Path, others: list[Path]) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _dangling(rng: random.Random, path: Path, others: list[Path]) -> None:
    path.unlink()
    path.symlink_to("nothing here")


def _device(rng: random.Random, path: Path, others: list[Path]) -> None:
    path.unlink()
    path.symlink_to(rng.choice(("/dev/zero", "/dev/full", "/dev/stdin", "/proc/self/mem", "/")))


def _link(rng: random.Random, path: Path, others: list[Path]) -> None:
    """A link to another file of the folder, as a careless unpacking makes."""
    other = rng.choice(others)
    if other != path:
        path.unlink()
        path.symlink_to(other.resolve())


def _extra(rng: random.Random, path: Path, others: list[Path]) -> None:
    """A file more, of an odd name."""
    place = os.path.join(os.fsencode(path.parent), rng.choice(_ODD_NAMES))
    with open(place, "wb") as file:
        file.write(path.read_bytes())


def _huge(rng: random.Random, path: Path, others: list[Path]) -> None:
    """A file that claims 64 TiB and has a hole for most of it."""
    try:
        os.truncate(path, 1 << 46)
    except OSError:  # not every file system takes such a size
        os.truncate(path, 1 << 40)


FOLDER_KINDS: dict[str, Callable[[random.Random, Path, list[Path]], None]] = {
    "remove a file": _remove,
    "empty a file": _empty,
    "swap two files": _swap,
    "a folder for a file": _folder,
    "a pipe for a file": _pipe,
    "a socket for a file": _socket,
    "a link to itself": _loop,
    "a link to nothing": _dangling,
    "a link to a device": _device,
    "a link to another file": _link,
    "a file more": _extra,
    "a huge file": _huge,
}

NO_BYTES = ("a link to itself", "a link to a device", "a link to another file", "a huge file")
"""Kinds after which a file is not to be read whole or written to by those who damage."""


def damage_folder(rng: random.Random, folder: Path, files: list[Path], other: Path | None) -> tuple[str, str]:
    """Damage a folder in one way; returns the kind and the file that it met."""
    path = rng.choice(files)
    if other is not None and rng.random() < 0.4:
        same = other / path.relative_to(folder)
        if same.is_file():
            path.write_bytes(same.read_bytes())
            return "a file of another folder", path.name
    kind = rng.choice(sorted(FOLDER_KINDS))
    FOLDER_KINDS[kind](rng, path, files)
    return kind, path.name
