"""Graphs in files of arrays, which are read whole: npz, and PyTorch Geometric's .pt."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from polyformer.errors import DataNotFound, FileCorrupt, InvalidData
from polyformer.files import NpzFile, reading, require_regular, source_bytes
from polyformer.formats.matrices import holds_matrices
from polyformer.graph_checks import pyg_weights, to_numpy
from polyformer.importing.edges import ArrayEdges
from polyformer.importing.features import ArrayFeatures
from polyformer.importing.identifiers import DenseIds
from polyformer.importing.labels import Labels, encode_labels
from polyformer.importing.matrix_sources import read_matrix_npz, read_scipy_npz
from polyformer.importing.options import ColumnMatch, ImportOptions
from polyformer.importing.source import Source
from polyformer.limits import check_claimed_nodes
from polyformer.splits import Split, split_from_masks

__all__ = ["read_npz", "read_pt"]

_NPZ_KEYS = {
    "edge_index": "edges",
    "x": "node_features",
    "y": "node_labels",
    "train_mask": "train_masks",
    "val_mask": "val_masks",
    "test_mask": "test_masks",
}


def read_npz(path: Path, options: ImportOptions) -> Source:
    """Read ``edges`` (E, 2), ``node_features``, ``node_labels``, ``train_masks`` …, or matrices of other projects."""
    with reading(path), NpzFile(path) as archive:
        if {"format", "shape", "data"} <= set(archive.names):
            return read_scipy_npz(path, options)
        if holds_matrices(archive.names):
            return read_matrix_npz(path, options)
        if "edges" not in archive:
            keys = ", ".join(archive.names[:20]) or "none"
            raise InvalidData(
                f"'{path}' must hold 'edges' and may hold node_features, node_labels, train_masks, val_masks and "
                f"test_masks, or hold adj_indptr … as in gnn-benchmark, or be a scipy sparse matrix. Its keys are: "
                f"{keys}."
            )
        arrays = {ours: archive[theirs] for ours, theirs in _NPZ_KEYS.items() if theirs in archive}
    if arrays["edge_index"].ndim == 2 and arrays["edge_index"].shape[1] == 2:
        arrays["edge_index"] = arrays["edge_index"].T
    return _from_arrays("npz", path, arrays, _NPZ_KEYS, options)


def read_pt(path: Path, options: ImportOptions) -> Source:
    """A PyTorch Geometric ``Data`` object, its ``to_dict()``, or the processed file of a one-graph data set."""
    contents = _unpack(_load_pt(path), path)
    contents["edge_weight"], note = pyg_weights(contents.get("edge_weight"), contents.get("edge_attr"))
    keys = {name: name for name in (*_NPZ_KEYS, "edge_weight", "num_nodes")}
    contents = {name: value for name, value in contents.items() if name in keys and value is not None}
    if "edge_index" not in contents:
        raise InvalidData(f"'{path}' holds no edge_index. Save a torch_geometric Data object or its to_dict().")
    count = _node_count(contents.pop("num_nodes", None), path)
    for name, value in contents.items():
        if _is_expanded(value):
            raise InvalidData(
                f"'{name}' of '{path}' repeats its numbers to the shape {tuple(value.shape)}. Save a clone of it."
            )
    arrays = {name: value if _is_sparse(name, value) else to_numpy(value, name) for name, value in contents.items()}
    source = _from_arrays("PyTorch Geometric", path, arrays, keys, options, count)
    return replace(source, notes=(note,)) if note and options.weight_column != "" else source


def _is_sparse(name: str, value: Any) -> bool:
    """Whether a value holds sparse features, which stay sparse."""
    return name == "x" and "sparse" in str(getattr(value, "layout", ""))


def _node_count(value: Any, path: Path) -> int | None:
    """The number of nodes; None if the file does not say it."""
    if value is None:
        return None
    count = to_numpy(value, "num_nodes")
    if count.size != 1 or count.dtype.kind not in "iu" or int(count.item()) < 1:
        raise InvalidData(f"'num_nodes' of '{path}' must be a whole number, 1 or more. Got {value!r:.50}. Correct it.")
    return int(count.item())


def _load_pt(path: Path) -> Any:
    import torch

    if not path.is_file():
        raise DataNotFound(f"There is no file '{path}'. Check the path.")
    refusal = (
        f"'{path}' would have to run code to be read, which is refused. Save data.to_dict() with torch.save instead."
    )
    with reading(path):
        _check_archive(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "torch_geometric" not in str(error):
            if "GLOBAL" in str(error) or "global" in str(error) or "Unsupported" in str(error):
                raise InvalidData(refusal) from None
            raise FileCorrupt(f"'{path}' is no file that torch.save wrote, or is truncated. Make it again.") from None
    except Exception:  # a truncated zip raises RuntimeError, EOFError and others
        raise FileCorrupt(f"'{path}' is no file that torch.save wrote, or is truncated. Make it again.") from None
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    plain = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]  # reading these classes runs no code of the file
    try:
        with torch.serialization.safe_globals(plain):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception:
        raise InvalidData(refusal) from None


def _check_archive(path: Path) -> None:
    """Refuse a file of torch.save whose parts are packed, which torch never does: they could unfold without end."""
    size = require_regular(path)
    if not zipfile.is_zipfile(path):
        return  # torch.load tells what is wrong with it
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
    if packed or sum(member.file_size for member in members) > size:
        raise ValueError("its parts are packed, which torch.save never does")


def _is_expanded(value: Any) -> bool:
    """Whether a tensor claims more numbers than it holds, for instance by a stride of zero, which repeats them."""
    if not hasattr(value, "untyped_storage") or "sparse" in str(value.layout):
        return False
    return bool(value.numel() * value.element_size() > value.untyped_storage().nbytes())


def _unpack(content: Any, path: Path) -> dict[str, Any]:
    if isinstance(content, (tuple, list)) and content:
        slices = content[1] if len(content) > 1 and isinstance(content[1], Mapping) else {}
        if any(len(ends) > 2 for ends in slices.values() if hasattr(ends, "__len__")):
            raise InvalidData(f"'{path}' holds several graphs. Save one of them on its own.")
        content = content[0]
    if hasattr(content, "to_dict"):
        content = content.to_dict()
    if not isinstance(content, Mapping):
        raise InvalidData(f"'{path}' must hold a Data object or a dictionary. Got {type(content).__name__}.")
    return dict(content)


def _from_arrays(
    kind: str,
    path: Path,
    arrays: dict[str, Any],
    keys: dict[str, str],
    options: ImportOptions,
    count: int | None = None,
) -> Source:
    edge_index = arrays["edge_index"]
    if edge_index.ndim != 2 or edge_index.shape[0] != 2 or edge_index.dtype.kind not in "iu":
        raise InvalidData(
            f"'{keys['edge_index']}' of '{path}' must be pairs of integers. Got {edge_index.dtype} {edge_index.shape}."
        )
    features = ArrayFeatures(arrays["x"]) if "x" in arrays and options.features != () else None
    labels = _labels(arrays["y"], path, options) if "y" in arrays and options.label_column != "" else None
    sizes = [int(arrays[name].shape[0]) for name in ("x", "y") if name in arrays and arrays[name].ndim]
    if count is not None:
        check_claimed_nodes(count, source_bytes(path), str(path))
    num_nodes = count or (sizes[0] if sizes else options.num_nodes)
    if any(size != num_nodes for size in sizes):
        raise InvalidData(
            f"Features and labels of '{path}' must have one row per node. Got {sizes} for {num_nodes} nodes."
        )
    weights = None if options.weight_column == "" else arrays.get("edge_weight")
    if weights is not None and weights.shape != (edge_index.shape[1],):
        raise InvalidData(
            f"'{path}' must have one edge_weight per edge. Got {weights.shape} for {edge_index.shape[1]}."
        )
    splits = None
    if labels is not None and options.split_column != "" and "train_mask" in arrays:
        splits = _splits(arrays, labels, num_nodes or 0, path)
    matched = tuple(ColumnMatch(path.name, _ROLES[name], keys[name]) for name in _ROLES if name in arrays)
    ids = None if num_nodes is None else DenseIds(num_nodes)
    edges = ArrayEdges(edge_index, weights, path.name)
    return Source(kind, path.stem, edges, ids, features, labels, splits, matched=matched)


_ROLES = {
    "edge_index": "edge list",
    "edge_weight": "weight",
    "x": "feature matrix",
    "y": "label",
    "train_mask": "training split",
    "val_mask": "validation split",
    "test_mask": "test split",
}


def _labels(values: np.ndarray, path: Path, options: ImportOptions) -> Labels:
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values.ndim != 1 or values.dtype.kind not in "biufU":
        raise InvalidData(
            f"Labels of '{path}' must be one class or number per node. Got {values.dtype} {values.shape}."
        )
    if values.dtype.kind == "f" and values.dtype.itemsize > 8:  # Arrow has no wider number
        values = values.astype(np.float64)
    return encode_labels(pa.array(values), options)


def _splits(arrays: Mapping[str, np.ndarray], labels: Labels, num_nodes: int, path: Path) -> tuple[Split, ...]:
    parts = []
    for name in ("train_mask", "val_mask", "test_mask"):
        mask = np.atleast_2d(arrays.get(name, np.zeros(num_nodes, bool)))
        mask = mask.T if mask.shape[0] == num_nodes and mask.shape[1] != num_nodes else mask
        if mask.shape[1] != num_nodes or mask.dtype.kind not in "biu":
            raise InvalidData(
                f"'{name}' of '{path}' must have one truth value per node. Got {mask.dtype} {mask.shape}."
            )
        parts.append(mask.astype(bool) & labels.known)
    count = max(len(mask) for mask in parts)
    train, val, test = (np.broadcast_to(mask, (count, num_nodes)) for mask in parts)
    return tuple(split_from_masks(train[i], val[i], test[i]) for i in range(count))
