from __future__ import annotations

import pytest
import torch

from polyformer.errors import InvalidParameter
from polyformer.nn.polyformer import PolyFormer

SMALL = {"in_channels": 5, "hidden_channels": 8, "out_channels": 3, "order": 4, "num_layers": 2, "heads": 2}


def test_forward_follows_the_equations() -> None:
    """H' = PolyAttn(LN(H)) + H, H = FFN(LN(H')) + H', then Linear - ReLU - Linear on the sum over tokens."""
    torch.manual_seed(0)
    model = PolyFormer(**SMALL, ffn_channels=7, dropout=0.5, attention_dropout=0.5).double().eval()
    tokens = torch.randn(6, 5, 5, dtype=torch.double)
    hidden = tokens @ model.input.weight.T + model.input.bias
    for block in model.blocks:
        hidden = block.attention(block.attention_norm(hidden)) + hidden
        first, _, second = block.ffn
        hidden = second(torch.nn.functional.gelu(first(block.ffn_norm(hidden)))) + hidden
    summed = hidden.sum(dim=1)
    expected = model.readout[4](torch.relu(model.readout[1](summed)))
    assert torch.allclose(model(tokens), expected)
    assert model.blocks[0].ffn[0].out_features == 7


def test_batches_of_any_size_give_the_same_logits() -> None:
    model = PolyFormer(**SMALL).eval()
    tokens = torch.randn(50, 5, 5)
    whole = model(tokens)
    for size in (1, 7, 50):
        parts = torch.cat([model(part) for part in tokens.split(size)])
        assert torch.allclose(parts, whole, atol=1e-6)


def test_gradients_agree_with_finite_differences() -> None:
    torch.manual_seed(0)
    model = PolyFormer(**SMALL).double().eval()
    tokens = torch.randn(3, 5, 5, dtype=torch.double, requires_grad=True)
    names = [name for name, _ in model.named_parameters()]
    values = tuple(p.detach().clone().requires_grad_() for p in model.parameters())

    def run(tokens: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, dict(zip(names, values, strict=True)), (tokens,))

    assert torch.autograd.gradcheck(run, (tokens, *values), fast_mode=True)


def test_parameter_groups_partition_the_parameters() -> None:
    model = PolyFormer(**SMALL)
    groups = model.parameter_groups()
    names = {id(p): name for name, p in model.named_parameters()}
    attention = {names[id(p)] for p in groups["attention"]}
    rest = {names[id(p)] for p in groups["rest"]}
    assert attention | rest == set(names.values())
    assert not attention & rest
    assert all(".attention." in name or ".attention_norm." in name for name in attention)
    assert not any("attention" in name for name in rest)
    assert any("order_bias" in name for name in attention)


def test_filter_coefficients_of_each_layer() -> None:
    model = PolyFormer(**SMALL, attention_dropout=0.5).eval()
    hidden = model.input(torch.randn(6, 5, 5))
    first = model.blocks[0]
    expected = first.attention.filter_coefficients(first.attention_norm(hidden))
    assert torch.equal(model.filter_coefficients(hidden, layer=0), expected)
    assert model.filter_coefficients(hidden, layer=1).shape == (6, 2, 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"heads": 3}, "'heads' must divide hidden_channels=8"),
        ({"num_layers": 0}, "'num_layers' must be"),
        ({"attention_dropout": -0.1}, "'attention_dropout' must lie"),
        ({"out_channels": 0}, "'out_channels' must be"),
    ],
)
def test_bad_parameters(arguments: dict, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        PolyFormer(**{**SMALL, **arguments})
