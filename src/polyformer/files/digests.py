"""Content hashes of arrays and files, read in pieces so that nothing large is held in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from polyformer.arrays import row_pieces
from polyformer.errors import FileCorrupt
from polyformer.files.guard import RESTORE, open_regular
from polyformer.files.npy import read_npy_header
from polyformer.files.seals import plain_name

__all__ = ["array_digest", "check_samples", "file_digest", "file_samples", "npy_digest"]

_SAMPLES, _SAMPLE_BYTES = 32, 1 << 14
_CHUNK_BYTES = 1 << 24


def array_digest(*arrays: np.ndarray, chunk_bytes: int = _CHUNK_BYTES) -> str:
    """A BLAKE2 hash of the arrays' dtypes, shapes and contents, read in chunks so that memory maps stay on disk."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        for _, piece in row_pieces(array, chunk_bytes):
            digest.update(np.ascontiguousarray(piece).data)
    return digest.hexdigest()


def npy_digest(*paths: Path, chunk_bytes: int = _CHUNK_BYTES) -> str:
    """What :func:`array_digest` gives for the arrays in these files."""
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        with open_regular(path) as file:
            header = read_npy_header(file)
            digest.update(f"{header.dtype.str}{header.shape}".encode())
            while chunk := file.read(chunk_bytes):
                digest.update(chunk)
    return digest.hexdigest()


def file_digest(path: Path, most: int | None = None) -> str | None:
    """The BLAKE2 hash of a file's bytes, None if there is no file, or one of more than ``most`` bytes."""
    if not path.is_file() or (most is not None and path.stat().st_size > most):
        return None
    with open_regular(path) as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def file_samples(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """A hash by name of the size and of pieces spread over each file that is there: finds a swapped file at once."""
    return {name: _file_sample(folder / name) for name in names if (folder / name).exists()}


def check_samples(folder: Path, samples: Mapping[str, str]) -> None:
    """Refuse files that are not those whose hashes :func:`file_samples` gave; one changed byte may go unseen."""
    for name, expected in samples.items():
        try:
            actual = _file_sample(folder / plain_name(name, folder))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise FileCorrupt(f"'{folder / name}' cannot be read ({reason}). {RESTORE}") from None
        if actual != expected:
            raise FileCorrupt(
                f"'{folder / name}' is not the file that was written there: it was cut off, changed or swapped for "
                f"another. {RESTORE}"
            )


def _file_sample(path: Path) -> str:
    size, digest = path.stat().st_size, hashlib.blake2b(digest_size=16)
    digest.update(str(size).encode())
    with open_regular(path, buffering=0) as file:
        for i in range(_SAMPLES):
            file.seek(max(0, size - _SAMPLE_BYTES) * i // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE_BYTES))
            if size <= _SAMPLE_BYTES:
                break
    return digest.hexdigest()
