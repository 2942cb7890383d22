"""The page about the baselines names every model, and its example is one."""

from __future__ import annotations

import re
import sys
from types import ModuleType

import numpy as np
import pytest
import torch

from polyformer.graph import Graph
from polyformer.models import MODELS, Workload
from tests.documentation import blocks, page
from tests.oracles import dense_operator


def test_every_model_has_its_row() -> None:
    rows = "\n".join(line.split("|")[1] for line in page("baselines.md").splitlines() if line.startswith("| `"))
    assert sorted(re.findall(r"`(.+?)`", rows)) == sorted(MODELS)


def test_the_example_works(monkeypatch: pytest.MonkeyPatch) -> None:
    [example] = [block for block in blocks("baselines.md") if "SGCModel" in block]
    module = ModuleType("polyformer.baselines.mymodel")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(example, module.__dict__)
    model = module.SGCModel(4, 2, module.SGCSettings()).eval()
    graph = Graph([[0, 1, 2], [1, 2, 3]], np.random.default_rng(0).standard_normal((5, 4)))
    model.bind(graph, Workload(None, 5))
    operator = torch.from_numpy(np.linalg.matrix_power(dense_operator(graph, True), 2)).float()
    expected = operator @ model.linear(torch.from_numpy(np.asarray(graph.features)))
    assert torch.allclose(model(torch.arange(5)), expected, atol=1e-5)
