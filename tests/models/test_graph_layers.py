"""Every layer gives the outputs and the gradients of the layer of PyTorch Geometric that it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

from polyformer.graph import Graph
from polyformer.models.parts.full_graph import edge_tensor
from polyformer.models.parts.graph_layers import (
    ChebyshevConvolution,
    GraphAttention,
    GraphConvolution,
    MeanConvolution,
    bind_mean,
    bind_operator,
)

RANDOM = np.random.default_rng(0)
EDGES = np.unique(np.sort(RANDOM.integers(0, 27, (2, 60)), axis=0), axis=1)  # the last three nodes are alone
EDGES = EDGES[:, EDGES[0] < EDGES[1]]
PLAIN = Graph(EDGES, num_nodes=30)
WEIGHTED = Graph(EDGES, num_nodes=30, edge_weight=RANDOM.uniform(0.5, 2, EDGES.shape[1]))
LAYERS: dict[str, Callable[[int, int], Any]] = {
    "gcn": GraphConvolution,
    **{f"cheb{order}": lambda d, h, order=order: ChebyshevConvolution(d, h, order) for order in (1, 2, 4)},
    **{f"gat{heads}": lambda d, h, heads=heads: GraphAttention(d, h, heads) for heads in (1, 3)},
}


def gradients(layer: nn.Module, x: Tensor, outputs: Tensor, direction: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad((outputs * direction).sum(), [x, *layer.parameters()]))


@pytest.mark.parametrize("graph", [PLAIN, WEIGHTED], ids=["plain", "weighted"])
@pytest.mark.parametrize(("wide", "narrow"), [(8, 3), (3, 8), (1, 8), (4, 4)])
@pytest.mark.parametrize("name", LAYERS)
def test_equals_the_layer_it_holds(name: str, wide: int, narrow: int, graph: Graph) -> None:
    torch.manual_seed(0)
    layer = LAYERS[name](wide, narrow)
    nn.init.normal_(layer.weights.bias)
    bind_operator(layer, graph, self_loops=name == "gcn")
    x = torch.randn(30, wide, requires_grad=True)
    edges, weights = edge_tensor(graph), None if graph.weights is None else torch.from_numpy(graph.weights.copy())
    attends = name.startswith("gat")  # over neighbours, whatever their weights
    outputs = layer(x, edges) if attends else layer(x)
    expected = layer.weights(x, edges) if attends else layer.weights(x, edges, weights)
    assert torch.allclose(outputs, expected, atol=1e-5)
    direction = torch.randn_like(outputs)
    of_ours, of_theirs = (gradients(layer, x, out, direction) for out in (outputs, expected))
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(of_ours, of_theirs, strict=True))


@pytest.mark.parametrize("name", LAYERS)
def test_reads_sparse_features(name: str) -> None:
    layer = LAYERS[name](3, 8)
    bind_operator(layer, PLAIN, self_loops=True)
    x = torch.randn(30, 3).relu()
    edges = (edge_tensor(PLAIN),) if name.startswith("gat") else ()
    assert torch.allclose(layer(x.to_sparse_coo(), *edges), layer(x, *edges), atol=1e-5)


@pytest.mark.parametrize("graph", [PLAIN, WEIGHTED], ids=["plain", "weighted"])
@pytest.mark.parametrize(("wide", "narrow"), [(8, 3), (3, 8)])
def test_means_of_neighbours_equal_those_of_a_sage_convolution(wide: int, narrow: int, graph: Graph) -> None:
    torch.manual_seed(0)
    layer, theirs = MeanConvolution(wide, narrow), SAGEConv(wide, narrow)
    theirs.load_state_dict(layer.state_dict())
    bind_mean(layer, graph)
    x = torch.randn(30, wide, requires_grad=True)
    outputs, expected = layer(x), theirs(x, edge_tensor(graph))
    assert torch.allclose(outputs, expected, atol=1e-5)
    direction = torch.randn_like(outputs)
    of_ours = gradients(layer, x, outputs, direction)
    of_theirs = torch.autograd.grad((expected * direction).sum(), [x, *theirs.parameters()])
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(of_ours, of_theirs, strict=True))
