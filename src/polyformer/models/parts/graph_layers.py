"""Layers of PyTorch Geometric that multiply by the graph where there are fewer columns: before or after the weights.

Each layer holds the layer of PyTorch Geometric with its weights and their initialisation, and gives the same outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from polyformer.graph import Graph
from polyformer.models.contract import bound
from polyformer.operators import Operator
from polyformer.propagation.differentiable import DifferentiableOperator

__all__ = [
    "ChebyshevConvolution",
    "GraphAttention",
    "GraphConvolution",
    "MeanConvolution",
    "OperatorLayer",
    "bind_mean",
    "bind_operator",
]


class OperatorLayer(nn.Module):
    """A layer that multiplies by P.

    Attributes:
        operator: P, once the model is bound to a graph.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operator: DifferentiableOperator | None = None

    def product(self, x: Tensor) -> Tensor:
        """P x: (N, c) -> (N, c)."""
        return bound(self.operator).product(x)


def bind_operator(model: nn.Module, graph: Graph, self_loops: bool = False) -> None:
    """Give P of a graph to all layers of a model that multiply by it."""
    operator = DifferentiableOperator(Operator(graph, self_loops))
    for layer in model.modules():
        if isinstance(layer, OperatorLayer):
            layer.operator = operator


def bind_mean(model: nn.Module, graph: Graph) -> None:
    """Give P of a graph without its weights to all layers of a model that take means over neighbours."""
    bind_operator(model, Graph.from_csr(graph.indptr, graph.indices, None))


class GraphConvolution(OperatorLayer):
    """``GCNConv``: P H W, where P has self-loops, computed as (P H) W if H is narrower than the result."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        from torch_geometric.nn import GCNConv

        super().__init__()
        self.weights = GCNConv(in_channels, out_channels)
        self.widens = in_channels < out_channels

    def forward(self, x: Tensor) -> Tensor:
        """(N, d), dense or sparse -> (N, h)."""
        weight = self.weights.lin.weight.t()
        out = self.product(x) @ weight if self.widens and not x.is_sparse else self.product(x @ weight)
        return out + self.weights.bias


class MeanConvolution(OperatorLayer):
    r"""``SAGEConv``: the mean of the neighbours times one matrix, and the node itself times another.

    The mean is :math:`D^{-1} A H = S P S^{-1} H` with :math:`S = D^{-1/2}`.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        from torch_geometric.nn import SAGEConv

        super().__init__()
        layer = SAGEConv(in_channels, out_channels)
        self.lin_l, self.lin_r = layer.lin_l, layer.lin_r  # under the names by which saved models know them
        self.widens = in_channels < out_channels

    def forward(self, x: Tensor) -> Tensor:
        """(N, d) -> (N, h)."""
        weight = self.lin_l.weight.t()
        means = self.mean(x) @ weight if self.widens else self.mean(x @ weight)
        return means + self.lin_l.bias + self.lin_r(x)

    def mean(self, x: Tensor) -> Tensor:
        """The mean of the neighbours, 0 of none: (N, c) -> (N, c)."""
        scaling = torch.from_numpy(bound(self.operator).operator.scaling).to(x)[:, None]
        return scaling * self.product(x / scaling)


class ChebyshevConvolution(OperatorLayer):
    """``ChebConv``: the sum of T_k(M) (H W_k) with M = -P, by Clenshaw's recurrence, which propagates h columns."""

    def __init__(self, in_channels: int, out_channels: int, order: int) -> None:
        from torch_geometric.nn import ChebConv

        super().__init__()
        self.weights = ChebConv(in_channels, out_channels, order + 1)

    def forward(self, x: Tensor) -> Tensor:
        """(N, d), dense or sparse -> (N, h)."""
        weight = torch.cat([linear.weight for linear in self.weights.lins])  # ((K+1) h, d)
        first, *others, here = (x @ weight.t()).chunk(len(self.weights.lins), dim=1)
        before = torch.zeros_like(here)
        for term in reversed(others):
            here, before = term - 2 * self.product(here) - before, here
        return first - self.product(here) - before + self.weights.bias


class GraphAttention(nn.Module):
    """``GATConv``: Σ_j a_ij W h_j per head, computed as W Σ_j a_ij h_j if H is narrower than a head."""

    def __init__(self, in_channels: int, out_channels: int, heads: int, **options: Any) -> None:
        from torch_geometric.nn import GATConv

        super().__init__()
        self.weights = GATConv(in_channels, out_channels, heads, **options)
        self.widens = in_channels < out_channels

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """(N, d), dense or sparse, and (2, 2|E|) -> (N, heads h)."""
        return self._sums_first(x, edges) if self.widens and not x.is_sparse else self.weights(x, edges)

    def _sums_first(self, x: Tensor, edges: Tensor) -> Tensor:
        from torch_geometric.utils import add_self_loops, remove_self_loops, softmax

        layer, count = self.weights, len(x)
        source, target = add_self_loops(remove_self_loops(edges)[0], num_nodes=count)[0]
        weight = layer.lin.weight.view(layer.heads, layer.out_channels, -1)  # (heads, h, d)
        of_source, of_target = ((weight * part[0, :, :, None]).sum(1).t() for part in (layer.att_src, layer.att_dst))
        scores = functional.leaky_relu((x @ of_source)[source] + (x @ of_target)[target], layer.negative_slope)
        attention = functional.dropout(softmax(scores, target, num_nodes=count), layer.dropout, self.training)
        sums = x.new_zeros(count, layer.heads, x.shape[1])
        sums = sums.index_add(0, target, attention[:, :, None] * x[source, None])
        return torch.einsum("nhd,hcd->nhc", sums, weight).flatten(1) + layer.bias
