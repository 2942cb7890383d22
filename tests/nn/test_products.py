"""The native products against torch in float64, values and gradients, for sizes that leave edges everywhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from polyformer.errors import KernelRefused
from polyformer.native import kernel_name
from polyformer.nn import products
from polyformer.nn.polyformer import PolyFormer

pytestmark = pytest.mark.skipif(
    kernel_name() != "native" or not products.multiplies(torch.ones(1)), reason="the kernel does not multiply here"
)

SIZES = [(1, 1, 1, 1), (2, 12, 32, 256), (3, 13, 33, 257), (1, 250, 17, 5), (2, 5, 70, 600), (1, 300, 16, 31)]


def normal(*shape: int) -> Tensor:
    return torch.randn(shape)


@pytest.mark.parametrize(("groups", "m", "n", "k"), SIZES)
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
def test_products_of_any_size_and_layout(groups: int, m: int, n: int, k: int, turned: str) -> None:
    a = normal(groups, k, m).transpose(1, 2) if "a" in turned else normal(groups, m, k)
    b = normal(groups, n, k).transpose(1, 2) if "b" in turned else normal(groups, k, n)
    bias, sums = normal(groups, n), torch.empty(groups, n)
    expected = a.double() @ b.double()
    scale = float(k) ** 0.5
    assert torch.allclose(products.matmul(a, b, b_sums=sums).double(), expected, atol=2e-6 * scale)
    assert torch.allclose(sums.double(), b.double().sum(1), atol=2e-6 * scale)
    biased = expected + bias[:, None].double()
    assert torch.allclose(products.matmul(a, b, bias, relu=True).double(), biased.relu(), atol=2e-6 * scale)
    gate, before = normal(groups, m, n), normal(groups, m, n)
    assert torch.allclose(products.matmul(a, b, gate=gate).double(), expected * (gate > 0), atol=2e-6 * scale)
    total = products.matmul(a, b, out=before.clone(), accumulate=True)
    assert torch.allclose(total.double(), before + expected, atol=2e-6 * scale)


def test_products_write_into_rows_that_lie_apart() -> None:
    a, b, out = normal(3, 20, 8), normal(3, 8, 18), torch.full((20, 3, 18), torch.nan)
    products.matmul(a, b, out=out.transpose(0, 1))
    assert torch.allclose(out.transpose(0, 1), a @ b, atol=1e-5)


def test_the_number_of_threads_changes_no_bit() -> None:
    a, b = normal(2, 100, 300), normal(2, 300, 40)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(products.matmul(a, b))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_what_is_no_number_stays_seen() -> None:
    a = torch.tensor([[[torch.nan, 1.0], [1.0, 1.0]]])
    out = products.matmul(a, torch.ones(1, 2, 3), relu=True)
    assert out[0, 0].isnan().all()
    assert (out[0, 1] == 2).all()


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return products.apply_linear(x, weight, bias)


def order_mlps(x: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor) -> Tensor:
    return products.order_mlps(x, weight1, bias1, weight2, bias2)


def torch_order_mlps(x: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor) -> Tensor:
    return (x.transpose(0, 1) @ weight1 + bias1).relu() @ weight2 + bias2


def torch_feed_forward(x: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor) -> Tensor:
    return functional.linear(functional.gelu(functional.linear(x, weight1, bias1)), weight2, bias2)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """With a residual connection."""
    norm = nn.LayerNorm(x.shape[-1])
    del norm.weight, norm.bias
    norm.weight, norm.bias = weight, bias
    same, normalised = products.layer_norm(x, norm)
    return 2 * same + normalised


def torch_layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return 2 * x + functional.layer_norm(x, (len(weight),), weight, bias)


CASES: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "linear": (linear, functional.linear, [(50, 3, 20), (33, 20), (33,)]),
    "order-wise MLPs": (order_mlps, torch_order_mlps, [(50, 3, 20), (3, 20, 7), (3, 1, 7), (3, 7, 40), (3, 1, 40)]),
    "feed-forward": (products.feed_forward, torch_feed_forward, [(50, 3, 20), (37, 20), (37,), (20, 37), (20,)]),
    "layer norm": (layer_norm, torch_layer_norm, [(300, 3, 37), (37,), (37,)]),
    "narrow layer norm": (layer_norm, torch_layer_norm, [(9, 3), (3,), (3,)]),
}


@pytest.mark.parametrize("name", CASES)
def test_layers_and_their_gradients_equal_torch_in_float64(name: str) -> None:
    ours, theirs, shapes = CASES[name]
    inputs = [normal(*shape).requires_grad_() for shape in shapes]
    doubles = [x.detach().double().requires_grad_() for x in inputs]
    out, expected = ours(*inputs), theirs(*doubles)
    assert torch.allclose(out.double(), expected, rtol=1e-5, atol=1e-5)
    back = torch.randn_like(out)
    out.backward(back)
    expected.backward(back.double())
    for x, double in zip(inputs, doubles, strict=True):
        assert x.grad is not None
        assert double.grad is not None
        assert torch.allclose(x.grad.double(), double.grad, rtol=1e-5, atol=2e-5 * float(double.grad.abs().max()))


def test_gelu_is_exact_to_a_few_roundings() -> None:
    """Through weights that are the identity; also far from 0 and where the exponential ends."""
    x = torch.cat([torch.linspace(-20, 20, 4001), torch.tensor([-1e30, -100.0, 100.0, 1e30])])[:, None]
    one, zero = torch.ones(1, 1), torch.zeros(1)
    out = products.feed_forward(x, one, zero, one, zero)
    assert torch.allclose(out.double(), functional.gelu(x.double()), rtol=1e-7, atol=5e-7)
    assert products.feed_forward(torch.full((1, 1), torch.nan), one, zero, one, zero).isnan()


def test_a_model_is_the_same_without_the_products(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, tokens = PolyFormer(20, 24, 3, order=4, num_layers=2, heads=4, mlp_ratio=2.0), normal(60, 5, 20)
    results = []
    for native in (True, False):
        monkeypatch.setattr(products, "_has_matmul", lambda native=native: native)
        model.zero_grad()
        out = model(tokens)
        out.square().sum().backward()
        results.append([out.detach(), *(parameter.grad.clone() for parameter in model.parameters())])
    for ours, theirs in zip(*results, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=2e-5 * float(theirs.abs().max()))


def test_a_second_derivative_is_refused() -> None:
    x = normal(4, 3).requires_grad_()
    [gradient] = torch.autograd.grad(products.apply_linear(x, normal(2, 3)).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError):
        gradient.sum().backward()


def test_shapes_that_do_not_fit_are_refused() -> None:
    for shapes in [((1, 2, 3), (1, 4, 2)), ((1, 2, 3), (2, 3, 2))]:
        with pytest.raises(KernelRefused, match="fitting shapes"):
            products.matmul(normal(*shapes[0]), normal(*shapes[1]))
