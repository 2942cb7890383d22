"""One lock: a file that one process holds at a time, released when the process ends, however it ends."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from polyformer.errors import PolyformerError
from polyformer.system import OPEN_FLAGS, try_lock

__all__ = ["is_held", "locked"]

_POLL_SECONDS = 0.05


@contextlib.contextmanager
def locked(
    path: Path,
    busy: PolyformerError | None,
    patience: float = 0.0,
    poll: float = _POLL_SECONDS,
    *,
    passing: bool = False,
) -> Iterator[None]:
    """Hold the lock file ``path``, made if need be, for as long as the block runs.

    Args:
        busy: raised when another process holds the file; None goes on all the same once patience is at its end.
        patience: seconds to wait for the other process.
        poll: seconds between two looks.
        passing: remove the file at the end.
    """
    deadline = time.monotonic() + patience
    with _open_lock(path) as file:
        while not try_lock(file):
            if time.monotonic() >= deadline:
                if busy is not None:
                    raise busy
                break
            time.sleep(poll)
        if passing and not _is_at(file, path):  # the process that held the file has removed it
            raise busy or OSError(errno.EBUSY, "another process has just ended here", str(path))
        try:
            yield
        finally:
            removed = passing and _removed(path)
    if passing and not removed:  # Windows removes no open file
        _removed(path)


def _is_at(file: IO[bytes], path: Path) -> bool:
    """Whether an open file still has its name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _removed(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _open_lock(path: Path, create: int = os.O_CREAT) -> IO[bytes]:
    """The lock file, open to be held; a pipe or a device in its place is refused instead of waited for."""
    flags = os.O_RDWR | create | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    handle = os.open(path, flags | OPEN_FLAGS, 0o666)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no file", str(path))
    return os.fdopen(handle, "r+b")


def is_held(path: Path) -> bool:
    """Whether a process holds the lock file ``path``, which exists."""
    with _open_lock(path, create=0) as file:
        return not try_lock(file)
