"""Node features as the first layer of a model sees them: multiplied by a weight, sparse or dense, with gradients."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn import functional

from polyformer.arrays import writable
from polyformer.devices import fits, multiplies_sparse
from polyformer.feature_scaling import ScaledFeatures
from polyformer.graph_checks import Features
from polyformer.label_input import KnownLabels, LabelMask
from polyformer.propagation.device_products import DeviceMatrix
from polyformer.propagation.kernel import SparseBlock

__all__ = ["FeatureMatrix"]


class FeatureMatrix:
    """The features X (N, d) in their own form: sparse features are multiplied by the kernel, forward and backward.

    Args:
        features: dense, memory-mapped, scaled or sparse.
        labels: known labels, whose L columns stand behind the features: then X is (N, d + L).
    """

    def __init__(self, features: Features, labels: KnownLabels | None = None) -> None:
        self.num_features, self.labels = int(features.shape[1]), labels
        self.shape = (int(features.shape[0]), self.num_features + (0 if labels is None else labels.width))
        self.dense: Tensor | None = None
        if isinstance(features, np.ndarray | ScaledFeatures):
            dense = np.asanyarray(features, np.float32)
            if labels is not None:
                dense = np.hstack([dense, labels.matrix().toarray()])
            self.dense = torch.from_numpy(writable(dense))
        else:
            if labels is not None:
                features = sp.csr_matrix(sp.hstack([features, labels.matrix()], format="csr"))
            # The transpose holds the position of each entry, so that dropout drops the same entries in both.
            self.source = features
            self.matrix = SparseBlock.of_matrix(features)
            entries = sp.csr_matrix((np.arange(features.nnz), features.indices, features.indptr), features.shape)
            turned = sp.csr_matrix(entries.T)
            self.positions = turned.data
            self.transposed = replace(SparseBlock.of_matrix(turned), values=self._values()[self.positions])
        self._on_devices: dict[torch.device, DeviceMatrix | Tensor | None] = {}

    def show_labels(self, mask: LabelMask | None) -> None:
        """Set the columns of the labels that the mask hides to zero; None shows all known labels."""
        assert self.labels is not None, "there are label columns"
        self._on_devices.clear()  # copies that show other labels
        shown = self.labels.shown_columns(mask)
        if self.dense is not None:
            self.dense[torch.from_numpy(self.labels.nodes), self.num_features :] = torch.from_numpy(shown)
            return
        entries, places, columns = self._label_entries
        values = self._values().copy()
        values[entries] = shown[places, columns]
        self.matrix = replace(self.matrix, values=values)
        self.transposed = replace(self.transposed, values=values[self.positions])
        self.source = sp.csr_matrix((values, self.source.indices, self.source.indptr), self.shape)

    @cached_property
    def _label_entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of sparse features: the entries of labels among all entries, the place of their label, and its column."""
        assert self.labels is not None
        entries = np.flatnonzero(self.matrix.indices >= self.num_features)
        rows = np.searchsorted(self.matrix.indptr, entries, side="right") - 1
        place_of_node = np.zeros(self.shape[0], np.int64)
        place_of_node[self.labels.nodes] = np.arange(len(self.labels.nodes))
        return entries, place_of_node[rows], self.matrix.indices[entries] - self.num_features

    def product(self, weight: Tensor, dropout: float = 0.0) -> Tensor:
        """dropout(X) W on the device of W, with gradients for W: (d, c) -> (N, c)."""
        there = self._on_device(weight.device)
        if isinstance(there, DeviceMatrix):
            return there.product(weight, functional.dropout(there.values.to(weight.dtype), dropout))
        if there is not None:
            return functional.dropout(there.to(weight.dtype), dropout) @ weight
        return self._product_on_cpu(weight.cpu(), dropout).to(weight.device)

    def _on_device(self, device: torch.device) -> DeviceMatrix | Tensor | None:
        """The features on a device where they fit; None for the CPU. Asked once for each device."""
        if not multiplies_sparse(device):
            return None
        if device not in self._on_devices:
            size = DeviceMatrix.bytes_of(self.source) if self.dense is None else self.dense.nbytes
            place: DeviceMatrix | Tensor | None = None
            if fits(size, device):
                place = DeviceMatrix(self._scipy(), device) if self.dense is None else self.dense.to(device)
            self._on_devices[device] = place
        return self._on_devices[device]

    def _scipy(self) -> sp.csr_matrix:
        """Sparse features with the entries that the kernel reads."""
        return sp.csr_matrix((self._values(), self.matrix.indices, self.matrix.indptr), self.shape)

    def _product_on_cpu(self, weight: Tensor, dropout: float) -> Tensor:
        if self.dense is not None:
            return functional.dropout(self.dense.to(weight.dtype), dropout) @ weight
        matrix, transposed = self.matrix, self.transposed
        if dropout > 0:
            kept = functional.dropout(torch.from_numpy(self._values()), dropout).numpy()
            matrix, transposed = replace(matrix, values=kept), replace(transposed, values=kept[self.positions])
        return _SparseProduct.apply(weight, matrix, transposed)

    def linear(self, layer: nn.Linear, dropout: float = 0.0) -> Tensor:
        """``layer(dropout(X))`` on the layer's device: (N, out)."""
        out = self.product(layer.weight.t(), dropout)
        return out if layer.bias is None else out + layer.bias

    def rows(self, nodes: Tensor) -> Tensor:
        """Dense rows on the CPU: (B,) -> (B, d)."""
        if self.dense is not None:
            return self.dense[nodes.cpu()]
        return torch.from_numpy(self.source[nodes.cpu().numpy()].toarray().astype(np.float32, copy=False))

    def to_torch(self, dropout: float = 0.0) -> Tensor:
        """dropout(X) as a torch tensor for layers of other libraries; sparse features come in the COO layout."""
        if self.dense is not None:
            return functional.dropout(self.dense, dropout)
        values = functional.dropout(torch.from_numpy(self._values()), dropout)
        return torch.sparse_coo_tensor(
            self._coordinates, values, size=self.shape, is_coalesced=True, check_invariants=False
        )

    @cached_property
    def _coordinates(self) -> Tensor:
        """(2, nnz): row and column of every entry."""
        rows = np.repeat(np.arange(self.shape[0]), np.diff(self.matrix.indptr))
        return torch.from_numpy(np.stack([rows, self.matrix.indices]))

    def _values(self) -> np.ndarray:
        assert self.matrix.values is not None
        return self.matrix.values


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, matrix: SparseBlock, transposed: SparseBlock) -> Tensor:
        ctx.transposed = transposed
        return torch.from_numpy(matrix.wide_product(weight.detach().numpy()))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return torch.from_numpy(ctx.transposed.wide_product(gradients[0].numpy())), None, None
