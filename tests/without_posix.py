"""A plugin of pytest (``-p tests.without_posix``) that takes away what POSIX or Linux has and other systems lack.

It stands in for the platforms that no test can run on here: the code must find another way without these functions.
As on Windows, a directory in which this process has a file open or mapped is not renamed, and an open file is neither
removed nor replaced. It is no Windows: paths and processes stay those of this system.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import signal
import sys
from typing import Any

_FUNCTIONS = (
    "posix_fallocate",
    "posix_fadvise",
    "preadv",
    "pread",
    "pwrite",
    "sched_getaffinity",
    "sysconf",
    "O_NONBLOCK",
    "O_CLOEXEC",
)
_MODULES = ("fcntl", "resource")
_replace, _unlink = os.replace, os.unlink
_open, _rename, _read_text, _library = os.open, os.rename, pathlib.Path.read_text, ctypes.CDLL


def _open_no_directory(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
    ours = sys._getframe(1).f_globals["__name__"].startswith("polyformer")  # the libraries of Python need it
    if ours and os.path.isdir(path):
        raise PermissionError(13, "Permission denied", str(path))
    return _open(path, flags, *args, **kwargs)


def _rename_to_new_name(source: Any, target: Any, **kwargs: Any) -> None:
    if os.path.exists(target):
        raise FileExistsError(17, "File exists", str(target))
    _refuse_in_use(source)
    _rename(source, target, **kwargs)


def _replace_no_open_file(source: Any, target: Any, **kwargs: Any) -> None:
    _refuse_in_use(source)
    _refuse_in_use(target)
    _replace(source, target, **kwargs)


def _remove_no_open_file(path: Any, **kwargs: Any) -> None:
    if not kwargs and not os.path.islink(path):
        _refuse_in_use(path)
    _unlink(path, **kwargs)


def _refuse_in_use(path: Any) -> None:
    """Raise what Windows raises for a file that this process uses, or a directory that holds one."""
    if not _called_by_ours():
        return
    place = os.path.realpath(path)
    for used in _files_in_use():
        if used == place or used.startswith(f"{place}{os.sep}"):
            raise PermissionError(13, f"The process cannot access the file because it is being used: {used}", str(path))


def _called_by_ours() -> bool:
    """Whether the package asked, itself or through Python's library, as in ``Path.unlink``."""
    frame, between = sys._getframe(1), ("pathlib", "shutil", "contextlib", __name__)
    while frame.f_back is not None and frame.f_globals["__name__"].startswith(between):
        frame = frame.f_back
    return str(frame.f_globals["__name__"]).startswith("polyformer")


def _files_in_use() -> list[str]:
    """Files that this process has open or mapped."""
    handles = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the handle of the listing itself
            handles.append(os.readlink(f"/proc/self/fd/{name}"))
    with open("/proc/self/maps") as file:
        return [*handles, *(line.split(None, 5)[-1].rstrip("\n") for line in file if line.count("/"))]


def _read_no_proc(path: pathlib.Path, *args: Any, **kwargs: Any) -> str:
    if path.as_posix().startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(2, "No such file or directory", str(path))
    return _read_text(path, *args, **kwargs)


class _NamedLibrary(_library):  # type: ignore[misc, valid-type]
    def __init__(self, name: Any, *args: Any, **kwargs: Any) -> None:
        if name is None:
            raise TypeError("the name of a library is needed")
        super().__init__(name, *args, **kwargs)


def pytest_configure() -> None:
    """Take everything away, once the imports of others that need it are done."""
    import multiprocessing.resource_tracker  # noqa: F401
    import tempfile  # noqa: F401

    import torch
    import torch_geometric  # noqa: F401

    del torch
    for name in _FUNCTIONS:
        if hasattr(os, name):
            delattr(os, name)
    for name in _MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    if hasattr(signal, "SIGHUP"):
        del signal.SIGHUP
    os.open, os.rename, os.replace = _open_no_directory, _rename_to_new_name, _replace_no_open_file
    os.unlink = os.remove = _remove_no_open_file
    pathlib.Path.read_text = _read_no_proc  # type: ignore[method-assign]
    ctypes.CDLL = _NamedLibrary  # type: ignore[misc]
