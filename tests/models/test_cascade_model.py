"""The cascade as a model: what it refuses, and that it trains within the memory that it estimates."""

from __future__ import annotations

import numpy as np
import pytest

from polyformer.errors import InvalidParameter, OutOfResources
from polyformer.graph import Graph
from polyformer.models import MODELS, Workload
from polyformer.models.cascade import CascadeSettings


def test_memory_is_estimated_first() -> None:
    graph = Graph([[0, 1], [1, 2]], np.ones((1000, 4)), 1000)
    model = MODELS["cascade"](4, 2, CascadeSettings())
    with pytest.raises(OutOfResources, match=r"4 stages would take 13\.2 MiB .* Lower num_layers, order or hidden"):
        model.bind(graph, Workload(None, 1000, memory=1 << 20))


def test_graphs_of_the_size_of_ogbn_arxiv_fit_in_8_gib() -> None:
    for nodes in (169_343, 117_659):
        assert CascadeSettings().training_bytes(nodes) < 8 << 30
        assert CascadeSettings(hidden_channels=128, num_layers=4, order=2).training_bytes(nodes) < 8 << 30


def test_the_optimal_basis_is_refused() -> None:
    with pytest.raises(InvalidParameter, match=r"must be a fixed one.* Got 'optimal'"):
        MODELS["cascade"](4, 2, CascadeSettings(basis="optimal"))
