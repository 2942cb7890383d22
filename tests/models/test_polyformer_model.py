from __future__ import annotations

import numpy as np
import pytest
import torch

from polyformer.bases import BASES
from polyformer.datasets import load_dataset
from polyformer.errors import InvalidData, InvalidParameter, OutOfResources
from polyformer.models import Workload, contract
from polyformer.models.parts import bound_tokens, token_binding, token_model
from polyformer.models.polyformer import PolyFormerModel, PolyFormerSettings

TASK = load_dataset("minefield:width=12,height=10")


def build(**settings) -> PolyFormerModel:
    torch.manual_seed(0)
    defaults = {"order": 4, "hidden_channels": 16, "heads": 4}
    return PolyFormerModel(7, 2, PolyFormerSettings(**{**defaults, **settings}))


@pytest.mark.parametrize("basis", [name for name in BASES if BASES[name].fixed])
def test_routes_give_equal_logits_and_gradients(basis: str) -> None:
    nodes = torch.arange(0, 120, 2)
    results = []
    for route in ("stored", "projected"):
        model = build(basis=basis, token_route=route, self_loops=True).eval()
        model.bind(TASK.graph, Workload(None, 120))
        assert model.describe() == {"token_route": route}
        model(nodes).square().sum().backward()
        with torch.no_grad():
            results.append([model(nodes), *(p.grad for p in model.parameters())])
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, atol=1e-4 * float(one.abs().max()) + 1e-6)


def test_evaluation_in_slices_equals_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (contract, bound_tokens):
        monkeypatch.setattr(module, "rows_per_slice", lambda device, row_bytes=None: 7)
    for route in ("stored", "projected"):
        model = build(token_route=route).eval()
        model.bind(TASK.graph, Workload(None, 120))
        whole = model(torch.arange(120)).detach()
        with torch.no_grad():
            assert torch.allclose(model(torch.arange(120)), whole, atol=1e-6)


@pytest.mark.parametrize("route", ["stored", "projected"])
def test_gradients_accumulated_in_slices_equal_one_pass(route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, target = torch.arange(0, 120, 3), torch.randn(40, 2)
    results = []
    for size in (1000, 7):
        monkeypatch.setattr(token_model.TokenModel, "rows_per_step", size)
        model = build(token_route=route).eval()
        model.bind(TASK.graph, Workload(None, 120))
        value = model.accumulate(nodes, lambda outputs, rows: (outputs - target[rows]).square().sum())
        results.append([torch.tensor(value), *(p.grad for p in model.parameters())])
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, atol=1e-4 * float(one.abs().max()) + 1e-6)


def test_tokens_are_no_part_of_the_state() -> None:
    model = build()
    before = set(model.state_dict())
    model.bind(TASK.graph, Workload(np.arange(50), 50))
    assert set(model.state_dict()) == before
    assert all(tensor.numel() < 5000 for tensor in model.state_dict().values())


def test_parameter_groups_take_their_own_rates() -> None:
    groups = build(attention_lr=0.5, attention_weight_decay=0.25).parameter_groups()
    assert "lr" not in groups[0]
    assert (groups[1]["lr"], groups[1]["weight_decay"]) == (0.5, 0.25)
    assert "lr" not in build().parameter_groups()[1]


def test_what_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidParameter, match="no graph yet"):
        build()(torch.tensor([0]))
    with pytest.raises(InvalidData, match="reads 7 features per node"):
        build().bind(TASK.graph.with_features(np.ones((120, 2))), Workload(None, 120))
    monkeypatch.setattr(token_binding, "usable_memory", lambda: 800)
    with pytest.raises(OutOfResources, match="more than the 800 bytes of memory"):
        build(token_route="stored").bind(TASK.graph, Workload(None, 120))
