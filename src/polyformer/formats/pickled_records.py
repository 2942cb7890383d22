"""Arrays and matrices as a pickle describes them: records that become arrays when type, shape and bytes fit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyformer.graph_checks import validate_sparse

__all__ = [
    "PickledArray",
    "PickledMatrix",
    "PickledType",
    "begin_array",
    "begin_dict",
    "encode_latin1",
    "read_scalar",
]

_PLAIN_KINDS = "biufSU"


class PickledType:
    """A numpy type as a pickle describes it: its code, then its byte order."""

    def __init__(self, code: Any, align: Any = False, copy: Any = True) -> None:
        self.code, self.order = _text(code), "="

    def __setstate__(self, state: Any) -> None:
        _, order, subtype, names, fields, *_ = state
        if subtype is not None or names is not None or fields is not None:
            raise ValueError("it holds arrays of records")
        self.order = _text(order)
        if self.order not in ("<", ">", "|", "="):
            raise ValueError("it holds numbers of an unknown byte order")

    @property
    def is_object(self) -> bool:
        """Whether the values are Python objects."""
        return self.code in ("O", "O4", "O8")

    def build(self) -> np.dtype:
        """The numpy type: plain numbers or words."""
        dtype = np.dtype(self.code)
        if dtype.kind not in _PLAIN_KINDS or dtype.hasobject or dtype.fields is not None or dtype.itemsize == 0:
            raise ValueError(f"it holds values of the type '{self.code[:20]}'")
        return dtype if self.order in ("|", "=") else dtype.newbyteorder("<" if self.order == "<" else ">")


class PickledArray:
    """An array as a pickle describes it."""

    def __init__(self) -> None:
        self.value: np.ndarray = np.empty(0)

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, data = state
        if type(shape) is not tuple or any(type(size) is not int or size < 0 for size in shape):
            raise ValueError("an array has an impossible shape")
        if type(dtype) is not PickledType:
            raise ValueError("an array has no type")
        self.value = (_objects if dtype.is_object else _numbers)(shape, dtype, data, bool(fortran))


def _numbers(shape: tuple[int, ...], dtype: PickledType, data: Any, fortran: bool) -> np.ndarray:
    content, kind = _as_bytes(data), dtype.build()
    if len(content) != math.prod(shape) * kind.itemsize:
        raise ValueError(f"an array of shape {shape} has {len(content):,} bytes")
    array = np.frombuffer(content, kind).reshape(shape, order="F" if fortran else "C")
    return array.astype(kind.newbyteorder("="))


def _objects(shape: tuple[int, ...], dtype: PickledType, data: Any, fortran: bool) -> np.ndarray:
    """Objects come as a list, never as bytes, which would be addresses."""
    if type(data) is not list or len(data) != math.prod(shape):
        raise ValueError(f"an array of objects of shape {shape} must come with a list of them")
    array = np.empty(len(data), object)
    for place, value in enumerate(data):
        array[place] = value
    return array.reshape(shape, order="F" if fortran else "C")


class PickledMatrix:
    """A scipy CSR matrix as a pickle describes it: ``state`` holds ``data``, ``indices``, ``indptr`` and ``_shape``."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}

    def __setstate__(self, state: Any) -> None:
        if type(state) is not dict:
            raise ValueError("a matrix has no state")
        self.state = dict(state)

    def build(self) -> sp.csr_matrix:
        """The matrix, whose indices point into it."""
        data, indices, indptr = (self._array(name) for name in ("data", "indices", "indptr"))
        rows, columns = self.state["_shape"] if "_shape" in self.state else self.state["shape"]
        matrix = sp.csr_matrix((data, indices, indptr), shape=(int(rows), int(columns)))
        validate_sparse(matrix)
        return matrix

    def _array(self, name: str) -> np.ndarray:
        array = self.state[name]
        if type(array) is not PickledArray or array.value.ndim != 1 or array.value.dtype.kind not in "biuf":
            raise ValueError(f"'{name}' of a matrix is no row of numbers")
        return array.value


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


def _as_bytes(value: Any) -> bytes:
    """Bytes, which old protocols wrote as a text of the same codes."""
    if not isinstance(value, bytes | str):
        raise ValueError("an array has no bytes")
    return value if isinstance(value, bytes) else value.encode("latin1")


def encode_latin1(text: Any, encoding: Any = "latin1") -> bytes:
    """How numpy pickles bytes in old protocols; with any other codec it could inflate."""
    if encoding != "latin1" or not isinstance(text, str):
        raise ValueError(f"it asks for the codec '{str(encoding)[:20]}'")
    return text.encode("latin1")


def begin_array(kind: Any, shape: Any, code: Any) -> PickledArray:
    """What numpy calls to begin an array; its state follows."""
    return PickledArray()


def read_scalar(dtype: Any, data: Any) -> Any:
    if type(dtype) is not PickledType or dtype.is_object:
        raise ValueError("it holds a number without a type")
    return _numbers((), dtype, data, False).item()


def begin_dict(*arguments: Any) -> dict[Any, Any]:
    """A dictionary of any kind; its entries follow, or come as a list of pairs."""
    pairs = arguments[0] if arguments and isinstance(arguments[0], list) else []
    return dict(pairs)
