"""Public files that were pickled, read without running what they say.

A pickle is a program that may name any function of any module. The few public data sets that come as pickles need
numpy arrays, scipy matrices and plain containers; this reader admits those names and refuses every other.
"""

from __future__ import annotations

import collections
import io
import pickle
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp

from polyformer.errors import FileCorrupt

__all__ = ["load_object_array", "load_pickle"]


def _latin1(text: str, encoding: str) -> bytes:
    """How numpy pickles bytes in old protocols; with any other codec it could inflate."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it asks for the codec '{encoding}'")
    return text.encode("latin1")


_reconstruct = np.zeros(0).__reduce__()[0]
_scalar = np.float64(0).__reduce__()[0]

ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("numpy._core.multiarray", "scalar"): _scalar,
    ("scipy.sparse.csr", "csr_matrix"): sp.csr_matrix,
    ("scipy.sparse._csr", "csr_matrix"): sp.csr_matrix,
    ("collections", "defaultdict"): collections.defaultdict,
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
    ("__builtin__", "dict"): dict,
    ("builtins", "dict"): dict,
    ("_codecs", "encode"): _latin1,
}
"""All that a pickle may name. Nothing here runs code or opens files."""


class _Refused(Exception):
    """The pickle names something that is not admitted."""


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return ADMITTED[module, name]
        except KeyError:
            raise _Refused(f"{module}.{name}") from None

    def persistent_load(self, pid: Any) -> Any:
        raise _Refused("a persistent object")


def load_pickle(path: Path) -> Any:
    """Read one pickled object.

    Raises:
        FileCorrupt: the file names anything but numpy arrays, scipy matrices and containers, or is damaged.
    """
    with path.open("rb") as file:
        return _load(file, path)


def load_object_array(path: Path) -> np.ndarray:
    """Read a ``.npy`` file whose entries are Python objects, e.g. the dictionaries of the LINKX splits."""
    with path.open("rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(file)
        except ValueError as error:
            raise FileCorrupt(f"'{path}' is not a .npy file ({error}). Get it again.") from None
        if not dtype.hasobject:
            raise FileCorrupt(f"'{path}' should hold one dictionary per split. Got an array of {dtype}. Get it again.")
        array = _load(file, path)
    if not isinstance(array, np.ndarray) or array.shape != shape:
        raise FileCorrupt(f"'{path}' does not hold the array of shape {shape} that it announces. Get it again.")
    return array


def _load(file: IO[bytes] | io.BufferedReader, path: Path) -> Any:
    try:
        return _Reader(file, encoding="latin1").load()
    except _Refused as refused:
        raise FileCorrupt(
            f"'{path}' asks to load '{refused}', which no data file needs, so it was not read. "
            f"Get it from the public source."
        ) from None
    except Exception as error:  # a damaged pickle can fail in any way
        raise FileCorrupt(f"'{path}' cannot be read ({error}). Get it again.") from None
