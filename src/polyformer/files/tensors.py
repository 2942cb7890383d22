"""safetensors files: tensors and a JSON text about them, checked by a hash."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyformer.errors import FileCorrupt
from polyformer.files.digests import array_digest
from polyformer.files.guard import open_regular, reading, reporting_io_errors, require_regular
from polyformer.files.json_files import check_json, parse_json
from polyformer.files.schema import Schema
from polyformer.files.whole import write_whole
from polyformer.limits import require_room

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["read_tensors", "write_tensors"]

_HEADER = "polyformer"
_TRAIN_AGAIN = "Remove it and train again."


def write_tensors(path: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Write a safetensors file whose header carries ``about`` and a hash of ``about`` and of the tensors.

    Both stand under one name of the header, as the library writes several in an order that differs from run to run.
    """
    from safetensors.torch import save

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(about, sort_keys=True)
    header = {_HEADER: json.dumps({"about": text, "seal": _seal(tensors, text)})}
    with reporting_io_errors(path.name, path), write_whole(path) as file:
        file.write(save(tensors, metadata=header))


def read_tensors(path: Path, schema: Schema) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and ``about`` that :func:`write_tensors` wrote; a damaged file is refused.

    Args:
        schema: schema of ``about``.
    """
    from safetensors.torch import load

    with reading(path, _TRAIN_AGAIN):
        require_room(2 * require_regular(path), f"'{path}'")
        with open_regular(path) as file:  # read, not mapped: a file that is cut off meanwhile must not kill the process
            data = file.read()
        header = _header(data, path)
        tensors = load(data)
        if _HEADER in header:
            sealed = parse_json(header[_HEADER], path)
            text, intact = sealed["about"], _seal(tensors, sealed["about"]) == sealed["seal"]
        else:  # of earlier versions, which did not hash what the header says
            text, intact = header["about"], _digest(tensors) == header["digest"]
        about = parse_json(text, path)
    if not intact:
        raise FileCorrupt(f"The {schema.what} '{path}' has been changed or damaged: its hash differs. {_TRAIN_AGAIN}")
    check_json(about, schema, path)
    return tensors, about


def _header(data: bytes, path: Path) -> dict[str, str]:
    """The texts that the header of a safetensors file carries besides its tensors."""
    length = int.from_bytes(data[:8], "little")
    if length > len(data) - 8:
        raise ValueError(f"its header claims {length:,} bytes, and the file has {len(data):,}")
    header = parse_json(data[8 : 8 + length], path).get("__metadata__") or {}
    return {str(name): str(text) for name, text in header.items()}


def _seal(tensors: dict[str, Tensor], about: str) -> str:
    """A hash of names, types, shapes and numbers of tensors, and of the text about them."""
    named = [(name, str(tensors[name].dtype), list(tensors[name].shape)) for name in sorted(tensors)]
    text = json.dumps([about, named]).encode()
    return hashlib.blake2b(text + _digest(tensors).encode(), digest_size=16).hexdigest()


def _digest(tensors: dict[str, Tensor]) -> str:
    import torch

    return array_digest(*(np.asarray(tensors[name].reshape(-1).view(torch.uint8)) for name in sorted(tensors)))
