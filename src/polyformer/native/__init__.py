"""The compiled kernels: plain C functions on plain buffers, called through ctypes; absent where none was built.

Set ``POLYFORMER_KERNEL=scipy`` to do without them, ``native`` to make their absence an error.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import logging
import os
from functools import cache
from pathlib import Path

import numpy as np

from polyformer.errors import InvalidParameter, MissingDependency

__all__ = ["kernel_name", "native_library", "num_threads", "pointer"]

_ABI = 12
_log = logging.getLogger("polyformer")


@cache
def _native(wanted: str) -> ctypes.CDLL | None:
    if wanted not in ("auto", "native", "scipy"):
        raise InvalidParameter(f"POLYFORMER_KERNEL must be auto, native or scipy. Got '{wanted}'.")
    if wanted == "scipy":
        return None
    reason = "is not built"
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = Path(__file__).parent / f"_kernel{suffix}"
        if not path.exists():
            continue
        try:
            library = ctypes.CDLL(str(path))
            if library.polyformer_abi() == _ABI:
                return library
            reason = "was built by another version"
        except (OSError, AttributeError) as error:  # damaged, of another machine, or without a library that it needs
            reason = f"cannot be loaded ({' '.join(str(error).split())})"
    if wanted == "native":
        raise MissingDependency(f"The native kernel {reason}. Install a C++ compiler and reinstall polyformer.")
    _log.warning(
        "The native kernel %s, so scipy is used, several times slower; install a C++ compiler and reinstall.", reason
    )
    return None


def native_library() -> ctypes.CDLL | None:
    """The compiled kernel, or None where scipy is used."""
    return _native(os.environ.get("POLYFORMER_KERNEL", "auto"))


def kernel_name() -> str:
    """``native`` or ``scipy``: what products run on."""
    return "scipy" if native_library() is None else "native"


def num_threads() -> int:
    """Threads for the kernel: torch's setting."""
    import torch

    return torch.get_num_threads()


def pointer(array: np.ndarray | None) -> ctypes.c_void_p | None:
    """The address of an array, null for None."""
    return None if array is None else ctypes.c_void_p(array.ctypes.data)
