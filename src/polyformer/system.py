"""System calls that some platforms lack: each is called here alone, with another way where it is not there."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import IO, Any

__all__ = [
    "CHILD_OPTIONS",
    "OPEN_FLAGS",
    "advise",
    "discard",
    "interrupt",
    "read_at",
    "rename_directory",
    "sync",
    "try_lock",
]

OPEN_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
"""For ``os.open``: not inherited by child processes, and on Windows without a change of line ends."""

_NEW_GROUP = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", None)  # Windows
CHILD_OPTIONS: dict[str, Any] = {"start_new_session": True} if _NEW_GROUP is None else {"creationflags": _NEW_GROUP}
"""For ``subprocess.Popen``: Ctrl-C reaches the parent alone, which passes it on by :func:`interrupt`."""

_seeking = threading.Lock()


def read_at(handle: int, room: memoryview, position: int) -> int:
    """Read bytes of an open file from a position on into memory, by several threads too; returns how many were read."""
    if hasattr(os, "preadv"):
        return os.preadv(handle, [room], position)
    if hasattr(os, "pread"):
        data = os.pread(handle, len(room), position)
    else:
        with _seeking:
            os.lseek(handle, position, os.SEEK_SET)
            data = os.read(handle, len(room))
    room[: len(data)] = data
    return len(data)


def advise(handle: int, start: int, length: int, advice: str) -> None:
    """Tell the system how a part of an open file will be used, e.g. ``POSIX_FADV_SEQUENTIAL``; length 0: to its end."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(handle, start, length, getattr(os, advice))


def sync(path: str | os.PathLike[str]) -> None:
    """Have the content of a file, or the names in a directory, on the disk; some systems keep names by themselves."""
    try:
        handle = os.open(path, (os.O_RDWR if os.name == "nt" else os.O_RDONLY) | OPEN_FLAGS)
    except PermissionError:
        if os.path.isdir(path):  # Windows opens no directories
            return
        raise
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def rename_directory(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Rename a directory; an empty directory that has the name is replaced, which only POSIX does by itself."""
    try:
        os.rename(source, target)
    except (FileExistsError, PermissionError):
        if not os.path.isdir(target) or os.listdir(target):
            raise
        os.rmdir(target)
        os.rename(source, target)


def discard(path: Path) -> None:
    """Remove a file that is not needed any more; Windows keeps one that a process has open or mapped, and it stays."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        path.unlink()


def try_lock(file: IO[bytes]) -> bool:
    """Whether no other process holds an open file; it is this one's then, until it is closed or the process ends.

    Where files cannot be locked, as on some shared file systems, nobody is known to hold one.
    """
    try:
        import fcntl
    except ImportError:
        return _try_lock_elsewhere(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # no locks in this file system
        return True
    return True


def _try_lock_elsewhere(file: IO[bytes]) -> bool:
    """The lock of Windows: the first byte of the file, which need not exist."""
    try:
        import msvcrt
    except ImportError:
        return True
    module: Any = msvcrt
    try:
        file.seek(0)
        module.locking(file.fileno(), module.LK_NBLCK, 1)
    except PermissionError:
        return False
    except OSError:
        return True
    return True


def interrupt(process: subprocess.Popen[Any]) -> None:
    """Ask a process that was started with :data:`CHILD_OPTIONS` to save and end, as Ctrl-C does."""
    with contextlib.suppress(OSError):  # it has ended
        process.send_signal(getattr(signal, "CTRL_BREAK_EVENT", signal.SIGINT))
