"""Space on a disk: how much is free, a refusal of what cannot fit, and space that is taken before it is needed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import IO

from polyformer.errors import OutOfResources
from polyformer.machine import format_bytes

__all__ = ["free_bytes", "require_disk", "reserve"]


def free_bytes(place: Path) -> int:
    """Bytes that are free where ``place`` is or will be."""
    return shutil.disk_usage(next(folder for folder in (place, *place.absolute().parents) if folder.exists())).free


def require_disk(sentence: str, needed: int, place: Path, advice: str) -> None:
    """Refuse what cannot fit before anything is written.

    Args:
        sentence: subject and verb, e.g. ``"This graph needs"``; amount and place follow.
        needed: bytes.
        place: the file or folder that will take them; it need not exist yet.
        advice: the next step, a sentence.
    """
    free = free_bytes(place)
    if needed > free:
        raise OutOfResources(
            f"{sentence} {format_bytes(needed)} of disk at '{place}'. Got {format_bytes(free)}. {advice}"
        )


def reserve(file: IO[bytes], size: int) -> None:
    """Give an open file its size with space on the disk behind every byte: a full disk is an error here, not later.

    A memory map of a file without that space kills the process by a signal when the disk is full.
    """
    file.flush()
    if size <= 0:
        return
    try:
        os.posix_fallocate(file.fileno(), 0, size)
    except AttributeError:  # not on every system: zeros take the space as well
        _fill_with_zeros(file, size)


def _fill_with_zeros(file: IO[bytes], size: int) -> None:
    file.seek(0, os.SEEK_END)
    zeros = bytes(1 << 20)
    while (at := file.tell()) < size:
        file.write(zeros[: size - at])
    file.flush()
