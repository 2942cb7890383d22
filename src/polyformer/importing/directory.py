"""A graph directory written piece by piece: nothing at the destination until it is whole, nothing left after a kill."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyformer.errors import InvalidData
from polyformer.files import array_digest, file_samples, new_directory, try_lock
from polyformer.graph import ARRAY_FILES, FORMAT
from polyformer.importing.array_files import NpyWriter, npy_digest
from polyformer.importing.features import ArrayFeatures, FeatureStream
from polyformer.progress import Stages

__all__ = ["graph_manifest", "import_folder", "sync", "write_features"]

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


def write_features(folder: Path, features: FeatureStream | None, num_nodes: int, progress: Stages | None) -> str | None:
    """Write ``features.npy`` block by block, or ``features.npz``; returns ``dense``, ``sparse`` or None."""
    if features is None:
        return None
    if isinstance(features, ArrayFeatures) and not isinstance(features.values, np.ndarray):
        sp.save_npz(folder / "features.npz", features.values, compressed=False)
        return "sparse"
    dtype = features.values.dtype if isinstance(features, ArrayFeatures) else np.dtype(np.float32)
    with NpyWriter(folder / "features.npy", dtype, (features.num_columns,)) as writer:
        for block in features.blocks():
            writer.append(block)
            if progress is not None:
                progress("writing features", writer.length, num_nodes)
    if writer.length != num_nodes:
        raise InvalidData(f"There must be {num_nodes:,} rows of features, one per node. Got {writer.length:,}.")
    return "dense"


def graph_manifest(
    folder: Path, num_nodes: int, num_entries: int, weighted: bool, features: FeatureStream | None, kind: str | None
) -> dict[str, Any]:
    """The same manifest as :meth:`polyformer.graph.Graph.save` writes for these arrays."""
    arrays = [folder / "indptr.npy", folder / "indices.npy", *([folder / "weights.npy"] if weighted else [])]
    structure = fingerprint = npy_digest(*arrays)
    if kind == "dense":
        fingerprint = f"{structure}-{npy_digest(folder / 'features.npy')}"
    elif kind == "sparse":
        assert isinstance(features, ArrayFeatures)
        matrix = features.values
        assert not isinstance(matrix, np.ndarray)
        fingerprint = f"{structure}-{array_digest(matrix.indptr, matrix.indices, matrix.data)}"
    return {
        "format": FORMAT,
        "kind": "graph",
        "num_nodes": num_nodes,
        "num_edges": num_entries // 2,
        "num_entries": num_entries,
        "num_features": 0 if features is None else features.num_columns,
        "weighted": weighted,
        "features": kind,
        "structure": structure,
        "fingerprint": fingerprint,
        "samples": file_samples(folder, ARRAY_FILES),
    }


def sync(folder: Path) -> None:
    """Have the files on the disk before the directory gets its name."""
    for path in folder.glob("*.*"):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
