"""The fused parts of a cascade's stage equal their composition in torch, values and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from polyformer.nn.stage_functions import finish_stage, gate_tokens


def gradients(compute: Any, tensors: list[torch.Tensor], dtype: torch.dtype) -> list[torch.Tensor]:
    """The result and the gradient of every tensor; double precision takes the path through torch."""
    leaves = [tensor.detach().to(dtype).clone().requires_grad_() for tensor in tensors]
    out = compute(*leaves)
    (out * torch.linspace(-1, 1, out.numel(), dtype=dtype).view_as(out)).sum().backward()
    return [out.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


def assert_alike(compute: Any, tensors: list[torch.Tensor]) -> None:
    fused, composed = (gradients(compute, tensors, dtype) for dtype in (torch.float32, torch.float64))
    assert len(fused) == len(composed) == len(tensors) + 1
    for ours, exact in zip(fused, composed, strict=True):
        assert torch.allclose(ours.double(), exact, atol=2e-5 * max(1.0, float(exact.abs().max())))


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize(("heads", "width"), [(1, 3), (2, 5), (4, 8), (3, 16), (1, 20)])
@pytest.mark.parametrize(("nodes", "num_tokens"), [(1, 3), (70, 1), (300, 3), (520, 5)])
def test_weighted_tokens_equal_torch(nodes: int, num_tokens: int, heads: int, width: int, normalise: bool) -> None:
    torch.manual_seed(nodes + num_tokens)
    channels, count = heads * width, heads * num_tokens
    tokens = torch.randn(nodes, num_tokens, channels) + 1
    tensors = [tokens, torch.randn(count, num_tokens * channels), torch.randn(count), torch.randn(heads, num_tokens)]

    def compute(tokens: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
        return gate_tokens(tokens, weight / 5, bias, beta, normalise)

    assert_alike(compute, tensors)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("nodes", "channels"), [(2, 3), (300, 8), (1000, 33)])
def test_norm_relu_and_residual_equal_torch(nodes: int, channels: int, training: bool, residual: bool) -> None:
    torch.manual_seed(nodes)
    x, rest = 3 * torch.randn(nodes, channels) + 50, torch.randn(nodes, channels)
    norms = []

    def compute(x: torch.Tensor, rest: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        norm = nn.BatchNorm1d(channels).to(x.dtype).train(training)
        norm.running_mean += 49
        del norm.weight, norm.bias
        norm.weight, norm.bias = weight, bias  # type: ignore[assignment]
        norms.append(norm)
        return finish_stage(x, rest if residual else None, norm, 0.0, training) + (0 if residual else rest)

    assert_alike(compute, [x, rest, torch.randn(channels), torch.randn(channels)])
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        assert torch.allclose(getattr(norms[0], name).double(), getattr(norms[1], name).double(), rtol=1e-4)


def test_dropout_keeps_the_mean_and_repeats_by_seed() -> None:
    norm, x = nn.BatchNorm1d(4), torch.randn(20_000, 4)
    whole = finish_stage(x, None, norm, 0.0, True)
    torch.manual_seed(3)
    x.requires_grad_()
    dropped = finish_stage(x, None, norm, 0.5, True)
    torch.manual_seed(3)
    assert torch.equal(dropped, finish_stage(x, None, norm, 0.5, True))
    kept = dropped != 0
    assert float((kept | (whole == 0)).float().mean()) == pytest.approx(0.75, abs=0.02)
    assert torch.allclose(dropped[kept], 2 * whole[kept])
    assert torch.equal(finish_stage(x, None, norm.eval(), 0.5, False), finish_stage(x, None, norm, 0.0, False))


def test_results_do_not_depend_on_threads() -> None:
    torch.manual_seed(0)
    tensors = [torch.randn(3000, 3, 16), torch.randn(6, 48), torch.randn(6), torch.randn(2, 3)]
    threads, results = torch.get_num_threads(), []
    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            results.append(gradients(lambda t, w, b, o: gate_tokens(t, w, b, o, True), tensors, torch.float32))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][4], results[1][4])
