"""Few features: the normalised input of the first block as a thin product is the same function, only cheaper."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from polyformer.nn.polyformer import PolyFormer, PolyFormerBlock
from polyformer.nn.thin_products import normalised_factors


def network(dtype: torch.dtype, in_channels: int = 3, activation: str = "tanh") -> PolyFormer:
    torch.manual_seed(0)
    model = PolyFormer(in_channels, 32, 2, order=4, num_layers=2, heads=4, activation=activation).to(dtype)
    with torch.no_grad():  # LayerNorm begins with ones and zeros, which would hide a mistake
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def gradients(model: PolyFormer, outputs: Tensor) -> list[Tensor]:
    weights = torch.linspace(-1, 1, outputs.numel(), dtype=outputs.dtype).view_as(outputs)
    return list(torch.autograd.grad((outputs * weights).sum(), list(model.parameters())))


@pytest.mark.parametrize("activation", ["tanh", "softmax"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 2e-5)])
def test_thin_product_gives_the_same_outputs_and_gradients(
    dtype: torch.dtype, tolerance: float, activation: str
) -> None:
    model = network(dtype, activation=activation)
    tokens = torch.randn(200, 5, 3, dtype=dtype)
    first = model.blocks[0]
    assert isinstance(first, PolyFormerBlock)
    factors = normalised_factors(tokens, model.input, first.attention_norm)
    assert factors is not None
    assert factors.left.shape == (200, 5, 5)
    direct, thin = model.encode(model.input(tokens)), model(tokens)
    assert torch.allclose(thin, direct, rtol=tolerance, atol=tolerance)
    for one, other in zip(gradients(model, direct), gradients(model, thin), strict=True):
        assert torch.allclose(one, other, rtol=tolerance, atol=tolerance * float(one.abs().max()))


def test_normalised_tokens_of_any_size() -> None:
    model = network(torch.float32)
    norm = model.blocks[0].attention_norm
    assert isinstance(norm, torch.nn.LayerNorm)
    for scale in (1e-6, 1.0, 1e6):
        tokens = scale * torch.randn(200, 5, 3)
        factors = normalised_factors(tokens, model.input, norm)
        assert factors is not None
        assert torch.allclose(factors.product(), norm(model.input(tokens)), atol=2e-5)


@pytest.mark.parametrize(("in_channels", "rows"), [(30, 200), (3, 2)])
def test_nothing_is_factored_where_it_saves_nothing(in_channels: int, rows: int) -> None:
    model = network(torch.float32, in_channels)
    norm = model.blocks[0].attention_norm
    assert isinstance(norm, torch.nn.LayerNorm)
    assert normalised_factors(torch.randn(rows, 5, in_channels), model.input, norm) is None
