"""Layers of changed tokens put together now and then: into one layer, or with the array into a new array."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from polyformer.files import NpyWriter, reporting_io_errors, seal_files, sync_directory, sync_file, write_json
from polyformer.files.data_schemas import TOKEN_MANIFEST
from polyformer.stores.directory import StoredTokens
from polyformer.stores.layers import Layer, TokenLayers, append_layer

__all__ = ["MOST_LAYERS", "fold", "remove_leftovers", "switch_files"]

MOST_LAYERS = 64
"""More layers are put together."""

_MOST_ROWS = 2
"""Layers are also put together when they have more rows than this multiple of the number of nodes, which bounds their
size."""

_PIECE_BYTES = 1 << 24


def fold(stored: StoredTokens) -> None:
    """Put layers together where there are many; ``stored`` was opened before the last of them was appended."""
    layers = stored.layers.layers
    if len(layers) + 1 < MOST_LAYERS and sum(len(layer.ids) for layer in layers) <= _MOST_ROWS * stored.layers.num_rows:
        return
    with reporting_io_errors("folded tokens", stored.directory):
        now = StoredTokens(stored.directory, sealed=False)
        version, about = now.manifest["version"], now.layers.layers[-1].about
        left_out = now.layers.left_out(now.layers.num_rows)
        left_ids = np.flatnonzero(left_out.any(axis=1))
        ids, rows = now.layers.ids, np.empty((0, *now.layers.shape[1:]), now.layers.base.dtype)
        names: dict[str, Any] = {
            "base": now.base_path.name,
            "log": f"changes-{version}.log",
            "base_rows": len(now.layers.base),
        }
        if 2 * len(ids) > now.layers.num_rows:
            names |= {"base": f"tokens-{version}.npy", "base_rows": now.layers.num_rows}
            _write_array(now.directory / names["base"], now.layers)
            ids = ids[:0]
        else:
            rows = now.layers.take(ids)
        log = now.directory / names["log"]
        append_layer(log, Layer(about, ids, rows, left_ids, left_out[left_ids]), 0)
        switch_files(now, names | about)


def _write_array(path: Path, layers: TokenLayers) -> None:
    """All rows as one array, on the disk when this returns."""
    row_bytes = layers.base.itemsize * int(np.prod(layers.shape[1:]))
    with NpyWriter(path, layers.base.dtype, layers.shape[1:]) as writer:
        for piece in layers.pieces(max(1, _PIECE_BYTES // row_bytes)):
            writer.append(piece)
    sync_file(path)


def switch_files(stored: StoredTokens, changes: dict[str, Any]) -> None:
    """Have the manifest name other files, then remove those that it named before."""
    directory, manifest = stored.directory, {**stored.manifest}
    manifest["operator"] = manifest["operator"] | {"structure": changes["structure"]}
    manifest |= changes
    manifest.pop("samples", None)
    if manifest["base"] not in manifest.get("files", {}):
        manifest["files"] = seal_files(directory, (manifest["base"],))
    write_json(directory / "manifest.json", manifest, TOKEN_MANIFEST)
    sync_directory(directory)
    for path in (stored.base_path, stored.log_path):
        if path.name not in (manifest["base"], manifest["log"]):
            path.unlink(missing_ok=True)


def remove_leftovers(stored: StoredTokens) -> None:
    """Remove files of an update that was killed: the manifest names them not."""
    named = {stored.base_path.name, stored.log_path.name}
    for pattern in ("tokens-*.npy", "changes*.log", ".manifest.json.*"):
        for path in stored.directory.glob(pattern):
            if path.name not in named:
                path.unlink(missing_ok=True)
