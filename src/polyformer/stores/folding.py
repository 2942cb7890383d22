"""Records of changed tokens put together now and then: into one record, or with the array into a new array."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from polyformer.files import NpyWriter, reporting_io_errors, seal_files, sync_directory, sync_file, write_json
from polyformer.files.data_schemas import TOKEN_MANIFEST
from polyformer.stores.change_log import Record, append_record
from polyformer.stores.directory import StoredTokens
from polyformer.stores.layers import TokenLayers
from polyformer.system import discard

__all__ = ["MOST_RECORDS", "fold", "remove_leftovers", "switch_files"]

MOST_RECORDS = 64
"""More records are put together."""

_MOST_LOG = 2
"""A log with more tokens than so many times those of the array is put together, too: a bound on what it occupies."""

_PIECE_BYTES = 1 << 24


def fold(stored: StoredTokens) -> None:
    """Put records together where there are many; ``stored`` was opened before the last of them was appended."""
    layers = stored.layers
    num_tokens = layers.num_rows * layers.shape[1]
    if (
        len(layers.records) + 1 < MOST_RECORDS
        and sum(record.num_tokens for record in layers.records) <= _MOST_LOG * num_tokens
    ):
        return
    with reporting_io_errors("folded tokens", stored.directory):
        now = StoredTokens(stored.directory, sealed=False)
        version, about = now.manifest["version"], now.layers.records[-1].about
        left_out = now.layers.left_out(now.layers.num_rows)
        left_ids = [np.flatnonzero(bounds) for bounds in left_out]
        ids = [now.layers.changed_rows(k) for k in range(now.layers.shape[1])]
        names: dict[str, Any] = {
            "base": now.base_path.name,
            "log": f"changes-{version}.log",
            "base_rows": len(now.layers.base),
        }
        if 2 * sum(len(part) for part in ids) > num_tokens:
            names |= {"base": f"tokens-{version}.npy", "base_rows": now.layers.num_rows}
            _write_array(now.directory / names["base"], now.layers)
            ids = [part[:0] for part in ids]
        tokens = [now.layers.take_order(k, part) for k, part in enumerate(ids)]
        kept = [bounds[part] for bounds, part in zip(left_out, left_ids, strict=True)]
        append_record(now.directory / names["log"], Record(about, ids, tokens, left_ids, kept), 0)
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
            discard(path)


def remove_leftovers(stored: StoredTokens) -> None:
    """Remove files of an update that was killed: the manifest names them not."""
    named = {stored.base_path.name, stored.log_path.name}
    for pattern in ("tokens-*.npy", "changes*.log", ".manifest.json.*"):
        for path in stored.directory.glob(pattern):
            if path.name not in named:
                discard(path)
