"""The files of a graph directory: their manifest, their names in each version, and checks of stored features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from polyformer.arrays import RowReader
from polyformer.errors import FileCorrupt
from polyformer.files import plain_name, read_json, read_sparse, reading, seal_files, write_json
from polyformer.files.data_schemas import GRAPH_MANIFEST
from polyformer.graph_checks import validate_sparse

__all__ = [
    "FORMAT",
    "check_stored_features",
    "describe_arrays",
    "graph_file",
    "load_sparse",
    "open_version",
    "write_graph_manifest",
]

FORMAT = 1
Opened = TypeVar("Opened")
_PIECES_LOOKED_AT = 32
_FILES = (
    "indptr.npy",
    "indices.npy",
    "weights.npy",
    "features.npy",
    "features.npz",
    "labels.npy",
    "splits.npz",
    "ids.npy",
)


def open_version(folder: Path, open_files: Callable[[dict[str, Any]], Opened]) -> Opened:
    """What ``open_files`` makes of the manifest of a graph directory; of a newer one if an update came in between."""
    manifest = read_json(folder / "manifest.json", GRAPH_MANIFEST)
    while True:
        try:
            return open_files(manifest)
        except (FileNotFoundError, FileCorrupt):  # of an update that removed the files of this version
            newer = read_json(folder / "manifest.json", GRAPH_MANIFEST)
            if newer.get("version", 0) == manifest.get("version", 0):
                raise
            manifest = newer


def graph_file(folder: Path, manifest: Mapping[str, Any], name: str) -> Path:
    """The file of a graph directory that holds an array: an update writes a changed array under another name."""
    return folder / plain_name(manifest.get("names", {}).get(name, name), folder)


def describe_arrays(
    folder: Path, num_nodes: int, num_entries: int, num_features: int, structure: str, fingerprint: str
) -> dict[str, Any]:
    """The manifest of the arrays that stand in ``folder``, from their sizes and hashes."""
    dense, sparse = ((folder / f"features.{ending}").exists() for ending in ("npy", "npz"))
    return {
        "format": FORMAT,
        "kind": "graph",
        "num_nodes": num_nodes,
        "num_edges": num_entries // 2,
        "num_entries": num_entries,
        "num_features": num_features,
        "weighted": (folder / "weights.npy").exists(),
        "features": "dense" if dense else "sparse" if sparse else None,
        "structure": structure,
        "fingerprint": fingerprint,
    }


def write_graph_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write ``manifest.json`` with the hashes of all files of a graph directory, which stand in ``folder``."""
    write_json(folder / "manifest.json", manifest | {"files": seal_files(folder, _FILES)}, GRAPH_MANIFEST)


def check_stored_features(path: Path, features: np.ndarray, whole: bool) -> None:
    """Refuse features that are no matrix of finite numbers; of a large file some rows are looked at."""
    with reading(path):
        if features.ndim != 2 or features.dtype not in (np.float32, np.float16):
            raise ValueError(f"it must hold a matrix of float32 or float16. Got {features.dtype} {features.shape}")
        if not features.size:
            return
        step = max(1, (1 << 20) // max(1, features.shape[1] * features.itemsize))
        pieces = range(0, len(features), step)
        if not whole and len(pieces) > _PIECES_LOOKED_AT:
            pieces = pieces[:: len(pieces) // _PIECES_LOOKED_AT]
        with RowReader(features) as reader:  # mapped pages would count as memory of this process
            for start in pieces:
                rows = reader.read(start, min(start + step, len(features)))
                if not np.isfinite(rows).all():
                    raise ValueError(f"its numbers must be finite, and some of rows {start} to {start + step} are not")


def load_sparse(path: Path) -> sp.csr_matrix:
    """Read a sparse matrix of features and check it."""
    matrix = read_sparse(path)
    with reading(path):
        validate_sparse(matrix)
        return sp.csr_matrix(matrix)
