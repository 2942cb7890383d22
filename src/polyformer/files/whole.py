"""Files and directories that appear whole: written aside, flushed, renamed into place.

What takes one go is written beside its place under a temporary name (:func:`write_whole`, :func:`new_directory`). What
takes long lies in ``.NAME.partial`` beside its place (:func:`partial_place`), where the same job finds it again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from polyformer.errors import OutputBusy, OutputExists, WriteFailed
from polyformer.files.guard import reporting_io_errors
from polyformer.files.locks import locked
from polyformer.system import OPEN_FLAGS, rename_directory, sync

__all__ = [
    "append_line",
    "existing_folder",
    "held_partial",
    "move_over",
    "new_directory",
    "open_in_place",
    "partial_place",
    "refuse_existing",
    "sync_directory",
    "sync_file",
    "write_whole",
]


@contextlib.contextmanager
def write_whole(path: Path) -> Iterator[IO[bytes]]:
    """A binary file handle whose content replaces ``path`` at once when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(path)
    # With the rights that a new file of the user has, by the umask.
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN_FLAGS, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """A temporary sibling directory that becomes ``path`` when the block ends without an error.

    Raises:
        OutputExists: if ``path`` is already there and is not an empty directory.
    """
    refuse_existing(path)
    with reporting_io_errors("a directory", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _beside(path)
        temporary.mkdir()
    try:
        with reporting_io_errors("files", path):
            yield temporary
            _rename_directory(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _beside(path: Path) -> Path:
    """A name beside ``path`` that nothing has; it begins with a point and the name that it will get."""
    return path.parent / f".{path.name}.{secrets.token_hex(6)}"


def move_over(source: Path, target: Path) -> None:
    """Move a file or a folder of the same disk to a place, instead of what was there."""
    with reporting_io_errors("files", target):
        if target.is_dir():
            shutil.rmtree(target)
        os.replace(source, target)


def refuse_existing(path: Path) -> None:
    """Refuse a place where something is already; an empty directory is nothing."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise _exists(path)


def _rename_directory(source: Path, path: Path) -> None:
    try:
        rename_directory(source, path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise _exists(path) from None


def _exists(path: Path) -> OutputExists:
    return OutputExists(f"'{path}' already exists. Choose another place or remove it first.")


def partial_place(path: Path) -> Path:
    """The folder where unfinished work lies until it becomes ``path``.

    >>> partial_place(Path("runs/tokens")).as_posix()
    'runs/.tokens.partial'
    """
    return path.parent / f".{path.name}.partial"


@contextlib.contextmanager
def held_partial(path: Path, what: str) -> Iterator[Path]:
    """The folder of unfinished work on ``path``, made if need be and held for this process.

    Args:
        what: what is being made there, for sentences, e.g. ``"tokens"``.
    """
    folder = partial_place(path)
    busy = f"Another process is writing {what} to '{path}'. Wait for it, or choose another place."
    with reporting_io_errors(what, path):
        folder.parent.mkdir(parents=True, exist_ok=True)
        # The lock lies beside the folder, because Windows renames no folder that holds an open file.
        with locked(folder.with_name(f"{folder.name}.lock"), OutputBusy(busy), passing=True):
            folder.mkdir(exist_ok=True)
            yield folder


def existing_folder(path: Path) -> Path:
    """The folder of ``path``, or the nearest above it that exists: where large intermediate files may go."""
    return next(folder for folder in path.absolute().parents if folder.is_dir())


def sync_directory(path: Path) -> None:
    """Have the names in a directory on the disk."""
    sync_file(path)


def sync_file(path: Path) -> None:
    """Have a file's content, or the names in a directory, on the disk."""
    sync(path)


def open_in_place(path: Path, buffering: int = -1) -> IO[bytes]:
    """Open a file of ours to change it where it is; it is made if need be.

    A symbolic link in its place is refused: a directory that somebody else packed could lead the writer to another
    file of the user.
    """
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        handle = os.open(path, flags | OPEN_FLAGS, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise WriteFailed(
                f"'{path}' is a symbolic link, so it is not written to. Put the file in its place."
            ) from None
        raise
    return os.fdopen(handle, "r+b", buffering=buffering)


def append_line(file: IO[bytes], line: str) -> None:
    """Add a line to a file that grows while others may read it: at one go, so that a reader sees it whole."""
    file.write(f"{line}\n".encode())
    file.flush()
