"""Types of the public names as a caller's type checker sees them: mypy reads this file, nothing runs it."""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np
import torch

import polyformer as pf


def graphs(edges: np.ndarray, features: np.ndarray) -> None:
    graph = pf.Graph(edges, features)
    assert_type(graph.num_nodes, int)
    assert_type(graph.updated(add_edges=edges), pf.Graph)
    assert_type(pf.compute_tokens(graph, basis="chebyshev", order=4), torch.Tensor)
    assert_type(pf.list_bases(), list[str])
    assert_type(pf.basis_response("jacobi", order=3, lam=np.linspace(0, 2, 5)), np.ndarray)


def modules(tokens: torch.Tensor) -> None:
    layer = pf.PolyAttn(8, order=4)
    assert_type(layer.filter_coefficients(tokens), torch.Tensor)
    model = pf.PolyFormer(-1, 16, 3, order=4)
    assert_type(model.in_channels, int)
    assert_type(pf.PolyFormer.from_pretrained("run"), pf.PolyFormer)


def runs(graph: pf.Graph, labels: np.ndarray) -> None:
    run = pf.train("minefield", order=4)
    assert_type(run, pf.Run)
    assert_type(run.predict(device="cpu"), np.ndarray)
    assert_type(run.result, dict[str, Any] | None)
    task = pf.load_dataset("minefield")
    assert_type(task.splits[0], pf.Split)
    estimator = pf.PolyFormerClassifier(order=4)
    assert_type(estimator.fit(graph, labels), pf.PolyFormerClassifier)
    assert_type(estimator.predict_proba(graph), np.ndarray)
