"""A PyTorch Geometric transform that adds tokens to a data object."""

from __future__ import annotations

from typing import Any

from torch_geometric.transforms import BaseTransform

from polyformer.bases import Basis, check_order, resolve_basis
from polyformer.graph import Graph
from polyformer.tokens import compute_tokens

__all__ = ["PolyTokens"]


class PolyTokens(BaseTransform):  # type: ignore[misc]
    """Writes ``data.tokens``, the (N, K+1, d) polynomial tokens of ``data.x``, on the device of ``data.x``.

    The CPU computes them.

    Args:
        basis, order, self_loops: see :func:`polyformer.compute_tokens`.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> data = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1], [1, 2]]))
        >>> PolyTokens("chebyshev", order=4)(data).tokens.shape
        torch.Size([3, 5, 3])
    """

    def __init__(self, basis: str | Basis, order: int, self_loops: bool = False) -> None:
        self.basis, self.order, self.self_loops = resolve_basis(basis), check_order(order), self_loops

    def forward(self, data: Any) -> Any:
        tokens = compute_tokens(Graph.from_pyg(data), self.basis, self.order, self.self_loops)
        data.tokens = tokens.to(data.x.device)
        return data

    def __repr__(self) -> str:
        return f"PolyTokens({self.basis.spec!r}, order={self.order}, self_loops={self.self_loops})"
