"""What a stage of the cascade does between its matrix products, each in one or two passes over memory.

Float32 tensors on the CPU go to the native kernel, everything else through torch; both compute the same function and
its gradient. Dropout masks of the native path are hashes of a seed drawn from torch's generator.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from polyformer.native import call
from polyformer.nn.functional import Dropout, add_dropout, dropout_mask, is_native

__all__ = ["finish_stage", "gate_coefficients", "gate_tokens"]


def gate_tokens(tokens: Tensor, weight: Tensor, bias: Tensor, order_bias: Tensor, normalise: bool) -> Tensor:
    r"""α_k T_k with :math:`α_{hk} = β_{hk} \tanh(\mathrm{LN}([T_0 | … | T_K]) · w_{hk} + b_{hk})`, head by head.

    The products with w are taken of the tokens as they are: LN, which has no parameters here, is a shift and a scale of
    a node's row, which can be made good in the few scores of the node.

    Args:
        tokens: (N, K+1, C).
        weight, bias: w (H (K+1), (K+1) C) and b (H (K+1)).
        order_bias: β (H, K+1).
        normalise: whether there is LN.

    Returns:
        (N, K+1, C).
    """
    if is_native(tokens, order_bias):
        return _Gate.apply(tokens.contiguous(), weight.t(), bias, order_bias, normalise)
    alpha = gate_coefficients(tokens, weight, bias, order_bias, normalise).transpose(1, 2)  # (N, K+1, H)
    return (tokens.unflatten(2, (len(order_bias), -1)) * alpha[..., None]).flatten(2)


def gate_coefficients(tokens: Tensor, weight: Tensor, bias: Tensor, order_bias: Tensor, normalise: bool) -> Tensor:
    """α of :func:`gate_tokens`: (N, H, K+1)."""
    flat = tokens.flatten(1)
    flat = functional.layer_norm(flat, flat.shape[1:]) if normalise else flat
    return order_bias * functional.linear(flat, weight, bias).tanh().unflatten(1, order_bias.shape)


def finish_stage(x: Tensor, residual: Tensor | None, norm: nn.Module, dropout: float, training: bool) -> Tensor:
    """``residual + dropout(relu(norm(x)))``; without residual where it is None: (N, C) -> (N, C)."""
    if isinstance(norm, nn.BatchNorm1d) and is_native(x) and x.numel() < 2**32:
        return _finish_natively(x.contiguous(), residual, norm, dropout, training)
    out = norm(x).relu()
    if residual is None:
        return Dropout(dropout).train(training)(out)
    return add_dropout(residual, out, dropout, training)


def _finish_natively(
    x: Tensor, residual: Tensor | None, norm: nn.BatchNorm1d, dropout: float, training: bool
) -> Tensor:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    mean, variance = norm.running_mean, norm.running_var
    if training:
        mean, variance = _column_moments(x.detach())
        with torch.no_grad():
            momentum, count = norm.momentum or 0.0, len(x)
            norm.running_mean.lerp_(mean, momentum)
            norm.running_var.lerp_(variance * (count / max(1, count - 1)), momentum)
            if norm.num_batches_tracked is not None:
                norm.num_batches_tracked += 1
    inverse = (variance + norm.eps).rsqrt()
    mask = dropout_mask(dropout if training else 0.0)
    rest = None if residual is None else residual.contiguous()
    return _Finish.apply(x, rest, norm.weight, norm.bias, mean.clone(), inverse, mask, training)


def _column_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of every column, from sums around the first row: (N, C) -> (C,), (C,)."""
    rows, width = x.shape
    sums, centre = torch.empty(2, width), x[0].clone()
    call("column_moments", rows=rows, width=width, x=x, centre=centre, sums=sums)
    shift = sums[0] / rows
    return centre + shift, (sums[1] / rows - shift.square()).clamp_min(0)


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: Tensor, weight: Tensor, bias: Tensor, order_bias: Tensor, normalise: bool) -> Tensor:
        nodes, num_tokens, channels = tokens.shape
        heads = len(order_bias)
        ctx.sizes = {"nodes": nodes, "heads": heads, "tokens": num_tokens, "channels": channels}
        products = tokens.flatten(1) @ weight  # (N, H (K+1))
        statistics = torch.empty(nodes, 2) if normalise else None
        kept, out = torch.empty_like(products), torch.empty_like(tokens)
        arrays: dict[str, Any] = {
            "token_rows": tokens,
            "products": products,
            "weight_sums": weight.sum(dim=0) if normalise else torch.zeros(weight.shape[1]),
            "order_bias": order_bias.contiguous(),
            "statistics": statistics,
            "kept": kept,
        }
        call("gate_forward", **ctx.sizes, **arrays, bias=bias, out=out)
        ctx.arrays = arrays
        ctx.save_for_backward(weight)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (weight,), tokens = ctx.saved_tensors, ctx.arrays["token_rows"]
        token_grad, product_grad = torch.empty_like(tokens), torch.empty_like(ctx.arrays["products"])
        sums = torch.empty(3, weight.shape[1])
        call(
            "gate_backward",
            **ctx.sizes,
            **ctx.arrays,
            out_grad=gradients[0].contiguous(),
            token_grad=token_grad,
            product_grad=product_grad,
            sums=sums,
        )
        token_grad.flatten(1).addmm_(product_grad, weight.t())
        weight_grad = tokens.flatten(1).t() @ product_grad
        if ctx.arrays["statistics"] is not None:
            weight_grad += sums[2]
        return token_grad, weight_grad, sums[1], sums[0].view_as(ctx.arrays["order_bias"]), None


class _Finish(torch.autograd.Function):
    """residual + mask · relu((x - mean) / deviation · weight + bias); mean and deviation are those of x in training."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        residual: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        inverse: Tensor,
        mask: dict[str, Any],
        training: bool,
    ) -> Tensor:
        rows, width = x.shape
        scale = weight * inverse
        arrays: dict[str, Any] = {"x": x, "scale": scale, "shift": bias - mean * scale}
        out = torch.empty_like(x)
        call("finish_forward", rows=rows, width=width, **arrays, residual=residual, **mask, out=out)
        ctx.arrays, ctx.mask, ctx.training, ctx.has_residual = arrays, mask, training, residual is not None
        ctx.save_for_backward(mean, inverse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (mean, inverse), x, scale = ctx.saved_tensors, ctx.arrays["x"], ctx.arrays["scale"]
        rows, width = x.shape
        gradient, x_grad, sums = gradients[0].contiguous(), torch.empty_like(x), torch.empty(2, width)
        call(
            "finish_backward",
            rows=rows,
            width=width,
            **ctx.arrays,
            centre=mean,
            **ctx.mask,
            out_grad=gradient,
            out=x_grad,
            sums=sums,
        )
        factors = torch.zeros(3, width)
        factors[0] = scale
        if ctx.training:  # the mean and the deviation depend on x too
            factors[1] = -scale * inverse.square() * sums[1] / rows
            factors[2] = -scale * sums[0] / rows - mean * factors[1]
        call("combine_columns", rows=rows, width=width, factors=factors, x=x, out=x_grad)
        return x_grad, gradient if ctx.has_residual else None, inverse * sums[1], sums[0], None, None, None, None
