"""Read public pickle files without running code from them.

A pickle is a program that may name any function of any module. The few public data sets that come as pickles need
numpy arrays, scipy matrices and plain containers. This reader is Python's own unpickler in Python with fewer
instructions; it knows a handful of names, and none of them stands for the real thing: an array is first a record of
ours, and becomes an array when its type, its shape and its bytes fit together.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from polyformer.errors import FileCorrupt, PolyformerError
from polyformer.files import open_regular, read_npy_header, reading
from polyformer.formats.pickled_records import (
    PickledArray,
    PickledMatrix,
    PickledType,
    begin_array,
    begin_dict,
    encode_latin1,
    read_scalar,
)

__all__ = ["load_object_array", "load_pickle"]

_AGAIN = "Get it again."
_MOST_BYTES = 1 << 30


class _Refused(Exception):
    """The pickle names something that is not admitted."""


_ARRAY_TYPE, _LIST_TYPE, _DICT_TYPE = object(), object(), object()

ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _ARRAY_TYPE,
    ("numpy", "dtype"): PickledType,
    ("numpy.core.multiarray", "_reconstruct"): begin_array,
    ("numpy._core.multiarray", "_reconstruct"): begin_array,
    ("numpy.core.multiarray", "scalar"): read_scalar,
    ("numpy._core.multiarray", "scalar"): read_scalar,
    ("scipy.sparse.csr", "csr_matrix"): PickledMatrix,
    ("scipy.sparse._csr", "csr_matrix"): PickledMatrix,
    ("collections", "defaultdict"): begin_dict,
    ("collections", "OrderedDict"): begin_dict,
    ("__builtin__", "list"): _LIST_TYPE,
    ("builtins", "list"): _LIST_TYPE,
    ("__builtin__", "dict"): _DICT_TYPE,
    ("builtins", "dict"): _DICT_TYPE,
    ("_codecs", "encode"): encode_latin1,
}
"""All that a pickle may name, and what it gets instead. Nothing here runs code, opens files or trusts an address."""

_NEEDLESS = (
    pickle.INST,
    pickle.OBJ,
    pickle.NEWOBJ_EX,
    pickle.EXT1,
    pickle.EXT2,
    pickle.EXT4,
    pickle.PERSID,
    pickle.BINPERSID,
    pickle.NEXT_BUFFER,
    pickle.READONLY_BUFFER,
)


def _build(reader: Any) -> None:
    """The instruction that hands a state to what was begun: only to records of ours."""
    state = reader.stack.pop()
    target = reader.stack[-1]
    if type(target) not in (PickledArray, PickledType, PickledMatrix):
        raise _Refused(f"a state for {type(target).__name__}")
    target.__setstate__(state)


def _refuse(reader: Any) -> None:
    raise _Refused("an instruction that no data file needs")


# The unpickler in C fills a table of as many entries as a file of ten bytes claims; the one in Python does not.
_PythonReader: Any = pickle._Unpickler


class _Reader(_PythonReader):  # type: ignore[misc]
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        **_PythonReader.dispatch,
        pickle.BUILD[0]: _build,
        **{code[0]: _refuse for code in _NEEDLESS},
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return ADMITTED[module, name]
        except KeyError:
            raise _Refused(f"{module}.{name}"[:200]) from None


def load_pickle(path: Path) -> Any:
    """Read one pickled object: containers, numbers, numpy arrays, scipy CSR matrices.

    Raises:
        FileCorrupt: the file names anything but numpy arrays, scipy matrices and containers, or is damaged.
    """
    with reading(path, _AGAIN), open_regular(path) as file:
        return _load(file, path)


def load_object_array(path: Path) -> np.ndarray:
    """Read a ``.npy`` file whose entries are Python objects, e.g. the dictionaries of the LINKX splits."""
    with reading(path, _AGAIN), open_regular(path) as file:
        header = read_npy_header(file, objects=True)
        if header.dtype != object:
            raise FileCorrupt(
                f"'{path}' should hold one dictionary per split. Got an array of {header.dtype}. {_AGAIN}"
            )
        array = _load(file, path)
    if not isinstance(array, np.ndarray) or array.shape != header.shape:
        raise FileCorrupt(f"'{path}' does not hold the array of shape {header.shape} that it announces. {_AGAIN}")
    return array


def _load(file: Any, path: Path) -> Any:
    content = file.read(_MOST_BYTES + 1) if path.stat().st_size > _MOST_BYTES else file.read()
    try:
        if len(content) > _MOST_BYTES:
            raise ValueError(f"it is longer than {_MOST_BYTES:,} bytes")
        return _finished(_Reader(io.BytesIO(content), encoding="latin1").load(), {})
    except _Refused as refused:
        raise FileCorrupt(
            f"'{path}' asks to load '{refused}', which no data file needs, so it was not read. "
            f"Get it from the public source."
        ) from None
    except (PolyformerError, MemoryError):
        raise
    except Exception as error:  # a damaged pickle can fail in any way
        raise FileCorrupt(f"'{path}' cannot be read ({str(error)[:200]}). {_AGAIN}") from None


def _finished(value: Any, seen: dict[int, Any]) -> Any:
    """The value with arrays in the place of their records; what stands in several places is looked at once."""
    if id(value) in seen:
        return seen[id(value)]
    if type(value) is PickledArray:
        seen[id(value)] = value.value
        if value.value.dtype == object:
            flat = value.value.reshape(-1)
            for place in range(len(flat)):
                flat[place] = _finished(flat[place], seen)
        return value.value
    if type(value) is list:
        seen[id(value)] = value
        value[:] = [_finished(part, seen) for part in value]
    elif type(value) is tuple:
        seen[id(value)] = value
        seen[id(value)] = tuple(_finished(part, seen) for part in value)
        return seen[id(value)]
    elif type(value) is PickledMatrix:
        seen[id(value)] = value.build()
        return seen[id(value)]
    elif type(value) is dict:
        seen[id(value)] = value
        for key in list(value):
            value[key] = _finished(value[key], seen)
    elif value is _ARRAY_TYPE or type(value) is PickledType or callable(value):
        raise _Refused("a type or a function as a value")
    return value
