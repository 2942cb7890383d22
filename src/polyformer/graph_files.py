"""The files of a graph directory: their manifest, their names in each version, and their arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from polyformer.arrays import RowReader
from polyformer.errors import FileCorrupt, InvalidData
from polyformer.files import (
    check_samples,
    check_sealed,
    map_npy,
    plain_name,
    read_json,
    read_npy,
    read_sparse,
    reading,
    seal_files,
    write_json,
    write_npy,
    write_sparse,
)
from polyformer.files.data_schemas import GRAPH_MANIFEST
from polyformer.graph_checks import Features, check_csr, validate_sparse

__all__ = [
    "FORMAT",
    "GraphArrays",
    "check_stored_features",
    "describe_arrays",
    "graph_file",
    "load_sparse",
    "open_version",
    "read_arrays",
    "write_arrays",
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
    "removed.npy",
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


@dataclass(frozen=True, eq=False)
class GraphArrays:
    """The arrays of a graph as its directory holds them; see :class:`polyformer.graph.Graph`."""

    indptr: np.ndarray
    indices: np.ndarray
    weights: np.ndarray | None
    features: Features | None
    removed: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))


def read_arrays(folder: Path, manifest: Mapping[str, Any], verify: bool) -> GraphArrays:
    """Open the files that a manifest names, memory-mapped; refuse those that are damaged or swapped.

    Args:
        verify: read every byte.
    """

    def place(name: str) -> Path:
        return graph_file(folder, manifest, name)

    check_samples(folder, manifest.get("samples", {}))
    check_sealed(folder, manifest.get("files", {}), whole=verify)
    indptr, indices = map_npy(place("indptr.npy")), map_npy(place("indices.npy"))
    weights = map_npy(place("weights.npy")) if manifest["weighted"] else None
    features: Features | None = None
    if manifest["features"] == "dense":
        features = map_npy(place("features.npy"))
        check_stored_features(place("features.npy"), features, verify)
    elif manifest["features"] is not None:
        features = load_sparse(place("features.npz"))
    removed = read_npy(place("removed.npy")) if manifest.get("removed") else np.empty(0, np.int64)
    arrays = GraphArrays(indptr, indices, weights, features, removed)
    _check_manifest(arrays, manifest, folder)
    return arrays


def _check_manifest(arrays: GraphArrays, manifest: Mapping[str, Any], folder: Path) -> None:
    try:
        check_csr(arrays.indptr, arrays.indices, arrays.weights, arrays.features)
    except InvalidData as error:
        raise FileCorrupt(f"The graph directory '{folder}' is damaged. {error}") from None
    for name, actual in (
        ("num_nodes", len(arrays.indptr) - 1),
        ("num_entries", len(arrays.indices)),
        ("num_features", 0 if arrays.features is None else arrays.features.shape[1]),
    ):
        if manifest[name] != actual:
            raise FileCorrupt(
                f"'{folder}' is damaged: its manifest says {name}={manifest[name]}, its arrays say {actual}."
            )


def write_arrays(folder: Path, arrays: GraphArrays) -> None:
    """Write one memory-mappable file for each array, and sparse features as one archive."""
    write_npy(folder / "indptr.npy", arrays.indptr)
    write_npy(folder / "indices.npy", arrays.indices)
    if arrays.weights is not None:
        write_npy(folder / "weights.npy", arrays.weights)
    if isinstance(arrays.features, np.ndarray):
        write_npy(folder / "features.npy", arrays.features)
    elif arrays.features is not None:
        write_sparse(folder / "features.npz", arrays.features)


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
        **({"removed": True} if (folder / "removed.npy").exists() else {}),
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
