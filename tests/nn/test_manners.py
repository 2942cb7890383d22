"""What users of torch and PyTorch Geometric expect of a module."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

import polyformer as pf
from polyformer.errors import InvalidParameter
from polyformer.nn.cascade import Cascade
from tests.pretended_device import pretended_device

MODULES: dict[str, Callable[[], nn.Module]] = {
    "polyattn": lambda: pf.PolyAttn(8, order=4, heads=2, decay=1.5),
    "polyformer": lambda: pf.PolyFormer(7, 16, 3, order=4, num_layers=2, heads=4),
    "cascade": lambda: Cascade(7, 16, 3, order=2, num_layers=2),
    "cascade-polyattn": lambda: Cascade(7, 16, 3, order=2, num_layers=1, coefficient="polyattn", norm="layer"),
}


def build(name: str) -> nn.Module:
    torch.manual_seed(3)
    return MODULES[name]()


def tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("start", ["another seed", "meta"])
def test_parameters_that_are_reset_are_those_of_a_new_module(name: str, start: str) -> None:
    if start == "meta":
        with torch.device("meta"):
            module = MODULES[name]()
        module = module.to_empty(device="cpu")
        for tensor in tensors(module).values():
            tensor.detach().fill_(7)
    else:
        torch.manual_seed(4)
        module = MODULES[name]()
    torch.manual_seed(3)
    module.reset_parameters()
    fresh = tensors(build(name))
    assert fresh.keys() == tensors(module).keys()
    for key, tensor in tensors(module).items():
        assert torch.equal(tensor, fresh[key]), key


def test_widths_can_be_asked_for() -> None:
    layer = pf.PolyAttn(8, order=4)
    assert (layer.in_channels, layer.out_channels) == (8, 8)
    model = pf.PolyFormer(7, 16, 3, order=4, num_layers=2, heads=4)
    widths = model.in_channels, model.hidden_channels, model.out_channels, model.order, model.num_layers, model.heads
    assert widths == (7, 16, 3, 4, 2, 4)


def test_the_first_tokens_tell_the_width() -> None:
    model = pf.PolyFormer(-1, 16, 3, order=4)
    assert model.in_channels == -1
    model.reset_parameters()
    assert model(torch.randn(5, 5, 7)).shape == (5, 3)
    assert model.in_channels == 7
    with pytest.raises(InvalidParameter, match="in_channels"):
        pf.PolyFormer(0, 16, 3, order=4)


def test_tokens_come_to_the_device_of_the_data() -> None:
    data = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1], [1, 2]]))
    expected = pf.PolyTokens("chebyshev", order=2)(data.clone()).tokens
    with pretended_device() as place:
        there = pf.PolyTokens("chebyshev", order=2)(data.to(place))
        assert there.tokens.device == place
        assert torch.equal(there.tokens.cpu(), expected)
