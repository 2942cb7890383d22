"""A plugin of pytest (``-p tests.without_posix``) that takes away what POSIX or Linux has and other systems lack.

It stands in for the platforms that no test can run on here: the code must find another way without these functions. It
is no Windows: paths, processes and the renaming of open files stay those of this system.
"""

from __future__ import annotations

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
_open, _rename, _read_text, _library = os.open, os.rename, pathlib.Path.read_text, ctypes.CDLL


def _open_no_directory(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
    ours = sys._getframe(1).f_globals["__name__"].startswith("polyformer")  # the libraries of Python need it
    if ours and os.path.isdir(path):
        raise PermissionError(13, "Permission denied", str(path))
    return _open(path, flags, *args, **kwargs)


def _rename_to_new_name(source: Any, target: Any, **kwargs: Any) -> None:
    if os.path.exists(target):
        raise FileExistsError(17, "File exists", str(target))
    _rename(source, target, **kwargs)


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
    os.open, os.rename = _open_no_directory, _rename_to_new_name
    pathlib.Path.read_text = _read_no_proc  # type: ignore[method-assign]
    ctypes.CDLL = _NamedLibrary  # type: ignore[misc]
