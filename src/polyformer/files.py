"""Files that appear whole: written aside, flushed, renamed into place; and their content hashes."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import math
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from polyformer.arrays import row_pieces
from polyformer.errors import DataNotFound, FileCorrupt, OutputExists, PolyformerError, WriteFailed

__all__ = [
    "array_digest",
    "check_samples",
    "existing_folder",
    "file_samples",
    "finite",
    "new_directory",
    "read_json",
    "reporting_io_errors",
    "require_keys",
    "sync_directory",
    "try_lock",
    "write_json",
    "write_npz",
    "write_whole",
]

_SAMPLES, _SAMPLE_BYTES = 32, 1 << 14


@contextlib.contextmanager
def reporting_io_errors(what: str, path: Path) -> Iterator[None]:
    """Turn a failed write (no space, read-only, not a directory) into one sentence of ours."""
    try:
        yield
    except OSError as error:
        if isinstance(error, PolyformerError):
            raise
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise WriteFailed(
                f"No space left on the disk while writing {what} to '{path}'. Free some and run again."
            ) from error
        reason = error.strerror or str(error)
        raise WriteFailed(
            f"Could not write {what} to '{path}': {reason}. Choose a place that can be written."
        ) from error


@contextlib.contextmanager
def write_whole(path: Path) -> Iterator[IO[bytes]]:
    """A binary file handle whose content replaces ``path`` at once when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """A temporary sibling directory that becomes ``path`` when the block ends without an error.

    Raises:
        OutputExists: if ``path`` is already there and is not an empty directory.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise _exists(path)
    with reporting_io_errors("a directory", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        with reporting_io_errors("files", path):
            yield temporary
            os.chmod(temporary, 0o755)
            _rename_directory(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _rename_directory(source: Path, path: Path) -> None:
    try:
        os.rename(source, path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise _exists(path) from None


def _exists(path: Path) -> OutputExists:
    return OutputExists(f"'{path}' already exists. Choose another place or remove it first.")


def existing_folder(path: Path) -> Path:
    """The folder of ``path``, or the nearest above it that exists: where large intermediate files may go."""
    return next(folder for folder in path.absolute().parents if folder.is_dir())


def sync_directory(path: Path) -> None:
    """Have the names in a directory on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def try_lock(file: IO[bytes]) -> bool:
    """Whether no other process holds an open file; it is this one's then, until it is closed or the process ends.

    Where files cannot be locked, as on some shared file systems, nobody is known to hold one.
    """
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # no such locks on this system, or not here
        return True
    return True


def finite(value: float | None) -> float | None:
    """A score as JSON can hold it: None where it is infinite or not a number.

    >>> finite(0.5), finite(float("nan")), finite(None)
    (0.5, None, None)
    """
    return value if value is not None and math.isfinite(value) else None


def write_json(path: Path, content: Any) -> None:
    """Write readable JSON, whole or not at all; numbers must be finite, as others cannot be read by every program."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    with write_whole(path) as file:
        file.write(f"{text}\n".encode())


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """What ``np.savez`` writes, whole or not at all, and without the time: the same arrays give the same bytes."""
    with write_whole(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.save(content, array)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getvalue())


def read_json(path: Path, what: str) -> Any:
    """Read JSON; a missing or damaged file gives one sentence that calls it ``what``."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataNotFound(f"'{path.parent}' is not {what}: it has no {path.name}.") from None
    except (json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
        raise FileCorrupt(
            f"'{path}' cannot be read as JSON ({error}). Restore it from a copy or make it again."
        ) from None


def require_keys(content: Any, keys: Iterable[str], path: Path) -> dict[str, Any]:
    """What was read from ``path``, an object with at least these keys; anything else is refused."""
    if not isinstance(content, dict):
        raise FileCorrupt(f"'{path}' is damaged: it holds no JSON object. Restore it from a copy or make it again.")
    for key in keys:
        if key not in content:
            raise FileCorrupt(f"'{path}' is damaged: it has no '{key}'. Restore it from a copy or make it again.")
    return content


def file_samples(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """A hash by name of the size and of pieces spread over each file that is there: finds a swapped file at once."""
    return {name: _file_sample(folder / name) for name in names if (folder / name).exists()}


def check_samples(folder: Path, samples: Mapping[str, str]) -> None:
    """Refuse files that are not those whose hashes :func:`file_samples` gave; one changed byte may go unseen."""
    for name, expected in samples.items():
        try:
            found = _file_sample(folder / name)
        except OSError as error:
            raise FileCorrupt(
                f"'{folder / name}' cannot be read ({error.strerror}). Restore it from a copy or make it again."
            ) from None
        if found != expected:
            raise FileCorrupt(
                f"'{folder / name}' is not the file that was written there: it was cut off, changed or swapped for "
                f"another. Restore it from a copy or make it again."
            )


def _file_sample(path: Path) -> str:
    size, digest = path.stat().st_size, hashlib.blake2b(digest_size=16)
    digest.update(str(size).encode())
    with path.open("rb", buffering=0) as file:
        for i in range(_SAMPLES):
            file.seek(max(0, size - _SAMPLE_BYTES) * i // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE_BYTES))
            if size <= _SAMPLE_BYTES:
                break
    return digest.hexdigest()


def array_digest(*arrays: np.ndarray, chunk_bytes: int = 1 << 24) -> str:
    """A BLAKE2 hash of the arrays' dtypes, shapes and contents, read in chunks so that memory maps stay on disk."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        for _, piece in row_pieces(array, chunk_bytes):
            digest.update(np.ascontiguousarray(piece).data)
    return digest.hexdigest()
