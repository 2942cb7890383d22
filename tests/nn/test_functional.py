"""The fused operations equal their composition in torch, values and gradients, with and without dropout."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from polyformer.nn.functional import Dropout, add_dropout, bias_relu, poly_attention


def inputs(tokens: int, nodes: int, heads: int, head_width: int, value_width: int) -> list[torch.Tensor]:
    torch.manual_seed(tokens + nodes)
    return [
        torch.randn(tokens, nodes, 2 * heads * head_width),
        torch.randn(nodes, tokens, heads * value_width),
        torch.randn(heads, tokens),
    ]


def run(tensors: list[torch.Tensor], dropout: float = 0.0) -> list[torch.Tensor]:
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    out = poly_attention(*leaves, factor=0.4, dropout=dropout)
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    (out * weights).sum().backward()
    return [out.detach(), *(leaf.grad for leaf in leaves)]


@pytest.mark.parametrize("tokens", [1, 3, 8, 9, 11, 16, 17, 32, 33, 64, 65])
@pytest.mark.parametrize(
    ("heads", "head_width", "value_width"),
    [(1, 4, 4), (2, 8, 8), (3, 16, 16), (1, 32, 32), (2, 64, 64), (2, 5, 3), (1, 9, 1)],
)
def test_attention_equals_torch(tokens: int, heads: int, head_width: int, value_width: int) -> None:
    tensors = inputs(tokens, 70, heads, head_width, value_width)
    exact = run([tensor.double() for tensor in tensors])  # double precision takes the composed path
    for ours, theirs in zip(run(tensors), exact, strict=True):
        assert torch.allclose(ours.double(), theirs, atol=3e-6 * max(1.0, float(theirs.abs().max())))


def test_more_tokens_than_the_kernel_takes() -> None:
    tensors = inputs(40, 5, 2, 8, 8)
    for ours, theirs in zip(run(tensors), run([tensor.double() for tensor in tensors]), strict=True):
        assert torch.allclose(ours.double(), theirs, atol=1e-4)


def test_no_rows_give_no_gradient() -> None:
    assert not run(inputs(5, 0, 2, 8, 8))[3].any()
    bias = torch.ones(3, 1, 4, requires_grad=True)
    bias_relu(torch.ones(3, 0, 4, requires_grad=True) * 1, bias).sum().backward()
    assert bias.grad is not None
    assert not bias.grad.any()


def test_tanh_is_accurate_everywhere() -> None:
    """One token, one channel, weight one: the output is tanh of the product."""
    special = torch.tensor([0.0, -0.0, 1e30, -1e30, torch.inf, -torch.inf, torch.nan, -torch.nan])
    x = torch.cat([torch.linspace(-12, 12, 20001), torch.logspace(-30, 1, 500), special])
    query_key = torch.stack([x, torch.ones_like(x)], dim=1)[None]
    out = poly_attention(query_key, torch.ones(len(x), 1, 1), torch.ones(1, 1), factor=1.0)
    assert torch.allclose(out[:, 0, 0].double(), x.double().tanh(), rtol=3e-7, atol=1e-37, equal_nan=True)


def test_relu_keeps_nan() -> None:
    x = torch.tensor([torch.nan, -torch.nan, torch.inf, -torch.inf, 0.0, -1.0, 2.0] * 3).view(3, 1, 7)
    results = []
    for dtype in (torch.float32, torch.float64):
        leaf, bias = x.clone().to(dtype).requires_grad_(), torch.zeros(3, 1, 7, dtype=dtype, requires_grad=True)
        out = bias_relu(leaf * 1, bias)
        out.backward(torch.ones_like(out))
        results.append([tensor.double() for tensor in (out.detach(), leaf.grad, bias.grad)])
    for ours, theirs in zip(*results, strict=True):
        assert torch.allclose(ours, theirs, equal_nan=True)


def test_dropped_weights_are_the_same_in_forward_and_backward() -> None:
    """With the mask fixed by the seed, the output is linear in the values: its gradient must reproduce it."""
    query_key, values, bias = inputs(11, 50, 2, 8, 8)
    results = []
    for _ in range(2):
        torch.manual_seed(5)
        leaf = values.clone().requires_grad_()
        out = poly_attention(query_key, leaf, bias, 0.4, dropout=0.6)
        results.append(out.detach())
    assert torch.equal(*results)
    other = torch.randn_like(values)
    out.backward(other)
    torch.manual_seed(5)
    moved = poly_attention(query_key, values + other, bias, 0.4, dropout=0.6)
    slope = ((moved - out) * other).sum()
    torch.manual_seed(5)
    along = poly_attention(query_key, other, bias, 0.4, dropout=0.6)
    assert torch.allclose(slope, (along * other).sum(), rtol=1e-3)
    assert torch.allclose((leaf.grad * other).sum(), slope, rtol=1e-3)


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_dropout_drops_the_right_share_and_keeps_the_mean(probability: float) -> None:
    torch.manual_seed(0)
    x, residual = torch.ones(400, 500, requires_grad=True), torch.zeros(400, 500, requires_grad=True)
    kept = add_dropout(residual, x, probability, training=True)
    out = kept.detach()
    dropped = float((out == 0).float().mean())
    assert dropped == pytest.approx(probability, abs=0.005)
    assert float(out.mean()) == pytest.approx(1.0, abs=0.03)
    for axis in (0, 1):  # no row or column is favoured
        expected = (probability * (1 - probability) / 450) ** 0.5
        assert float((out == 0).float().mean(axis).std()) == pytest.approx(expected, rel=0.2)
    kept.backward(torch.full_like(out, 2.0))
    assert torch.equal(x.grad, 2 * out)
    assert torch.equal(residual.grad, torch.full_like(out, 2.0))
    assert not torch.equal(out, add_dropout(residual, x, probability, training=True))
    assert torch.equal(add_dropout(residual, x, probability, training=False), torch.ones_like(out))


def test_attention_dropout_keeps_the_mean() -> None:
    query_key, values, bias = inputs(11, 30, 2, 8, 8)
    torch.manual_seed(0)
    draws = torch.stack([poly_attention(query_key, values, bias, 0.4, dropout=0.3) for _ in range(600)])
    exact = poly_attention(query_key, values, bias, 0.4)
    error = (draws.mean(0) - exact) / (draws.std(0) / 600**0.5)
    assert float(error.abs().mean()) < 1.0
    assert float(error.abs().max()) < 6.0


@pytest.mark.parametrize("threads", [2, 5])
def test_results_do_not_depend_on_the_number_of_threads(threads: int) -> None:
    tensors = inputs(9, 500, 4, 8, 8)
    before = torch.get_num_threads()
    results = []
    try:
        for count in (1, threads):
            torch.set_num_threads(count)
            torch.manual_seed(3)
            results.append(run(tensors, dropout=0.4))
    finally:
        torch.set_num_threads(before)
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def test_a_bias_that_is_not_contiguous() -> None:
    x, bias = torch.randn(3, 5, 4), torch.randn(3, 1, 8)[:, :, ::2]
    for _ in range(3):
        assert torch.equal(bias_relu(x.clone(), bias), (x + bias).relu())


@pytest.mark.parametrize("name", ["attention", "dropout", "bias_relu"])
def test_second_derivatives_are_refused(name: str) -> None:
    """Second derivatives of attention: the gradient depends on the input even if the incoming gradient is constant."""
    query_key, values, bias = (tensor.requires_grad_() for tensor in inputs(3, 4, 2, 5, 5))
    wide = torch.randn(3, 1, 10, requires_grad=True)
    loss, leaf = {
        "attention": (lambda: poly_attention(query_key, values, bias, 0.4).sum(), query_key),
        "dropout": (lambda: (add_dropout(values, values * 2, 0.5, training=True) ** 2).sum(), values),
        "bias_relu": (lambda: (bias_relu(query_key[:, :, :10] * 1, wide) ** 2).sum(), wide),
    }[name]
    (gradient,) = torch.autograd.grad(loss(), leaf, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        (gradient**2).sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dropout_alone(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    layer, x = Dropout(0.7), torch.ones(300, 40, dtype=dtype, requires_grad=True)
    out = layer(x)
    out.sum().backward()
    assert x.grad is not None
    assert torch.equal(out.detach(), x.grad)  # the same mask
    assert np.allclose(sorted(set(out.detach().ravel().tolist())), [0, 1 / 0.3])
    assert abs(float((out > 0).double().mean()) - 0.3) < 0.02
    torch.manual_seed(1)
    assert torch.equal(out, layer(x))
    assert torch.equal(layer.eval()(x), x)
