"""The products of a block by the native kernel: linear layers, the order-wise MLPs and the FFN, each one function.

Bias, ReLU, the mask of ReLU's gradient and the sums of the bias's gradient are parts of a product here, and no tensor
is copied to change its layout. :func:`multiplies` tells whether the kernel takes the tensors; if not, callers compute
the same function with torch.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from polyformer.errors import KernelRefused
from polyformer.native import call
from polyformer.nn.functional import is_native

__all__ = ["apply_linear", "feed_forward", "layer_norm", "matmul", "multiplies", "order_mlps"]


def multiplies(*tensors: Tensor) -> bool:
    """Whether the native kernel multiplies these tensors: float32 on a processor for which it is compiled."""
    return is_native(*tensors) and _has_matmul()


def matmul(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    *,
    out: Tensor | None = None,
    gate: Tensor | None = None,
    b_sums: Tensor | None = None,
    relu: bool = False,
    accumulate: bool = False,
) -> Tensor:
    """``a @ b + bias`` for each group: (J, m, k), (J, k, n), (J, n) -> (J, m, n).

    Args:
        a: the numbers of its rows or of its columns lie side by side, as with ``b``.
        out: where to write; the numbers of its rows lie side by side.
        gate: the product becomes 0 where the gate is not above 0; laid out as the product.
        b_sums: (J, n), receives the sums of ``b`` over its rows.
        relu: give max(product, 0).
        accumulate: add the product to ``out``.
    """
    groups, m, k = a.shape
    n = b.shape[2]
    out = a.new_empty(groups, m, n) if out is None else out
    if b.shape[:2] != (groups, k) or out.shape != (groups, m, n):  # the kernel would read or write what is not there
        raise KernelRefused(f"Products need fitting shapes. Got {[tuple(x.shape) for x in (a, b, out)]}.")
    a, b = _with_unit_stride(a), _with_unit_stride(b)
    (a_group, a_row, a_column), (b_group, b_row, b_column) = a.stride(), b.stride()
    call(
        "matmul",
        groups=groups,
        m=m,
        n=n,
        k=k,
        a=a,
        a_group=a_group,
        a_row=a_row,
        a_column=a_column,
        b=b,
        b_group=b_group,
        b_row=b_row,
        b_column=b_column,
        c=out,
        c_group=out.stride(0),
        c_row=out.stride(1),
        bias=bias,
        gate=gate,
        b_sums=b_sums,
        relu=int(relu),
        accumulate=int(accumulate),
    )
    return out


def apply_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``torch.nn.functional.linear`` of any tensors."""
    tensors = (x, weight) if bias is None else (x, weight, bias)
    if not multiplies(*tensors) or not x.numel():
        return torch.nn.functional.linear(x, weight, bias)
    output: Tensor = _Linear.apply(x, weight, bias)
    return output


def order_mlps(tokens: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor) -> Tensor:
    """One MLP per order on tokens that :func:`multiplies` takes: (B, K+1, C) -> (K+1, B, out).

    Weights are (K+1, in, out), biases (K+1, 1, out).
    """
    output: Tensor = _OrderMLPs.apply(tokens, weight1, bias1, weight2, bias2)
    return output


def feed_forward(x: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor) -> Tensor:
    """Linear - GELU - Linear on tensors that :func:`multiplies` takes: (..., C) -> (..., C)."""
    output: Tensor = _FeedForward.apply(x, weight1, bias1, weight2, bias2)
    return output


def layer_norm(x: Tensor, norm: torch.nn.LayerNorm) -> tuple[Tensor, Tensor]:
    """``x`` and ``norm(x)``: a residual connection takes the former, whose gradient is then added without a pass."""
    if not is_native(x, norm.weight, norm.bias):
        return x, norm(x)
    outputs: tuple[Tensor, Tensor] = _LayerNorm.apply(x.contiguous(), norm.weight, norm.bias, norm.eps)
    return outputs


@cache
def _has_matmul() -> bool:
    try:
        matmul(torch.ones(1, 1, 1), torch.ones(1, 1, 1))
    except KernelRefused:
        return False
    return True


def _with_unit_stride(x: Tensor) -> Tensor:
    """The tensor, copied if neither its rows nor its columns lie side by side."""
    return x if 1 in x.stride()[1:] else x.contiguous()


