"""A *token directory*: row-major tokens that are memory-mapped and mixed into a basis as rows are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyformer.bases import Basis, FixedBasis, Recurrence, check_order, resolve_basis
from polyformer.errors import DataNotFound, FileCorrupt, InvalidParameter
from polyformer.files import check_samples, read_json, require_keys

__all__ = ["FORMAT", "StoredTokens"]

FORMAT = 1
_MANIFEST_KEYS = ("order", "view", "subset", "stored", "operator", "num_rows", "num_features", "dtype")


class StoredTokens:
    """Rows of a token directory: ``tokens[rows]`` reads them from disk, in the basis: (len(rows), K+1, d) float32.

    Args:
        directory: what ``polyformer tokens --out`` wrote.
        basis: a fixed basis, if Chebyshev tokens are stored; by default the one that was asked for when writing.
        order: any K up to the stored one.
    """

    def __init__(self, directory: str | Path, basis: str | Basis | None = None, order: int | None = None) -> None:
        self.directory = Path(directory)
        if not self.directory.is_dir():
            raise DataNotFound(
                f"There is no token directory '{self.directory}'. Make one with: polyformer tokens DATASET --out DIR."
            )
        self.manifest = read_json(self.directory / "manifest.json", "a token directory")
        if (
            not isinstance(self.manifest, dict)
            or self.manifest.get("kind") != "tokens"
            or self.manifest.get("format") != FORMAT
        ):
            raise FileCorrupt(
                f"'{self.directory}' is not a token directory of format {FORMAT}. Make it again with this version."
            )
        require_keys(self.manifest, _MANIFEST_KEYS, self.directory / "manifest.json")
        require_keys(self.manifest["operator"], ("self_loops",), self.directory / "manifest.json")
        check_samples(self.directory, self.manifest.get("samples", {}))
        self.order = self.manifest["order"] if order is None else check_order(order)
        if self.order > self.manifest["order"]:
            raise InvalidParameter(
                f"'order' must be at most {self.manifest['order']}, what '{directory}' stores. Got {order}."
            )
        self.basis = resolve_basis(self.manifest["view"] if basis is None else basis)
        self._mixing = self._view()
        self._array = self._map()
        self.nodes = np.load(self.directory / "nodes.npy") if self.manifest["subset"] else None

    @property
    def shape(self) -> tuple[int, int, int]:
        """(rows, K+1, d)."""
        return (self._array.shape[0], self.order + 1, self._array.shape[2])

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
        with np.load(path, allow_pickle=False) as arrays:
            return Recurrence(arrays["norm"], arrays["gamma"][: self.order], arrays["beta"][: self.order])

    def __len__(self) -> int:
        return int(self._array.shape[0])

    def __getitem__(self, rows: Any) -> torch.Tensor:
        index = rows.numpy() if isinstance(rows, torch.Tensor) else rows
        if isinstance(index, int | np.integer):
            return self[index : index + 1 or None][0]
        tokens = torch.from_numpy(np.array(self._array[index, : self.order + 1], dtype=np.float32))
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

    def _map(self) -> np.ndarray:
        path = self.directory / "tokens.npy"
        expected = (self.manifest["num_rows"], self.manifest["order"] + 1, self.manifest["num_features"])
        try:
            array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise FileCorrupt(f"'{path}' cannot be read ({error}). Make the tokens again.") from None
        dtype = self.manifest["dtype"]
        if array.shape != expected or array.dtype != dtype:
            raise FileCorrupt(
                f"'{path}' must hold {dtype} {expected}. Got {array.dtype} {array.shape}. Make the tokens again."
            )
        return array
