"""What goes wrong with files, in sentences of ours: one guard around reading, one around writing."""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from polyformer.errors import DataNotFound, FileCorrupt, InvalidData, OutOfResources, PolyformerError, WriteFailed
from polyformer.interrupts import is_interrupt
from polyformer.limits import INFLATION
from polyformer.machine import format_bytes, is_out_of_memory, usable_memory
from polyformer.system import OPEN_FLAGS

__all__ = [
    "GET_AGAIN",
    "RESTORE",
    "check_gzip",
    "is_folder",
    "is_there",
    "open_regular",
    "read_small",
    "reading",
    "reporting_io_errors",
    "require_regular",
    "source_bytes",
]

RESTORE = "Restore it from a copy or make it again."
"""What to do about a damaged file of ours."""

GET_AGAIN = "Get the file again."
"""What to do about a damaged file that was published."""

_NO_MEMORY = "There is not enough memory to read '{path}'. Close other programs, or use a machine with more memory."


def is_there(path: str | Path) -> bool:
    """Whether there is a file or a folder; no system has one whose name it does not take, e.g. one that is too long."""
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


def is_folder(path: str | Path) -> bool:
    """Whether there is a folder; see :func:`is_there`."""
    try:
        return Path(path).is_dir()
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def reading(path: Path, advice: str = RESTORE) -> Iterator[None]:
    """Turn whatever a reader raises on a missing, damaged or foreign file into one sentence of ours.

    Args:
        path: the file that is read inside.
        advice: the next step, a sentence.
    """
    try:
        yield
    except PolyformerError:
        raise
    except FileNotFoundError:
        raise DataNotFound(f"There is no file '{path}'. Check the path.") from None
    except Exception as error:  # zip, zlib, key, value, type, token, overflow, recursion and OS errors alike
        if is_interrupt(error):
            raise KeyboardInterrupt from None
        if is_out_of_memory(error):
            raise OutOfResources(_NO_MEMORY.format(path=path)) from None
        reason = _reason(error)
        if "CSV" in reason:
            raise InvalidData(f"'{path}' cannot be read as a table: {reason}. Correct the file.") from None
        raise FileCorrupt(f"'{path}' cannot be read ({reason}). {advice}") from None


def _reason(error: Exception) -> str:
    """What a reader says about a file, on one line and without advice that is not ours."""
    if isinstance(error, KeyError) and error.args:
        return f"it has no '{error.args[0]}'"
    reason = " ".join(str(error).split())[:300].rstrip(".")
    if "allow_pickle" in reason or "pickled data" in reason:  # numpy's advice to load it all the same is not ours
        return "it holds no plain arrays but pickled objects"
    return reason or type(error).__name__


@contextlib.contextmanager
def reporting_io_errors(what: str, path: Path) -> Iterator[None]:
    """Turn a failed write (no space, read-only, not a directory) into one sentence of ours."""
    try:
        yield
    except OSError as error:
        if isinstance(error, PolyformerError):
            raise
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise WriteFailed(
                f"No space left on the disk while writing {what} to '{path}'. Free some and run again."
            ) from error
        reason = error.strerror or str(error)
        raise WriteFailed(
            f"Could not write {what} to '{path}': {reason}. Choose a place that can be written."
        ) from error


def open_regular(path: Path, buffering: int = -1) -> io.BufferedReader | io.FileIO:
    """Open a file to read its bytes; a pipe, a device or a directory is refused instead of waited for.

    Raises:
        OSError: there is no such file, or it cannot be opened.
        ValueError: what is there is not a file.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | OPEN_FLAGS)
    try:
        _check_kind(os.fstat(handle))
        return cast("io.BufferedReader | io.FileIO", os.fdopen(handle, "rb", buffering=buffering))
    except BaseException:
        os.close(handle)
        raise


def read_small(path: Path, most: int) -> bytes:
    """All bytes of a file, which must not be longer than ``most``; raises as :func:`open_regular` does."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise ValueError(f"it has {size:,} bytes, more than {most:,}")
        return file.read()


def require_regular(path: Path) -> int:
    """The size of a file; a ValueError for a pipe, a device or a directory, which some library would wait for."""
    about = path.stat()
    _check_kind(about)
    return about.st_size


def check_gzip(path: Path) -> None:
    """Refuse a gzipped file that unfolds to more than memory can hold; any other file only has to be a file."""
    size = require_regular(path)
    if path.suffix.lower() != ".gz" or INFLATION * size <= (free := usable_memory()):
        return
    done = 0
    with gzip.open(path) as file:
        while piece := file.read(1 << 20):
            done += len(piece)
            if done > free:
                raise OutOfResources(
                    f"'{path}' unfolds to more than the {format_bytes(free)} of memory that may be used. Use a machine "
                    f"with more memory, or a smaller file."
                )


def source_bytes(path: Path) -> int:
    """The size of a file, of all files of a folder, or of all files whose names begin with the last part of a path."""
    if path.is_file():
        return path.stat().st_size
    places = path.iterdir() if path.is_dir() else path.parent.glob(f"{path.name}*")
    return sum(place.stat().st_size for place in places if place.is_file())


def _check_kind(about: os.stat_result) -> None:
    if not stat.S_ISREG(about.st_mode):
        kind = "a directory" if stat.S_ISDIR(about.st_mode) else "a pipe or a device"
        raise ValueError(f"it is {kind}, not a file")
