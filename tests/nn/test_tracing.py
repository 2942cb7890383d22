"""The modules under what records or transforms functions: every one takes the torch path, with the same numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vmap

from polyformer.nn.cascade import GateScores
from polyformer.nn.polyattn import PolyAttn
from polyformer.nn.polyformer import PolyFormer

MODULES: dict[str, Callable[[], nn.Module]] = {
    "polyattn": lambda: PolyAttn(channels=8, order=4, heads=2),
    "softmax": lambda: PolyAttn(channels=8, order=4, heads=2, activation="softmax"),
    "polyformer": lambda: PolyFormer(8, 16, 2, order=4, num_layers=2, heads=4),
    "gate": lambda: GateScores(channels=8, num_tokens=5, heads=2, normalise=True),
    "narrow": lambda: PolyFormer(8, 64, 2, order=4, heads=4, mlp_ratio=2.0),
}
"""The last has features so few that a batch of some size goes through thin products where nothing is recorded."""

BATCHES = (1, 2, 7, 300)

pytestmark = pytest.mark.xdist_group("recording")  # importing torch's compiler takes seconds, in each process


@pytest.fixture(params=MODULES)
def module(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    return MODULES[request.param]().eval()


def tokens(rows: int) -> Tensor:
    return torch.randn(rows, 5, 8, generator=torch.Generator().manual_seed(rows))


def assert_same(recorded: Callable[[Tensor], Tensor], module: nn.Module) -> None:
    for rows in BATCHES:
        torch.testing.assert_close(recorded(tokens(rows)), module(tokens(rows)), atol=1e-5, rtol=1e-5)


def loss(module: nn.Module) -> Callable[[dict[str, Tensor], Tensor], Tensor]:
    return lambda parameters, rows: functional_call(module, parameters, (rows,)).square().sum()


def gradients(module: nn.Module, rows: Tensor) -> dict[str, Tensor]:
    """By the native kernel."""
    module(rows).square().sum().backward()
    return {name: parameter.grad for name, parameter in module.named_parameters() if parameter.grad is not None}


def test_grad_of_torch_func(module: nn.Module) -> None:
    gradient_of = grad(loss(module))(dict(module.named_parameters()), tokens(7))
    for name, gradient in gradients(module, tokens(7)).items():
        torch.testing.assert_close(gradient_of[name], gradient, atol=1e-4, rtol=1e-4)


def test_gradients_of_every_row_by_vmap(module: nn.Module) -> None:
    each = vmap(grad(loss(module)), in_dims=(None, 0))(dict(module.named_parameters()), tokens(7)[:, None])
    for name, gradient in gradients(module, tokens(7)).items():
        assert each[name].shape == (7, *gradient.shape)
        torch.testing.assert_close(each[name].sum(dim=0), gradient, atol=1e-4, rtol=1e-4)


def test_derivative_along_a_direction_by_jvp(module: nn.Module) -> None:
    rows, direction, step = tokens(3).double(), tokens(3).double().cos(), 1e-5
    module = module.double()
    _, derivative = jvp(module, (rows,), (direction,))
    difference = (module(rows + step * direction) - module(rows - step * direction)) / (2 * step)
    torch.testing.assert_close(derivative, difference, atol=1e-6, rtol=1e-5)
    assert jvp(module.float(), (rows.float(),), (direction.float(),))[1].dtype == torch.float32


@pytest.mark.filterwarnings("ignore")  # torch warns of every branch in a trace; they depend on no batch
def test_jit_trace(module: nn.Module) -> None:
    assert_same(torch.jit.trace(module, tokens(3)), module)


@pytest.mark.slow
@pytest.mark.parametrize("strict", [False, True])
def test_export_with_batches_of_any_size(module: nn.Module, strict: bool) -> None:
    nodes = torch.export.Dim("nodes", min=1)
    program = torch.export.export(module, (tokens(3),), dynamic_shapes=({0: nodes},), strict=strict)
    assert_same(program.module(), module)


@pytest.mark.slow
def test_compile_without_a_break(module: nn.Module) -> None:
    torch.compiler.reset()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(tokens(7)), module(tokens(7)), atol=1e-5, rtol=1e-5)


def test_fake_tensors_tell_the_shape(module: nn.Module) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        assert module(torch.empty(3, 5, 8)).shape == module(tokens(3)).shape
