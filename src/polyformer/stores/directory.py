"""A *token directory*: row-major tokens that are memory-mapped and mixed into a basis as rows are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyformer.bases import Basis, FixedBasis, Recurrence, check_order, resolve_basis
from polyformer.errors import DataNotFound, FileCorrupt, InvalidParameter
from polyformer.files import (
    check_samples,
    check_sealed,
    is_folder,
    map_npy,
    open_regular,
    plain_name,
    read_json,
    read_npy,
    read_npz,
    reading,
)
from polyformer.files.data_schemas import TOKEN_MANIFEST
from polyformer.stores.change_log import AGAIN, LOG, read_records
from polyformer.stores.layers import TokenLayers
from polyformer.stores.log_checks import check_row_ids

__all__ = ["FORMAT", "StoredTokens"]

FORMAT = 1
_ATTEMPTS = 5
"""An update that folds records removes files that an older manifest names: then the newer manifest is read."""


class StoredTokens:
    """Rows of a token directory: ``tokens[rows]`` reads them from disk, in the basis: (len(rows), K+1, d) float32.

    Args:
        directory: what ``polyformer tokens --out`` wrote.
        basis: a fixed basis, if Chebyshev tokens are stored; by default the basis that they were written for.
        order: any K up to the stored one.
        sealed: refuse files that are not those that were written; False for files that were just checked.
        verify: read every byte of all files for that; by default large files are read at some places.
    """

    def __init__(
        self,
        directory: str | Path,
        basis: str | Basis | None = None,
        order: int | None = None,
        *,
        sealed: bool = True,
        verify: bool = False,
    ) -> None:
        self.directory = Path(directory)
        if not is_folder(self.directory):
            raise DataNotFound(
                f"There is no token directory '{self.directory}'. Make one with: polyformer tokens DATASET --out DIR."
            )
        for attempt in range(_ATTEMPTS):
            self.manifest = self._written = read_json(self.directory / "manifest.json", TOKEN_MANIFEST)
            try:
                self.layers = self._open_layers(sealed, verify)
                break
            except (FileNotFoundError, FileCorrupt):
                newer = read_json(self.directory / "manifest.json", TOKEN_MANIFEST)
                if attempt == _ATTEMPTS - 1 or newer == self._written:
                    raise
        self.order = self.manifest["order"] if order is None else check_order(order)
        if self.order > self.manifest["order"]:
            raise InvalidParameter(
                f"'order' must be at most {self.manifest['order']}, what '{directory}' stores. Got {order}."
            )
        self.basis = resolve_basis(self.manifest["view"] if basis is None else basis)
        self._mixing = self._view()
        self.nodes = read_npy(self.directory / "nodes.npy", AGAIN) if self.manifest["subset"] else None

    @property
    def shape(self) -> tuple[int, int, int]:
        """(rows, K+1, d)."""
        return (self.layers.num_rows, self.order + 1, self.layers.shape[2])

    @property
    def self_loops(self) -> bool:
        """Whether the operator has self-loops."""
        return bool(self.manifest["operator"]["self_loops"])

    @property
    def recurrence(self) -> Recurrence | None:
        """The recorded recurrence of the optimal basis."""
        path = self.directory / "recurrence.npz"
        if not path.exists():
            return None
        arrays = read_npz(path, ["norm", "gamma", "beta"], advice=AGAIN)
        return Recurrence(arrays["norm"], arrays["gamma"][: self.order], arrays["beta"][: self.order])

    def __len__(self) -> int:
        return self.layers.num_rows

    def __getitem__(self, rows: Any) -> torch.Tensor:
        index = rows.numpy() if isinstance(rows, torch.Tensor) else rows
        if isinstance(index, int | np.integer):
            return self[index : index + 1 or None][0]
        if not self.layers.is_plain:
            numbers = np.arange(len(self))[index]
            rows = self.layers.take(numbers.ravel(), self.order + 1).reshape(*numbers.shape, *self.shape[1:])
        else:
            rows = self.layers.base[index, : self.order + 1]
        tokens = torch.from_numpy(np.array(rows, dtype=np.float32))
        return tokens if self._mixing is None else torch.matmul(self._mixing, tokens)

    def _view(self) -> torch.Tensor | None:
        """The mixing matrix, or None where rows are used as they are stored."""
        needed, stored = "chebyshev" if self.basis.fixed else self.basis.name, self.manifest["stored"]
        if needed != stored:
            raise InvalidParameter(
                f"The basis '{self.basis.name}' is made from {needed} tokens, but '{self.directory}' stores "
                f"{stored} tokens."
            )
        if not isinstance(self.basis, FixedBasis):
            return None
        mixing = self.basis.mixing(self.order)
        return None if np.array_equal(mixing, np.eye(len(mixing))) else torch.from_numpy(mixing.astype(np.float32))

    def _open_layers(self, sealed: bool, verify: bool) -> TokenLayers:
        """Map the array and the log, and bring the manifest to the version of the log's last record."""
        manifest = self.manifest
        if sealed:
            check_samples(self.directory, manifest.get("samples", {}))
            check_sealed(self.directory, manifest.get("files", {}), whole=verify)
        self.base_path = self.directory / plain_name(manifest.get("base", "tokens.npy"), self.directory)
        self.log_path = self.directory / plain_name(manifest.get("log", LOG), self.directory)
        rows = manifest.get("base_rows", manifest["num_rows"])
        base = self._map(self.base_path, (rows, manifest["order"] + 1, manifest["num_features"]), manifest["dtype"])
        with reading(self.base_path, AGAIN):
            self.base_file = open_regular(self.base_path, buffering=0)  # readable even when its name is removed
        records, log = read_records(self.log_path, base.shape[1:], base.dtype, whole=verify)
        self.log_bytes = len(log)
        num_rows = manifest["num_rows"]
        if records:
            about = records[-1].about
            operator = manifest["operator"] | {"structure": about["structure"]}
            self.manifest = manifest | about | {"operator": operator}
            num_rows = about["num_rows"]
        for record in records:
            check_row_ids((*record.ids, *record.left_ids), num_rows, self.log_path)
        return TokenLayers(base, records, num_rows, log)

    def _map(self, path: Path, expected: tuple[int, int, int], dtype: str) -> np.ndarray:
        array = map_npy(path, AGAIN)
        if array.shape != expected or array.dtype != dtype:
            raise FileCorrupt(f"'{path}' must hold {dtype} {expected}. Got {array.dtype} {array.shape}. {AGAIN}")
        return array
