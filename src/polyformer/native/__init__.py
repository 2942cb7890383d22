"""The compiled kernels: plain C functions on plain buffers, called through ctypes.

Where they could not be compiled, scipy and torch do the work.

``POLYFORMER_KERNEL=scipy`` leaves the kernels unused; ``POLYFORMER_KERNEL=native`` makes their absence an error.
"""

from __future__ import annotations

import ctypes
import logging
import os
from functools import cache
from pathlib import Path

from polyformer.errors import InvalidParameter, MissingDependency
from polyformer.native import border
from polyformer.native.border import Function, Value

__all__ = ["LIBRARY", "answer_bus_errors", "call", "is_available", "kernel_name", "num_threads"]

_log = logging.getLogger("polyformer")

LIBRARY = Path(__file__).parent / ("_kernel.dll" if os.name == "nt" else "_kernel.so")
"""The library uses nothing of Python, so its name does not tell a version of Python."""


@cache
def _native(kernel: str) -> dict[str, Function] | None:
    if kernel not in ("auto", "native", "scipy"):
        raise InvalidParameter(f"POLYFORMER_KERNEL must be auto, native or scipy. Got '{kernel}'.")
    if kernel == "scipy":
        return None
    reason = "is not built"
    if LIBRARY.exists():
        try:
            import torch  # noqa: F401 - its OpenMP runtime comes first, and the kernel then shares it

            functions = border.bind(ctypes.CDLL(str(LIBRARY)))
            if functions is not None:
                return functions
            reason = "was built by another version"
        except (OSError, AttributeError) as error:  # damaged, built elsewhere, or a library is missing
            reason = f"cannot be loaded ({' '.join(str(error).split())})"
    if kernel == "native":
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
    """The kernel that computes sparse products: ``native`` or ``scipy``."""
    return "native" if is_available() else "scipy"


def call(name: str, *, threads: int | None = None, **arguments: Value) -> None:
    """Call a compiled function with the arguments that :data:`~polyformer.native.signatures.SIGNATURES` names.

    Args:
        name: name of the function in the table.
        threads: number of threads; torch's setting by default.
        arguments: numbers, and arrays or CPU tensors of the dtype in the table, contiguous and long enough;
            :class:`~polyformer.errors.KernelRefused` says which is not.
    """
    functions = _native("native")  # reading the environment again would take longer than all checks of a call
    assert functions is not None, "an absent kernel is an error here"
    function = functions[name]
    if "threads" in function.signature:
        arguments["threads"] = num_threads() if threads is None else threads
    function(arguments)


def answer_bus_errors(code: int) -> None:
    """From now on a mapped file that is cut off while it is read ends this process with a sentence and this exit code.

    Only the command line calls it, for its own process. Without the native kernel, the system ends the process without
    a word.
    """
    if is_available():
        call("catch_bus_errors", code=code)


def num_threads() -> int:
    """Number of threads for the kernel: torch's setting."""
    import torch

    return torch.get_num_threads()