def _rows(x: Tensor) -> Tensor:
    """(..., C) -> (1, rows, C), contiguous."""
    return x.reshape(1, -1, x.shape[-1]).contiguous()


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        return matmul(_rows(x), weight.t()[None], bias).view(*x.shape[:-1], len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        gradient, x_grad, weight_grad, bias_grad = _rows(gradients[0]), None, None, None
        if ctx.needs_input_grad[0]:
            x_grad = matmul(gradient, weight[None]).view_as(x)
        if ctx.needs_input_grad[1]:
            weight_grad, bias_grad = _weight_gradient(_rows(x), gradient, ctx.biased)
            weight_grad = weight_grad[0].t()
            bias_grad = None if bias_grad is None else bias_grad[0]
        return x_grad, weight_grad, bias_grad


class _OrderMLPs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor) -> Tensor:
        inner = matmul(tokens.transpose(0, 1), weight1, bias1.contiguous(), relu=True)  # (K+1, B, inner)
        ctx.save_for_backward(tokens, weight1, weight2, inner)
        return matmul(inner, weight2, bias2.contiguous())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        tokens, weight1, weight2, inner = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        weight2_grad, bias2_grad = _weight_gradient(inner, gradient)
        inner_grad = matmul(gradient, weight2.transpose(1, 2), gate=inner)
        weight1_grad, bias1_grad = _weight_gradient(tokens.transpose(0, 1), inner_grad)
        tokens_grad = None
        if ctx.needs_input_grad[0]:
            tokens_grad = torch.empty_like(tokens, memory_format=torch.contiguous_format)
            matmul(inner_grad, weight1.transpose(1, 2), out=tokens_grad.transpose(0, 1))
        return tokens_grad, weight1_grad, _middle(bias1_grad), weight2_grad, _middle(bias2_grad)


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor) -> Tensor:
        before = matmul(_rows(x), weight1.t()[None], bias1)  # (1, rows, ffn)
        after = torch.empty_like(before)
        call("gelu_forward", rows=before.shape[1], width=before.shape[2], x=before, out=after)
        ctx.save_for_backward(x, weight1, weight2, before, after)
        return matmul(after, weight2.t()[None], bias2).view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight1, weight2, before, after = ctx.saved_tensors
        gradient = _rows(gradients[0])
        weight2_grad, bias2_grad = _weight_gradient(after, gradient)
        inner_grad = matmul(gradient, weight2[None])
        call("gelu_backward", rows=before.shape[1], width=before.shape[2], x=before, grad=inner_grad)
        weight1_grad, bias1_grad = _weight_gradient(_rows(x), inner_grad)
        x_grad = matmul(inner_grad, weight1[None]).view(x.shape) if ctx.needs_input_grad[0] else None
        assert bias1_grad is not None
        assert bias2_grad is not None
        return x_grad, weight1_grad[0].t(), bias1_grad[0], weight2_grad[0].t(), bias2_grad[0]


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        width = x.shape[-1]
        ctx.sizes = {"rows": x.numel() // width, "width": width}
        statistics, out = x.new_empty(ctx.sizes["rows"], 2), torch.empty_like(x)
        call(
            "norm_forward", **ctx.sizes, x=x, weight=weight, bias=bias, epsilon=epsilon, statistics=statistics, out=out
        )
        ctx.save_for_backward(x, weight, statistics)
        return x.view_as(x), out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, statistics = ctx.saved_tensors
        x_grad, sums = torch.empty_like(x), x.new_empty(2, x.shape[-1])
        call(
            "norm_backward",
            **ctx.sizes,
            x=x,
            weight=weight,
            statistics=statistics,
            out_grad=gradients[1].contiguous(),
            residual_grad=gradients[0].contiguous(),
            x_grad=x_grad,
            sums=sums,
        )
        return x_grad, sums[0], sums[1], None


def _weight_gradient(x: Tensor, gradient: Tensor, biased: bool = True) -> tuple[Tensor, Tensor | None]:
    """The gradients of a weight (J, in, out) and of its bias (J, out), from the inputs and what comes back."""
    bias_grad = gradient.new_empty(len(gradient), gradient.shape[2]) if biased else None
    return matmul(x.transpose(1, 2), gradient, b_sums=bias_grad), bias_grad


def _middle(bias_grad: Tensor | None) -> Tensor | None:
    """(J, out) -> (J, 1, out)."""
    return None if bias_grad is None else bias_grad[:, None]
