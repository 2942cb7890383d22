"""Write a graph directory piece by piece; it appears at the destination when it is whole."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from polyformer.errors import InvalidData
from polyformer.files import (
    NpyWriter,
    array_digest,
    is_held,
    locked,
    new_directory,
    npy_digest,
    read_sparse,
    sync_file,
    write_sparse,
)
from polyformer.graph_files import describe_arrays, write_graph_manifest
from polyformer.importing.features import ArrayFeatures, FeatureStream
from polyformer.reporter import Reporter
from polyformer.tasks import Task

__all__ = ["import_folder", "write_features", "write_manifest"]

_MARK = "import.lock"


@contextlib.contextmanager
def import_folder(destination: Path) -> Iterator[Path]:
    """As :func:`polyformer.files.new_directory`; first removes what killed imports to the same place left behind.

    An import holds a lock on a file in its temporary directory, so that the files of a running import stay.
    """
    _remove_leftovers(destination)
    with new_directory(destination) as folder:
        with locked(folder / _MARK, None):
            (folder / "work").mkdir()
            yield folder
            shutil.rmtree(folder / "work")
        (folder / _MARK).unlink()


def _remove_leftovers(destination: Path) -> None:
    for folder in destination.parent.glob(f".{destination.name}.*") if destination.parent.is_dir() else ():
        with contextlib.suppress(OSError):
            if not is_held(folder / _MARK):
                shutil.rmtree(folder, ignore_errors=True)


def write_features(folder: Path, features: FeatureStream | None, num_nodes: int, reporter: Reporter) -> None:
    """Write ``features.npy`` block by block, or ``features.npz``."""
    if features is None:
        return
    if isinstance(features, ArrayFeatures) and not isinstance(features.values, np.ndarray):
        write_sparse(folder / "features.npz", features.values)
        return
    dtype = features.values.dtype if isinstance(features, ArrayFeatures) else np.dtype(np.float32)
    with NpyWriter(folder / "features.npy", dtype, (features.num_columns,)) as writer:
        for block in features.blocks():
            writer.append(block)
            reporter.stage("writing features", writer.length, num_nodes)
    if writer.length != num_nodes:
        raise InvalidData(f"There must be {num_nodes:,} rows of features, one per node. Got {writer.length:,}.")


def write_manifest(folder: Path, num_nodes: int, num_entries: int, num_features: int, task: Task | None = None) -> None:
    """Write a task's labels and ``manifest.json`` of the arrays in ``folder``, as ``save`` does, and sync all files.

    Structure and features are hashed at the same time.
    """
    arrays = [path for name in ("indptr", "indices", "weights") if (path := folder / f"{name}.npy").exists()]
    with ThreadPoolExecutor(2) as pool:
        structure, features = pool.submit(npy_digest, *arrays), pool.submit(_features_digest, folder)
        hashes = [structure.result(), *features.result()]
    manifest = describe_arrays(folder, num_nodes, num_entries, num_features, hashes[0], "-".join(hashes))
    write_graph_manifest(folder, manifest | ({} if task is None else task.write_labels(folder)))
    for path in folder.glob("*.*"):
        sync_file(path)  # the file must be on the disk before the directory gets its name


def _features_digest(folder: Path) -> list[str]:
    """The hash of the features, if there are any."""
    if (folder / "features.npy").exists():
        return [npy_digest(folder / "features.npy")]
    if (folder / "features.npz").exists():
        matrix = read_sparse(folder / "features.npz")
        return [array_digest(matrix.indptr, matrix.indices, matrix.data)]
    return []
