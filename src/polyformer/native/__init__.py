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

from polyformer.errors import InvalidParameter, MissingDependency
from polyformer.native import border
from polyformer.native.border import Function, Value

__all__ = ["call", "is_available", "kernel_name", "num_threads"]

_log = logging.getLogger("polyformer")


@cache
def _native(wanted: str) -> dict[str, Function] | None:
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
            functions = border.bind(ctypes.CDLL(str(path)))
            if functions is not None:
                return functions
            reason = "was built by another version"
        except (OSError, AttributeError) as error:  # damaged, of another machine, or without a library that it needs
            reason = f"cannot be loaded ({' '.join(str(error).split())})"
    if wanted == "native":
        raise MissingDependency(f"The native kernel {reason}. Install a C++ compiler and reinstall polyformer.")
    _log.warning(
        "The native kernel %s, so scipy is used, several times slower; install a C++ compiler and reinstall.", reason
    )
    return None


def _functions() -> dict[str, Function] | None:
    return _native(os.environ.get("POLYFORMER_KERNEL", "auto"))


def is_available() -> bool:
    """Whether :func:`call` has a compiled kernel to call."""
    return _functions() is not None


def kernel_name() -> str:
    """``native`` or ``scipy``: what products run on."""
    return "native" if is_available() else "scipy"


def call(name: str, *, threads: int | None = None, **arguments: Value) -> None:
    """Call a compiled function with the arguments that :data:`~polyformer.native.signatures.SIGNATURES` names.

    Args:
        name: as in the table.
        threads: torch's setting by default.
        arguments: numbers, and arrays or CPU tensors of the dtype in the table, contiguous and long enough;
            :class:`~polyformer.errors.KernelRefused` says which is not.
    """
    functions = _native("native")  # not by the environment again: reading it takes longer than all checks of a call
    assert functions is not None, "an absent kernel is an error here"
    function = functions[name]
    if "threads" in function.signature:
        arguments["threads"] = num_threads() if threads is None else threads
    function(arguments)


def num_threads() -> int:
    """Threads for the kernel: torch's setting."""
    import torch

    return torch.get_num_threads()
