"""The page about the baselines names every model, and its example is one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from polyformer.baselines.full_graph import BaselineSettings, FullGraphModel
from polyformer.graph import Graph
from polyformer.models import MODELS, Workload
from polyformer.models.contract import bound
from polyformer.nn.propagation import DifferentiableOperator
from polyformer.operators import Operator
from polyformer.progress import Share
from polyformer.settings import setting
from tests.oracles import dense_operator

PAGE = (Path(__file__).parents[2] / "docs" / "baselines.md").read_text(encoding="utf-8")
NAMES: dict[str, Any] = {
    "dataclass": dataclass,
    "nn": nn,
    "Tensor": Tensor,
    "BaselineSettings": BaselineSettings,
    "FullGraphModel": FullGraphModel,
    "Graph": Graph,
    "bound": bound,
    "DifferentiableOperator": DifferentiableOperator,
    "Operator": Operator,
    "Share": Share,
    "setting": setting,
}


def test_every_model_has_its_row() -> None:
    rows = "\n".join(line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `"))
    assert sorted(re.findall(r"`(.+?)`", rows)) == sorted(MODELS)


def test_the_example_works() -> None:
    [block] = re.findall(r"```python\n(   @dataclass.*?)```", PAGE, re.DOTALL)
    here = {**NAMES, "__name__": __name__}
    exec("from __future__ import annotations\n" + re.sub(r"(?m)^   ", "", block), here)
    model = here["SGCModel"](4, 2, here["SGCSettings"]()).eval()
    graph = Graph([[0, 1, 2], [1, 2, 3]], np.random.default_rng(0).standard_normal((5, 4)))
    model.bind(graph, Workload(None, 5))
    operator = torch.from_numpy(np.linalg.matrix_power(dense_operator(graph, True), 2)).float()
    expected = operator @ model.linear(torch.from_numpy(np.asarray(graph.features)))
    assert torch.allclose(model(torch.arange(5)), expected, atol=1e-5)
