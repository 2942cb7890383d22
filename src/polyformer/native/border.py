"""Call the compiled functions, after checking every argument against the table of signatures."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from polyformer.errors import KernelRefused, OutOfResources
from polyformer.native.signatures import ABI, SIGNATURES, Array, Number

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Function", "Value", "bind"]

Value: TypeAlias = "int | float | np.ndarray | Tensor | None"
"""The types of value that an argument may have."""

_NUMBERS: dict[str, type[ctypes._SimpleCData[int]] | type[ctypes._SimpleCData[float]]] = {
    "int": ctypes.c_int,
    "int64_t": ctypes.c_int64,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}

_address_of = ctypes.addressof
_from_buffer: Any = ctypes.c_char.from_buffer  # numpy does not declare arrays to be buffers before Python 3.12

_DONE, _REFUSED, _OUT_OF_MEMORY = 0, 1, 2


def bind(library: ctypes.CDLL) -> dict[str, Function] | None:
    """All functions of the table by name; None if the library was built from another table."""
    if library.polyformer_abi() != ABI:
        return None
    return {name: Function(name, library) for name in SIGNATURES}


class Function:
    """One compiled function, called with its arguments by name.

    >>> from polyformer.native import call
    >>> x, out = np.ones(3, np.float32), np.empty(3, np.float32)
    >>> call("dropout", count=3, x=x, residual=x, seed=0, threshold=0, keep=1.0, out=out)
    >>> out
    array([2., 2., 2.], dtype=float32)
    """

    def __init__(self, name: str, library: ctypes.CDLL) -> None:
        import torch

        self.name, self.signature = name, SIGNATURES[name]
        self._entry = getattr(library, f"polyformer_{name}")
        kinds, self._names = self.signature.values(), self.signature.keys()
        self._entry.argtypes = [_NUMBERS[k.c_type] if isinstance(k, Number) else ctypes.c_void_p for k in kinds]
        self._entry.restype = ctypes.c_int
        self._arrays = [
            (argument, kind, kind.sizes, kind.more, np.dtype(kind.dtype), getattr(torch, kind.dtype))
            for argument, kind in self.signature.items()
            if isinstance(kind, Array)
        ]

    def __call__(self, arguments: dict[str, Value]) -> None:
        """Check the arguments and call the function; the caller keeps the arrays alive during the call."""
        if arguments.keys() != self._names:
            raise self._refusal(f"takes {', '.join(self.signature)}. Got {', '.join(arguments)}")
        passed: dict[str, Any] = arguments.copy()
        for name, kind, sizes, least, dtype, torch_dtype in self._arrays:
            value = arguments[name]
            if value is None and kind.optional:
                continue
            if isinstance(value, np.ndarray):
                count, plain = value.size, value.flags.carray
                usable = value.dtype == dtype and (plain or kind.strided or _is_usable(value, kind))
                # numpy's attribute for the address takes twice as long, and a call has up to nine arrays
                address = _address_of(_from_buffer(value)) if plain and count else value.ctypes.data
            elif value is None or isinstance(value, (int, float)):
                raise self._refusal(f"takes an array as '{name}'. Got {value}")
            else:
                usable = value.dtype is torch_dtype and value.is_cpu and (kind.strided or value.is_contiguous())
                count, address = value.numel(), value.data_ptr()
            if sizes:
                product = kind.times
                for size in sizes:
                    product *= passed[size]
                least += product
            if not usable or count < least:
                raise self._array_refusal(name, kind, value, least)
            passed[name] = address
        try:
            status = self._entry(*[passed[name] for name in self.signature])
        except ctypes.ArgumentError as error:
            raise self._refusal(f"cannot take its arguments: {error}") from None
        if status != _DONE:
            raise self._failure(status)

    def _failure(self, status: int) -> KernelRefused | OutOfResources:
        if status == _OUT_OF_MEMORY:
            return OutOfResources(
                f"Memory ran out in the native function '{self.name}'. Close other programs, or use smaller batches."
            )
        if status == _REFUSED:
            return self._refusal("is not compiled for these sizes")
        return self._refusal(f"failed with status {status}")

    def _refusal(self, reason: str) -> KernelRefused:
        return KernelRefused(f"The native function '{self.name}' {reason}. This is a fault of polyformer: report it.")

    def _array_refusal(self, name: str, kind: Array, value: np.ndarray | Tensor, least: int) -> KernelRefused:
        contiguous = value.flags.c_contiguous if isinstance(value, np.ndarray) else value.is_contiguous()
        layout = "contiguous" if contiguous else "not contiguous"
        writeable = "writeable " if kind.written else ""
        return self._refusal(
            f"takes at least {least} {writeable}contiguous numbers of {kind.dtype} as '{name}'. "
            f"Got {value.dtype}, shape {tuple(value.shape)}, {layout}"
        )


def _is_usable(array: np.ndarray, kind: Array) -> bool:
    """Whether dtype and layout are as the function expects, and the array can be written if the function writes it."""
    flags = array.flags
    apart = kind.rows_apart and array.ndim == 2 and (array.strides[1] == array.itemsize or array.shape[1] == 1)
    return bool((flags.c_contiguous or apart) and (flags.writeable or not kind.written))
