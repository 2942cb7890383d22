"""A graph directory written piece by piece: nothing at the destination until it is whole, nothing left after a kill."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from polyformer.errors import InvalidData
from polyformer.files import array_digest, new_directory, try_lock, write_json
from polyformer.graph import describe_arrays
from polyformer.importing.array_files import NpyWriter, npy_digest
from polyformer.importing.features import ArrayFeatures, FeatureStream
from polyformer.progress import Stages
from polyformer.tasks import Task

__all__ = ["import_folder", "write_features", "write_manifest"]

_MARK = "import.lock"


@contextlib.contextmanager
def import_folder(destination: Path) -> Iterator[Path]:
    """As :func:`polyformer.files.new_directory`; leftovers of imports to the same place that were killed go first.

    An import holds a lock on a file in its temporary directory, so that one that still runs is left alone.
    """
    _remove_leftovers(destination)
    with new_directory(destination) as folder:
        with (folder / _MARK).open("wb") as mark:
            try_lock(mark)
            (folder / "work").mkdir()
            yield folder
            shutil.rmtree(folder / "work")
        (folder / _MARK).unlink()


def _remove_leftovers(destination: Path) -> None:
    for folder in destination.parent.glob(f".{destination.name}.*") if destination.parent.is_dir() else ():
        with contextlib.suppress(OSError):
            with (folder / _MARK).open("rb+") as mark:
                if not try_lock(mark):
                    continue
            shutil.rmtree(folder, ignore_errors=True)


def write_features(folder: Path, features: FeatureStream | None, num_nodes: int, progress: Stages | None) -> None:
    """Write ``features.npy`` block by block, or ``features.npz``."""
    if features is None:
        return
    if isinstance(features, ArrayFeatures) and not isinstance(features.values, np.ndarray):
        sp.save_npz(folder / "features.npz", features.values, compressed=False)
        return
    dtype = features.values.dtype if isinstance(features, ArrayFeatures) else np.dtype(np.float32)
    with NpyWriter(folder / "features.npy", dtype, (features.num_columns,)) as writer:
        for block in features.blocks():
            writer.append(block)
            if progress is not None:
                progress("writing features", writer.length, num_nodes)
    if writer.length != num_nodes:
        raise InvalidData(f"There must be {num_nodes:,} rows of features, one per node. Got {writer.length:,}.")


def write_manifest(folder: Path, num_nodes: int, num_entries: int, num_features: int, task: Task | None = None) -> None:
    """Write ``manifest.json`` of the arrays in ``folder``, as ``save`` does, with a task's labels, and sync all.

    Structure and features are hashed at the same time.
    """
    arrays = [path for name in ("indptr", "indices", "weights") if (path := folder / f"{name}.npy").exists()]
    with ThreadPoolExecutor(2) as pool:
        structure, features = pool.submit(npy_digest, *arrays), pool.submit(_features_digest, folder)
        hashes = [structure.result(), *features.result()]
    manifest = describe_arrays(folder, num_nodes, num_entries, num_features, hashes[0], "-".join(hashes))
    write_json(folder / "manifest.json", manifest | ({} if task is None else task.write_labels(folder)))
    _sync(folder)


def _features_digest(folder: Path) -> list[str]:
    """The hash of the features, if there are any."""
    if (folder / "features.npy").exists():
        return [npy_digest(folder / "features.npy")]
    if (folder / "features.npz").exists():
        matrix = sp.load_npz(folder / "features.npz")
        return [array_digest(matrix.indptr, matrix.indices, matrix.data)]
    return []


def _sync(folder: Path) -> None:
    """Have the files on the disk before the directory gets its name."""
    for path in folder.glob("*.*"):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
