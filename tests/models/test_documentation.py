"""The page about the baselines names every model, and its example is one."""

from __future__ import annotations

import re

import numpy as np
import torch

from polyformer.graph import Graph
from polyformer.models import MODELS, SpectralFilter, Workload
from tests import recipes
from tests.documentation import blocks, page
from tests.oracles import dense_operator


def names_in_rows(lines: list[str]) -> list[str]:
    """The names in the first cells of a table's rows."""
    first_cells = "\n".join(line.split("|")[1] for line in lines if line.startswith("| `"))
    return re.findall(r"`(.+?)`", first_cells)


def test_every_model_has_its_row() -> None:
    assert sorted(names_in_rows(page("baselines.md").splitlines())) == sorted(MODELS)


def test_the_example_has_its_row() -> None:
    [row] = [block for block in blocks("baselines.md", "Add a model") if block.startswith("| `")]
    assert names_in_rows(row.splitlines()) == [recipes.MODEL.name]
    assert len(re.findall(r"(?<!\\)\|", row)) == 5, "four cells: model, computation, own settings, cost of a pass"


def test_models_that_the_page_calls_filters_are_filters() -> None:
    [listed] = re.findall(r"Models that are filters \((.+?)\)", page("baselines.md"), re.DOTALL)
    names = re.findall(r"`(.+?)`", listed)
    assert names
    assert [name for name in names if not issubclass(MODELS[name], SpectralFilter)] == []


def test_the_example_computes_its_formula() -> None:
    kind = recipes.MODEL.added_to(MODELS)[recipes.MODEL.name]
    model = kind(4, 2, kind.settings_type(order=2, restart=0.3)).eval()
    graph = Graph([[0, 1, 2], [1, 2, 3]], np.random.default_rng(0).standard_normal((5, 4)))
    model.bind(graph, Workload(None, 5))
    operator = torch.from_numpy(dense_operator(graph, True)).float()
    start = model.network(torch.from_numpy(np.asarray(graph.features)).float())
    once = 0.7 * operator @ start + 0.3 * start
    assert torch.allclose(model(torch.arange(5)), 0.7 * operator @ once + 0.3 * start, atol=1e-5)
